"""The layers of a snapshot: opening one path, and merging captures when one layer lies over another."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillweb.snapshots._os.places import BytesPlace
from stillweb.snapshots.capture import Capture, as_of, asked, seen
from stillweb.snapshots.contents.package import page_list_faults
from stillweb.snapshots.index.build import fits, join_lines, open_index
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
    container = open_container(path)
    if writer is not None and not fits(container):  # it has written records since it was opened
        container.close()
        # take the lines before opening the files, so that the files hold every record that the lines name
        index, known = Index(BytesPlace(join_lines(writer.lines()))), Built(profile=writer.profile)
        container = open_container(path)
    else:
        index, known = open_index(container, progress, checked=checked, aside=aside)
        known.notes += page_list_faults(container)
    known.notes += container.left_out
    if at:
        index = _index_as_of(index, at)
    if aside is not None:
        aside.add(index.lines())
    return Layer(container, index, known, prefix)


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


def answered(capture: Capture) -> tuple[tuple[Any, ...], ...]:
    """Return the `asked` tuples that a capture hides in lower layers.

    A whole response hides partial ones, too, but not the reverse.
    """
    found = asked(capture)
    return (found,) if found[-1] else (found, (*found[:-1], True))
