"""Events: what a request leaves in a session's history, and the history itself."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import parse_qsl, urljoin, urlsplit

from stillweb.snapshots.capture import Response
from stillweb.snapshots.evidence.reductions import mix
from stillweb.snapshots.request import Request

DIGITS = re.compile(r"\d+")
ASSET = re.compile(r"javascript|css|image/|font|video/|audio/|wasm")
SAFE = ("GET", "HEAD", "OPTIONS")
Parameters = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Event:
    """One request in a session's history. `said` is a number for its answer, 0 while that is unknown."""

    type: str  # method, path without numbers, names of parameters, operation
    kind: str  # a kind of type, see priors
    key: int
    parameters: Parameters
    ids: frozenset[str]  # the numbers of its path and the values that it sends
    path: str = ""  # host and path
    leads: str = ""  # host and path that its redirect leads to
    said: int = 0

    @property
    def safe(self) -> bool:
        """Return True if the request only reads, by its method."""
        return self.kind in ("plain GET", "choosing GET", "asset")


def event_of(request: Request, key: str, response: Response | None, said: int = 0) -> Event:
    """Return the event of `request`, whose lossless key is `key`, answered by `response` (None for no answer)."""
    parts = urlsplit(request.url)
    parameters, operation = _parameters(request, parts.query)
    ids = tuple(DIGITS.findall(parts.path))
    media = (response.header("content-type") or "") if response is not None else ""
    kind = _kind(request, parts.query, operation, media, response.status if response is not None else 0)
    names = ",".join(sorted({n for n, _ in parameters}))
    name = f"{request.method} {parts.netloc}{DIGITS.sub('0', parts.path)} {names} {operation}"
    if response is not None and response.status >= 400 and request.method not in SAFE:
        name, kind = name + " refused", "weak write"
    told = tuple((f"#{n}", v) for n, v in enumerate(ids)) + tuple(sorted(parameters))
    condition = request.header("if-match") or ""
    to = response.header("location") if response is not None and 300 <= response.status < 400 else None
    aim = urlsplit(urljoin(request.url, to)) if to else None
    return Event(
        name,
        kind,
        mix(key, condition),
        told,
        frozenset(v for _, v in told),
        parts.netloc + parts.path,
        aim.netloc + aim.path if aim else "",
        said,
    )


def _kind(request: Request, query: str, operation: str, media: str, status: int) -> str:
    """Return the kind of an event's type by what can be seen of it alone."""
    redirects = 300 <= status < 400 and status != 304
    if request.method == "GET" and ASSET.search(media):
        return "asset"
    if request.method in SAFE:
        return "weak write" if redirects and query else "choosing GET" if redirects or query else "plain GET"
    if request.method == "POST" and operation and not operation.lstrip().startswith("mutation"):
        return "choosing GET"
    if request.method == "POST" and status == 200 and "json" in media:
        return "weak write"
    return "write"


def _parameters(request: Request, query: str) -> tuple[list[tuple[str, str]], str]:
    """Return the named values that a request sends, and its GraphQL operation."""
    found = parse_qsl(query, keep_blank_values=True)
    if not request.body:
        return found, ""
    body, operation = request.body.decode("utf-8", "replace"), ""
    if "json" in (request.header("content-type") or ""):
        try:
            value = json.loads(body)
        except ValueError:
            value = body
        found += _flat("", value)
        if isinstance(value, dict) and isinstance(value.get("query"), str):
            operation = value["query"]
            found = [p for p in found if p[0] != "query"]
    else:
        found += parse_qsl(body, keep_blank_values=True) or [("body", body)]
    return found, operation


def _flat(prefix: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(f"{prefix}.{name}" if prefix else name, inner)
    else:
        yield prefix, value if isinstance(value, str) else json.dumps(value)


class History:
    """The events of one session at one site, in order. A place is a number of events: what came before the event of that number."""

    __slots__ = ("_chains", "_keys", "_places", "events", "marks")

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.marks: list[int] = [0]  # by place, a number for all that happened before
        self._places: dict[str, list[int]] = {}  # by type
        self._chains: dict[str, list[int]] = {}  # the same as `marks`, of one type alone
        self._keys: dict[int, list[int]] = {}  # places by key

    def __len__(self) -> int:
        return len(self.events)

    def add(self, event: Event) -> None:
        """Append `event`."""
        self._places.setdefault(event.type, []).append(len(self.events))
        self._keys.setdefault(event.key, []).append(len(self.events))
        chain = self._chains.setdefault(event.type, [0])
        chain.append(hash((chain[-1], event.key)))
        self.marks.append(hash((self.marks[-1], event.key)))
        self.events.append(event)

    def types(self, place: int) -> Iterator[str]:
        """Yield the types that happened before `place`."""
        return (t for t, places in self._places.items() if places[0] < place)

    def mark(self, kind: str, place: int) -> int:
        """Return a number for the events of one type before `place`; equal where they are."""
        places = self._places.get(kind)
        return self._chains[kind][bisect_left(places, place)] if places else 0

    def places(self, kinds: Iterable[str]) -> list[int]:
        """Return the places of the events of some types, in order."""
        found = [p for kind in kinds for p in self._places.get(kind, ())]
        found.sort()
        return found

    def asked(self, key: int) -> list[int]:
        """Return the places of the events of one request."""
        return self._keys.get(key, [])
