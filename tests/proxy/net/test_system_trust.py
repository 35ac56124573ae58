"""The system's list of authorities is ours within, and what it was without."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stillweb.proxy.net.isolation import replace_system_list
from tests.support.isolating import needs_isolation
from tests.support.waiting import STARTS

INSIDE = """
import ctypes, fcntl, os, sys  # at once: who becomes another may not read where they are
from pathlib import Path
from stillweb.proxy.net.isolation import enter_isolation
from stillweb.proxy.net.isolation import replace_system_list
user, isolate, ours, *lists = sys.argv[1:]
if user:
    os.setgid(int(user)); os.setuid(int(user))
    ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: its files in /proc are its own again, as after a program's start
if isolate: enter_isolation()
print(replace_system_list(Path(ours), lists))
print(*(Path(one).read_text() for one in lists if Path(one).exists()))
"""
NOBODY = "65534"
AS = ["", pytest.param(NOBODY, marks=pytest.mark.skipif(os.getuid() != 0, reason="only root can become another"))]  # fmt: skip


def run(folder: Path, user: str, isolate: str) -> list[str]:
    folder.chmod(0o755)
    for name in ("ours", "theirs"):
        (folder / name).write_text(name)
    (folder / "link").symlink_to(folder / "theirs")
    words = [sys.executable, "-c", INSIDE, user, isolate]
    words += [str(folder / name) for name in ("ours", "theirs", "link", "none")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=STARTS, check=True)
    assert (folder / "theirs").read_text() == "theirs"
    return done.stdout.splitlines()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder that other users can read."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@needs_isolation
@pytest.mark.parametrize("user", AS)
def test_within_the_list_is_ours(folder: Path, user: str) -> None:
    assert run(folder, user, "isolate") == ["None", "ours ours"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another")
def test_where_it_can_not_be_replaced_that_is_said(folder: Path) -> None:
    why, lists = run(folder, NOBODY, "")
    assert "can't be replaced (Operation not permitted)" in why
    assert lists == "theirs theirs"


def test_a_system_without_such_a_list_is_left_as_it_is(tmp_path: Path) -> None:
    assert replace_system_list(tmp_path / "ours", [str(tmp_path / "none")]) is None
