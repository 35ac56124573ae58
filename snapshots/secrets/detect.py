"""Detection of secrets in messages, by well-known formats and by the names of fields.

Each name is judged alike wherever it occurs (`secret_field`, `is_secret_member`), and one search (`named_secrets`) covers every
syntax: a JSON member at any depth, also in a string of JSON, an element or attribute of XML, a literal of GraphQL, a
list of names and values, an argument of a command, a line of a header, a MessagePack, CBOR or BSON string, a query in
an answer's address. The columns of a table have a search of their own (`in_columns`). The recorder replaces the secrets
that are found here; the gate reports them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from heapq import merge
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import ahocorasick_rs

from stillweb.snapshots.cache import cached
from stillweb.snapshots.words import texts_in

# A format begins at the start of a word, or right after an escape (`\n`, `\u003d`, `%3D`), whose letters are no part
# of the word. In Telegram's paths the bot's token follows "/bot". In protobuf a text follows its length, which may be a
# letter, and its field's tag: a control character, or a quote for the fourth.
_EDGE = (
    r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt])|(?<=\\u[0-9a-fA-F]{4})|(?<=%[0-9A-Fa-f]{2})|(?<=/bot)"
    r'|(?<=[\x00-\x08\n-\x0c\x0e-\x1f"][A-Za-z0-9_-]))'
)
# Pseudonyms in older snapshots lack the proof at the end.
# The pattern of a JSON web token begins with what its page can read, at an edge: else a body of "eyJeyJ…" takes the square of its length.
_JWT = r"[A-Za-z0-9_-]+\.(?:eyJ[A-Za-z0-9_-]+\.)?"
_PSEUDONYM = rf"(?:(?=eyJ){_EDGE}eyJ{_JWT})?stillweb-secret-[0-9a-f]{{24}}(?:k[0-9a-f]{{11}})?"
PSEUDONYM, PSEUDONYM_TEXT = re.compile(_PSEUDONYM.encode()), re.compile(_PSEUDONYM)

# -- search for many strings at once

# A few strings with few different first letters would be searched by these letters, which are everywhere in a page.
# One more string of other bytes makes the library compare many bytes at once instead. It is no valid UTF-8, and a
# match of it does no harm.
_NOWHERE = b"\xff\xfe\xfd\xfc"
_AT_ONCE = 48  # strings up to which the library compares many bytes at once


class Literals:
    """A fixed set of byte strings, searched together in one pass.

    The matcher is Aho and Corasick's automaton ("Efficient string matching", CACM 18 (1975)), compiled, by
    `ahocorasick_rs`. Most bodies have none of a few strings, and a search without overlaps finds that out quickest, since
    it compares many bytes at once. Of many strings a full table of states (DFA) finds overlaps as quickly as it finds none.
    """

    def __init__(self, strings: Iterable[bytes]) -> None:
        self._strings = tuple(dict.fromkeys(strings))
        self._few = len(self._strings) <= _AT_ONCE
        table = ahocorasick_rs.Implementation.DFA
        self._automaton = ahocorasick_rs.BytesAhoCorasick(
            self._strings, ahocorasick_rs.MatchKind.Standard, table
        )
        self._quick = ahocorasick_rs.BytesAhoCorasick(
            (*self._strings, _NOWHERE),
            ahocorasick_rs.MatchKind.LeftmostFirst,
            None if self._few else table,
        )

    def places(self, data: bytes) -> list[tuple[bytes, int]]:
        """Return string and start of every occurrence, overlapping ones too, in the order of their ends."""
        if self._few and not self._quick.find_matches_as_indexes(data):
            return []
        found = self._automaton.find_matches_as_indexes(data, overlapping=True)
        return [(self._strings[which], start) for which, start, _ in found]

    def apart(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield start and end of the occurrences; of overlapping ones only the first."""
        return ((start, end) for _, start, end in self._quick.find_matches_as_indexes(data))


# -- names

