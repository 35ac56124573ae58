"""Shared parts of all rows: the corpus, the snapshots, a run of the load client, and the class of a row."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import corpus, load, servers
from benchmarks.load import Load
from benchmarks.servers import Server

TURN = 1.0  # seconds of a turn
SETTLED = 20.0  # seconds that a server may go on working after its turn
USERS = tuple(f"session-{n}" for n in range(64))


class NotRun(Exception):
    """A row that can't be measured here, and why: a peer that can't be installed or started."""


@dataclass
class Row:
    """One result. `ratio` is ours against theirs (None: an absolute figure), `bar` what is to be reached.

    `held` None: there is no bar. `data` is for plots.
    """

    name: str
    ours: str
    theirs: str = ""
    ratio: float | None = None
    bar: str = ""
    held: bool | None = None
    note: str = ""
    data: dict[str, Any] = field(default_factory=dict)


@dataclass
class Bench:
    """The run: how long, and on what."""

    work: Path
    quick: bool
    seconds: float
    rounds: int
    small: list[tuple[str, int]] = field(default_factory=list)
    mixed: list[tuple[str, int]] = field(default_factory=list)

    def prepare(self) -> None:
        """Corpus and snapshots."""
        self.work.mkdir(parents=True, exist_ok=True)
        servers.authority(self.work)
        self.small = corpus.small(self.work / "small")
        self.mixed = corpus.mixed(self.work / "mixed", 200 if self.quick else 600)
        servers.record(self.work, self.work / "small", self.small, "small.snapshot")
        servers.record(self.work, self.work / "mixed", self.mixed, "mixed.snapshot")

    def urls(self, which: str) -> list[tuple[str, int]]:
        """Paths and sizes."""
        return self.small if which == "small" else self.mixed

    def load(
        self,
        server: Server,
        which: str | list[tuple[str, int]],
        connections: int = 8,
        *,
        warm: bool = True,
        seconds: float = 0.0,
        start: int = 0,
    ) -> Load:
        """A run after a short one that warms up, with the CPU time the server took for each request."""
        urls = self.urls(which) if isinstance(which, str) else which
        if server.alters:  # a banner in the page: its length is its own
            urls = [(path, -1) for path, _ in urls]
        more: Any = {"urls": urls, "users": USERS, "fresh": server.fresh, **server.target()}
        if warm:
            load.run(connections=min(connections, 8), seconds=self.seconds / 3, **more)
        before = servers.cpu(server.pid)
        result = load.run(connections=connections, seconds=seconds or self.seconds, start=start, **more)
        _settle(server.pid)
        server.more["cpu_us"] = (servers.cpu(server.pid) - before) / max(1, result.requests) * 1e6
        return result

    def turns(
        self,
        running: list[Server],
        which: str | list[tuple[str, int]],
        rounds: int,
        *,
        seconds: float = TURN,
        advance: int = 0,
    ) -> dict[str, Turns]:
        """Load all servers in short turns, so that other work of the machine slows them alike.

        `advance` is how much further in the list each round begins.
        """
        found = {server.name: Turns() for server in running}
        for number in range(rounds):
            for server in running:
                start = number * advance
                result = self.load(server, which, warm=False, seconds=seconds, start=start)
                found[server.name].loads.append(result)
                found[server.name].cpu.append(server.more["cpu_us"])
        return found


def _settle(pid: int) -> None:
    """Waits until a server has done what it put off, such as writing: it is part of its cost, not of the next one's turn."""
    end = time.monotonic() + SETTLED
    used = servers.cpu(pid)
    while time.monotonic() < end:
        time.sleep(0.1)
        before, used = used, servers.cpu(pid)
        if used - before <= 0.01:
            return


@dataclass
class Turns:
    """The runs of one server, a turn each."""

    loads: list[Load] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)  # µs a request

    @property
    def middle(self) -> Load:
        """The run of median rate."""
        return sorted(self.loads, key=lambda r: r.rate)[len(self.loads) // 2]

    @property
    def errors(self) -> int:
        """In all runs."""
        return sum(r.errors for r in self.loads)

    @property
    def first_error(self) -> str:
        """Of all runs."""
        return next((r.first_error for r in self.loads if r.first_error), "")

    def against(self, other: Turns) -> float | None:
        """The median of the ratios of rates, turn by turn; None when the other answered nothing."""
        pairs = [a.rate / b.rate for a, b in zip(self.loads, other.loads, strict=True) if b.rate]
        return statistics.median(pairs) if pairs else None

    def told(self) -> str:
        """In words."""
        text = f"{self.middle.rate:,.0f}/s, p99 {self.middle.p99 * 1e3:.2f} ms, {statistics.median(self.cpu):.0f} µs CPU each"
        return text + (f", {self.errors} errors ({self.first_error})" if self.errors else "")


def told(result: Load, server: Server) -> str:
    """A run in words."""
    text = (
        f"{result.rate:,.0f}/s, p99 {result.p99 * 1e3:.2f} ms, {server.more.get('cpu_us', 0):.0f} µs CPU each"
    )
    return text + (f", {result.errors} errors ({result.first_error})" if result.errors else "")
