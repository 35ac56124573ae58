"""Messages of clients over web sockets, and their writes by HTTP: either may change what the other one brings.

A message to a server is not a request, so no slot holds it. What was said before a capture is compared as a whole with
what a session has said in replay.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.evidence.conditions import Store
from stillweb.snapshots.identity.irrelevant import irrelevant_url, is_sign_of_life
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.identity.urlkeys import site_prefix
from stillweb.snapshots.request import SAFE_METHODS

STRAYED = "?"  # said by a client that nobody recorded saying it
# Signs of life and messages of the protocol itself ("40", "2probe"): their number depends on time alone.
_LIFE = re.compile(
    r"[\d\W]*|\d?probe|.{0,60}\b(?:ping|pong|heart_?beat|keep_?-?alive|ka)\b.{0,60}", re.I | re.S
)

Words = Mapping[str, int]
UNKNOWN = ""  # what no session says
UNREAD: Words = {UNKNOWN: 1}


def word(entry: Mapping[str, Any]) -> str:
    """Return a stored message in the form that is counted; "" for one that says nothing."""
    text = str(entry.get("text", entry.get("base64", "")))
    plain = text
    if "text" not in entry:
        with suppress(ValueError):  # another tool's record, which is no conversation
            plain = b64decode(text).decode("latin-1")
    if ("text" in entry and _LIFE.fullmatch(text)) or is_sign_of_life(plain) is not False:
        return ""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


class SocketMessages:
    """The messages of clients by site and session, each with the last event before it. Read when first asked for."""

    def __init__(self, source: Store) -> None:
        self._source = source
        self._said: dict[str, dict[str, list[tuple[int, str]]]] | None = None
        self._written: dict[tuple[str, str], list[Capture]] = {}
        self._unread: set[str] = set()  # sites of which something can't be read
        self._before: dict[tuple[str, str, int], Words] = {}

    def on(self, site: str) -> bool:
        """Return True if a client sent web socket messages to a site, or they can't be read."""
        return site in self._all() or site in self._unread

    def before(self, capture: Capture) -> Words:
        """Return the messages that a capture's session had sent to the site before it; UNREAD if they can't be read."""
        site = site_of(capture.url)
        if site in self._unread:
            return UNREAD
        place = (site, capture.session, capture.begin)
        found = self._before.get(place)
        if found is None:
            words = self._all().get(site, {}).get(capture.session, [])
            found = self._before[place] = Counter(what for at, what in words if at < capture.begin)
        return found

    def writes(self, url: str, session: str) -> list[Capture]:
        """Return the captures of the writes of a recorded session to the site of an address, in order."""
        site = site_of(url)
        found = self._written.get((site, session))
        if found is None:
            own = (c for c in self._source.prefix(site_prefix(site)) if c.session == session)
            writes = (c for c in own if c.method not in SAFE_METHODS and site_of(c.url) == site)
            found = [c for c in writes if not irrelevant_url(c.url.partition("?")[0])]
            found.sort(key=lambda c: (c.begin, c.key))
            self._written[site, session] = found
        return found

    def _all(self) -> dict[str, dict[str, list[tuple[int, str]]]]:
        if self._said is None:
            found: dict[str, dict[str, list[tuple[int, str]]]] = {}
            for address, talk in self._talks():
                events = talk.get("events", ())
                words = [
                    (int(event), what)
                    for event, entry in zip(events, talk["messages"], strict=False)
                    if entry.get("from") == "client" and (what := word(entry))
                ]
                if events and talk.get("left_out"):  # more was said, that nobody knows
                    words.append((int(events[-1]), UNKNOWN))
                if words:
                    by_session = found.setdefault(site_of(address), {})
                    by_session.setdefault(str(talk.get("session", "")), []).extend(words)
            self._said = found
        return self._said

    def _talks(self) -> Iterator[tuple[str, dict[str, Any]]]:
        addresses = self._source.metadata_addresses("http")
        for address in (one for one in addresses if "#" not in one):  # of views
            try:
                for talk in self._source.said_at(address):
                    yield address, talk
            except DamagedInput:  # the socket itself says so; of its site nothing is sure
                self._unread.add(site_of(address))