# The word for a password in other languages; in JSON its letters may be escaped.
_FOREIGN = (
    *("passwort", "kennwort", "wachtwoord", "contraseña", "contrasena", "senha", "motdepasse", "mot_de_passe", "lösenord"),
    *("losenord", "passord", "adgangskode", "salasana", "hasło", "heslo", "jelszó", "şifre", "пароль", "лозинка", "סיסמה"),
    *("密码", "密碼", "口令", "パスワード", "暗証番号", "비밀번호", "암호", "كلمة_المرور"),
)  # fmt: skip
# These three patterns are searched in a name's words (`plain_name`), also by proxy/browser/freeze_chance.js.
# A value under a strong name is a secret whatever it looks like.
_PASSWORD = (
    rf"pass_?(?:word|wd|phrase|code)|pwd|{'|'.join(_FOREIGN)}|(?:^|_|user)ps?w\d?$"
    r"|(?:^|(?:^|_)(?:user|db|login|smtp|imap|ftp|auth|mysql|email|mail|admin|root|my|new|old|confirm)_?)pass\d?$"
    r"|(?:^|_)(?:t?otp|mdp|pin_?code|[2m]fa_?code|cv[vc]2?|(?:recovery|backup)_?code|(?:recovery|seed|mnemonic)_?phrase)$"
)
_STRONG = (
    rf"{_PASSWORD}|(?:client|app|application|api|consumer|shared|webhook|signing|oauth|user|master|totp|hmac)_?secret"
    r"|secret_?(?:access_?)?key(?![a-z])|(?:api|access|private|subscription|auth|master|signing|encryption|rapid)_?key(?![a-z])"
    r"|(?:access|refresh|id|auth|session|bearer|security|oauth2?|login|user|api|personal|private|bot|deploy)_?token"
    r"|authorization|amz_signature|amz_credential|connection_?string"
)
# A value under a weak name is a secret if it looks random; "token=1" or "sid=3" is none.
_WEAK = (
    r"(?:^|_)(?:key|ak|token|secret|sig|sign|signature|sas|sid|session|auth|jwt|credentials?|ticket|invite|invitation|hmac|bearer|hapikey|wskey|mapkey|appkey|appid|apikey|authentication|api|pin|clave|parola)(?:_value)?(?:_?\d{1,3})?$"
    r"|^code$|(?:^|_)(?:auth|authorization|oauth|device|access|functions)_code$|^code_verifier$|sess(?:ion)?_?id$|(?:token|secret|jwt|apikey|authkey)$|key_id$|^x_honeycomb_team$"
)
# Values under these names are no secrets. Form tokens come from the page that the client just got: if they were
# replaced, page and request would no longer match. Keys of caches, sorting and pages are public, as are facts about a
# secret, such as its length.
_NEVER = (
    r"csrf|xsrf|authenticity|verification_?token|captcha|nonce|forgot|public_?key|publishable|vapid|site_?key|vapid"
    r"|(?:page|next|previous|continuation|cursor|sync|resume|pagination|delta|start)_?token"
    r"|(?:cache|surrogate|sort|primary|foreign|partition|idempotency|object|route|(?<!x_)query|dedup\w*|hash|shard|translation|i18n"
    r"|message|lookup|index|order|group|row|state|socket|correlation|config|feature|flag|event|react)_?key"
    r"|_(?:ur[il]|href|link|path|type|kind|name|expir\w*|ttl|lifetime|hint|polic(?:y|ies)|length|min|max|size|required|label"
    r"|placeholder|count|errors?|messages?|help|title|description|enabled|disabled|status|reset|changed?|updated|created|at|in"
    r"|date|time|age|scopes?|format|regex|pattern|rules?|strength|visible|method|version|usage|limit|endpoint|algorithm)$"
)
SECRET_NAMES = (_STRONG, _WEAK, _NEVER)
_strong, _weak, _never = (re.compile(pattern) for pattern in SECRET_NAMES)
_password = re.compile(_PASSWORD)
# Schemes of Authorization whose text is another one for each request, out of a challenge, the time or the request.
_MADE_ANEW = re.compile(
    r"digest|usernametoken|negotiate|ntlm|hawk|mac|oauth|signature|vapid|aws|goog1|oss|obs|qbox|qiniu|sharedkey(lite)?"
    r"|acs|amx|apiauth|fc|kss|log|nos|ucloud|upyun"
    r"|([a-z0-9]+-)*hmac(-[a-z0-9]+)?|[a-z0-9]+-(ecdsa|rsa)-[a-z0-9-]+",
    re.I,
)
_BY_PASSWORD = re.compile(r"\s*(?:digest|ntlm|negotiate|usernametoken)\s", re.I)
_SIGNATURE = re.compile(r"(?:^|[\s,&;])sig(?:n(?:ature)?)?=", re.I)  # of schemes that are not known
# The field that names the signer, in the credentials of Digest (RFC 7616, 3.4), Hawk, OAuth 1, WSSE, HTTP signatures, and the clouds' own: their
# key's id stands up to the first "/" of `Credential`, or before a colon.
_SIGNER = re.compile(
    r"(?:^|[\s,&;])(?:username\*?|id|key_?id|credential|oauth_consumer_key|oauth_token|access|(?:access|client)_token|skn|mchid"
    r"""|app_?id|awsaccesskeyid)=(?:"([^"]{1,200})"|([^\s,&;/"]{1,200}))"""
    r"|^([\w.@+-]{1,200}):",
    re.I,
)
_HEADER = re.compile(
    r"(?:^|_)(?:token|secret|password|auth|authentication|session|session_id|api_?key|pin)$|authorization$"
)
# the weak names that count in answers
_HANDED_OUT = re.compile(r"(?:token|secret|jwt|(?:session|account)_?key)\d?$")
_HEAD = re.compile(rf"(?:{_STRONG})\d?$")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_BETWEEN = re.compile(r"[\W_]+")

_TRIVIAL = frozenset(
    {"", "0", "1", "true", "false", "on", "off", "yes", "no", "null", "none", "undefined", "deleted"}
)
# Placeholders for a value in a template or an example.
_PLACEHOLDER = re.compile(
    r"[*•.]+|x{3,}|<.*>|\{.*\}|\$[{(]?\w*[})]?|%\w*%?|\[.*\]|(?:your|my|insert|enter)[-_ ].*|demo[-_]?key",
    re.I | re.S,
)


@cached
def plain_name(name: str) -> str:
    """Return a name as lower-case words joined by `_`: `X-RapidAPI-Key`, `clientSecret` and `user[apiKey]` alike."""
    if "%" in name:
        name = unquote(name)
    return _BETWEEN.sub("_", _HUMP.sub("_", name)).strip("_").lower()


@cached
def _strength(name: str) -> int:
    """Return 2 for a name whose values are secrets, 1 for one whose random values are, else 0."""
    words = plain_name(name)
    if _never.search(words):
        return 0
    return 2 if _strong.search(words) else int(_weak.search(words) is not None)


def says_nothing_of_secrets(name: str) -> bool:
    """Return True if a name says neither that its values may be secrets nor that they are none."""
    return not _strength(name) and not _never.search(plain_name(name))


def secret_field(name: str, value: str) -> bool:
    """Return True if a query, form or JSON member of this name, sent by a client, holds a secret.

    Under a weak name only one word can be a secret: `code` also names programs.
    """
    strength = _strength(name)
    if not strength or _says_nothing(value):
        return False
    return strength == 2 or (looks_drawn(value) and not any(map(str.isspace, unquote(value))))


# What follows the id of a key in a credential that signs (AWS4, GOOG4, OSS4, TOS4): the day, and what it is for
_SCOPE = re.compile(r"(?:\\*/|%2[Ff])\d{8}(?:\\*/|%2[Ff])")


def without_scope(name: str, value: str) -> str:
    """Return the id of the key in a credential that signs, without day and scope, which are no secrets; any other value as it is."""
    if "redential" not in name or (scope := _SCOPE.search(value)) is None:
        return value
    return value[: scope.start()]


