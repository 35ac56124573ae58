"""Header fields that an application made up (`X-User: ann`), by which its answers may differ whatever Vary says.

All fields are taken for such, but those of browsers, proxies and well-known libraries, and what is drawn for each request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from stillweb.snapshots.cache import cached
from stillweb.snapshots.http.acceptance import first_kind, special
from stillweb.snapshots.identity.cookies import SIGNED_IN, logins_of, telling_cookies
from stillweb.snapshots.identity.irrelevant import irrelevant_key
from stillweb.snapshots.request import SAFE_METHODS, Headers
from stillweb.snapshots.secrets.detect import PSEUDONYM_TEXT, has_format, looks_random, secret_header

# Fields with which a script asks for a fragment instead of a whole page.
FRAGMENT = frozenset(
    {
        "hx-request", "x-pjax", "x-inertia", "rsc", "next-router-state-tree", "next-router-prefetch",
        "turbo-frame", "x-requested-with"
    }
)  # fmt: skip
# Fields by which some servers decide the answer without naming them in Vary; each has rules of its own.
DECIDERS = FRAGMENT | {
    "hx-target",
    "accept",
    "accept-language",
    "x-http-method-override",
    "origin",
    "user-agent",
}
ACCEPT = "accept"
RANGE = "range"
# In place of a value: that there is one counts, whichever it is.
PRESENT = "(given)"


class _Names:
    """Names of fields: whole ones, what they begin and end with, and what is in them. A pattern takes long to make."""

    def __init__(
        self,
        whole: frozenset[str],
        starts: tuple[str, ...],
        ends: tuple[str, ...] = (),
        within: tuple[str, ...] = (),
    ) -> None:
        self.whole = whole
        self.starts = starts
        self.ends = ends
        self.within = within

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (
            name in self.whole
            or name.startswith(self.starts)
            or name.endswith(self.ends)
            or any(part in name for part in self.within)
        )


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Of the transport, and of proxies.
_CARRIED = _Names(
    _words(
        "alt-used cdn-loop client-ip connection content-length expect forwarded host http2-settings keep-alive max-forwards"
        " priority te trailer transfer-encoding true-client-ip upgrade via x-client-ip x-forwarded-for x-forwarded-host"
        " x-forwarded-path x-forwarded-port x-forwarded-prefix x-forwarded-proto x-forwarded-scheme x-forwarded-server"
        " x-forwarded-ssl x-real-ip"
    ),
    ("proxy-", "cf-connecting-", "cf-ray", "cf-visitor", ":"),
)
_OF_THE_REQUEST = tuple(
    f"{what}{dash}id"
    for what in _words("request correlation transaction span invocation")
    for dash in ("-", "")
)
# Drawn anew for each request, or derived from it, as gRPC's and Connect's remaining time.
_DRAWN = _Names(
    _words(
        "b3 baggage connect-timeout-ms content-sha256 date digest grpc-timeout idempotency-key x-idempotency-key newrelic sw8"
        " dpop x-wsse x-amz-content-sha256 x-goog-content-sha256"
        " x-amz-date x-goog-date x-ms-date x-oss-date x-obs-date x-tos-date x-sdk-date x-bce-date"
    ),
    ("amz-sdk-", "elastic-apm-", "sentry-", "uber-", "x-b3-", "x-datadog-", "x-instana-", "x-newrelic-"),
    (*_OF_THE_REQUEST, "-digest"),
    ("trace", "nonce", "timestamp", "signature", "hmac", "checksum", "retry-count", "retry-attempt"),
)
# Of browsers and of libraries, which say with them what they are, or how they store what they get.
_THEIRS = _Names(
    _words(
        "accept-charset accept-encoding accept-ranges age authorization available-dictionary"
        " content-encoding content-md5 content-transfer-encoding content-type cookie cookie2 device-memory"
        " dictionary-id dnt downlink dpr ect from ping-from ping-to pragma purpose range referer report-to rtt save-data"
        " service-worker viewport-width width x-amz-user-agent x-client-data x-goog-api-client x-moz x-purpose x-user-agent"
    ),
    ("cache-", "if-", "sec-", "upgrade-", "warcprox-", "x-claude-", "x-devtools-", "x-stainless-"),
)
# Tokens against forged requests: a new one for every visit, and the server looks whether it is there.
_TOKENS = ("csrf", "xsrf", "verification-token", "verificationtoken", "authenticity")
# What these hold names somebody or something even where it was drawn once.
_NAMING = (  # compiled where there are fields of an application
    r"(?:.*-)?(?:user|account|tenant|org|organi[sz]ation|workspace|project|customer|team|profile|member|owner|subject"
    r"|principal|identity|role|store|shop|realm|impersonate|on-behalf-of)(?:-?(?:u?id|uuid|guid|key|name|email))?"
    r"|last-event-id|(?:.*-)?client-(?:id|key)"
)
_TIME = re.compile(r"\d{9}|\d\d:\d\d")


@cached
def fields_of(headers: Headers) -> Mapping[str, str]:
    """Return the values of each field as one, by lower-case name."""
    found: dict[str, str] = {}
    for name, value in headers:
        low = name.lower()
        found[low] = f"{found[low]}, {value}" if low in found else value
    return found


@cached
def own_of(headers: Headers) -> Mapping[str, str]:
    """Return an application's own fields, by lower-case name: their values as one, `PRESENT` for a token.

    An Accept is one where it asks for a variant or version of a kind, and a Range where its unit is no byte: `items=0-24`.
    """
    found: dict[str, str] = {}
    accepted = []
    for name, value in headers:
        if (low := own_name(name) or _worded(name, value)) and value.strip() and not _drawn(low, value):
            found[low] = PRESENT if is_token(low) else f"{found[low]}, {value}" if low in found else value
        elif len(name) == len(ACCEPT) and name.lower() == ACCEPT:
            accepted.append(value)
        elif (
            len(name) == len(RANGE)
            and name.lower() == RANGE
            and not value.strip().lower().startswith("bytes")
        ):
            found[RANGE] = value
    if accepted and special(first_kind(accept := ", ".join(accepted))):
        found[ACCEPT] = accept
    return found


def fields_that_count(own: Mapping[str, str], method: str, url: str) -> Mapping[str, str]:
    """Return the fields of an application that count in a request for a URL.

    Tokens count for writes only; keys do not count for services that answer everybody alike.
    """
    if own and irrelevant_key(url):
        own = {name: value for name, value in own.items() if not is_secret(name, value)}
    if method in SAFE_METHODS and any(map(is_token, own)):
        return {name: value for name, value in own.items() if not is_token(name)}
    return own


@cached
def own_name(name: str) -> str:
    """Return a field's name in lower case if an application may have made it up, else ""."""
    low = name.lower()
    return "" if low in DECIDERS or low in _THEIRS or _mute(low) else low


