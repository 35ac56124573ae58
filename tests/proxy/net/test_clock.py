"""The clock of a program begins where it is told to, goes on from there, and nothing else of the program changes."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stillweb.proxy.net import clock
from stillweb.proxy.net.ca import EARLIER_DAYS
from stillweb.proxy.net.clock import moment_of, with_clock
from stillweb.snapshots.errors import MissingCapability, UsageError
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import START, exchange
from tests.support.waiting import STARTS

pytestmark = pytest.mark.timeout(900)
MONTH = timedelta(days=30)
NEAR = timedelta(minutes=5)  # of another minute the test can't be, however busy the machine
# What a program does with time: it reads it, waits in every way, and begins another program.
PROGRAM = """
import asyncio, json, os, select, subprocess, sys, threading, time
began = time.monotonic()
time.sleep(0.01)
threading.Event().wait(0.01)
select.select([], [], [], 0.01)
asyncio.run(asyncio.sleep(0.01))
again = [sys.executable, '-c', 'import time; print(time.time())']
child = float(subprocess.run(again, capture_output=True, text=True, timeout=500, check=True).stdout)
print(json.dumps([time.time(), child, time.monotonic() - began, os.stat(sys.argv[1]).st_mtime]))
"""


@pytest.mark.parametrize("before", ["", "/nowhere/other.so"])
def test_the_clock_begins_at_a_moment_and_goes_on(tmp_path: Path, before: str) -> None:
    moment = datetime.now(UTC) - MONTH
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        **({"LD_PRELOAD": before} if before else {}),
    }
    changed = with_clock(environment, moment)
    assert before in changed["LD_PRELOAD"]
    file = tmp_path / "file"
    file.write_text("made now")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(file)], env=changed, capture_output=True, text=True, timeout=STARTS, check=True
    )  # fmt: skip
    shown, child, waited, made = json.loads(done.stdout)
    for one in (shown, child):
        assert timedelta() <= datetime.fromtimestamp(one, UTC) - moment < NEAR
    assert child <= shown
    assert 0.04 <= waited < NEAR.total_seconds()
    assert made == file.stat().st_mtime


def test_node_and_the_shell_have_it_too(tmp_path: Path) -> None:
    moment = datetime.now(UTC) - MONTH
    changed = with_clock({"PATH": os.environ["PATH"], "HOME": str(tmp_path)}, moment)
    for command in (["date", "+%s"], ["node", "-p", "Date.now() / 1000"]):
        done = subprocess.run(
            command, env=changed, capture_output=True, text=True, timeout=STARTS, check=True
        )
        assert timedelta(seconds=-1) <= datetime.fromtimestamp(float(done.stdout), UTC) - moment < NEAR


@pytest.mark.parametrize("days", [-100, EARLIER_DAYS, 4000])
def test_a_time_at_which_our_certificates_are_not_valid_is_refused(days: int) -> None:
    with pytest.raises(UsageError, match="certificates are valid"):
        with_clock(os.environ, datetime.now(UTC) - timedelta(days=days))


def test_a_library_that_holds_nothing_is_no_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "libfaketime" / "__init__.py"
    module.parent.mkdir()
    module.write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "libfaketime", raising=False)
    with pytest.raises(MissingCapability, match=r"needs libfaketime: pip install libfaketime"):
        with_clock(os.environ, datetime.now(UTC) - MONTH)
    name = clock._PRELOAD[sys.platform][1]
    (module.parent / name).write_bytes(b"no library")
    with pytest.raises(MissingCapability, match="does not freeze the clock here"):
        with_clock(os.environ, datetime.now(UTC) - MONTH)


def test_the_recorded_moment_is_that_of_the_first_capture(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        for second in (9, 7, 8):
            writer.exchange(exchange(f"http://a.test/{second}", begin=second, end=second + 1))
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert moment_of("recorded", snapshot) == START + timedelta(seconds=7)
        assert moment_of("2026-11-24", snapshot) == datetime(2026, 11, 24, tzinfo=UTC)
        with pytest.raises(UsageError, match="'yesterday': must be recorded or a time as"):
            moment_of("yesterday", snapshot)
    with pytest.raises(UsageError, match="'recorded': must be a time as"):
        moment_of("recorded")


def test_a_snapshot_without_captures_has_no_recorded_moment(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s"):
        pass
    with Snapshot.open(tmp_path / "s") as snapshot, pytest.raises(UsageError, match="has no capture"):
        moment_of("recorded", snapshot)
