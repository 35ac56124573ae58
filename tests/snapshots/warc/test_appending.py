"""Files that are written whole: put in place at the end, through links, and not in place of what is not a file."""

import os
import threading
from pathlib import Path

import pytest

from stillweb.snapshots.warc.appending import write_whole
from tests.support.waiting import HANG


def test_a_file_is_put_in_place_when_it_is_whole(tmp_path: Path) -> None:
    path, link = tmp_path / "page.html", tmp_path / "link.html"
    link.symlink_to(path)
    assert write_whole(link, [b"one, ", b"two"]) == 8

    def broken() -> list[bytes]:
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        write_whole(link, (piece for _ in range(1) for piece in broken()))
    assert link.is_symlink()
    assert path.read_bytes() == b"one, two"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link.html", "page.html"]


def test_what_is_no_file_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_whole(tmp_path / "link", [b"words"])
    reader.join(HANG)
    assert read == [b"words"]
    assert pipe.is_fifo()


def test_a_place_below_a_file_is_told_as_it_was_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory") as told:
        write_whole(tmp_path / "file" / "x", [b"words"])
    assert told.value.filename == str(tmp_path / "file" / "x")
