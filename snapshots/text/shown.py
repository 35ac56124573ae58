"""Texts in one file, each compressed by itself, read by number from any thread."""

from __future__ import annotations

import os
from array import array
from pathlib import Path

from isal import isal_zlib

BUFFER = 1 << 20  # bytes written at once


class Shown:
    """File of texts: `add` all of them, `flush`, then read them by number. `close` doesn't delete the file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = Path(path).open("w+b", buffering=BUFFER)  # noqa: SIM115 (closed by its owner)
        self._ends = array("Q", [0])  # end offset of each text, after the start of the first

    def save(self) -> None:
        """Write the offsets beside the file, for `saved`."""
        self.flush()
        with Path(f"{self._file.name}.ends").open("wb") as out:
            self._ends.tofile(out)

    @classmethod
    def saved(cls, path: str | os.PathLike[str]) -> Shown:
        """Open saved texts for reading. Raises OSError, ValueError."""
        shown = cls.__new__(cls)
        shown._ends = array("Q")
        shown._ends.frombytes(Path(f"{os.fspath(path)}.ends").read_bytes())
        shown._file = Path(path).open("rb")  # noqa: SIM115 (closed by its owner)
        return shown

    def add(self, text: str) -> None:
        """Append a text."""
        packed = isal_zlib.compress(text.encode("utf-8", "surrogatepass"), 1)
        self._file.write(packed)
        self._ends.append(self._ends[-1] + len(packed))

    def flush(self) -> None:
        """Write buffered texts; call it after the last `add` and before the first read."""
        self._file.flush()

    def __getitem__(self, number: int) -> str:
        start, end = self._ends[number], self._ends[number + 1]
        packed = os.pread(self._file.fileno(), end - start, start)
        return isal_zlib.decompress(packed).decode("utf-8", "surrogatepass")

    def close(self) -> None:
        """Close the file; closing twice does nothing."""
        self._file.close()
