"""Archive files opened beside each other: what a revisit in one of them repeats may lie in another."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from snapshots.archives.container import SUFFIXES
from snapshots.capture import Capture
from snapshots.index.resolving import NOWHERE
from snapshots.snapshot import Snapshot

AnyPath = str | os.PathLike[str]


class SideBySide:
    """The archive files among several, opened as one snapshot when that is first needed, once for all of them."""

    def __init__(self, files: Sequence[AnyPath] = ()) -> None:
        self._files = files
        self._stack = ExitStack()
        self._wider: Snapshot | None = None
        self._names: dict[Path, str] = {}  # of the files, in the wider snapshot; a number of six digits leads
        self._notes: dict[str, set[str]] = defaultdict(set)  # what is said of each of them
        self._captures: dict[str, list[Capture]] = defaultdict(list)

    def captures_of(self, source: Snapshot, path: AnyPath) -> tuple[Snapshot, Iterable[Capture], list[str]]:
        """The snapshot that the captures of the one at `path` can be read from, these, and what is said of them.

        It is the wider one where its revisits repeat what is in none of its own files.
        """
        lacking = any(note.endswith(NOWHERE) for note in source.notes)
        if not lacking or not _is_archive(Path(path)):
            return source, source.captures(), source.notes
        wider = self._wider or self._widen()
        if wider is None:
            return source, source.captures(), source.notes
        name, lead = self._names[Path(path).resolve()], Path(path).name
        told = self._notes[name]
        notes = [
            note for note in source.notes if not note.endswith(NOWHERE) or note.removeprefix(lead) in told
        ]
        return wider, self._captures[name], notes

    def _widen(self) -> Snapshot | None:
        archives = list(
            dict.fromkeys(Path(file).resolve() for file in self._files if _is_archive(Path(file)))
        )
        if len(archives) < 2:
            return None
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="stillweb-")))
        for number, file in enumerate(archives):
            # files of one name may come from several folders
            name = self._names[file] = f"{number:06d}-{file.name}"
            (folder / name).symlink_to(file)
        self._wider = self._stack.enter_context(Snapshot.open(folder))
        numbered = {name[:6]: name for name in self._names.values()}
        for note in self._wider.notes:
            name = numbered.get(note[:6], "")
            if name and note.startswith(f"{name}: "):
                self._notes[name].add(note.removeprefix(name))
        for capture in self._wider.captures():
            self._captures[capture.filename].append(capture)
        return self._wider

    def __enter__(self) -> SideBySide:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _is_archive(file: Path) -> bool:
    return file.is_file() and file.name.endswith(SUFFIXES)
