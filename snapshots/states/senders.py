"""What the header fields of a request say of its client: found out once for all requests that have the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from stillweb.snapshots.http.fragments import FIELDS, asks_for_fragment
from stillweb.snapshots.identity.keys import overridden
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.states.conditions import short
from stillweb.snapshots.states.header_fields import own_of
from stillweb.snapshots.states.plain import clients_of
from stillweb.snapshots.states.slots import choices_of, cookies_of, credentials_of, logins_of, telling_of


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sent a request, as far as its fields tell; to be shared, so not to be changed."""

    choices: dict[str, str]  # cookies that may be choices
    chosen: str  # a hash of them
    hashes: tuple[tuple[str, str, str], ...]  # of each its name, then both as 8 hex digits; sorted
    clients: list[str]  # values of cookies by which a server knows its client
    logins: list[str]  # names of those of logins
    cookies: frozenset[str]  # names of all
    credentials: str
    fragment: bool  # whether a script asks for a fragment
    overridden: bool  # whether a field replaces the method
    own: Mapping[str, str]  # fields of an application


@lru_cache(maxsize=1024)
def sender_of(headers: Headers) -> Sender:
    """Who sends these fields. A client sends the same ones again and again."""
    choices = choices_of(headers)
    pairs = sorted(choices.items())
    return Sender(
        choices,
        short(*sorted(f"{name}={value}" for name, value in pairs)) if choices else "",
        tuple((name, short(name), short(value)) for name, value in pairs),
        clients_of(headers),
        logins_of(headers),
        frozenset(name for name, _ in cookies_of(headers)),
        credentials_of(headers),
        asks_for_fragment(Request("GET", "", headers)),
        overridden(Request("GET", "", headers)),
        own_of(headers),
    )


NOBODY = sender_of(())


SILENT, SIGNED, TELLING = range(3)


@lru_cache(maxsize=1 << 12)
def bearing(headers: Headers) -> int:
    """Whether a request's fields say nothing for which its address alone may not decide, only that its client is known
    by a login's cookie, or more: who or what it asks for.
    """
    cookies = False
    for name, value in headers:
        low = name.lower()
        if value and (low in FIELDS or low in ("authorization", "origin")):
            return TELLING
        cookies = cookies or low == "cookie"
    if own_of(headers) or (cookies and telling_of(headers)):
        return TELLING
    return SIGNED if cookies and logins_of(headers) else SILENT
