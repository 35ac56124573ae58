"""Several archive files opened together: a revisit in one file may repeat a payload in another."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.index.on_disk import OnDisk
from stillweb.snapshots.index.resolving import NOWHERE
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.warc.container import SUFFIXES

AnyPath = str | os.PathLike[str]


class SideBySide:
    """The archive files among `files`, opened together as one snapshot on first need."""

    def __init__(self, files: Sequence[AnyPath] = ()) -> None:
        self._files = files
        self._stack = ExitStack()
        self._wider: Snapshot | None = None
        self._names: dict[Path, str] = {}  # their names in the combined snapshot, which begin with six digits
        self._notes: dict[str, set[str]] = defaultdict(set)  # notes on each of them
        self._held: OnDisk | None = None

    def captures_of(
        self, source: Snapshot, path: AnyPath, held: OnDisk
    ) -> tuple[Snapshot, int, Iterator[Capture], list[str]]:
        """Return a snapshot to read the captures of `path` from, their number, the captures and notes.

        `held` are the captures of `source`, the snapshot at `path`. The combined snapshot of all files is
        used if the revisits of `source` repeat payloads that none of its own files has. Captures are in
        recorded order.
        """
        lacking = any(note.endswith(NOWHERE) for note in source.notes)
        wider = self._wider or self._widen() if lacking and _is_archive(Path(path)) else None
        if wider is None or self._held is None:
            return source, held.count(), held.captures(), source.notes
        name, lead = self._names[Path(path).resolve()], Path(path).name
        told = self._notes[name]
        notes = [
            note for note in source.notes if not note.endswith(NOWHERE) or note.removeprefix(lead) in told
        ]
        return wider, self._held.count(name), self._held.captures(name), notes

    def _widen(self) -> Snapshot | None:
        archives = list(
            dict.fromkeys(Path(file).resolve() for file in self._files if _is_archive(Path(file)))
        )
        if len(archives) < 2:
            return None
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="stillweb-")))
        for number, file in enumerate(archives):
            # files in different folders may have the same name
            name = self._names[file] = f"{number:06d}-{file.name}"
            (folder / name).symlink_to(file)
        self._held = self._stack.enter_context(OnDisk())
        self._wider = self._stack.enter_context(Snapshot.open(folder, aside=self._held))
        self._held.index_names()
        numbered = {name[:6]: name for name in self._names.values()}
        for note in self._wider.notes:
            name = numbered.get(note[:6], "")
            if name and note.startswith(f"{name}: "):
                self._notes[name].add(note.removeprefix(name))
        return self._wider

    def __enter__(self) -> SideBySide:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _is_archive(file: Path) -> bool:
    # an unreadable file is reported later, when it is opened by itself
    return file.is_file() and file.name.endswith(SUFFIXES) and os.access(file, os.R_OK)
