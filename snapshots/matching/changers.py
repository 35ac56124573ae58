"""Which recorded request writes a value of a slot, in words for people: `POST /filter (category=toys)`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from stillweb.snapshots.identity.keys import parse
from stillweb.snapshots.states.conditions import read
from stillweb.snapshots.states.issued import named_values

if TYPE_CHECKING:
    from stillweb.snapshots.capture import Capture
    from stillweb.snapshots.request import Request

LONGEST = 60  # characters of what was told


class Source(Protocol):
    """What is needed of a snapshot."""

    def changing(self, site: str | None = None, /) -> Iterable[Capture]: ...
    def read_request(self, capture: Capture, /) -> Request: ...


class Changers:
    """The writers of a site's slots. Found in the index once; a request is only read when it is named."""

    def __init__(self, source: Source, site: str) -> None:
        self._source = source
        self._found: dict[tuple[str, str], Capture] = {}
        self._words: dict[tuple[str, str], str] = {}
        for capture in source.changing(site):
            effect = read(capture.state).effect if capture.changes else None
            if effect is not None:
                self._found.setdefault((effect.slot, ""), capture)
                self._found.setdefault((effect.slot, effect.value), capture)

    def named(self, slot: str, value: str, otherwise: str = "a change") -> str:
        """What writes a value there; where that is not known, what writes there at all."""
        for place in ((slot, value), (slot, "")):
            capture = self._found.get(place)
            if capture is not None:
                if place not in self._words:
                    self._words[place] = self._say(capture, told=place[1] != "")
                return self._words[place]
        return otherwise

    def _say(self, capture: Capture, *, told: bool) -> str:
        name = f"{capture.method} {_path(capture.url)}"
        if not told:
            return name
        pairs = named_values(parse(self._source.read_request(capture)))
        text = ", ".join(f"{n}={v}" for _, n, v in pairs)
        return f"{name} ({text[:LONGEST]})" if text else name


def _path(url: str) -> str:
    try:
        return urlsplit(url).path
    except ValueError:  # brackets that hold no address
        return url
