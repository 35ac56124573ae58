"""A run is published as docs/benchmark.md says: cut, repeated on the cut from its tape, and certified beside it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from examples.endpoint import Script, environment
from tests.harness.commands.calling import call
from tests.support.openai_endpoint import Endpoint
from tests.support.waiting import STARTS

ROOT = Path(__file__).resolve().parents[2]
SGR = ROOT / "examples" / "sgr"
PAGE = (ROOT / "docs" / "benchmark.md").read_text("utf-8")


def scores(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "certificate.json").read_text("utf-8"))["scores"]["metrics"])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cut_is_published_with_the_run_that_stands_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], commands_path: str
) -> None:
    block = re.search(r"<!-- example: publish -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SGR / "data", "sgr")
    shutil.copy(SGR / "ferries.wacz", "site.wacz")
    shutil.copy(SGR / "rubrics.json", "rubrics.json")
    words = [
        "--tasks",
        "sgr",
        "--agent",
        "openai:gpt-5",
        "--snapshot",
        "site.wacz",
        "--rubrics",
        "rubrics.json",
        "-o",
        "run1",
    ]
    with Endpoint(Script.load(SGR / "model.yaml")) as endpoint:
        given = environment(endpoint.url)
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        assert call(capsys, "run", *words)[0] == 0
    here = {name: value for name, value in os.environ.items() if name not in given or "KEY" not in name}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block[1]],
        env={**here, "PATH": commands_path},
        capture_output=True,
        text=True,
        timeout=STARTS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 repetitions in fresh processes: the same" in done.stdout
    assert scores(Path("pulled")) == scores(Path("run1"))
    assert Path("pulled/small.wacz").stat().st_size < Path("site.wacz").stat().st_size
