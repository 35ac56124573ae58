"""What a secret is: names of fields that hold one, formats that are one, and cookies that are more than a choice.

Plain functions of names and values, so that the recorder, the gate and the tests judge alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import unquote

from stillweb.snapshots.secrets.literals import Literals

# The end, a proof, is missing in older snapshots.
PSEUDONYM = re.compile(rb"stillweb-secret-[0-9a-f]{24}(?:k[0-9a-f]{11})?")
PSEUDONYM_TEXT = re.compile(r"stillweb-secret-[0-9a-f]{24}(?:k[0-9a-f]{11})?")

# A value under one of these names is a secret whatever it looks like.
_STRONG = (
    r"pass(?:word|wd|phrase|code)|pwd|(?:client|app|api|consumer|shared|webhook)[-_.]?secret|secret[-_.]?key"
    r"|api[-_.]?key|api[-_.]?token|access[-_.]?key|private[-_.]?key|subscription[-_.]?key"
    r"|(?:access|refresh|id|auth|session|bearer|security|oauth|login|user)[-_.]?token"
    r"|authorization|amz-signature|amz-credential"
)
# Under one of these it is one when it looks random; "token=1" or "sid=3" is not.
_WEAK = r"(?:.*[-_.])?(?:token|secret|sig|signature|sid|session|session[-_.]?id|auth|jwt|credential|ticket|hmac)|jsessionid|phpsessid"
# Form tokens come from the page that the client was just given: replacing them would part page and request.
_NEVER = re.compile(r"csrf|xsrf|authenticity|verificationtoken|captcha|nonce|page[-_.]?token|forgot", re.I)
# Found in a name, the whole of it, and what makes it none: for pages, whose script knows no more of secrets.
SECRET_NAMES = (_STRONG, rf"^(?:{_WEAK})$", _NEVER.pattern)
_strong = re.compile(_STRONG, re.I)
_weak = re.compile(_WEAK, re.I)

_SECRET_HEADER = re.compile(
    r"(?:proxy-)?authorization|x-amz-security-token|(?:.*-)?(?:api-?key|apikey|token|secret|password|auth|authentication|session|session-id)",
    re.I,
)
_TRIVIAL = frozenset(
    {"", "0", "1", "true", "false", "on", "off", "yes", "no", "null", "none", "undefined", "deleted"}
)

# Values in JSON, scripts, pages and XML (of AWS) that are handed out under a name that says what they are.
GIVEN = re.compile(
    rb"[\"']?((?:access|refresh|id|auth|session|bearer|api|oauth)[-_]?token|(?:client|api)[-_]?secret|api[-_]?key"
    rb"|secret[-_]?(?:access[-_]?)?key)"
    rb"(?:[\"']?\s*[:=]\s*[\"']|>)([A-Za-z0-9._~+/=|:-]{16,4096})(?:[\"']|</)",
    re.I,
)
# What each of those names ends in, in lower case, and how far before that a match may begin.
_ENDS = Literals(
    (
        b"token",
        b"secret",
        *(what + dash + b"key" for what in (b"api", b"secret", b"access") for dash in (b"", b"-", b"_")),
    )
)
_BEFORE = len(b'"refresh-')
_ASSIGNED = re.compile(rb"[\"']?\s*[:=]|>")

# Engine.IO's first packet (https://socket.io/docs/v4/engine-io-protocol): the client names itself so in each address after it.
OPENED = re.compile(rb'0\{"sid":"([A-Za-z0-9_-]{16,64})"')

_HIDDEN = Literals((b"hidden", b"HIDDEN"))
MOST_BEFORE = 4096  # bytes of a field's tag before it says that it is hidden
_INPUT = re.compile(rb"<[iI](?:nput|NPUT)\b(?:[^>\"']|\"[^\"]*\"|'[^']*'){1,4096}>")
_ATTRIBUTE = re.compile(rb"([a-zA-Z]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")

_EDGE = rb"(?<![A-Za-z0-9_-])"
# name, a literal that every match begins with (looked for first, it is much quicker), the whole pattern
FORMATS: tuple[tuple[str, bytes, re.Pattern[bytes]], ...] = tuple(
    (name, literal, re.compile(_EDGE + pattern))
    for name, literal, pattern in (
        ("JSON web token", b"eyJ", rb"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{16,}"),
        ("AWS access key", b"AKIA", rb"AKIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
        ("AWS session key", b"ASIA", rb"ASIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
        ("Google API key", b"AIza", rb"AIza[0-9A-Za-z_-]{35}(?![0-9A-Za-z_-])"),
        ("Google OAuth token", b"ya29.", rb"ya29\.[0-9A-Za-z_-]{20,}"),
        ("GitHub token", b"ghp_", rb"ghp_[A-Za-z0-9]{36,}"),
        ("GitHub token", b"gho_", rb"gho_[A-Za-z0-9]{36,}"),
        ("GitHub token", b"ghs_", rb"ghs_[A-Za-z0-9]{36,}"),
        ("GitHub token", b"ghu_", rb"ghu_[A-Za-z0-9]{36,}"),
        ("GitHub token", b"github_pat_", rb"github_pat_[A-Za-z0-9_]{50,}"),
        ("GitLab token", b"glpat-", rb"glpat-[A-Za-z0-9_-]{20,}"),
        ("Slack token", b"xox", rb"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
        ("Stripe key", b"k_live_", rb"[prs]k_live_[A-Za-z0-9]{16,}"),
        (
            "model provider key",
            b"sk-",
            rb"sk-(?:proj-|ant-|or-|svcacct-)?(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{24,}",
        ),
        ("Hugging Face token", b"hf_", rb"hf_[A-Za-z0-9]{30,}"),
        ("npm token", b"npm_", rb"npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
        ("PyPI token", b"pypi-AgEI", rb"pypi-AgEI[A-Za-z0-9_-]{40,}"),
        ("Tavily key", b"tvly-", rb"tvly-[A-Za-z0-9-]{20,}"),
    )
)
_LITERALS = Literals(literal for _, literal, _ in FORMATS)
# A pattern begins with its literal, but for Stripe's, which has a letter before it.
_BY_LITERAL = {literal: (name, pattern, int(literal == b"k_live_")) for name, literal, pattern in FORMATS}
# A pattern may begin before its literal ("sk_live_"), but never by more than this.
PRIVATE_KEY = re.compile(rb"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY-----\s*[A-Za-z0-9+/=\r\n\\]{40,}")

_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_RUN = re.compile(r"[A-Za-z0-9]{8,}")
_CHANGES = re.compile(r"(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])|(?<=[a-z])(?=[A-Z])")
_HEX = re.compile(r"(?:[0-9a-f]+|[0-9A-F]+)\Z")

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
    """Whether a value is more likely drawn than chosen: a UUID, long hex, a mix of letters and digits."""
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
        changes = len(_CHANGES.findall(run))
        if size >= 12 and changes >= 2 and _HEX.match(run):
            return True
        if size >= 16 and changes >= size // 6:
            return True
        if changes >= 3 and changes >= size // 5:
            return True
    return False


def surely_drawn(value: str) -> bool:
    """Whether a value was drawn beyond doubt: no number, and no words or years as in "AnnualReport2019Final"."""
    if not looks_random(value):
        return False
    plain = re.sub(r"[^A-Za-z0-9]", "", value)
    return _UUID.fullmatch(value) is not None or 5 * len(_CHANGES.findall(plain)) >= len(plain)


def drawn(value: str) -> bool:
    """Whether a value was surely drawn, or stands for a secret."""
    return surely_drawn(value) or PSEUDONYM_TEXT.fullmatch(value) is not None


def secret_field(name: str, value: str) -> bool:
    """Whether a query, form or JSON member of this name and value holds a secret."""
    if value.lower() in _TRIVIAL or _NEVER.search(name) or PSEUDONYM_TEXT.fullmatch(value):
        return False
    if "%" in name:
        name = unquote(name)
    if _strong.search(name) or name.lower() in ("pass", "otp"):
        return True
    return _weak.fullmatch(name) is not None and looks_random(value)


def secret_header(name: str, value: str) -> bool:
    """Whether a header field holds a secret (cookies are judged one by one, see `secret_cookie`)."""
    if _NEVER.search(name) or value.lower() in _TRIVIAL or not _SECRET_HEADER.fullmatch(name):
        return False
    return PSEUDONYM_TEXT.search(value) is None and not name.lower().startswith(("sec-", "access-control-"))


def secret_cookie(name: str, value: str) -> bool:
    """Whether a cookie is a credential or an identity, and not just a choice (`lang=en`, `filter=abc`).

    A pure function of name and value, so that `Set-Cookie` and `Cookie` are always judged alike.
    """
    if value.lower() in _TRIVIAL or PSEUDONYM_TEXT.fullmatch(value):
        return False
    if _CHOICE_COOKIE.search(name) and not _SESSION_COOKIE.search(name):
        return any(literal in value.encode() for literal in (b"eyJ",)) and has_format(value.encode())
    if _SESSION_COOKIE.search(name):
        return not (value.isdigit() and len(value) < 3)
    return looks_random(value)


def has_format(data: bytes) -> bool:
    """Whether a well-known secret format occurs."""
    return next(known_formats(data), None) is not None


def given(data: bytes) -> Iterator[re.Match[bytes]]:
    """The matches of `GIVEN`, tried only where a name may end: over a whole page of 40 kB it takes 4 ms."""
    done = 0
    for literal, start in _ENDS.places(data.lower()):
        if start < done or _ASSIGNED.match(data, start + len(literal)) is None:
            continue
        for begin in range(max(done, start - _BEFORE), start + 1):
            if match := GIVEN.match(data, begin):
                done = match.end()
                yield match
                break


def held_by_forms(page: bytes) -> Iterator[str]:
    """The secrets in hidden fields of a page's forms, which its client will send: known then, they would be known too late."""
    done = 0
    for _, at in _HIDDEN.places(page):
        tag = _INPUT.match(page, max(done, page.rfind(b"<", max(done, at - MOST_BEFORE), at)))
        if tag is None or tag.end() < at:
            continue
        done = tag.end()
        said = {m[1].lower(): _attribute(m) for m in _ATTRIBUTE.finditer(tag[0])}
        name, value = said.get(b"name", ""), said.get(b"value", "")
        if said.get(b"type", "").lower() == "hidden" and looks_random(value) and secret_field(name, value):
            yield value


def _attribute(found: re.Match[bytes]) -> str:
    return unescape(found[found.lastindex or 0].decode("utf-8", "replace"))


def known_formats(data: bytes) -> Iterator[tuple[str, re.Match[bytes]]]:
    """Every occurrence of a well-known format, with its name."""
    ends: dict[str, int] = {}
    for literal, start in _LITERALS.places(data):
        name, pattern, lead = _BY_LITERAL[literal]
        if start >= ends.get(name, 0) and (match := pattern.match(data, max(0, start - lead))):
            ends[name] = match.end()
            yield name, match
