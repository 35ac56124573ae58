"""Checks of a zip that is read in place: entries are stored, unique, intact (CRC) and inside the snapshot."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator

from stillweb.snapshots._os.places import Place, Reader
from stillweb.snapshots.decompression import too_large
from stillweb.snapshots.opening import BAD_ZIP, largest


def faults_of(whole: Place) -> Iterator[tuple[str, int, str]]:
    """Yield the faults of a zip's entries: name, offset and message."""
    with zipfile.ZipFile(Reader(whole)) as listing:
        seen: set[str] = set()
        for entry in listing.infolist():
            name, at = entry.filename, entry.header_offset
            if name in seen:
                yield name, at, "the name is there twice"
            seen.add(name)
            if name.startswith("/") or ".." in name.split("/") or "\\" in name:
                yield name, at, "the name leads out of the snapshot"
            if entry.compress_type != zipfile.ZIP_STORED and name.startswith("archive/"):
                yield name, at, "is compressed; archives must be stored to be read in place"
            if entry.file_size > largest(entry):
                yield name, at, too_large("it", largest(entry))
                continue
            try:
                with listing.open(entry) as data:
                    while data.read(1 << 20):
                        pass
            except BAD_ZIP as error:
                yield name, at, str(error)