@cached
def is_secret_member(name: str, value: str) -> bool:
    """Return True if a member of this name in an answer holds a secret.

    The test is stricter than `secret_field`, since answers also contain texts about secrets.
    """
    strength = _strength(name)
    if not strength or len(value) < 6 or _says_nothing(value):
        return False
    if "PRIVATE KEY" in value:
        return True
    if len(value) > 4096 or any(map(str.isspace, value)) or "://" in value:
        return False
    words = plain_name(name)
    if _password.search(words):
        return _HEAD.search(words) is not None and _chosen(value)
    known = _HEAD if strength == 2 else _HANDED_OUT
    if known.search(words) is None or len(value) < 16 or not looks_drawn(value) or value[:2] == "0x":
        return False
    return any(map(str.isdigit, value)) or surely_drawn(value)  # identifiers in camelCase look random, too


def secret_header(name: str, value: str) -> bool:
    """Return True if a header field holds a secret (cookies are judged one by one, see `secret_cookie`)."""
    strength = _strength(name)
    if not strength or _says_nothing(value) or PSEUDONYM_TEXT.search(value):
        return False
    if name.lower().startswith(("sec-", "access-control-")):
        return False
    if strength == 2 or _HEADER.search(plain_name(name)):
        return True
    return " " not in value and looks_drawn(value)


_KEPT_SIGNER = re.compile(r'who="([^"]*)"')  # as the recorder keeps it, before a pseudonym
# Characters of names that stay as they are, beside letters and digits
_NAMES = " !#$%&'()*+,-./:;<=>?@[]^_`{|}~"


def signer(credentials: str) -> str | None:
    """Return who signs credentials anew for each request, "" if they don't say; None for other credentials.

    The id of a key is told by eight hex digits of its hash.
    """
    scheme, _, rest = credentials.strip().partition(" ")
    if kept := _KEPT_SIGNER.match(rest):
        return kept[1]
    if _MADE_ANEW.fullmatch(scheme) is None and _SIGNATURE.search(rest) is None:
        return None
    found = ["".join(one) for one in _SIGNER.findall(rest.strip())] or _of_windows(rest.strip())
    return " ".join(
        hashlib.sha256(one.encode()).hexdigest()[:8] if looks_drawn(one) or has_format(one.encode()) else one
        for one in (quote(name, safe=_NAMES) for name in found)
    )


def proves_password(credentials: str) -> bool:
    """Return True if credentials tell a password by a proof made anew for each request, which can't be compared with a recorded one."""
    return _BY_PASSWORD.match(credentials) is not None


def _of_windows(credentials: str) -> list[str]:
    """Return domain and user in NTLM's third message ([MS-NLMP] 2.2.1.3), which Negotiate may wrap; none of others."""
    try:
        data = base64.b64decode(credentials, validate=True)
    except ValueError:
        return []
    message = data[max(0, data.find(b"NTLMSSP\0\3\0\0\0")) :]
    if not message.startswith(b"NTLMSSP") or len(message) < 44:
        return []
    places = (struct.unpack_from("<HxxI", message, at) for at in (28, 36))
    named = [message[start : start + size].decode("utf-16-le", "replace").lower() for size, start in places]
    return named if any(named) else []


def _says_nothing(value: str) -> bool:
    return (
        value.lower() in _TRIVIAL
        or _PLACEHOLDER.fullmatch(value) is not None
        or PSEUDONYM_TEXT.fullmatch(value) is not None
    )


def _chosen(value: str) -> bool:
    """Return True if a value may be somebody's password, and not a word or a path."""
    return value[0] not in "/.#" and bool(
        re.search(r"[A-Za-z]", value) and re.search(r"[0-9!@#$%^&*?+~]", value)
    )


# -- values

_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_RUN = re.compile(r"[A-Za-z0-9]{8,}")
_CHANGES = re.compile(r"(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])|(?<=[a-z])(?=[A-Z])")
_HEX = re.compile(r"(?:[0-9a-f]+|[0-9A-F]+)\Z")
_UNSPEAKABLE = re.compile(r"[a-z]*[bcdfghjklmnpqrstvwxz]{6}[a-z]*|[A-Z]*[BCDFGHJKLMNPQRSTVWXZ]{6}[A-Z]*")
_GROUPS = re.compile(r"(?=[^\d]*\d)(?=\d*[A-Za-z])[A-Z0-9]{4,6}(?:-[A-Z0-9]{4,6}){3,}")

_SESSION_COOKIE = re.compile(
    r"sess|(?:^|[-_.])(?:sid|ssid|auth|jwt|token|login|remember|ticket|key)(?:$|[-_.\d])|token|authcookie|identity"
    r"|csrf|xsrf|aspxauth|cfduid|cf_bm|cf_clearance",
    re.I,
)
_CHOICE_COOKIE = re.compile(
    r"(?:^|[-_.])(?:lang|language|locale|i18n|theme|mode|dark|currency|country|region|tz|timezone|consent|cookieconsent"
    r"|euconsent|view|sort|order|filters?|columns?|pagesize|page_size|perpage|layout|tab|units?|font|zoom|gdpr|banner)"
    r"(?:$|[-_.\d])",
    re.I,
)


def looks_random(value: str) -> bool:
    """Return True if a value is more likely random than chosen: a UUID, long hex, a mix of letters and digits."""
    if "%" in value:
        value = unquote(value)
    if _UUID.search(value):
        return True
    for run in _RUN.findall(value):
        size = len(run)
        if run.isdigit():
            if size >= 18:
                return True
            continue
        mixed = changes(run)
        if size >= 12 and mixed >= 2 and _HEX.match(run):
            return True
        if size >= 16 and mixed >= size // 6:
            return True
        if mixed >= 3 and mixed >= size // 5:
            return True
    return False


def changes(word: str) -> int:
    """Return the number of changes in a word between letters and digits, or from small letters to capitals."""
    return len(_CHANGES.findall(word))


def looks_drawn(value: str) -> bool:
    """Return True if a value looks random, has unpronounceable letters, or has groups like a licence key."""
    if looks_random(value) or _GROUPS.fullmatch(value):
        return True
    return any(len(run) >= 16 and _UNSPEAKABLE.fullmatch(run) for run in _RUN.findall(value))


def surely_drawn(value: str) -> bool:
    """Return True if a value is surely random: no number, and no words and years as in "AnnualReport2019Final"."""
    if not looks_random(value):
        return False
    alone = re.sub(r"[^A-Za-z0-9]", "", value)
    return _UUID.fullmatch(value) is not None or 5 * changes(alone) >= len(alone)


