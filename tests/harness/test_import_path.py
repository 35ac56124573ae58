"""Code of one's own, named by an import path: where it is looked for, and what is said where it isn't there."""

import os
import sys
from pathlib import Path

import pytest

from stillweb.harness._parsing import load_module
from stillweb.harness.runs.resources import open_tools
from stillweb.harness.runs.run_files import Settings
from stillweb.snapshots.errors import UsageError
from tests.support.command_line import stillweb
from tests.support.runs import write_script


@pytest.fixture(autouse=True)
def _nothing_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where runs of tests before were begun is forgotten: their order must not matter."""
    monkeypatch.setattr("stillweb.harness._parsing._begun", [])


def test_a_module_of_the_working_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `python -m`: the installed command has its own directory on Python's path in its place."""
    (tmp_path / "one_of_the_users.py").write_text("import no_such_thing_either\n")
    (tmp_path / "another_of_the_users.py").write_text("VALUE = 7\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    assert load_module("another_of_the_users", "agent").VALUE == 7
    with pytest.raises(ModuleNotFoundError, match="no_such_thing_either"):  # a fault of that module
        load_module("one_of_the_users", "agent")


@pytest.mark.parametrize(
    ("name", "missing"), [("no_such_thing", "no_such_thing"), ("json.nothing", "json.nothing")]
)
def test_a_module_that_is_not_there_is_named(name: str, missing: str) -> None:
    with pytest.raises(UsageError) as told:
        load_module(name, "agent x")
    where = f"neither on Python's path nor in {Path.cwd()}; PYTHONPATH can name its folder"
    assert str(told.value) == f"agent x: there is no module '{missing}', {where}"


@pytest.mark.slow
def test_a_run_is_scored_and_repeated_from_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run's scorers are found where the run was begun; from elsewhere the run is not continued as if begun there."""
    (tmp_path / "begun").mkdir()
    (tmp_path / "elsewhere").mkdir()
    scorer = "from stillweb.harness.scoring import Score\ndef shout(task, answer, context):\n    return Score({'x': 1.0})\n"
    (tmp_path / "begun" / "scorer_of_a_user.py").write_text(scorer)
    (tmp_path / "begun" / "tasks.jsonl").write_text(
        '{"id": "a", "question": "?", "answer": "x", "scorer": "scorer_of_a_user:shout"}\n'
    )
    agent = write_script(tmp_path, {"agent": "script", "default": {"answer": "x"}})
    run = ("run", "--agent", agent, "-o", tmp_path / "run", "--tasks", tmp_path / "begun" / "tasks.jsonl")
    assert stillweb(*run, cwd=tmp_path / "begun").code == 0
    for command in ("score", "certify"):
        done = stillweb(command, tmp_path / "run", cwd=tmp_path / "elsewhere")
        assert (done.code, done.said) == (0, "")
    done = stillweb(*run, cwd=tmp_path / "elsewhere")
    missing = (
        "stillweb: error: scorer 'scorer_of_a_user:shout': there is no module 'scorer_of_a_user', neither"
    )
    assert (done.code, done.said.startswith(missing)) == (2, True)
    assert stillweb("score", tmp_path / "run", cwd=tmp_path / "elsewhere").code == 0  # as before
    os.rename(tmp_path / "begun", tmp_path / "moved")
    done = stillweb("score", tmp_path / "run", cwd=tmp_path / "elsewhere")
    assert (done.code, done.said.startswith(missing)) == (2, True)
    assert done.said.endswith("PYTHONPATH can name its folder")
    found = stillweb("score", tmp_path / "run", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path / "moved")})
    assert found.code == 0


def test_tools_of_the_working_directory_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tools_of_a_user.py").write_text("class Tools:\n    def __init__(self, snapshot): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    made = open_tools(None, Settings(agent="x", contracts=("tools_of_a_user:Tools",)))
    assert type(made).__name__ == "Tools"
    for name, missing in {
        "tools_of_a_user:Others": "no class or function 'Others'",
        "no_such_tools:Tools": "no module",
        "../tools_of_a_user:Tools": "no module",
    }.items():
        with pytest.raises(UsageError, match=f"contract '{name}': .*{missing}"):
            open_tools(None, Settings(agent="x", contracts=(name,)))