def _worded(name: str, value: str) -> str:
    """Return the lower-case name of a field that holds a word, and only in a part is called what is drawn: `X-Trace-Mode: full`."""
    low = name.lower()
    return low if value.isalpha() and any(part in low for part in _DRAWN.within) else ""


def _mute(name: str) -> bool:
    """Return True if a field only concerns transport, or is drawn anew for each request."""
    return name == "accept-encoding" or name in _CARRIED or name in _DRAWN


def names_request(name: str) -> bool:
    """Return True if a field of this name holds an id of the request itself, which some servers repeat."""
    return name.lower().endswith(_OF_THE_REQUEST)


def is_drawn(name: str) -> bool:
    """Return True if clients draw or compute a field of this name for each request."""
    return name in _DRAWN


def is_token(name: str) -> bool:
    """Return True if a field of this name holds a token against forged requests."""
    return any(part in name for part in _TOKENS)


@cached
def is_secret(name: str, value: str) -> bool:
    """Return True if a field holds a secret or its pseudonym."""
    return (
        PSEUDONYM_TEXT.search(value) is not None
        or secret_header(name, value)
        or has_format(value.encode("utf-8", "surrogatepass"))
    )


@cached
def _drawn(name: str, value: str) -> bool:
    if is_token(name) or re.fullmatch(_NAMING, name) or is_secret(name, value):
        return False
    return looks_random(value) or _TIME.search(value) is not None


@cached
def has_client_fields(headers: Headers) -> bool:
    """Return True if the fields of a request identify its client or its choices."""
    cookies = False
    for name, value in headers:
        low = name.lower()
        if value and (low in FRAGMENT or low in (*SIGNED_IN, "origin")):
            return True
        cookies = cookies or low == "cookie"
    return bool(own_of(headers) or (cookies and (telling_cookies(headers) or logins_of(headers))))
