"""Fixtures of the tools' tests."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stillweb.harness.tools import ToolResult, Toolset
from stillweb.snapshots.snapshot import Snapshot
from tests.harness.tools.frozen import make_site


@pytest.fixture(scope="session")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snapshot]:
    with make_site(tmp_path_factory.mktemp("tools") / "site") as opened:
        yield opened


@pytest.fixture(scope="session")
def toolset(snapshot: Snapshot) -> Toolset:
    return Toolset(snapshot, ["fetch", "serper", "pdf-reader"])


Call = Callable[..., ToolResult]


@pytest.fixture
def call(toolset: Toolset) -> Call:
    """Calls a tool in a session of its own and waits for it."""
    import asyncio

    session = toolset.session("test")

    def run(name: str, **arguments: Any) -> ToolResult:
        return asyncio.run(session.call(name, arguments))

    return run
