"""A command that the tests' fork server runs is, to all around it, a command that was started."""

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace
from tests.support import command_line, fork_server
from tests.support.command_line import stillweb
from tests.support.isolating import needs_confinement

LOOK = r"""
readlink /proc/$PPID/cwd | tr -d 0-9
ls -l /proc/$PPID/fd | sed 's/.* -> //' | tr -d 0-9 | sort -u
grep -E '^(Umask|NoNewPrivs|Uid|Gid|Groups|Seccomp|Sig(Blk|Ign|Cgt))' /proc/$PPID/status
cat /proc/$PPID/limits
cut -d')' -f2 /proc/$PPID/stat | cut -d' ' -f5 | sed "s/^$PPID$/leads its session/"
tr '\0' '\n' < /proc/$PPID/environ | grep -c "$STILLWEB_TEST_MARK"
env | cut -d= -f1 | sort
date +%Z
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", [["record", "-o", "s", "--", "sh", "-c", LOOK], ["ls", "nowhere"], ["lz"]])
def test_a_fork_is_what_a_started_program_is(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    for number in "12":
        (tmp_path / number).mkdir()
        done = stillweb(*words, cwd=tmp_path / number, env={"TZ": "Asia/Tokyo"})
        told.append((done.code, done.out.splitlines(), done.said))
        monkeypatch.setattr(command_line, "can_fork", lambda environment: False)
    assert told[0] == told[1]
    assert LOOK not in words or "leads its session 1" in " ".join(told[0][1])


class Looks:
    """Agent that answers with what its process is."""

    name = "looks"

    def identity(self) -> dict[str, Any]:
        return {}

    async def run(self, attempt: Any) -> str:
        assert os.getuid() == os.getgid() > 60_000  # another one each time
        status = Path("/proc/self/status").read_text().splitlines()
        kinds = ("Umask", "NoNewPrivs", "Groups", "Cap", "Seccomp", "SigBlk", "SigIgn", "SigCgt")
        files = [os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
        told = [
            [line for line in status if line.startswith(kinds)],
            sorted(one.partition("[")[0] for one in files),
            sorted(os.environ.items()),
            all(int(name) < 100 for name in os.listdir("/proc") if name.isdigit()),  # none of the machine's
            os.listdir("/"),
            [os.getcwd(), os.getsid(0) == os.getpid(), sys.argv[:1], sys.path, sys.flags.isolated, __name__],
            [one.name for one in threading.enumerate()],
            [line.split(" - ")[1] for line in Path("/proc/self/mountinfo").read_text().splitlines()],
        ]
        return "\n".join(map(str, told))


@pytest.mark.slow
@needs_confinement
def test_a_forked_agent_is_what_a_started_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    for name in ("forked", "started"):
        settings = Settings(agent="tests.harness.commands.test_fork_server:Looks")
        files = start_run(tmp_path / name, settings, [Task("look", "What are you?", "7")])
        run_attempts(files.path, display=SilentDisplay())
        told.append((read_trace(files.trace_path("look", 1)).last("answer") or {})["text"])
        monkeypatch.setattr(fork_server, "forks_agents", False)
    assert told[0] == told[1]
