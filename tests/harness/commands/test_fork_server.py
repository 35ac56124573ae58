"""A command that the tests' fork server runs is, to all around it, a command that was started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import command_line
from tests.support.command_line import stillweb

LOOK = r"""
readlink /proc/$PPID/cwd | tr -d 0-9
ls -l /proc/$PPID/fd | sed 's/.* -> //' | tr -d 0-9 | sort
grep -E '^(Threads|Umask|NoNewPrivs|Uid|Gid|Groups|Seccomp|Sig(Blk|Ign|Cgt))' /proc/$PPID/status
cat /proc/$PPID/limits
cut -d')' -f2 /proc/$PPID/stat | cut -d' ' -f5 | sed "s/^$PPID$/leads its session/"
tr '\0' '\n' < /proc/$PPID/environ | grep -c "$STILLWEB_TEST_MARK"
env | cut -d= -f1 | sort
date +%Z
"""


@pytest.mark.parametrize("words", [["record", "-o", "s", "--", "sh", "-c", LOOK], ["ls", "nowhere"], ["lz"]])
def test_a_fork_is_what_a_started_program_is(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    for number in "12":
        (tmp_path / number).mkdir()
        done = stillweb(*words, cwd=tmp_path / number, env={"TZ": "Asia/Tokyo"})
        told.append((done.code, done.out, done.said))
        monkeypatch.setattr(command_line, "can_fork", lambda environment: False)
    assert told[0] == told[1]
    assert LOOK not in words or "leads its session\n1\n" in told[0][1]