def holds_secret(value: Any) -> bool:
    """Return True if a text in a JSON value holds a pseudonym."""
    return any(PSEUDONYM_TEXT.search(text) for text in texts_in(value))


def drawn(value: str) -> bool:
    """Return True if a value is surely random, or a pseudonym."""
    return surely_drawn(value) or PSEUDONYM_TEXT.fullmatch(value) is not None


def secret_cookie(name: str, value: str) -> bool:
    """Return True if a cookie is a credential or an identity, and not just a choice (`lang=en`, `filter=abc`).

    A pure function of name and value, so that `Set-Cookie` and `Cookie` are always judged alike.
    """
    if value.lower() in _TRIVIAL or PSEUDONYM_TEXT.fullmatch(value):
        return False
    if _CHOICE_COOKIE.search(name) and not _SESSION_COOKIE.search(name):
        return any(literal in value.encode() for literal in (b"eyJ",)) and has_format(value.encode())
    if _SESSION_COOKIE.search(name):
        return not (value.isdigit() and len(value) < 3)
    return looks_random(value)


# -- formats

# PEM (RFC 7468; with the header lines of RFC 1421 if encrypted) and OpenPGP (RFC 9580, 6.2)
PRIVATE_KEY = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----)){0,400}?[A-Za-z0-9+/=\r\n\\]{40,}"
)
_MOST = 4096  # bytes of a value, at most
_USER_INFO = re.compile(rb"[a-z]://[^\s/?#@:\"'<>\\]{0,64}:([^\s/?#@:\"'<>\\{}$*]{4,80})\Z")


@cache
def _formats() -> tuple[Literals, dict[bytes, tuple[tuple[str, str, int], ...]]]:
    """Return the literals in formats.json, and the formats (name, pattern, bytes before) of each literal."""
    by_literal: dict[bytes, list[tuple[str, str, int]]] = {}
    formats = json.loads(Path(__file__).with_name("formats.json").read_text(encoding="utf-8"))
    for source in ("gitleaks", "providers", "tools"):
        for name, literals, pattern, before in formats[source]["formats"]:
            for literal in literals:
                by_literal.setdefault(literal.encode(), []).append((name, pattern, before))
    return Literals(by_literal), {literal: tuple(found) for literal, found in by_literal.items()}


@cache  # each is compiled when its literal is first found: to compile all takes a tenth of a second
def _compiled(pattern: str) -> re.Pattern[bytes]:
    return re.compile(f"{_EDGE}(?:{pattern})".encode())


