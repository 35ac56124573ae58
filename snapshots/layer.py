"""The layers of a snapshot: opening one path, merging captures of several, and the captures seen as of a date."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillweb.snapshots._os.places import BytesPlace
from stillweb.snapshots.capture import PARTIAL, Capture
from stillweb.snapshots.contents.package import page_list_faults
from stillweb.snapshots.dates import EPOCH, parse_timestamp
from stillweb.snapshots.index.build import join_lines, open_index
from stillweb.snapshots.index.cdxj import Index, parse_line, to_capture
from stillweb.snapshots.index.indexing import Progress
from stillweb.snapshots.index.kept import Built
from stillweb.snapshots.opening import open_container
from stillweb.snapshots.remote import is_remote
from stillweb.snapshots.warc.container import Container

if TYPE_CHECKING:
    from stillweb.snapshots.index.on_disk import OnDisk


@dataclass(slots=True)
class Layer:
    """One path of a snapshot. `prefix` keeps the file names of layers apart; the first layer has none."""

    container: Container
    index: Index
    known: Built
    prefix: str = ""

    def named(self, capture: Capture) -> Capture:
        """Return a capture of this layer with the layer's prefix on its file names."""
        if not self.prefix:
            return capture
        original = capture.original
        if original is not None:
            original = (self.prefix + original[0], original[1], original[2])
        return replace(capture, filename=self.prefix + capture.filename, original=original)


def open_layer(
    path: str | os.PathLike[str],
    prefix: str,
    progress: Progress | None,
    checked: bool,
    aside: OnDisk | None,
    at: str = "",
) -> Layer:
    """Open one path of a snapshot; the parameters are those of `Snapshot.open`."""
    writer = None
    if not is_remote(path):
        from stillweb.snapshots.writer import LIVE

        writer = LIVE.get(str(Path(path).resolve()))
    if writer is not None:
        # take the lines before opening the files, so that the files hold every record that the lines name
        index, known = Index(BytesPlace(join_lines(writer.lines()))), Built(profile=writer.profile)
        container = open_container(path)
    else:
        container = open_container(path)
        index, known = open_index(container, progress, checked=checked, aside=aside)
        known.notes += page_list_faults(container)
    known.notes += container.left_out
    if at:
        index = _index_as_of(index, at)
    if aside is not None:
        aside.add(index.lines())
    return Layer(container, index, known, prefix)


VISIT = timedelta(days=1)  # the longest visit of one session, as far as a date is concerned


def seen(timestamp: str, at: str) -> bool:
    """Return True if a timestamp is not later than `at`: 17 digits, "latest", or "" for as recorded."""
    return at in ("", "latest") or timestamp.ljust(17, "0") <= at


def as_of(captures: Iterable[Capture], at: str) -> list[Capture]:
    """Return the captures that are seen at `at`: none later, and of each request those of its newest visit.

    A visit is one session's captures of at most a day: what a site answered before and after a login or a
    post stays, as both belong to it. Every date that a user or a client names is applied here.
    """
    known = [c for c in captures if seen(c.timestamp, at)]
    newest: dict[tuple[Any, ...], Capture] = {}
    for capture in known:
        last = newest.get(asked(capture))
        if last is None or (capture.timestamp.ljust(17, "0"), capture.begin) >= (
            last.timestamp.ljust(17, "0"),
            last.begin,
        ):
            newest[asked(capture)] = capture
    return [c for c in known if _of_visit(c, newest[asked(c)])]


def _of_visit(capture: Capture, newest: Capture) -> bool:
    if capture is newest:
        return True
    if not newest.session or capture.session != newest.session:
        return False
    moments = [parse_timestamp(c.timestamp) or EPOCH for c in (capture, newest)]
    return moments[1] - moments[0] < VISIT


def _index_as_of(index: Index, at: str) -> Index:
    """Return an index of what is seen at `at`."""
    lines = [line for line in index.lines() if seen(line.split(b" ", 2)[1].decode(), at)]
    captures = {n: to_capture(*parse_line(x)) for n, x in enumerate(lines) if not x.startswith(b"urn:")}
    kept = {id(capture) for capture in as_of(captures.values(), at)}
    shown = [x for n, x in enumerate(lines) if n not in captures or id(captures[n]) in kept]
    return Index(BytesPlace(join_lines(shown)))


def overlaid(parts: list[list[Capture]]) -> tuple[Capture, ...]:
    """Merge captures of layers, lowest first: the highest layer answers a request."""
    kept: list[Capture] = []
    seen: set[tuple[Any, ...]] = set()
    for captures in reversed(parts):
        kept += [c for c in captures if asked(c) not in seen]
        seen.update(one for c in captures for one in answered(c))
    return tuple(sorted(kept, key=lambda c: (c.urlkey, c.timestamp)))


def asked(capture: Capture) -> tuple[Any, ...]:
    """Return what a capture answers: key, Vary values, and True for a partial response."""
    return capture.key, capture.vary, capture.status in PARTIAL


def answered(capture: Capture) -> tuple[tuple[Any, ...], ...]:
    """Return the `asked` tuples that a capture hides in lower layers.

    A whole response hides partial ones, too, but not the reverse.
    """
    found = asked(capture)
    return (found,) if found[-1] else (found, (*found[:-1], True))
