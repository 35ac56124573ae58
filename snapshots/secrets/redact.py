"""Replacement of secrets by pseudonyms in messages, before anything is stored.

A pseudonym is `stillweb-secret-`, 24 hex digits of HMAC-SHA-256 over the secret, and a short proof
(`stillweb.snapshots.secrets.keystore`). The same secret has the same pseudonym in `Set-Cookie`, `Cookie`, URLs, headers
and bodies of a snapshot, also after it is reopened, so that recorded messages fit together in replay. A pseudonym is a
legal cookie value, header token and query value.

The key of the HMAC is not in the snapshot. A stored key, or a plain hash, would let anybody who gets the
snapshot try passwords against the pseudonyms until one fits; most passwords are weak enough for that. So one
master key is stored in the user's state directory (mode 0600), and a snapshot's key is derived from it and from a
salt that the snapshot carries. Two snapshots of one user share no pseudonym, and guesses can only be tested against
the proof. Another user who replays the snapshot needs no key: the proof tells the recorded secret from
others (`stillweb.snapshots.identity.recognising`), and `mask` makes requests comparable whatever secret is sent.

The only I/O is to read keys and to store learned secrets (`keystore.SecretFile`). Messages without secrets are returned
as the same object. `stillweb.snapshots.secrets.detect` decides which names and formats are secrets.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from html import escape
from pathlib import Path
from string import ascii_letters
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus

import ahocorasick_rs

from stillweb.snapshots.capture import Response
from stillweb.snapshots.http import encodings
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.secrets import detect
from stillweb.snapshots.secrets.keystore import SecretFile, proof_tail, salt_of, snapshot_key
from stillweb.snapshots.yielding import cut_at

PREFIX = "stillweb-secret-"
MASK = PREFIX + "0" * 24
_WORDS = ascii_letters.encode() + b"0123456789_.-"  # of a pseudonym, and of a token's claims before it
_WORD = re.compile(b"[" + re.escape(_WORDS) + b"]*")
EVERYWHERE = 8  # characters; shorter secrets are replaced in their own field only: "1234" is in every page
TEXTUAL = re.compile(
    r"text/|json|javascript|xml|yaml|toml|/sql|x-www-form-urlencoded|graphql|x-ndjson|mpegurl", re.I
)
# Binary types that may contain texts. Pictures, fonts and films are only searched for known secrets.
BINARY = re.compile(r"multipart/|octet-stream|msgpack|messagepack|cbor|bson|protobuf|grpc", re.I)
LIMIT = 1 << 24  # bytes; a larger body is redacted as a stream

# re.ASCII: a no-break space doesn't end a raw value
_PAIR = re.compile(r"(?<![^?&;#])([^=&;?#/\s]{1,100})=([^&;#\s]+)", re.ASCII)
_ITEM = re.compile(r"[^,\s]+")
_PACKED = re.compile(r"%3D|%22|%3A%2F%2F", re.I)  # in values that may contain fields of their own
_LONG_PATH = 28  # characters of the shortest URL with a secret in its path, after "http://a/hook/"
_PATH_PAIR = re.compile(r"(?<=;)([^=;/]{1,100})=([^;/]+)")
_SIGNED = re.compile(r"(eyJ[A-Za-z0-9_-]+\.eyJ[A-Za-z0-9_-]+\.)[A-Za-z0-9_-]{16,}")
_JSON_TOKEN = re.compile(r"(eyJ[A-Za-z0-9_-]{20,8192})={0,2}(?:\.[A-Za-z0-9_-]{16,}={0,2})?")
_USERINFO = re.compile(r"(?<=://)([^/?#@\s]+)@", re.ASCII)
_PART_NAME = re.compile(rb"""\bname\*?="?(?:utf-8'[\w-]{0,20}')?([^"\r\n;]{1,100})""")
COOKIES = re.compile(r"(;[ \t]*)")  # between two cookies of a request; some programs leave the space out
_STALE = frozenset({"content-md5", "digest", "repr-digest", "content-digest"})


class Redactor:
    """A replacer of secrets in requests and answers by pseudonyms, which learns new ones by their name or format.

    Safe for use from many threads. A learned secret is replaced everywhere in later messages, in all of its
    encodings (percent-encoded, JSON, HTML). `key` comes from `snapshot_key`.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._learned: SecretFile | None = None
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        self._sought = ReplacementSet()
        self._fields: set[str] = set()  # of forms that hold a password, whatever their name

    @classmethod
    def for_snapshot(
        cls, snapshot: Path, state: Path, *, keep: bool = False, key: bytes | None = None
    ) -> Redactor:
        """Return the redactor of an open snapshot directory; `state` is the user's state directory.

        `key` is that of the pseudonyms where it is known, so that `state` is not read. With `keep=True` it starts with the secrets in the snapshot's `keystore.SecretFile`, and stores new ones there.
        Raises DamagedInput and OSError like `salt_of` and `snapshot_key`.
        """
        redactor = cls(key or snapshot_key(salt_of(snapshot), state))
        if keep:
            learned = SecretFile(snapshot, redactor._key)
            for secret in learned.read()[0]:
                redactor.learn(secret)
            redactor._learned = learned
        return redactor

    @property
    def learned(self) -> SecretFile | None:
        """File in which learned secrets are stored; None without `keep`."""
        return self._learned

    @property
    def count(self) -> int:
        """Number of known secrets."""
        return len(self._names)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Known secrets, in the order in which they were learned."""
        return tuple(self._names)

    def pseudonym(self, secret: str) -> str:
        """Return the pseudonym of a secret, which depends on the key and the secret alone."""
        digest = hmac.digest(self._key, secret.encode("utf-8", "surrogatepass"), "sha256")
        return claims_of(secret) + PREFIX + digest.hex()[:24] + proof_tail(secret, self._key)

    def learn(self, secret: str) -> str:
        """Replace a secret by its pseudonym from now on; return the pseudonym."""
        known = self._names.get(secret)
        if known is not None:
            return known
        return self.remember(secret, self.pseudonym(secret))

    def remember(self, secret: str, name: str) -> str:
        """Replace a secret by `name` from now on; return `name`."""
        with self._lock:
            # a word or a number occurs in every page: it is replaced in its own field only
            if len(secret) >= EVERYWHERE and not re.fullmatch(r"[A-Za-z]{1,15}|[0-9]{1,9}", secret):
                if self._learned is not None and secret not in self._names:
                    self._learned.keep(secret)
                self._sought.add({form.encode(): name.encode() for form in _forms(secret)})
            self._names[secret] = name
        return name

    def found(self, kind: str, secret: str) -> str:
        """Learn a secret found in a message; return its replacement.

        `kind` says where it was found, for subclasses that report it.
        """
        return self.learn(secret)

    # -- whole messages

    def request(self, request: Request) -> Request:
        """Replace the secrets in a request; return the same object if it has none."""
        request = request.signed_in()
        known = self.count
        replaced = self._request(request)
        # a secret found in one field may also be in a field before it
        return self._request(replaced) if self.count > known else replaced

    def _request(self, request: Request) -> Request:
        headers = self.headers(request.headers)
        url = self.url(request.url)
        body = request.body
        if body:
            coding = encodings.request_coding(body, _get(headers, "content-encoding"))
            body, headers = self._body(body, headers, coding, self._learn_fields, sys.maxsize)
        if url is request.url and headers is request.headers and body is request.body:
            return request
        return replace(request, url=url, headers=headers, body=body)

    def response(self, response: Response) -> Response:
        """Replace the secrets in an answer; return the same object if it has none.

        A body is decoded to be searched, and encoded again only if it had a secret.
        """
        headers = self.headers(response.headers)
        coding = _get(headers, "content-encoding")
        body, headers = self._body(response.body, headers, coding, self._learn_given, LIMIT)
        if headers is response.headers and body is response.body:
            return response
        return Response(response.status, response.reason, headers, body)

    def headers(self, headers: Headers) -> Headers:
        """Replace the secrets in header fields: credentials, cookies, and known secrets."""
        out = tuple((name, self._header(name, value)) for name, value in headers)
        return headers if out == headers else out

    def url(self, url: str) -> str:
        """Replace the secrets in a URL: user info, named query values, path segments, formats, known secrets."""
        out = url
        if "@" in out:
            out = _USERINFO.sub(self._userinfo, out)
        if "=" in out:
            at = next((i for i, c in enumerate(out) if c in "?#"), len(out))
            path = _PATH_PAIR.sub(self._pair, out[:at]) if ";" in out else out[:at]
            out = path + _PAIR.sub(self._pair, out[at:])
        if len(out) >= _LONG_PATH:
            out = self._path(out)
        out = self._text(out)
        return url if out == url else out

    def text(self, text: str) -> str:
        """Replace the secrets in a URL, a command or any other text."""
        data = (self.url(text) if "://" in text else text).encode("utf-8", "surrogatepass")
        data = self._learn_text(data, sent=True)
        for kind, secret in list(detect.known_formats(data)):
            data = data.replace(secret, self.found(kind, secret.decode("latin-1")).encode())
        return data.decode("utf-8", "surrogatepass")

    def value(self, value: Any, name: str = "") -> Any:
        """Replace the secrets in the texts of a JSON value, such as settings; `name` is that of its member."""
        if isinstance(value, str):
            return self.found(name, value) if detect.secret_field(name, value) else self.text(value)
        if isinstance(value, Mapping):
            return {member: self.value(one, member) for member, one in value.items()}
        if not isinstance(value, list | tuple):
            return value
        out = [self.value(one, name) for one in value]
        # in a list of arguments, one may be the value of the one before it
        if out and all(isinstance(one, str) for one in out):
            return json.loads(self.body(self._learn_text(json.dumps(out).encode(), sent=True)))
        return out

    # -- bodies

    def knows(self, pieces: Iterable[bytes]) -> bool:
        """Return True if a known secret occurs in decoded bytes."""
        return self._sought.count > 0 and self._sought.occurs_in(pieces)

    def body(self, body: bytes) -> bytes:
        """Replace the known secrets in a decoded body; return the same object if it has none."""
        return self._sought.replace(body)

    def pieces(self, pieces: Iterable[bytes], headers: Headers) -> Iterator[bytes] | None:
        """Replace the known secrets in a large stored body; return None if it has none, else the new pieces.

        `pieces` is read twice, so it must be a list, or an object whose `__iter__` rewinds. The new body has the same
        content encoding; its headers are `with_new_length(headers)`.
        """
        encoding = _get(headers, "content-encoding")
        if not self._sought.count:
            return None
        try:
            found = self._sought.occurs_in(encodings.decode_pieces(pieces, encoding))
        except encodings.EncodingProblem:
            encoding = None  # not encoded as its header says: search the bytes as they are
            found = self._sought.occurs_in(pieces)
        if not found:
            return None
        plain = encodings.decode_pieces(pieces, encoding)
        return encodings.encode_pieces(self._sought.replace_pieces(plain), encoding)

    def _body(
        self,
        body: bytes,
        headers: Headers,
        encoding: str | None,
        learn: Callable[[bytes, str], bytes],
        limit: int,
    ) -> tuple[bytes, Headers]:
        if not body:
            return body, headers
        media = _get(headers, "content-type") or ""
        textual = not media or TEXTUAL.search(media) is not None or BINARY.search(media) is not None
        if not textual and (not self._sought.count or not encodings.codings(encoding)):
            changed = self._sought.replace(body)
            return (body, headers) if changed is body else (changed, with_new_length(headers, len(changed)))
        try:
            plain = encodings.decode(body, encoding)
        except encodings.EncodingProblem:
            plain, encoding = body, None
        learnt = learn(plain, media) if textual and len(body) <= limit else plain
        changed = self._sought.replace(learnt)
        if changed is plain or changed == plain:
            return body, headers
        packed = encodings.encode(changed, encoding)
        return packed, with_new_length(headers, len(packed))

    def _learn_fields(self, body: bytes, media: str) -> bytes:
        """Replace the named secrets in a request's body, and learn those of well-known formats."""
        kind = media.partition(";")[0].strip().lower()
        if kind.startswith("multipart/"):
            body = b"\r\n--".join(map(self._part, body.split(b"\r\n--")))
        elif body[:1] in (b"{", b"["):
            pass  # JSON, no form
        elif b"=" in body and (kind.endswith("urlencoded") or not kind or kind == "text/plain"):
            try:  # `latin-1` if it is no UTF-8, so that a secret is the same text as elsewhere
                text, charset = body.decode(), "utf-8"
            except UnicodeDecodeError:
                text, charset = body.decode("latin-1"), "latin-1"
            changed = "&".join([_PAIR.sub(self._form_pair, piece) for piece in cut_at("&", text)])
            body = body if changed == text else changed.encode(charset)
        return self._learn_text(body, sent=True)

    def _learn_given(self, body: bytes, media: str) -> bytes:
        """Replace the named secrets in an answer's body, and learn those in forms and of well-known formats."""
        for value in detect.secrets_in_forms(body):
            self.found("hidden field", value)
        self._fields.update(detect.password_fields(body))
        if opened := detect.OPENED.match(body):
            self.found("member sid", opened[1].decode())
        return self._learn_text(body, sent=False)

    def _learn_text(self, body: bytes, *, sent: bool) -> bytes:
        self._learn_formats(body)
        if sent and b"PRIVATE KEY" in body:  # in answers the gate reports private keys
            for match in detect.PRIVATE_KEY.finditer(body):
                self.found("private key", match[0].decode("latin-1"))
        body = self._replaced(body, detect.in_columns(body, sent=sent))
        return self._replaced(body, detect.named_secrets(body, sent=sent))

    def _replaced(self, body: bytes, found: Iterable[detect.NamedSecret]) -> bytes:
        out, at = [], 0
        for one in found:
            name = self.found(f"member {one.name}", one.value).encode()
            out += [body[at : one.start], one.quote + name + one.quote]
            at = one.end
        return b"".join((*out, body[at:])) if out else body

    def _learn_formats(self, data: bytes) -> None:
        for kind, text in detect.known_formats(data):
            self.found(kind, text.decode("latin-1"))
        for begin, end in detect.user_info(data):
            if not detect.PSEUDONYM.search(data, begin, end):
                self.found("password", unquote(data[begin:end].decode("utf-8", "replace")))

    # -- parts

    def _header(self, name: str, value: str) -> str:
        lower = name.lower()
        if lower == "cookie":
            parts = COOKIES.split(value)  # cookies at even indexes, separators at odd ones
            return "".join(part if at % 2 else self._cookie(part) for at, part in enumerate(parts))
        if lower == "set-cookie":
            first, semicolon, rest = value.partition(";")
            return self._cookie(first) + semicolon + rest
        if detect.secret_header(lower, value):
            return self._credential(lower, value)
        if lower == "sec-websocket-protocol":  # the one field in which a page can send a token of its own
            return _ITEM.sub(self._subprotocol, self._text(value))
        if ("=" in value or "@" in value) and "://" in value:
            return self.url(value)
        if ("=" in value and "?" in value) or lower in ("location", "content-location", "link", "refresh"):
            return self.url(value)  # HX-Redirect and others have a URL without a host
        if '"' in value:  # JSON
            value = self._learn_text(value.encode("utf-8", "surrogateescape"), sent=True).decode(
                "utf-8", "surrogateescape"
            )
        return self._text(value)

    def _subprotocol(self, item: re.Match[str]) -> str:
        drawn = detect.looks_drawn(item[0]) and not detect.PSEUDONYM_TEXT.search(item[0])
        return self.found("credential", item[0]) if drawn else item[0]

    def _credential(self, name: str, value: str) -> str:
        scheme, space, rest = value.partition(" ")
        if not space or not name.endswith("authorization"):
            return self.found("credential", value)
        rest = rest.strip()
        if scheme.lower() == "basic" and (password := basic_password(rest)):
            self.found("password", password)
        who = detect.signer(value)
        kept = f'who="{who}", ' if who else ""
        return f"{scheme} {kept}{self.found('credential', rest)}"

    def _cookie(self, pair: str) -> str:
        name, equals, value = pair.partition("=")
        bare = value.strip().strip('"')
        if equals and detect.secret_cookie(name.strip(), bare):
            return f"{name}={self.found('session cookie', bare)}"
        return self._text(self._unpacked(pair, name, value, unquote))

    def _userinfo(self, match: re.Match[str]) -> str:
        user, colon, password = match[1].partition(":")
        if PREFIX in match[1]:
            return match[0]
        if detect.looks_random(user) and "@" not in user:  # GitHub and Stripe take a token as user name
            user = self.found("password", unquote(user))
        return f"{user}:{self.found('password', unquote(password))}@" if password else f"{user}{colon}@"

    def _path(self, url: str) -> str:
        at = next((i for i, c in enumerate(url) if c in "?#"), len(url))
        for begin, end in reversed(list(detect.in_path(url[:at]))):
            url = url[:begin] + self.found("secret in the path", unquote(url[begin:end])) + url[end:]
        return url

    def _pair(self, match: re.Match[str]) -> str:
        return self._named(match, unquote, "value of")

    def _form_pair(self, match: re.Match[str]) -> str:
        return self._named(match, unquote_plus, "field")

    def _named(self, match: re.Match[str], decode: Callable[[str], str], kind: str) -> str:
        name, value = match[1], match[2]
        key = detect.without_scope(name, value)
        if self._secret(name, key, form=kind == "field"):
            return f"{name}={self.found(f'{kind} {name}', decode(key))}{value[len(key) :]}"
        return self._unpacked(match[0], name, value, decode)

    def _unpacked(self, pair: str, name: str, value: str, decode: Callable[[str], str]) -> str:
        """Return a pair with the secrets replaced in the URL or JSON that its value may be."""
        if "%" not in value or not _PACKED.search(value):
            return pair
        plain = decode(value)
        if "://" in plain or plain[:1] == "/":
            changed = self.url(plain)
        else:
            changed = self._learn_text(plain.encode("utf-8", "surrogateescape"), sent=True).decode(
                "utf-8", "surrogateescape"
            )
        return pair if changed == plain else f"{name}={quote(changed, safe='')}"

    def _secret(self, name: str, value: str, *, form: bool) -> bool:
        if form and unquote_plus(name) in self._fields and PREFIX not in value:
            return True
        return detect.secret_field(name, value)

    def _part(self, part: bytes) -> bytes:
        head, blank, content = part.partition(b"\r\n\r\n")
        named = _PART_NAME.search(head)
        if named is not None and 0 < len(content) <= 4096:
            name, value = named[1].decode("utf-8", "replace"), content.decode("utf-8", "replace")
            key = detect.without_scope(name, value)
            if self._secret(name, key, form=True):
                return head + blank + (self.found(f"field {name}", key) + value[len(key) :]).encode()
        return head + blank + self._replaced(content, detect.in_columns(content, sent=True))

    def _text(self, text: str) -> str:
        """Learn the secrets of well-known formats in a header or URL; return it with the known secrets replaced."""
        how = "surrogateescape"
        try:
            data = text.encode("utf-8", how)
        except UnicodeEncodeError:  # a caller's address, which no bytes on the wire give
            how = "surrogatepass"
            data = text.encode("utf-8", how)
        if len(data) >= EVERYWHERE * 2:
            self._learn_formats(data)
        changed = self._sought.replace(data)
        return text if changed is data else changed.decode("utf-8", how)


