"""Files that are written aside: one process at a time, and never in place of what is not a file."""

import errno
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stillweb.snapshots._os.atomic_write import atomic_file
from stillweb.snapshots._os.locking import lock_directory, locked_directory
from stillweb.snapshots._os.text_files import read_text
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
    with pytest.raises(UsageError, match="out: is not a file that a snapshot could replace"):
        seal(small_snapshot(tmp_path / "s"), out)
    assert not out.is_file()
    assert out.exists()


HOLD = """
import sys
from pathlib import Path
from stillweb.snapshots._os.locking import lock_directory
assert lock_directory(Path(sys.argv[1]), "busy") >= 0
print("held", flush=True)
sys.stdin.readline()
"""


def test_another_process_is_kept_out_until_the_first_is_gone_however_it_ends(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match="is held by a test"):
            lock_directory(tmp_path, "is held by a test")
        first.kill()
    handle = lock_directory(tmp_path, "is held by a test")
    assert handle >= 0
    os.close(handle)


def test_a_file_system_without_locks_is_used_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    with locked_directory(tmp_path, "busy"):
        assert not before or len(os.listdir("/proc/self/fd")) == len(before) + 1
    assert not before or len(os.listdir("/proc/self/fd")) == len(before)


def test_text_with_and_without_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes("\ufeffgrün".encode())
    assert read_text(path) == "\ufeffgrün"
    assert read_text(path, "utf-8-sig") == "grün"


def test_what_is_no_text_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(b"ab\xff")
    with pytest.raises(UsageError, match=r"words\.txt: not UTF-8 at byte 2$"):
        read_text(path)
    path.write_bytes("ab".encode("utf-16"))
    with pytest.raises(UsageError, match=r"words\.txt: not UTF-8 at byte 0; it is UTF-16: save it as UTF-8$"):
        read_text(path)
    with pytest.raises(UsageError, match=r"none: No such file or directory$"):
        read_text(tmp_path / "none")
