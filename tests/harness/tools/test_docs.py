"""The examples of docs/tools.md work as they stand."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.commands.mcp import command
from stillweb.harness.runs.resources import open_tools
from stillweb.harness.runs.run_files import Settings
from stillweb.harness.tools import Toolset, contract_names
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.snapshot import Snapshot
from tests.harness.tools.frozen import BIRDS

TEXT = (Path(__file__).parents[3] / "docs" / "tools.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.S)


@pytest.fixture
def titles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The example's two files, in the working directory; the name of its tool."""
    (contract,) = (block for block in blocks("json") if '"contract"' in block)
    (tmp_path / "dictionary.json").write_text(contract, encoding="utf-8")
    (tmp_path / "titles.py").write_text(blocks("python")[1], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield "titles:TitleTool"
    for name in ("titles", "gone", "half"):
        sys.modules.pop(name, None)


def test_a_file_of_servers_is_json_that_names_a_command_of_ours() -> None:
    (servers,) = (block for block in blocks("json") if "mcpServers" in block)
    _, *arguments = json.loads(servers)["mcpServers"]["web"]["args"]
    assert command.make_context("mcp", arguments, resilient_parsing=True).params["contracts"] == (
        "playwright-mcp",
    )


def test_how_to_add_a_tool(snapshot: Snapshot, titles: str) -> None:
    session = Toolset(snapshot, ["fetch", titles]).session("s")
    assert [(spec.name, spec.contract) for spec in session.list()] == [
        ("fetch", "mcp-fetch@0.6.3"),
        ("title_of", "dictionary@1.0"),
    ]
    result = asyncio.run(session.call("title_of", {"url": BIRDS}))
    assert result.text == f"{BIRDS} is called: A page"
    assert result.meta["verdict"] == "exact"
    missed = asyncio.run(session.call("title_of", {"url": "https://no.test/"}))
    assert missed.is_error
    assert missed.text == "No such page: https://no.test/"


def test_a_run_has_it_beside_others(snapshot: Snapshot, titles: str) -> None:
    tools = open_tools(snapshot, Settings(agent="script:x", contracts=("fetch", titles)))
    assert isinstance(tools, Toolset)
    assert {spec.name for spec in tools.specs} == {"fetch", "title_of"}
    with pytest.raises(UsageError, match="has no member `contract` made by read_contract"):
        open_tools(snapshot, Settings(agent="script:x", contracts=("fetch", "titles:Path")))


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("titles:Missing", "", "module 'titles' has no class or function 'Missing'"),
        ("no_such_module:Tool", "", "there is no module 'no_such_module'"),
        ("titles:Path", "", "has no member `contract`"),
        ("gone:x", "import pathlib, stillweb.harness.tools as t\nx = t.read_contract(pathlib.Path('no.json'))", "no.json: No such"),
        ("half:x", "import pathlib, stillweb.harness.tools as t\nx = t.read_contract(pathlib.Path('half.json'))", "half.json: a contract needs a member 'server'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_tool_of_ones_own_is_told(
    snapshot: Snapshot, titles: str, tmp_path: Path, name: str, code: str, says: str
) -> None:
    (tmp_path / "half.json").write_text('{"contract": "half@1"}', encoding="utf-8")
    if code:
        (tmp_path / f"{name.partition(':')[0]}.py").write_text(code, encoding="utf-8")
    with pytest.raises(UsageError) as told:
        Toolset(snapshot, [name])
    assert says in str(told.value)


def test_the_example_of_use(snapshot: Snapshot) -> None:
    names: dict[str, Any] = {}
    exec(blocks("python")[0], names)
    assert asyncio.run(names["ask"](snapshot.paths[0], BIRDS)).startswith(f"Contents of {BIRDS}:\n")


def test_every_named_contract_exists() -> None:
    named = set(re.findall(r"`([a-z-]+@[0-9.]+)`", TEXT))
    assert named <= set(contract_names())
    assert {name for name in contract_names() if not name.startswith("jina")} <= named