def with_new_length(headers: Headers, length: int | None = None) -> Headers:
    """Return the headers for a changed body: with its length, without the digests of the old bytes.

    Without `length` (a stream) there is no Content-Length, and the writer adds it.
    """
    out = [(n, v) for n, v in headers if n.lower() not in _STALE and n.lower() != "content-length"]
    if length is not None:
        out.append(("Content-Length", str(length)))
    return tuple(out)


class _Masker(Redactor):
    """Redactor for one message that replaces every secret by `MASK`, wherever it occurs."""

    def __init__(self) -> None:
        super().__init__(b"")

    def pseudonym(self, secret: str) -> str:
        return MASK

    def _text(self, text: str) -> str:
        return detect.PSEUDONYM_TEXT.sub(MASK, super()._text(text))


def mask(request: Request) -> Request:
    """Replace every secret and every pseudonym in a request by one constant (`MASK`).

    So a replayed request with another password, or by a user who has another key, can be compared with a
    recorded one. Two requests that differ only in a secret become the same, which a caller must report (as a rule).
    """
    return request.derived("masked", _masked)


def _masked(request: Request) -> Request:
    masker = _Masker()
    masked = masker.request(request)
    body = mask_pseudonyms(masked.body)
    return masked if body == masked.body else replace(masked, body=body)


