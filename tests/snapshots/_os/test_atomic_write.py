"""Files that are written aside: one process at a time, and never in place of what is no file."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stillweb.snapshots._os.atomic_write import atomic_file
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.warc.appending import write_whole
from tests.snapshots.test_wacz import small_snapshot


def test_two_that_write_one_file_at_once_take_turns(tmp_path: Path) -> None:
    path, begun, go_on = tmp_path / "report", threading.Event(), threading.Event()

    def first() -> Iterator[bytes]:
        yield b"first " * 10
        begun.set()
        go_on.wait(60)
        yield b"end"

    one = threading.Thread(target=write_whole, args=(path, first()))
    two = threading.Thread(target=write_whole, args=(path, [b"second"]))
    one.start()
    assert begun.wait(60)
    two.start()
    two.join(0.2)
    assert two.is_alive()
    assert not path.exists()
    go_on.set()
    one.join()
    two.join()
    assert path.read_bytes() == b"second"
    assert os.listdir(tmp_path) == ["report"]


def test_what_a_kill_left_is_used_up(tmp_path: Path) -> None:
    (tmp_path / ".report.new").write_bytes(bytes(1000))
    write_whole(tmp_path / "report", [b"all of it"])
    assert (tmp_path / "report").read_bytes() == b"all of it"
    assert os.listdir(tmp_path) == ["report"]


def test_a_file_that_another_process_seals_into_is_not_touched(tmp_path: Path) -> None:
    root, out = small_snapshot(tmp_path / "s"), tmp_path / "out.wacz"
    seal(root, out)
    with atomic_file(out, wait=False) as file:
        file.write(b"the other's")
        with pytest.raises(UsageError, match=r"out\.wacz: is being written by another process"):
            seal(root, out)
    assert out.read_bytes() == b"the other's"
    seal(root, out)
    with Snapshot.open(out) as snapshot:
        assert snapshot.id


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_not_replaced_by_a_snapshot(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out"
    os.mkfifo(out)
    if kind == "device":
        out.unlink()
        out.symlink_to(os.devnull)
    with pytest.raises(UsageError, match="out: is no file that a snapshot could replace"):
        seal(small_snapshot(tmp_path / "s"), out)
    assert not out.is_file()
    assert out.exists()
