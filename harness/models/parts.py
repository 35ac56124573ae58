"""Parts of a tape: recorded separately by workers on several machines, then merged into the run's tape."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

from stillweb.harness.models.tape import SOFTWARE
from stillweb.snapshots.dates import EPOCH, parse_timestamp
from stillweb.snapshots.errors import UsageError


def make_empty(path: Path) -> None:
    """Make a tape without any call, so that no call is answered."""
    from stillweb.snapshots.writer import Writer

    Writer.open(path, software=SOFTWARE, keep_text=False).close()


def part_of(path: Path, name: str) -> Path:
    """Return the path where the worker `name` records its part of the tape at `path`."""
    return path.with_name(f"{path.name}.parts") / name


def gather(path: Path) -> int:
    """Merge the parts of a tape into it, remove them, and return how many were merged.

    A killed worker's part is merged, too. A part that is still being written is left for the next time.
    """
    folder = part_of(path, "x").parent
    parts = sorted(folder.iterdir()) if folder.exists() else []
    if not parts:
        return 0
    from stillweb.snapshots.capture import Exchange
    from stillweb.snapshots.snapshot import Snapshot
    from stillweb.snapshots.writer import Writer

    taken = 0
    with Writer.open(path, software=SOFTWARE, keep_text=False) as writer, Snapshot.open(str(path)) as tape:
        there = _by_session(tape)  # an interrupted merge has already taken some
        for part in parts:
            try:
                # raises while another process writes the part
                held = Writer.open(part, software=SOFTWARE, keep_text=False)
            except UsageError:
                continue
            with held, Snapshot.open(str(part)) as snapshot:
                for name, captures in sorted(_by_session(snapshot).items()):
                    done = [_content(c) for c in there.get(name, ())]
                    same = done == [_content(c) for c in captures[: len(done)]]
                    for capture in captures[len(done) if same else 0 :]:
                        request, response = snapshot.read_request(capture), snapshot.read(capture)
                        moment = parse_timestamp(capture.timestamp[:14]) or EPOCH
                        writer.exchange(
                            Exchange(
                                request,
                                response.status,
                                "",
                                response.headers,
                                response.body,
                                moment,
                                name,
                                capture.begin,
                                capture.end,
                            )
                        )
            shutil.rmtree(part)
            taken += 1
    if taken == len(parts):
        folder.rmdir()
    return taken


def _by_session(snapshot: Any) -> dict[str, list[Any]]:
    """Return the captures of each session in recorded order."""
    found: dict[str, list[Any]] = defaultdict(list)
    for capture in sorted(snapshot.captures(), key=lambda c: c.begin):
        found[capture.session].append(capture)
    return found


def _content(capture: Any) -> tuple[Any, ...]:
    return capture.timestamp[:14], capture.url, capture.exact, capture.status, capture.digest