def mask_pseudonyms(data: bytes) -> bytes:
    """Replace every pseudonym in a text by `MASK`."""
    out, at = [], 0
    # the pattern takes 50 ms of 1 MB, in which no other thread runs: only the words with a pseudonym are searched by it
    while (found := data.find(PREFIX.encode(), at)) >= 0:
        begin = at + len(data[at:found].rstrip(_WORDS))
        end = _WORD.match(data, found).end()  # type: ignore[union-attr]
        for one in detect.PSEUDONYM.finditer(data, begin, end):
            out += [data[at : one.start()], MASK.encode()]
            at = one.end()
        out.append(data[at:end])
        at = end
    return b"".join((*out, data[at:])) if out else data


def mask_value(value: Any) -> Any:
    """Replace every secret and every pseudonym in a JSON value, such as a URL or settings, by `MASK`."""
    return _Masker().value(value)


def _get(headers: Headers, name: str) -> str | None:
    return next((v for n, v in headers if n.lower() == name), None)


def _forms(secret: str) -> set[str]:
    """Return the encodings of a secret in URLs, forms, JSON and HTML, without those under 8 characters."""
    json_text = json.dumps(secret, ensure_ascii=False)[1:-1]
    forms = {secret, quote(secret, safe=""), quote_plus(secret, safe=""), quote(secret), json_text}
    forms |= {json_text.replace("/", "\\/"), escape(secret), unquote(secret)}
    return {form for form in forms if len(form) >= EVERYWHERE}


