"""Header fields that an application made up (`X-User: ann`), by which its answers may differ."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache

from snapshots.credentials import PSEUDONYM_TEXT, looks_random
from snapshots.evidence import DECIDERS
from snapshots.request import Headers, Request

# Fields of one's own that no answer is chosen by: of the transport, of caches, or drawn anew for each request.
_IDLE = re.compile(
    r"(?:accept|cache|content|if|keep|proxy|sec|sentry|upgrade|x-b3|x-datadog|x-forwarded)-.*|age|authorization|baggage"
    r"|connection|cookie2?|date|dnt|expect|forwarded|from|host|idempotency-key|max-forwards|pragma|priority|purpose"
    r"|range|referer|save-data|te|trailer|transfer-encoding|upgrade|via|x-client-data"
    r"|.*(?:request|correlation|transaction|span)-?id|.*(?:trace|nonce|timestamp).*"
)
_TIME = re.compile(r"\d{9}|\d\d:\d\d")


@lru_cache(maxsize=1024)
def fields_of(headers: Headers) -> Mapping[str, str]:
    """The first value of each field, by lower-case name. A client sends the same ones again and again."""
    return {name.lower(): value for name, value in reversed(headers)}


def own_fields(requests: list[Request]) -> list[str]:
    """The header fields by which requests differ, of those that an application may have made up."""
    values: dict[str, set[str]] = defaultdict(set)
    for headers in {request.headers for request in requests}:
        for name, value in headers:
            values[name.lower()].add(value)
    return [name for name in sorted(values) if not _idle(name) and not any(map(_drawn, values[name]))]


@lru_cache(maxsize=1024)
def _idle(name: str) -> bool:
    return name in DECIDERS or _IDLE.fullmatch(name) is not None


@lru_cache(maxsize=1024)
def _drawn(value: str) -> bool:
    return PSEUDONYM_TEXT.search(value) is None and (looks_random(value) or _TIME.search(value) is not None)
