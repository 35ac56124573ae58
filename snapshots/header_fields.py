"""Header fields that an application made up (`X-User: ann`), by which its answers may differ whatever Vary says.

All fields are taken for such, but those of browsers, proxies and well-known libraries, and what is drawn for each request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from snapshots.credentials import PSEUDONYM_TEXT, looks_random, secret_header
from snapshots.request import Headers, Request

# Fields by which some servers decide the answer without naming them in Vary; each has rules of its own.
DECIDERS = (
    "hx-request",
    "hx-target",
    "x-requested-with",
    "x-pjax",
    "x-inertia",
    "rsc",
    "next-router-state-tree",
    "next-router-prefetch",
    "turbo-frame",
    "accept",
    "accept-language",
    "x-http-method-override",
    "origin",
    "user-agent",
)
# In place of a value: that there is one counts, whichever it is.
PRESENT = "(given)"

# Of the transport, and of proxies.
_CARRIED = (
    r"alt-used|connection|content-length|expect|forwarded|host|http2-settings|keep-alive|max-forwards|priority|proxy-.*"
    r"|te|trailer|transfer-encoding|upgrade|via|:.*"
    r"|x-forwarded-(?:for|host|path|port|prefix|proto|scheme|server|ssl)|x-real-ip|(?:true-|x-)?client-ip|cdn-loop|cf-.*"
)
# Drawn anew for each request, or made from it.
_DRAWN = (
    r"x-b3-.*|b3|x-datadog-.*|sentry-.*|newrelic|x-newrelic-.*|elastic-apm-.*|x-instana-.*|uber-.*|sw8|baggage|idempotency-key"
    r"|date|.*(?:request|correlation|transaction|span|invocation)-?id|.*(?:trace|nonce|timestamp|signature|hmac|checksum).*"
    r"|.*retry-(?:count|attempt).*|(?:x-amz-)?(?:content-sha256|date)|digest|.*-digest|amz-sdk-.*"
)
# Of browsers and of libraries, which say with them what they are, or how they store what they get.
_THEIRS = (
    r"accept-(?:charset|encoding|ranges)|age|authorization|available-dictionary|cache-.*"
    r"|content-(?:disposition|encoding|location|md5|transfer-encoding|type)|cookie2?|dictionary-id|dnt|from|if-.*|pragma|purpose"
    r"|range|referer|save-data|sec-.*|service-worker|upgrade-.*|x-client-data|x-moz|x-purpose"
    r"|dpr|viewport-width|width|device-memory|downlink|ect|rtt|report-to|ping-(?:from|to)"
    r"|x-stainless-.*|x-goog-api-client|x-amz-user-agent|x-user-agent|x-devtools-.*|warcprox-.*"
)
_IDLE = re.compile(f"{_CARRIED}|{_DRAWN}|{_THEIRS}")
_MUTE = re.compile(f"{_CARRIED}|{_DRAWN}|accept-encoding")
# Tokens against forged requests: a new one for every visit, and the server looks whether it is there.
_TOKEN = re.compile(r".*(?:csrf|xsrf|verification-?token|authenticity).*")
# What these hold names somebody or something even where it was drawn once.
_NAMING = re.compile(
    r"(?:.*-)?(?:user|account|tenant|org|organi[sz]ation|workspace|project|customer|team|profile|member|owner|subject"
    r"|principal|identity|role|store|shop|realm|impersonate|on-behalf-of)(?:-?(?:u?id|uuid|guid|key|name|email))?"
    r"|last-event-id|(?:.*-)?client-(?:id|key)"
)
_TIME = re.compile(r"\d{9}|\d\d:\d\d")


@lru_cache(maxsize=1024)
def fields_of(headers: Headers) -> Mapping[str, str]:
    """The first value of each field, by lower-case name. A client sends the same ones again and again."""
    return {name.lower(): value for name, value in reversed(headers)}


@lru_cache(maxsize=1024)
def own_of(headers: Headers) -> Mapping[str, str]:
    """Those of an application, by lower-case name: their values as one, `PRESENT` for a token."""
    found: dict[str, str] = {}
    for name, value in headers:
        if (low := own_name(name)) and value.strip() and not _drawn(low, value):
            found[low] = PRESENT if is_token(low) else f"{found[low]}, {value}" if low in found else value
    return found


def own_fields(requests: list[Request]) -> list[str]:
    """The header fields of an application in some requests, but those that hold something drawn in any."""
    found, drawn = set[str](), set[str]()
    for headers in {request.headers for request in requests}:
        for name, value in headers:
            if low := own_name(name):
                (drawn if _drawn(low, value) else found).add(low)
    return sorted(found - drawn)


def all_of(headers: Headers) -> tuple[tuple[str, str], ...]:
    """All that the fields of a request say but how it is carried and what is drawn for each one, to be compared."""
    return tuple(sorted((low, v) for n, v in headers if not _MUTE.fullmatch(low := n.lower())))


@lru_cache(maxsize=4096)
def own_name(name: str) -> str:
    """The name of a field in lower case if an application may have made it up; else nothing."""
    low = name.lower()
    return "" if low in DECIDERS or _IDLE.fullmatch(low) else low


def is_token(name: str) -> bool:
    """Whether a field of this name holds a token against forged requests."""
    return _TOKEN.fullmatch(name) is not None


def is_secret(name: str, value: str) -> bool:
    """Whether a field holds a secret, or what stands for one."""
    return PSEUDONYM_TEXT.search(value) is not None or secret_header(name, value)


@lru_cache(maxsize=1024)
def _drawn(name: str, value: str) -> bool:
    if is_token(name) or _NAMING.fullmatch(name) or is_secret(name, value):
        return False
    return looks_random(value) or _TIME.search(value) is not None
