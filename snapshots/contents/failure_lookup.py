"""Requests that failed while recording, found again for those that fail the same way in replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import ada_url

from stillweb.snapshots.cache import Cache
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.contents.failures import TUNNEL, Failure
from stillweb.snapshots.identity.keys import Key, request_key, split_url
from stillweb.snapshots.identity.rules import NOTHING, Issued, RuleSet, rules_that_join
from stillweb.snapshots.identity.urlkeys import surt
from stillweb.snapshots.request import Request
from stillweb.snapshots.words import pluralize

_PORTS = {"http:": 80, "ws:": 80, "https:": 443, "wss:": 443}


class Store(Protocol):
    """The part of a snapshot that is needed here."""

    def failures(self, address: str | None = None, /) -> Iterable[Failure]: ...
    def metadata_addresses(self, start: str, /) -> Iterable[str]: ...
    def prefix(self, start: str, /) -> Iterator[Capture]: ...


class KnownFailure(NamedTuple):
    """A recorded failure that answers a request: its own, or (`tunnel`) that of the CONNECT to its host."""

    failure: Failure
    tunnel: str = ""

    @property
    def why(self) -> str:
        text = f"{self.failure.reason}: {self.failure.message}"
        if waited := self.failure.seconds_waited:
            text += f", after {pluralize(waited, 'second')}"
        if self.tunnel:
            return f"while recording, no tunnel to {self.tunnel} could be opened, either: {text}"
        return f"while recording, it got no answer, either: {text}"


class FailureLookup:
    """Look-up of failed requests; `issued` tells where a request holds values that its site gave out."""

    def __init__(self, snapshot: Store, rules: RuleSet, issued: Callable[[Request], Issued]) -> None:
        self._snapshot = snapshot
        self._rules, self._issued = rules, issued
        self._at = Cache[str, tuple[Failure, ...]](lambda address: tuple(snapshot.failures(address)))
        self._captured = Cache[str, bool]()

    def find(self, request: Request, key: Key, level: int) -> KnownFailure | None:
        """Return the failure of a request without captures; `level` is that of the lowest verdict accepted."""
        found = self._at[split_url(request.url)[0]]
        failure = self._same(request, key, level, found) if found else None
        return KnownFailure(failure) if failure is not None else self.tunnel(request.url)

    def tunnel(self, url: str) -> KnownFailure | None:
        """Return the failure of a tunnel to the host of a URL, if nothing was captured from that host."""
        place = _place(url)
        if place is None:
            return None
        host, port = place
        authority = host if port == 443 else f"{host}:{port}"
        found = _plainest(f for f in self._at[f"https://{authority}/"] if f.request.method == TUNNEL)
        if found is None or self._answered(host, port):
            return None
        if found.is_silent_tunnel and urlsplit(url).scheme in ("http", "ws"):
            return None  # it may just be no TLS that is spoken there
        return KnownFailure(found, f"{host}:{port}")

    def _same(self, request: Request, key: Key, level: int, found: tuple[Failure, ...]) -> Failure | None:
        known = [f for f in found if f.is_whole]
        kept = [f for f in known if not f.left_out]
        if level == 0:
            return _plainest(f for f in kept if request_key(f.request).exact == key.exact)
        same = _plainest(f for f in known if f.key == key.canonical)
        if same is not None or level < 3:  # rules
            return same
        rules, issued = self._rules.rules, self._issued(request) if kept else NOTHING
        return _plainest(f for f in kept if rules_that_join(request, f.request, rules, issued) is not None)

    def _answered(self, host: str, port: int) -> bool:
        """Return True if anything was captured from a host, or said to it over a web socket."""
        name = f"{host}:{port}"
        known = self._captured.get(name)
        if known is None:
            starts = {surt(f"{scheme}://{name}/") for scheme in ("http", "https")}
            captures = (c.url for start in starts for c in self._snapshot.prefix(start))
            sockets = self._snapshot.metadata_addresses("http")
            known = any(_place(url) == (host, port) for url in chain(captures, sockets))
            self._captured.keep(name, known)
        return known


def _plainest(found: Iterable[Failure]) -> Failure | None:
    """Return a failure of which the client was told, or else the one for which it waited longest."""
    return min(found, key=lambda failure: (failure.seconds_waited > 0, -failure.seconds_waited), default=None)


def _place(url: str) -> tuple[str, int] | None:
    """Return host and port of a URL, "" and 0 where it has none; None for text that is not a URL."""
    try:
        parsed = ada_url.URL(url)
    except ValueError:
        return None
    return str(parsed.hostname), int(parsed.port or _PORTS.get(parsed.protocol, 0))
