"""Code of one's own, named by an import path: where it is looked for, and what is said where it isn't there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.import_path import load_module
from harness.run_files import Settings
from harness.workshop import open_tools
from snapshots.errors import UsageError


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
    where = f"neither on Python's path nor in {Path.cwd()}"
    assert str(told.value) == f"agent x: there is no module '{missing}', {where}"


def test_tools_of_the_working_directory_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tools_of_a_user.py").write_text("class Tools:\n    def __init__(self, snapshot): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    made = open_tools(None, Settings(agent="x", contracts=("tools_of_a_user:Tools",)))
    assert type(made).__name__ == "Tools"
    for name, missing in {
        "tools_of_a_user:Others": "no class or function 'Others'",
        "no_such_tools:Tools": "no module",
    }.items():
        with pytest.raises(UsageError, match=f"contract '{name}': .*{missing}"):
            open_tools(None, Settings(agent="x", contracts=(name,)))
