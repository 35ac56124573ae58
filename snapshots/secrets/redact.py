"""Secrets are replaced before anything is stored, each by a pseudonym that keeps its place.

`stillweb-secret-`, 24 hex digits of HMAC-SHA-256 over the secret, and a short proof (`stillweb.snapshots.secrets.proofs`): the same
secret has the same pseudonym in `Set-Cookie`, `Cookie`, URLs, headers and bodies of a snapshot, also after it is
reopened, so that replay fits together. It is a legal cookie value, header token and query value.

The key of the HMAC is not in the snapshot. A stored key, or a plain hash, would let anybody who gets the
snapshot try passwords against the pseudonyms until one fits; most passwords are weak enough for that. So one
master key lies in the user's state directory (mode 0600), and a snapshot's key is derived from it and from a
salt that the snapshot carries: two snapshots of one user share no pseudonym, and all that can be tried against
one is its proof. Another user who replays the snapshot needs no key: the proof tells the recorded secret from
others (`stillweb.snapshots.matching.recognising`), and `mask` makes requests comparable whatever secret is sent.

Nothing here does I/O but reading keys and keeping what was learned (`stillweb.snapshots.secrets.learned`). What has no secret in it is handed back as the same object.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from stillweb.snapshots.capture import Response
from stillweb.snapshots.http import encodings
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.secrets import credentials, proofs
from stillweb.snapshots.secrets.redaction_key import salt_of, snapshot_key
from stillweb.snapshots.secrets.sought import Sought

if TYPE_CHECKING:
    from stillweb.snapshots.secrets.learned import Learned

PREFIX = "stillweb-secret-"
MASK = PREFIX + "0" * 24
EVERYWHERE = 8  # shorter secrets are replaced in their own field only: "1234" is in every page
TEXTUAL = re.compile(r"text/|json|javascript|xml|x-www-form-urlencoded|graphql|x-ndjson", re.I)
LIMIT = 1 << 24  # a larger body is redacted as a stream

# ASCII: a no-break space in a raw value is none of its ends
_PAIR = re.compile(r"(?<![^?&;#])([^=&;?#/\s]{1,100})=([^&;#\s]+)", re.ASCII)
_PATH_PAIR = re.compile(r"(?<=;)([^=;/]{1,100})=([^;/]+)")
_USERINFO = re.compile(r"(?<=://)([^/?#@\s]+)@", re.ASCII)
_JSON_STRING = re.compile(rb'"([^"\\]{1,100})"\s*:\s*"((?:[^"\\]|\\.)*)"')
_PART_HEAD = rb'name="?([^"\r\n;]{1,100})"?[^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n'
PART = re.compile(_PART_HEAD + rb"(.*?)\r\n--", re.S)
_SHORT_PART = re.compile(_PART_HEAD + rb"(.{0,4096}?)\r\n--", re.S)
COOKIES = re.compile(r"(;[ \t]*)")  # between two cookies of a request; programs leave the space out
_STALE = frozenset({"content-md5", "digest", "repr-digest", "content-digest"})


class Redactor:
    """Replaces secrets in requests and answers; learns each one where its name or format gives it away.

    Safe for use from many threads. A secret is replaced everywhere in what comes after it was learned, in the
    forms it takes there (percent-encoded, JSON, HTML). `key` comes from `snapshot_key`.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._learned: Learned | None = None
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        self._sought = Sought()

    @classmethod
    def for_snapshot(cls, snapshot: Path, state: Path, *, keep: bool = False) -> Redactor:
        """The redactor of an open snapshot directory; `state` is the user's state directory.

        With `keep` it knows what an earlier one learned that nobody looked for, and what it learns is kept, too: see
        `stillweb.snapshots.secrets.learned`. Raises as `salt_of` and `snapshot_key`.
        """
        redactor = cls(snapshot_key(salt_of(snapshot), state))
        if keep:
            from stillweb.snapshots.secrets.learned import Learned

            learned = Learned(snapshot, redactor._key)
            for secret in learned.read()[0]:
                redactor.learn(secret)
            redactor._learned = learned
        return redactor

    @property
    def learned(self) -> Learned | None:
        """Where it keeps what it learns."""
        return self._learned

    @property
    def count(self) -> int:
        """How many secrets are known."""
        return len(self._names)

    def pseudonym(self, secret: str) -> str:
        """The name that stands for a secret; the same for the same secret, always."""
        digest = hmac.digest(self._key, secret.encode("utf-8", "surrogatepass"), "sha256")
        return PREFIX + digest.hex()[:24] + proofs.tail(secret, self._key)

    def learn(self, secret: str) -> str:
        """Remembers a secret, so that it is replaced from now on; returns its pseudonym."""
        known = self._names.get(secret)
        if known is not None:
            return known
        return self.remember(secret, self.pseudonym(secret))

    def remember(self, secret: str, name: str) -> str:
        """From now on the secret is replaced by that name."""
        with self._lock:
            # a word of a language would be found in every page; it is replaced in its own field alone
            if len(secret) >= EVERYWHERE and not re.fullmatch(r"[A-Za-z]{1,15}|[0-9]{1,9}", secret):
                if self._learned is not None and secret not in self._names:
                    self._learned.keep(secret)
                self._sought.add({form.encode(): name.encode() for form in _forms(secret)})
            self._names[secret] = name
        return name

    # -- whole messages

    def request(self, request: Request) -> Request:
        """The request with its secrets replaced; the same object when it holds none."""
        known = self.count
        replaced = self._request(request)
        # what one field gives away may stand in one before it
        return self._request(replaced) if self.count > known else replaced

    def _request(self, request: Request) -> Request:
        headers = self.headers(request.headers)
        url = self.url(request.url)
        body = request.body
        if body:
            body, headers = self._body(body, headers, self._learn_fields, sys.maxsize)
        if url is request.url and headers is request.headers and body is request.body:
            return request
        return replace(request, url=url, headers=headers, body=body)

    def response(self, response: Response) -> Response:
        """The answer with its secrets replaced; the same object when it holds none.

        A body is decoded to look into it, and encoded again only if something in it had to be replaced.
        """
        headers = self.headers(response.headers)
        body, headers = self._body(response.body, headers, self._learn_given, LIMIT)
        if headers is response.headers and body is response.body:
            return response
        return Response(response.status, response.reason, headers, body)

    def headers(self, headers: Headers) -> Headers:
        """Header fields with their secrets replaced: credentials, cookies, and what was learned elsewhere."""
        out = tuple((name, self._header(name, value)) for name, value in headers)
        return headers if out == headers else out

    def url(self, url: str) -> str:
        """A URL with its secrets replaced: user info, named query values, known formats, learned secrets."""
        out = url
        if "@" in out:
            out = _USERINFO.sub(self._userinfo, out)
        if "=" in out:
            at = next((i for i, c in enumerate(out) if c in "?#"), len(out))
            path = _PATH_PAIR.sub(self._pair, out[:at]) if ";" in out else out[:at]
            out = path + _PAIR.sub(self._pair, out[at:])
        out = self._text(out)
        return url if out == url else out

    # -- bodies

    def knows(self, pieces: Iterable[bytes]) -> bool:
        """Whether a secret that is known by now occurs in decoded bytes."""
        return self._sought.count > 0 and self._sought.occurs_in(pieces)

    def body(self, body: bytes) -> bytes:
        """A decoded body with every learned secret replaced; the same object when there is none."""
        return self._sought.replace(body)

    def pieces(self, pieces: Iterable[bytes], headers: Headers) -> Iterator[bytes] | None:
        """A large stored body, read twice: None when it holds no learned secret (keep the original bytes).

        `pieces` must be an iterable that can be started anew (a list, or an object whose `__iter__` rewinds).
        Otherwise the pieces of the new body, in the same content encoding; its headers are `altered(headers)`.
        """
        encoding = _get(headers, "content-encoding")
        if not self._sought.count:
            return None
        try:
            found = self._sought.occurs_in(encodings.decode_pieces(pieces, encoding))
        except encodings.EncodingProblem:
            encoding = None  # not what its header says: looked at as it is
            found = self._sought.occurs_in(pieces)
        if not found:
            return None
        plain = encodings.decode_pieces(pieces, encoding)
        return encodings.encode_pieces(self._sought.replace_pieces(plain), encoding)

    def _body(
        self, body: bytes, headers: Headers, learn: Callable[[bytes, str], bytes], limit: int
    ) -> tuple[bytes, Headers]:
        if not body:
            return body, headers
        encoding = _get(headers, "content-encoding")
        media = _get(headers, "content-type") or ""
        textual = TEXTUAL.search(media) is not None or media.startswith("multipart/") or not media
        if not textual and (not self._sought.count or not encodings.codings(encoding)):
            changed = self._sought.replace(body)
            return (body, headers) if changed is body else (changed, altered(headers, len(changed)))
        try:
            plain = encodings.decode(body, encoding)
        except encodings.EncodingProblem:
            plain, encoding = body, None
        learnt = learn(plain, media) if textual and len(body) <= limit else plain
        changed = self._sought.replace(learnt)
        if changed is plain or changed == plain:
            return body, headers
        packed = encodings.encode(changed, encoding)
        return packed, altered(headers, len(packed))

    def _learn_fields(self, body: bytes, media: str) -> bytes:
        """What a client sends: named fields of forms, multipart and JSON, and well-known formats."""
        kind = media.partition(";")[0].strip().lower()
        if kind.startswith("multipart/"):
            body = (PART if len(body) <= LIMIT else _SHORT_PART).sub(self._part, body)
        elif "json" in kind or body[:1] in (b"{", b"["):
            body = _JSON_STRING.sub(self._member, body)
        elif b"=" in body and (kind.endswith("urlencoded") or not kind or kind == "text/plain"):
            try:  # a secret in it is the one that others escape
                text, charset = body.decode(), "utf-8"
            except UnicodeDecodeError:
                text, charset = body.decode("latin-1"), "latin-1"
            changed = _PAIR.sub(self._form_pair, text)
            body = body if changed == text else changed.encode(charset)
        self._learn_formats(body)
        return body

    def _learn_given(self, body: bytes, media: str) -> bytes:
        """What a server hands out: tokens under a name that says so, in a form's hidden fields too, and well-known formats."""
        for match in credentials.given(body):
            value = match[2].decode("latin-1")
            if credentials.looks_random(value) and credentials.PSEUDONYM.fullmatch(match[2]) is None:
                self.learn(value)
        for value in credentials.held_by_forms(body):
            self.learn(value)
        if opened := credentials.OPENED.match(body):
            self.learn(opened[1].decode())
        self._learn_formats(body)
        return body

    def _learn_formats(self, data: bytes) -> None:
        for _, match in credentials.known_formats(data):
            self.learn(match[0].decode("latin-1"))

    # -- parts

    def _header(self, name: str, value: str) -> str:
        lower = name.lower()
        if lower == "cookie":
            parts = COOKIES.split(value)  # the cookies, and what is between them
            return "".join(part if at % 2 else self._cookie(part) for at, part in enumerate(parts))
        if lower == "set-cookie":
            first, semicolon, rest = value.partition(";")
            return self._cookie(first) + semicolon + rest
        if credentials.secret_header(lower, value):
            return self._credential(lower, value)
        if ("=" in value or "@" in value) and "://" in value:
            return self.url(value)
        if "=" in value and ("?" in value or lower in ("location", "content-location", "link", "refresh")):
            return self.url(value)  # HX-Redirect and others name one without a host
        return self._text(value)

    def _credential(self, name: str, value: str) -> str:
        scheme, space, rest = value.partition(" ")
        if not space or not name.endswith("authorization"):
            return self.learn(value)
        rest = rest.strip()
        if scheme.lower() == "basic" and (password := _basic_password(rest)):
            self.learn(password)
        return f"{scheme} {self.learn(rest)}"

    def _cookie(self, pair: str) -> str:
        name, equals, value = pair.partition("=")
        bare = value.strip().strip('"')
        if equals and credentials.secret_cookie(name.strip(), bare):
            return f"{name}={self.learn(bare)}"
        return self._text(pair)

    def _userinfo(self, match: re.Match[str]) -> str:
        user, colon, password = match[1].partition(":")
        if not colon or not password or PREFIX in password:
            return match[0]
        return f"{user}:{self.learn(unquote(password))}@"

    def _pair(self, match: re.Match[str]) -> str:
        return self._named(match, unquote)

    def _form_pair(self, match: re.Match[str]) -> str:
        return self._named(match, unquote_plus)

    def _named(self, match: re.Match[str], decode: Callable[[str], str]) -> str:
        if not credentials.secret_field(match[1], match[2]):
            return match[0]
        return f"{match[1]}={self.learn(decode(match[2]))}"

    def _member(self, match: re.Match[bytes]) -> bytes:
        value = match[2].decode("utf-8", "replace")
        if not credentials.secret_field(match[1].decode("utf-8", "replace"), value):
            return match[0]
        at = match.start(2) - match.start()
        name = self.learn(_unescaped(value)).encode()
        return match[0][:at] + name + b'"'

    def _part(self, match: re.Match[bytes]) -> bytes:
        value = match[2].decode("utf-8", "replace")
        if len(value) > 4096 or not credentials.secret_field(match[1].decode("utf-8", "replace"), value):
            return match[0]
        at = match.start(2) - match.start()
        return match[0][:at] + self.learn(value).encode() + b"\r\n--"

    def _text(self, text: str) -> str:
        """Header and URL text: known formats are learned, learned secrets replaced."""
        data = text.encode("utf-8", "surrogateescape")
        if len(data) >= EVERYWHERE * 2:
            self._learn_formats(data)
        changed = self._sought.replace(data)
        return text if changed is data else changed.decode("utf-8", "surrogateescape")


