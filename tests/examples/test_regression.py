"""The example project, as its own CI would run it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from stillweb.proxy.net.isolation import can_isolate
from tests.support.waiting import STARTS

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "regression"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy, so that nothing of ours (settings, paths) is near it."""
    return Path(shutil.copytree(EXAMPLE, tmp_path / "project"))


def run(project: Path, *words: str, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": path,
        "PYTEST_ADDOPTS": "-p no:cacheprovider -p no:hypothesispytest",
        "PYTEST_XDIST_WORKER": "",
    }
    return subprocess.run(words, cwd=project, env=environment, capture_output=True, text=True, timeout=STARTS)


@pytest.mark.slow
def test_its_tests_pass_offline(project: Path) -> None:
    shown = run(project, sys.executable, "-mpytest", "-q", "-p", "no:xdist")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "2 passed" in shown.stdout


@pytest.mark.slow
def test_an_agent_that_asks_for_something_else_fails_and_is_told_what_came_nearest(project: Path) -> None:
    agent = project / "agent.py"
    agent.write_text(agent.read_text().replace('"_sort_desc": "body_mass_g"', '"_sort": "body_mass_g"'))
    shown = run(project, sys.executable, "-mpytest", "-q", "-p", "no:xdist")
    assert shown.returncode == 1
    assert "_sort_desc" in shown.stdout
    assert "recorded 'body_mass_g'" in shown.stdout


@pytest.mark.slow
def test_the_workflow_replays_the_program_with_no_way_out(project: Path, commands_path: str) -> None:
    steps = yaml.safe_load((project / ".github/workflows/agent.yml").read_text())["jobs"]["regression"][
        "steps"
    ]
    command = next(step["run"] for step in steps if "--isolate" in step.get("run", ""))
    if why := can_isolate():
        assert run(project, "sh", "-c", command, path=commands_path).returncode == 4, why
        return
    shown = run(project, "sh", "-c", command, path=commands_path)
    assert (shown.returncode, shown.stdout) == (0, "170 6300\n"), shown.stderr
    assert "no way out" in shown.stderr
    missed = run(project, "sh", "-c", command.replace("Gentoo", "Macaroni"), path=commands_path)
    assert missed.returncode == 1
    assert "species=Macaroni" in missed.stderr