def claims_of(secret: str) -> str:
    """Return a token's claims, which its page can read, as JSON in Base64; "" for any other secret, and if they hold one.

    Of a JSON web token this is all up to the signature, without which it opens nothing (RFC 7515, 5.2). Another token of
    JSON, signed or not, keeps its numbers, and its texts are emptied: Bokeh's page reads when its session ends.
    """
    found = _SIGNED.fullmatch(secret)
    if found is None:
        return _numbers_of(secret)
    try:
        head, claims = (base64.urlsafe_b64decode(part + "===") for part in found[1].split(".")[:2])
        parts = [json.loads(part) for part in (head, claims)]
    except (binascii.Error, ValueError):
        return ""
    bare = all(isinstance(one, dict) for one in parts) and not any(detect.named_secrets(claims, sent=True))
    return found[1] if bare and not detect.has_format(claims) else ""


def _numbers_of(secret: str) -> str:
    found = _JSON_TOKEN.fullmatch(secret)
    try:
        header = json.loads(base64.urlsafe_b64decode(found[1] + "===")) if found else None
    except (binascii.Error, ValueError, RecursionError):
        return ""
    if not isinstance(header, dict):
        return ""
    bare = {name: value if isinstance(value, int | float) else "" for name, value in header.items()}
    text = json.dumps(bare, separators=(",", ":")).encode()
    if any(detect.named_secrets(text, sent=True)) or detect.has_format(text):
        return ""
    return base64.urlsafe_b64encode(text).decode().rstrip("=") + "."