def known_formats(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the format's name and the secret of every occurrence of a well-known format."""
    literals, by_literal = _formats()
    done = 0
    for literal, start in literals.places(data):
        if start < done:
            continue
        for name, pattern, before in by_literal[literal]:
            begins = range(max(done, start - before), start + 1)
            match = next(filter(None, map(partial(_compiled(pattern).match, data), begins)), None)
            if match is None:
                continue
            done = match.end()
            secret = match[match.lastindex or 0]
            if not PSEUDONYM.search(secret):
                yield name, secret
            break


def user_info(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of the passwords in a text's URLs (`scheme://user:password@host`)."""
    at = data.find(b"@")
    while at >= 0:
        if match := _USER_INFO.search(data, max(0, at - 160), at):
            text = match[1].decode("utf-8", "replace")
            if any(map(str.isdigit, text)) and _chosen(text):  # not an example's "user:password"
                yield match.span(1)
        at = data.find(b"@", at + 1)


def has_format(data: bytes) -> bool:
    """Return True if a well-known secret format occurs."""
    return next(known_formats(data), None) is not None


# -- names and their values in a text

# Engine.IO's first packet (https://socket.io/docs/v4/engine-io-protocol): the client sends `sid` in all later URLs.
OPENED = re.compile(rb'0\{"sid":"([A-Za-z0-9_-]{16,64})"')

_COMPOUND = tuple(
    what + dash + b"key"
    for what in (
        b"api",
        b"secret",
        b"access",
        b"private",
        b"subscription",
        b"auth",
        b"master",
        b"signing",
        b"encryption",
    )
    for dash in (b"", b"-", b"_")
)
_WORDS = tuple(
    word.encode()
    for word in (
        "password", "passwd", "passphrase", "passcode", "passwort", "mypass", "userpass", "pwd", "token",
        "secret", "jwt", "authorization", "kennwort", "wachtwoord", "contrase", "senha"
    )
)  # fmt: skip


def _writings(word: str) -> Iterator[bytes]:
    """Yield a word as UTF-8 and in the escapes of JSON, up to JSON in JSON in JSON, with its ASCII letters in lower case."""
    for cased in (word, word.capitalize(), word.upper()):
        yield cased.encode().lower()
        escaped = json.dumps(cased)[1:-1].lower()
        yield from (escaped.replace("\\", slashes).encode() for slashes in ("\\", "\\" * 2, "\\" * 4))


# Lower-case strings: every name of a secret contains one of them, in an answer (`_GIVEN`) or a request (`_SENT`).
_GIVEN = Literals(
    (
        *_WORDS,
        *_COMPOUND,
        b"set-cookie",
        b"session_key",
        b"sessionkey",
        b"accountkey",
        b"account_key",
        b"connectionstring",
    )
)
_SENT = Literals(
    (*_WORDS, b"pass", b"key", b"sig", b"sess", b"sid", b"auth", b"credential", b"ticket", b"hmac", b"bearer", b"otp", b"mdp",
     b"cookie", b"cvv", b"cvc", b"phrase", b"appid", b"amz", b"code", b"connection", b"pw", b"psw", b"pin", b"clave", b"parola",
     *(written for word in _FOREIGN for written in _writings(word)))
)  # fmt: skip
# What else the name of a secret in an address may end with, before "=": its last letters, which are found five times as quickly.
_IN_ADDRESS = Literals(
    (name + b"=")[-4:]
    for name in (b"key", b"ak", b"sig", b"sign", b"signature", b"sid", b"session", b"sessid", b"sessionid", b"session_id", b"auth", b"credential",
    b"credentials", b"ticket", b"hmac", b"bearer", b"appid", b"code", b"code_verifier", b"key_id", b"keyid")
)  # fmt: skip
# What stands before them, from the end to the beginning: the name's first part, "?" or "&", and the rest of an address.
_BEFORE_PAIR = re.compile(rb"([\w.\[\]%-]{0,100})(?:[?&#]|;pma&|6200u\\)([^\s\"'`()<>{}]*)")
_NAME = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$.-[]@") | frozenset(
    range(128, 256)
)
_LONGEST_NAME = 100
# The rest of a name, followed by a value, or by the end of a tag or of an option.
_LETTERS = (
    rb"(?>(?:[A-Za-z0-9_$.\-\[\]\x80-\xff]|%5[BDbd]|\\{1,8}u(?!00[0-7]|[Dd][89A-Fa-f])[0-9A-Fa-f]{4}){0,100})"
)
_ESCAPE = re.compile(r"\\+u([0-9A-Fa-f]{4})")
_REST = re.compile(_LETTERS + rb"(?=[\"'`\\:=>&%<]|\s{1,8}[:=])")
_REST_IN_TAG = re.compile(_LETTERS + rb"(?=\s[^<>]{0,300}>| +[^\s-])")
_Q = rb"(?:\\{0,64}[\"'`]|&quot;|&#34;|%22)"
_S = rb"(?:\s|%20|\+){0,40}"
_QUOTE = re.compile(_Q)
# A value may be wrapped, in a list (["…"]) or as a member of an object ({"value": "…"}), and in GraphQL's three quotes.
_INSIDE = rb"(?:" + _Q + rb"|\s)(?:value|val|content|text)" + _Q + rb"?" + _S + rb"(?:[:=]|%3[Aa])" + _S
_QUOTED = re.compile(
    rb"(?P<close>"
    + _Q
    + rb")?"
    + _S
    + rb"(?::=?|=>?|%3[Aa]|;s:\d{1,4}:)"  # the last in PHP's serialize()
    + _S
    + rb"(?P<list>\["
    + _S
    + rb")?(?:\{[^<>{}\[\]]{0,300}?"
    + _INSIDE
    + rb")?(?P<open>"
    + _Q
    + rb")(?:(?P=open){2})?"
)
_SECOND = re.compile(_Q + _S + rb"(?:,|%2[Cc])" + _S + rb"(?P<open>" + _Q + rb")")
_NUMBER = re.compile(
    rb"(?P<close>"
    + _Q
    + rb")?\s{0,8}:\s{0,8}(?P<value>-?\d[\d.eE+-]{0,99})(?=[ \t]{0,8}(?:[,)}\]\r\n\\]|\Z))"
)
# an argument of GraphQL that a variable gives
_VARIABLE = re.compile(rb":\s{0,8}\$(\w{1,100})")
_ARGUMENT_NAME = re.compile(rb"(?<!\w)\w{1,100}\s{0,8}\Z")
# Values without quotes: in a pair, in a line of a header or of settings, after an option, in an element.
_QUERY_VALUE = re.compile(rb"=([^&;#\s\"'`<>,(){}\\]{1,4096})")
_BARE = re.compile(rb"=(?P<value>[^&;\s\"'`<>,(){}\\]{1,4096})")
# the next assignment of a script's chain: e.firstToken=e.secondToken=void 0
_ASSIGNED = re.compile(rb"=[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)+=(?=[\w$])")
_LINE = re.compile(
    rb"[ \t]{0,4}[:=][ \t]{0,4}(?P<scheme>[A-Za-z-]{3,20}[ ]+)?(?P<value>[^\s\"'`<>,;\\{}()\[\]]{6,4096})(?=[\s\"'`,;\\]|\Z)"
)
_ARGUMENT = re.compile(rb" +(?P<value>[^\s\"'`<>&|;-][^\s\"'`<>&|;]{0,4096})")
_ELEMENT = re.compile(
    rb"(?:\s[^<>]{0,300})?(?<!/)>\s*(?:<!\[CDATA\[)?(?P<value>[^<\]\s][^<\]]{0,4096}?)\s*(?:\]\]>)?\s*</"
)
_TAG = re.compile(rb"<(?:[\w.-]{1,40}:)?\Z")
_IN_ELEMENT = re.compile(
    rb"\s*</[\w:.-]+>\s*<(?:[\w.-]+:)?(?:value|string|val)\b[^<>]*>\s*(?:<[\w:.-]+>)?(?P<value>[^<\s][^<]{0,4096}?)\s*</",
    re.I,
)
# A list of names and values: {"name": "password", "value": "…"}, <param name="password" value="…"/>
_NAMED_SO = re.compile(
    rb"\b(?:name|key|field|id|type|param|parameter|label|header|variable)"
    + _Q
    + rb"?"
    + _S
    + rb"(?:[:=]|%3[Aa])"
    + _S
    + rb"\Z",
    re.I,
)
_ITS_VALUE = _INSIDE + rb"(?P<open>" + _Q + rb")"
_AFTER = re.compile(_Q + rb"[^<>{}\[\]]{0,300}?" + _ITS_VALUE, re.I)
_BEFORE = re.compile(_ITS_VALUE, re.I)
_SCHEME = re.compile(r"(?:basic|bearer|token|bot|apikey|api-key|digest|negotiate|sso-key|key)\s+(?=\S)", re.I)
_BINARY = re.compile(rb"[\x00-\x08\x80-\xbf\xdc-\xdf]")  # first byte of MessagePack and CBOR, not of texts
_FIELD_LINE = re.compile(rb"(?:^|[\"'`\n\r]|\\n)[ \t]{0,8}(?:export[ \t]+|-[ \t]+)?\Z")


@dataclass(frozen=True, slots=True)
class NamedSecret:
    """A secret with its name, both unescaped, and the start and end of the value in the text.

    `quote` stands around what replaces it: a number becomes a string.
    """

    name: str
    value: str
    start: int
    end: int
    quote: bytes = b""


def named_secrets(data: bytes, *, sent: bool) -> Iterator[NamedSecret]:
    """Yield the secrets with a telling name, in order, in a client's (`sent`) or a server's message."""
    begin = done = 0
    if sent and (connect := parse_mqtt_connect(data)) and connect.flags & 0x40:
        begin, done = connect.fields[-1]
    if begin < done and not PSEUDONYM.match(data, begin):  # its length is still that of the secret
        yield NamedSecret("password", data[begin:done].decode("utf-8", "replace"), begin, done)
    # BSON begins with its length, of four bytes, of which the last is 0 in documents below 16 MB
    binary = _BINARY.match(data) is not None or data[3:4] == b"\0"
    variables: dict[str, str] = {}
    for at, after in _places(data, variables, sent=sent):
        if at < done:
            continue
        if (
            binary
            and (prefixed := _prefixed(data, at, after))
            and (secret_field if sent else is_secret_member)(prefixed.name, prefixed.value)
        ):
            done = prefixed.end
            yield prefixed
            continue
        rest = _REST.match(data, after)
        if rest is None and (sent or b"<" in data[max(0, at - 40) : at]):
            rest = _REST_IN_TAG.match(data, after)
        if rest is None:
            continue
        begin, end = at, rest.end()
        while begin > done and data[begin - 1] in _NAME and at - begin < _LONGEST_NAME:
            begin -= 1
        if data[begin - 1 : begin + 2] == b"%22":
            begin += 2
        address = not sent and data[end : end + 1] == b"=" and (pair := _pair(data, at))
        if address:
            begin = pair
        name = _ESCAPE.sub(lambda m: chr(int(m[1], 16)), data[begin:end].decode("utf-8", "replace"))
        name = variables.get(name, name)
        cookies = name[-6:].lower() == "cookie" and _COOKIES.search(plain_name(name))
        if not cookies and not _strength(name):
            continue
        values = _in_query(data, end, name) if address else _values(data, begin, end, done, name, sent=sent)
        for found in values:
            if cookies:
                for one in _in_cookies(data, found, only_first=bool(cookies[1])):
                    done = max(end, found.end)
                    yield one
                continue
            scheme = _SCHEME.match(found.value)
            if scheme is not None and found.start + scheme.end() < found.end:
                found = NamedSecret(name, found.value[scheme.end() :], found.start + scheme.end(), found.end)
            if (key := without_scope(name, found.value)) != found.value:
                size = len(without_scope(name, data[found.start : found.end].decode("latin-1")))
                found = NamedSecret(name, key, found.start, found.start + size)
            judge = secret_header if name[0] == "-" else secret_field if sent or address else is_secret_member
            if found.start >= done and judge(found.name, found.value):
                done = max(end, found.end)
                yield found


_COOKIES = re.compile(r"(?:^|_)(set_)?cookie$")
_COOKIE = re.compile(rb"([^=;,\s\"'\\]{1,200})=([^;,\s\"'\\]{1,4096})")


def _in_cookies(data: bytes, field: NamedSecret, *, only_first: bool) -> Iterator[NamedSecret]:
    """Yield the secrets in a field of cookies; in `Set-Cookie` only the first pair is one."""
    for pair in _COOKIE.finditer(data, field.start, field.end):
        name, value = (part.decode("utf-8", "replace") for part in pair.groups())
        if looks_drawn(value) and secret_cookie(name, value):
            yield NamedSecret(name, value, *pair.span(2))
        if only_first:
            return


def _places(data: bytes, variables: dict[str, str], *, sent: bool) -> Iterator[tuple[int, int]]:
    """Yield start and end of words that names of secrets hold, and of GraphQL's variables for secrets.

    `variables` is filled with the arguments that they give.
    """
    lower = data.lower()
    if not sent:
        return merge(_GIVEN.apart(lower), ((at, end - 1) for at, end in _IN_ADDRESS.apart(lower)))
    for found in _VARIABLE.finditer(data):
        argument = _ARGUMENT_NAME.search(data, max(0, found.start() - 110), found.start())
        name = argument[0].decode("latin-1").rstrip() if argument else ""
        variable = found[1].decode("latin-1")
        if _strength(name) and not _strength(variable):
            variables[variable] = name
    if not variables:
        return _SENT.apart(lower)
    members = re.compile(
        b"(?<=[\"'])(?:%s)(?=\\\\*[\"'])" % b"|".join(name.encode("latin-1") for name in variables)
    )
    return merge(_SENT.apart(lower), (found.span() for found in members.finditer(data)))


def _pair(data: bytes, at: int) -> int:
    """Return the start of the name around `at` if it is in the query of an address; else 0."""
    if not _BEFORE_PAIR.match(data[max(0, at - _LONGEST_NAME - 10) : at][::-1]):  # mostly so, and it is short
        return 0
    found = _BEFORE_PAIR.match(data[max(0, at - _MOST) : at][::-1])
    return at - found.end(1) if found and (b"/" in found[2] or not found[2]) else 0


class MqttConnect(NamedTuple):
    """MQTT's CONNECT: its flags, and where the client's id, the will's topic and message, user and password stand."""

    flags: int
    fields: list[tuple[int, int]]


_CONNECT = re.compile(rb"\x10[\x80-\xff]{0,3}[\x00-\x7f]\x00(?:\x04MQTT|\x06MQIsdp)([\x03-\x05])(.)..", re.S)


def parse_mqtt_connect(data: bytes) -> MqttConnect | None:
    """Return the fields of MQTT's CONNECT (version 5, 3.1); None for another message, or one with wrong lengths."""
    match = _CONNECT.match(data)
    if match is None:
        return None
    version, flags, at = match[1][0], match[2][0], match.end()
    will = flags & 4 > 0
    fields: list[tuple[int, int]] = []
    for number in range(1 + 2 * will + flags.bit_count() - (flags & 0x3F).bit_count()):
        if version == 5 and number < 1 + will:  # properties
            size, start = varint(data[: at + 4], at)
            at = start + size if start > 0 else len(data)
        begin = at + 2
        at = begin + int.from_bytes(data[at:begin])
        if at > len(data):
            return None
        fields.append((begin, at))
    return MqttConnect(flags, fields)


def varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return a varint and the offset after it, which is -1 if there is none."""
    value = 0
    for number, byte in enumerate(data[at : at + 10] if at >= 0 else b""):
        value |= (byte & 127) << (7 * number)
        if byte < 128:
            return value, at + number + 1
    return 0, -1


def _in_query(data: bytes, end: int, name: str) -> Iterator[NamedSecret]:
    if match := _QUERY_VALUE.match(data, end):
        value = unquote(match[1].decode("utf-8", "replace"))
        if looks_drawn(value):
            yield NamedSecret(name, value, *match.span(1))


def _values(data: bytes, begin: int, end: int, done: int, name: str, *, sent: bool) -> Iterator[NamedSecret]:
    """Yield possible values of the name from `begin` to `end`, by the syntax of the text around it."""
    if match := _QUOTED.match(data, end):
        listed, most = match["list"], end + _MOST
        while match and (found := _quoted(data, match.end(), match["open"])):
            yield NamedSecret(name, *found)
            match = _SECOND.match(data, found[2], most) if listed else None
        return
    if sent and (match := _NUMBER.match(data, end)):
        yield NamedSecret(name, match["value"].decode(), *match.span("value"), match["close"] or b"")
        return
    after = data[end : end + 1]
    if after == b"=" and _ASSIGNED.match(data, end):
        return
    if after == b"=" and (match := _BARE.match(data, end)):
        value = unquote(match["value"].decode("utf-8", "replace"))
        if looks_drawn(value) or (sent and (name[0] == "-" or _chosen(value))):
            yield NamedSecret(name, value, *match.span("value"))
        return
    if (
        after in b": \t="
        and (match := _LINE.match(data, end))
        and _FIELD_LINE.search(data, max(0, begin - 18), begin)
    ):
        value = match["value"].decode("utf-8", "replace")
        if looks_drawn(value) or (
            sent and _password.search(plain_name(name)) and _chosen(value) and re.search(r"\d", value)
        ):
            yield NamedSecret(name, value, *match.span("value"))
            return
    if (after == b">" or after.isspace()) and _TAG.search(data, max(0, begin - 42), begin):
        if match := _ELEMENT.match(data, end):
            yield NamedSecret(name, unescape(match["value"].decode("utf-8", "replace")), *match.span("value"))
        return
    if after == b" " and data[begin : begin + 1] == b"-" and (match := _ARGUMENT.match(data, end)):
        value = match["value"].decode("utf-8", "replace")
        if sent or looks_drawn(value):
            yield NamedSecret(name, value, *match.span("value"))
        return
    if after == b"<" and data[begin - 1 : begin] == b">" and (match := _IN_ELEMENT.match(data, end)):
        yield NamedSecret(name, unescape(match["value"].decode("utf-8", "replace")), *match.span("value"))
        return
    if match := _QUOTE.match(data, end):
        yield from _in_list(data, begin, end, done, name, match[0], sent=sent)


def _in_list(
    data: bytes, begin: int, end: int, done: int, name: str, quote: bytes, *, sent: bool
) -> Iterator[NamedSecret]:
    """Yield possible values of a quoted name in a list of names and values, in a pair, or in a list of arguments."""
    opened = begin - len(quote)
    if data[max(0, opened) : begin] != quote:
        return
    if _NAMED_SO.search(data, max(0, opened - 40), opened):
        if not sent and _strength(name) < 2:  # form fields, which `secrets_in_forms` judges
            return
        if (match := _AFTER.match(data, end)) and (found := _quoted(data, match.end(), match["open"])):
            yield NamedSecret(name, *found)
        start = max(done, opened - 600, *(data.rfind(mark, 0, opened) for mark in (b"{", b"<")))
        for match in _BEFORE.finditer(data, start, opened):
            if found := _quoted(data, match.end(), match["open"]):
                yield NamedSecret(name, *found)
    elif (match := _SECOND.match(data, end)) and (found := _quoted(data, match.end(), match["open"])):
        pair = data[:opened].rstrip()[-1:] in (b"[", b"(") and data[found[2] + len(quote) :].lstrip()[:1] in (
            b"]",
            b")",
        )
        if name.startswith("-") or pair:
            yield NamedSecret(name, *found)


def _quoted(data: bytes, start: int, quote: bytes) -> tuple[str, int, int] | None:
    """Return the unescaped text after an opening quote, with its start and end; None if it doesn't end or is empty.

    In nested strings of JSON, the quotes have one backslash before them, then three, then seven. The text ends at a
    quote with as many backslashes as the opening quote, not counting escaped backslashes.
    """
    mark, slashes = quote[-1:], quote.count(b"\\")
    if quote in (b"&quot;", b"&#34;", b"%22"):
        end = data.find(quote, start, start + _MOST)
        if end <= start:
            return None
        text = data[start:end].decode("utf-8", "replace")
        return (unquote(text) if quote == b"%22" else unescape(text)), start, end
    at = start
    while True:
        at = data.find(mark, at, start + 4 * _MOST)
        if at < 0:
            return None
        run = at
        while run > start and data[run - 1 : run] == b"\\":
            run -= 1
        if (at - run) % (2 * slashes + 2) == slashes:
            break
        if at - run < slashes:
            return None
        at += 1
    end = at - slashes
    if end <= start or (mark != b'"' and b"\n" in data[start:end]):
        return None
    text = data[start:end].decode("utf-8", "replace")
    for _ in range((slashes + 1).bit_length()):
        text = unescape_json(text)
    return text, start, end


def unescape_json(text: str) -> str:
    """Decode the escapes of a JSON string given without its quotes; return other texts unchanged."""
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text


# How a short text begins, the longest of these, and the headers of longer ones and of bytes, with the size of their length:
# in MessagePack, and in CBOR (RFC 8949, 3.1)
_TEXTS = (
    (0xA0, 31, {0xD9: 1, 0xDA: 2, 0xDB: 4, 0xC4: 1, 0xC5: 2, 0xC6: 4}),
    (0x60, 23, {0x78: 1, 0x79: 2, 0x7A: 4, 0x58: 1, 0x59: 2, 0x5A: 4}),
)
# an element of text (https://bsonspec.org/spec.html)
_BSON = re.compile(rb"\x02([!-~]{1,100})\0(....)", re.S)


def _prefixed(data: bytes, at: int, after: int) -> NamedSecret | None:
    """Return the value of the name around `at` if its length stands before it, as in MessagePack, CBOR and BSON.

    A text that was replaced has none; its length is still that of the secret.
    """
    element = _BSON.match(data, max(0, data.rfind(b"\2", max(0, at - 100), at)))
    if element and element.start() < at < element.end(1):
        return _text(data, element[1], element.end(), int.from_bytes(element[2], "little") - 1)
    for start in range(max(1, at - 31), at + 1):
        for short, most, long in _TEXTS:
            end = start + data[start - 1] - short
            if not after <= end <= min(start + most, len(data) - 2):
                continue
            size = long.get(data[end], 0)
            begin = end + 1 + size
            length = int.from_bytes(data[end + 1 : begin]) if size else data[end] - short
            if short == 0x60 and -0x20 <= length < -0x08:  # bytes
                length += 0x20
            if (size or length <= most) and (found := _text(data, data[start:end], begin, length)):
                return found
    return None


def _text(data: bytes, name: bytes, begin: int, length: int) -> NamedSecret | None:
    value = data[begin : begin + length] if 0 < length <= 4 * _MOST else b""
    if not 0 < length == len(value) or not name.isascii() or PSEUDONYM.match(data, begin):
        return None
    try:
        return NamedSecret(name.decode(), value.decode(), begin, begin + length)
    except UnicodeDecodeError:
        return None


# a column's name; prose has a space after its commas
_COLUMN = re.compile(rb'("?)[\w\x80-\xff](?:[\w\x80-\xff .()/#@-]{0,99})\1')


def in_columns(table: bytes, *, sent: bool) -> Iterator[NamedSecret]:
    """Yield the secrets in the columns of a table (RFC 4180, also with other marks) whose first line names them."""
    rows = table.find(b"\n", 0, 16 * _MOST) + 1
    line = table[:rows].removeprefix(b"\xef\xbb\xbf").rstrip()
    mark = max((b",", b";", b"\t", b"|"), key=line.count)
    cells = line.split(mark)
    if len(cells) < 2 or not all(map(_COLUMN.fullmatch, cells)):
        return
    names = [cell.strip(b'"').decode("utf-8", "replace") for cell in cells]
    if not any(map(_strength, names)):
        return
    judge = secret_field if sent else is_secret_member
    column = 0
    for cell in re.finditer(rb'("[^"]*(?:""[^"]*)*"|[^%s\r\n]*)\r?([%s\n]|\Z)' % (mark, mark), table[rows:]):
        value = cell[1].decode("utf-8", "replace")
        if value[:1] == '"':
            value = value[1:-1].replace('""', '"')
        if column < len(names) and value and judge(names[column], value):
            yield NamedSecret(names[column], value, rows + cell.start(1), rows + cell.end(1))
        column = column + 1 if cell[2] == mark else 0


_HIDDEN = Literals((b"hidden", b"HIDDEN"))
_PASSWORD_TYPE = Literals((b"password", b"PASSWORD", b"Password"))
MOST_BEFORE = 4096  # bytes of a field's tag before its "hidden", at most
_INPUT = re.compile(rb"<[iI](?:nput|NPUT)\b(?:[^>\"']|\"[^\"]*\"|'[^']*'){1,4096}>")
_ATTRIBUTE = re.compile(rb"([a-zA-Z]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")


def secrets_in_forms(page: bytes) -> Iterator[str]:
    """Yield the secrets in hidden fields of a page's forms.

    The client sends them later, but by then the page would be stored with the secrets.
    """
    for inputs in _inputs(page, _HIDDEN):
        name = inputs.get(b"name", "")
        value = without_scope(name, inputs.get(b"value", ""))
        if inputs.get(b"type", "").lower() == "hidden" and looks_random(value) and secret_field(name, value):
            yield value


def password_fields(page: bytes) -> Iterator[str]:
    """Yield the names of a page's password fields (`<input type=password name=p>`)."""
    for inputs in _inputs(page, _PASSWORD_TYPE):
        if inputs.get(b"type", "").lower() == "password" and inputs.get(b"name"):
            yield inputs[b"name"]


def _inputs(page: bytes, holding: Literals) -> Iterator[dict[bytes, str]]:
    """Yield the attributes of each input element that holds one of some strings."""
    done = 0
    for _, at in holding.places(page):
        tag = _INPUT.match(page, max(done, page.rfind(b"<", max(done, at - MOST_BEFORE), at)))
        if tag is None or tag.end() < at:
            continue
        done = tag.end()
        yield {m[1].lower(): _attribute(m) for m in _ATTRIBUTE.finditer(tag[0])}


def _attribute(found: re.Match[bytes]) -> str:
    return unescape(found[found.lastindex or 0].decode("utf-8", "replace"))


# -- paths

# Before the token of a link that was sent by mail
_MAILED = re.compile(
    r"magic[-_]?link|unsubscribe|(?:verify|confirm|activate|verification|confirmation|activation)(?:[-_]?e?mail)?",
    re.I,
)
_HOOKS = re.compile(r"(?:web)?hooks?\b|incomingwebhook|webhookb2", re.I)


def in_path(path: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of secret segments in a URL without its query: after a secret's name, in a webhook, in a mailed link."""
    scheme = path.find("://")
    at = path.find("/", scheme + 3 if scheme >= 0 else 0)
    hooked, before = scheme >= 0 and _HOOKS.match(path, scheme + 3) is not None, ""
    while at >= 0:
        end = path.find("/", at + 1)
        segment = path[at + 1 : end if end >= 0 else len(path)]
        if (
            len(segment) >= 16
            and (hooked or _strength(before) or _MAILED.fullmatch(before))
            and looks_drawn(segment)
            and not _says_nothing(segment)
        ):
            yield at + 1, at + 1 + len(segment)
        hooked = hooked or _HOOKS.fullmatch(segment) is not None
        before, at = segment, end
