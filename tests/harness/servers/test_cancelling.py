"""A request that is taken back ends by itself, and never the connection."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage

from stillweb.harness.servers.mcp import make_server
from stillweb.harness.tools import MAKERS, ToolResult, Toolset
from stillweb.harness.tools.contract import fill_template
from stillweb.snapshots.snapshot import Snapshot
from tests.harness.tools.frozen import BIRDS, make_site
from tests.support.waiting import HANG


@pytest.fixture
def snapshot(tmp_path: Path) -> Iterator[Snapshot]:
    make_site(tmp_path / "site").close()
    with Snapshot.open(tmp_path / "site") as snapshot:
        yield snapshot


class Wire:
    """A client that speaks no SDK, and reads an answer only when it is asked to."""

    def __init__(self, into: Any, out: Any) -> None:
        self._into, self._out = into, out

    async def tell(self, **message: Any) -> None:
        await self._into.send(SessionMessage(JSONRPCMessage.model_validate({"jsonrpc": "2.0", **message})))
        await anyio.wait_all_tasks_blocked()

    async def hear(self) -> dict[str, Any]:
        with anyio.fail_after(HANG):
            item = await self._out.receive()
        value: dict[str, Any] = item.message.model_dump(mode="json", exclude_none=True)
        return value

    async def take_back(self, request: int | str) -> None:
        await self.tell(method="notifications/cancelled", params={"requestId": request})


@asynccontextmanager
async def wired(toolset: Toolset) -> AsyncIterator[Wire]:
    into, read = anyio.create_memory_object_stream[Any](0)
    write, out = anyio.create_memory_object_stream[Any](0)
    server = make_server(toolset)
    async with anyio.create_task_group() as tasks, into, out:
        tasks.start_soon(server.run, read, write, server.create_initialization_options())
        wire = Wire(into, out)
        client = {"name": "wire", "version": "1"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        await wire.tell(id=0, method="initialize", params=hello)
        await wire.hear()
        await wire.tell(method="notifications/initialized")
        yield wire
        tasks.cancel_scope.cancel()


@pytest.mark.slow
def test_what_has_its_answer_keeps_it(snapshot: Snapshot) -> None:
    async def check() -> None:
        async with wired(Toolset(snapshot, ["fetch"])) as wire:
            await wire.tell(
                id="a", method="tools/call", params={"name": "fetch", "arguments": {"url": BIRDS}}
            )
            await wire.take_back("a")
            answer = await wire.hear()
            assert (answer["id"], answer["result"]["isError"]) == ("a", False)
            await wire.take_back("a")
            await wire.take_back(99)
            await wire.tell(method="notifications/cancelled", params={})
            await wire.tell(id=2, method="ping")
            assert (await wire.hear())["id"] == 2

    asyncio.run(check())


def test_what_is_at_work_is_ended(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    class Endless:
        def __init__(self, toolset: Toolset) -> None:
            pass

        async def call(self, name: str, arguments: dict[str, Any], visit: Any) -> ToolResult:
            if arguments.get("at once"):
                return fill_template("done")
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended.append(name)
            return fill_template("never")

    monkeypatch.setitem(MAKERS, "mcp-fetch", Endless)

    async def check() -> None:
        async with wired(Toolset(snapshot, ["fetch"])) as wire, wired(Toolset(snapshot, ["fetch"])) as other:
            for one in (wire, other):
                await one.tell(id=1, method="tools/call", params={"name": "fetch", "arguments": {}})
            await wire.take_back(1)
            assert (await wire.hear())["error"] == {"code": 0, "message": "Request cancelled"}
            assert ended == ["fetch"]  # the other connection has a request of the same id
            given = {"name": "fetch", "arguments": {"at once": True}}
            await wire.tell(id=1, method="tools/call", params=given)
            assert (await wire.hear())["result"]["content"] == [{"type": "text", "text": "done"}]

    asyncio.run(check())