def basic_password(encoded: str) -> str:
    """Return the password in the credentials of Basic authentication (RFC 7617); "" if there is none."""
    try:
        return base64.b64decode(encoded, validate=True).decode("utf-8", "replace").partition(":")[2]
    except (binascii.Error, ValueError):
        return ""


# -- many strings at once


class _Strings:
    """Byte strings with their replacements, found by the automaton of Aho and Corasick; at a place the longest counts."""

    def __init__(self, names: dict[bytes, bytes]) -> None:
        self.names = names

    @cached_property
    def longest(self) -> int:
        return max(map(len, self.names), default=0)

    @cached_property
    def _automaton(self) -> ahocorasick_rs.BytesAhoCorasick:
        # of the implementations that search 1 MB for a thousand strings in 10 ms, the one that is built soonest, in 4 ms
        return ahocorasick_rs.BytesAhoCorasick(
            list(self.names),
            ahocorasick_rs.MatchKind.LeftmostLongest,
            ahocorasick_rs.Implementation.ContiguousNFA,
        )

    def places(self, data: bytes) -> list[tuple[int, int]]:
        """Return start and end of the strings in `data`."""
        if not self.names:
            return []
        return [(start, end) for _, start, end in self._automaton.find_matches_as_indexes(data)]

    def replace(self, data: bytes, before: int) -> tuple[bytes, int]:
        """Replace every string that begins `before` an offset; return what comes of it, and where the rest begins."""
        out, at = [], 0
        for start, end in self.places(data):
            if start < before:
                out += [data[at:start], self.names[data[start:end]]]
                at = end
        rest = max(at, before)
        return b"".join((*out, data[at:rest])) if out else data[:rest], rest


