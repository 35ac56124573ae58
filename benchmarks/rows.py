"""List of the rows, in the order in which they are measured."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks import views
from benchmarks.archives import indexing, lookups, sealing
from benchmarks.bench import Bench, Row
from benchmarks.recording import playback, recording
from benchmarks.serving import against_nginx, against_peers, client_limit, connections, new_hosts, starting
from benchmarks.viewing import viewed

Measure = Callable[[Bench], list[Row]]


def small(bench: Bench) -> list[Row]:
    """5 KB pages."""
    return against_nginx(bench, "small", 1.0)


def mixed(bench: Bench) -> list[Row]:
    """HTML, CSS, scripts, images and PDFs."""
    return against_nginx(bench, "mixed", 0.7)


def in_browser(bench: Bench) -> list[Row]:
    """Views recorded and checked, and a session's browser."""
    return views.rows(1 if bench.quick else 3)


ROWS: dict[str, Measure] = {
    "client": client_limit,
    "small": small,
    "mixed": mixed,
    "peers": against_peers,
    "playback": playback,
    "connections": connections,
    "hosts": new_hosts,
    "recording": recording,
    "starting": starting,
    "lookups": lookups,
    "indexing": indexing,
    "sealing": sealing,
    "views": in_browser,
    "viewing": viewed,
}
