"""A program that is recorded in a namespace of its own: what goes past the recorder fails, and is recorded nowhere."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.net.isolated import run_isolated
from stillweb.proxy.record.recorder import Recorder, record_command
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.writer import Writer
from tests.proxy.origin import Answer, Origin
from tests.support.isolating import needs_isolation

pytestmark = needs_isolation

PROGRAM = """
import os, socket, sys, urllib.request as u
through, past, let, out = sys.argv[1:]
said = [u.urlopen(through).read().decode()]
for port in (past, let):
    try: socket.create_connection(("127.0.0.1", int(port)), 60).close(); said.append("reached")
    except OSError as error: said.append(type(error).__name__)
open(out, "w").write(" ".join(said))
try: os.wait()
except ChildProcessError: sys.exit(7)
"""


def test_only_the_recorder_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "stillweb",
        "proxy",
        "snapshots",
        "socket",
    ):  # what lies in the program's folder is the program's
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not ours')")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "agent.py").write_text(PROGRAM)
    with (
        Origin(lambda asked: Answer(body=b"page")) as origin,
        Origin(lambda asked: Answer()) as model,
        Writer.open(tmp_path / "s") as writer,
        Recorder(writer, authority=Authority.load_or_create(tmp_path / "state")) as recorder,
    ):
        words = [sys.executable, str(tmp_path / "own" / "agent.py"), f"{origin.url}/a", str(origin.port)]
        words += [str(model.port), str(tmp_path / "said")]
        code = record_command(words, recorder, direct=[f"127.0.0.1:{model.port}"], isolate=True)
        assert [capture.url for capture in recorder.captures_of()] == [f"{origin.url}/a"]
    assert (tmp_path / "said").read_text() == "page ConnectionRefusedError reached"
    assert code == 7  # and the program has no child that it didn't start


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="no-such-program: can't be run"):
        run_isolated(["no-such-program"], {"PATH": "/bin"}, [])