class ReplacementSet:
    """A growing set of byte strings with their replacements. Readers never wait for `add`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._strings = _Strings({})

    def __copy__(self) -> ReplacementSet:
        own = ReplacementSet()
        own._strings = self._strings
        return own

    @property
    def count(self) -> int:
        """Number of strings."""
        return len(self._strings.names)

    def add(self, names: dict[bytes, bytes]) -> None:
        """Add strings with their replacements; known strings keep theirs."""
        with self._lock:
            if names.keys() - self._strings.names.keys():
                self._strings = _Strings(names | self._strings.names)

    def replace(self, data: bytes) -> bytes:
        """Replace every string in `data`, longer ones first; return the same object if none occurs."""
        return self._strings.replace(data, len(data))[0]

    def replace_pieces(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Replace every string in the joined pieces; only hold back twice the length of the longest string."""
        kept = b""
        for piece in pieces:
            kept += piece
            strings = self._strings
            if len(kept) >= 2 * strings.longest:
                # a string that begins before the last `longest` bytes ends in them, and so does a longer one there
                done, rest = strings.replace(kept, len(kept) - strings.longest + 1)
                yield done
                kept = kept[rest:]
        if kept:
            yield self.replace(kept)

    def occurs_in(self, pieces: Iterable[bytes]) -> bool:
        """Return True if any string occurs in the joined pieces."""
        kept = b""
        for piece in pieces:
            kept += piece
            strings = self._strings
            if strings.places(kept):
                return True
            kept = kept[-(strings.longest - 1) :] if strings.longest > 1 else b""
        return False
