"""One process at a time in a directory."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stillweb.snapshots._os.locking import lock_directory
from stillweb.snapshots.errors import UsageError

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
    assert lock_directory(tmp_path, "busy") == -1
    assert not before or len(os.listdir("/proc/self/fd")) == len(before)
