"""What clients said over web sockets, and what they wrote by HTTP beside it: either may change what the other one brings.

A message to a server is no request, so no slot holds it. What was said before a capture is compared as a whole with
what a session has said in replay.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from snapshots.capture import Capture
from snapshots.identity.irrelevant import irrelevant_url
from snapshots.identity.sites import site_of
from snapshots.states.conditions import short
from snapshots.states.slots import SAFE_METHODS

STRAYED = "?"  # said by a client that nobody recorded saying it
# Signs of life, and what is said to a protocol alone ("40", "2probe"): how many there are, time decides.
_LIFE = re.compile(
    r"[\d\W]*|\d?probe|.{0,60}\b(?:ping|pong|heart_?beat|keep_?-?alive|ka)\b.{0,60}", re.I | re.S
)

Words = Mapping[str, int]


class Source(Protocol):
    """What is needed of a snapshot."""

    def captures(self) -> Iterable[Capture]: ...
    def conversations(self) -> Iterator[tuple[str, dict[str, Any]]]: ...


def word(entry: Mapping[str, Any]) -> str:
    """A stored message as it is counted; "" for one that says nothing."""
    text = str(entry.get("text", entry.get("base64", "")))
    return "" if "text" in entry and _LIFE.fullmatch(text) else short(text)


class Spoken:
    """The messages of clients by site and session, each with the last event before it. Read when first asked for."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._said: dict[str, dict[str, list[tuple[int, str]]]] | None = None
        self._written: dict[tuple[str, str], list[tuple[int, str]]] | None = None
        self._before: dict[tuple[str, str, int], Words] = {}

    def on(self, site: str) -> bool:
        """Whether a client said something there, and it is known when."""
        return site in self._all()

    def before(self, capture: Capture) -> Words:
        """What its session had said to its site when it was asked for."""
        site = site_of(capture.url)
        place = (site, capture.session, capture.begin)
        found = self._before.get(place)
        if found is None:
            said = self._all().get(site, {}).get(capture.session, [])
            found = self._before[place] = Counter(what for at, what in said if at < capture.begin)
        return found

    def written(self, url: str, session: str) -> list[tuple[int, str]]:
        """What a recorded session wrote to the site of an address: event and key of each request, in order."""
        if self._written is None:
            written = defaultdict(list)
            for one in self._source.captures():
                if one.method not in SAFE_METHODS and not irrelevant_url(one.url.partition("?")[0]):
                    written[site_of(one.url), one.session].append((one.begin, one.key))
            self._written = {place: sorted(those) for place, those in written.items()}
        return self._written.get((site_of(url), session), [])

    def _all(self) -> dict[str, dict[str, list[tuple[int, str]]]]:
        if self._said is None:
            found: dict[str, dict[str, list[tuple[int, str]]]] = {}
            for address, talk in self._source.conversations():
                for event, entry in zip(talk.get("events", ()), talk["messages"], strict=False):
                    if entry.get("from") == "client" and (what := word(entry)):
                        by_session = found.setdefault(site_of(address), {})
                        by_session.setdefault(str(talk.get("session", "")), []).append((int(event), what))
            self._said = found
        return self._said