def altered(headers: Headers, length: int | None = None) -> Headers:
    """The headers of a body that was changed: its length is new, digests of the old bytes are gone.

    Without `length` (a stream) the Content-Length is left out, for the writer to put right.
    """
    out = [(n, v) for n, v in headers if n.lower() not in _STALE and n.lower() != "content-length"]
    if length is not None:
        out.append(("Content-Length", str(length)))
    return tuple(out)


class _Masker(Redactor):
    """Every secret gets the same name; nothing is learned."""

    def __init__(self) -> None:
        super().__init__(b"")

    def learn(self, secret: str) -> str:
        return MASK

    def _text(self, text: str) -> str:
        return credentials.PSEUDONYM_TEXT.sub(MASK, text)


def mask(request: Request) -> Request:
    """The request with every secret, or its pseudonym, replaced by one constant (`MASK`).

    So a replayed request with another password, or by a user who has another key, can be compared with a
    recorded one. Two requests that differ only in a secret become the same: a caller must say so (a rule).
    """
    masker = _Masker()
    masked = masker.request(request)
    body = credentials.PSEUDONYM.sub(MASK.encode(), masked.body)
    return masked if body == masked.body else replace(masked, body=body)


def _get(headers: Headers, name: str) -> str | None:
    return next((v for n, v in headers if n.lower() == name), None)


def _forms(secret: str) -> set[str]:
    """The forms a secret takes in URLs, forms, JSON and HTML."""
    json_text = secret.replace("\\", "\\\\").replace('"', '\\"')
    forms = {secret, quote(secret, safe=""), quote_plus(secret, safe=""), quote(secret), json_text}
    forms |= {json_text.replace("/", "\\/"), escape(secret), unquote(secret)}
    return {form for form in forms if len(form) >= EVERYWHERE}


def _unescaped(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text


def _basic_password(encoded: str) -> str:
    try:
        return base64.b64decode(encoded, validate=True).decode("utf-8", "replace").partition(":")[2]
    except (binascii.Error, ValueError):
        return ""
