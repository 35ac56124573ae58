"""Exports of a run in formats that other tools' viewers open.

    openinference.py    a trace as OTLP/JSON spans with OpenInference's attribute names
    attempts_csv.py     one row per attempt, for a spreadsheet
    inspect_log.py      one inspect log of all attempts
    publication.py      a run as it may be published, encrypted where its task set is, and its way to a store

Times are those of the run if the trace has them, else counted from 0, so that an export depends on the run's
files alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from stillweb.harness.runs.run_files import RunFiles
from stillweb.harness.trace import Trace
from stillweb.snapshots.warc.appending import write_whole


def write(out: Path, pieces: Iterable[bytes]) -> None:
    """Write a file atomically; write to anything else (a pipe, /dev/stdout) piece by piece."""
    if out.exists() and not out.is_file():
        with out.open("wb") as file:
            file.writelines(pieces)
    else:
        write_whole(out.resolve(), pieces)


def finished(path: Path) -> Iterator[Trace]:
    """Yield the traces of a run's finished attempts, in the run's order."""
    for _task, _number, trace in RunFiles(path).attempts():
        if trace is not None:
            yield trace


def start_of(trace: Trace) -> int:
    """Return the start of an attempt in nanoseconds since 1970, 0 if its trace doesn't say."""
    started = (trace.header.get("aside") or {}).get("started")
    return int(started * 1e9) if isinstance(started, (int, float)) else 0
