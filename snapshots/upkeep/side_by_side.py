"""An archive file opened beside others: what a revisit in it repeats may lie in one of them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from snapshots.archives.container import SUFFIXES
from snapshots.capture import Capture
from snapshots.index.resolving import NOWHERE
from snapshots.snapshot import Snapshot

AnyPath = str | os.PathLike[str]


@contextmanager
def side_by_side(
    source: Snapshot, path: AnyPath, files: Sequence[AnyPath]
) -> Iterator[tuple[Snapshot, Iterable[Capture], list[str]]]:
    """The captures of the snapshot at `path`, the snapshot that they can be read from, and what is said of them.

    It is another one, of all archive files among `files`, where revisits repeat what is in none of its own.
    """
    archives = list(dict.fromkeys(Path(file).resolve() for file in files if _is_archive(Path(file))))
    lacking = any(note.endswith(NOWHERE) for note in source.notes)
    if not lacking or not _is_archive(Path(path)) or len(archives) < 2:
        yield source, source.captures(), source.notes
        return
    with tempfile.TemporaryDirectory(prefix="stillweb-") as folder:
        # files of one name may come from several folders
        names = {file: f"{number:06d}-{file.name}" for number, file in enumerate(archives)}
        for file, name in names.items():
            (Path(folder) / name).symlink_to(file)
        name = names[Path(path).resolve()]
        with Snapshot.open(folder) as wider:
            told = {note.removeprefix(name) for note in wider.notes if note.startswith(f"{name}: ")}
            lead = Path(path).name
            notes = [
                note for note in source.notes if not note.endswith(NOWHERE) or note.removeprefix(lead) in told
            ]
            yield wider, (capture for capture in wider.captures() if capture.filename == name), notes


def _is_archive(file: Path) -> bool:
    return file.is_file() and file.name.endswith(SUFFIXES)
