"""Any MCP server, recorded between it and the official client, and replayed without it."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from stillweb.harness.servers.mcp_tape import SERVER, request_of
from stillweb.snapshots import Snapshot
from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.harness.commands.calling import call
from tests.proxy.frozen import Site
from tests.support.command_line import Started

ROOT = Path(__file__).resolve().parents[3]
COUNTER = (sys.executable, str(ROOT / "tests/support/mcp_counter.py"))
Talk = Callable[[ClientSession], Awaitable[Any]]


async def _sampled(*_: Any) -> types.CreateMessageResult:
    text = types.TextContent(type="text", text="hm")
    return types.CreateMessageResult(role="assistant", content=text, model="m")


@asynccontextmanager
async def over_stdio(*words: str) -> AsyncIterator[ClientSession]:
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "stillweb", *words], env=dict(os.environ)
    )
    async with (
        stdio_client(parameters, errlog=open(os.devnull, "w")) as (read, write),
        ClientSession(read, write, sampling_callback=_sampled) as client,
    ):
        yield client


def talk(words: tuple[str, ...], say: Talk) -> Any:
    async def run() -> Any:
        async with over_stdio(*words) as client:
            await client.initialize()
            return await say(client)

    return asyncio.run(run())


def text(result: types.CallToolResult) -> str:
    return " ".join(c.text for c in result.content if isinstance(c, types.TextContent))


async def whole(client: ClientSession) -> list[Any]:
    """All that the server offers, with a write between two equal reads."""
    steps: list[float] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        steps.append(done)

    said = [
        [tool.name for tool in (await client.list_tools()).tools],
        text(await client.call_tool("show")),
        text(await client.call_tool("add", {"text": "milk", "tags": ["a", "b"]})),
        text(await client.call_tool("show")),
        text(await client.call_tool("add", {"text": "milk", "tags": ["a", "b"]})),
        text(await client.call_tool("show")),
        text(await client.call_tool("slowly", {"steps": 2}, progress_callback=progress)),
        text(await client.call_tool("fail")),
        (await client.read_resource("notes://first")).contents[0].text,  # type: ignore[arg-type,union-attr]
        (await client.get_prompt("summary", {"style": "verse"})).messages[0].content.text,  # type: ignore[union-attr]
    ]
    return [*said, steps]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    folder = tmp_path_factory.mktemp("tape")
    said = talk(("mcp-record", "-o", str(folder / "site"), "--", *COUNTER), whole)
    assert said[1:6] == ["no notes", "note 1", "milk", "note 2", "milk, milk"]
    assert said[-1] == [0, 1]
    return seal(folder / "site").path, said


@contextmanager
def over_http(path: Path) -> Iterator[str]:
    words = [sys.executable, "-m", "stillweb", "mcp-replay", str(path), "--transport", "http"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            yield next(line for line in server.stderr if "serving at" in line).split()[-1]
        finally:
            server.terminate()
        assert "Traceback" not in server.stderr.read()


@pytest.mark.slow
def test_a_server_over_http_ends_without_a_traceback(recorded: tuple[Path, list[Any]]) -> None:
    """A session's streams are closed by its client's DELETE, and by the server's end after odd requests."""
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
    odd = (
        "{",
        "[]",
        '{"jsonrpc":"2.0","id":{}}',
        ASKED.format(id=2, value="1e999"),
        ASKED.format(id=3, value=1),
    )
    with over_http(recorded[0]) as url, httpx.Client(trust_env=False) as client:
        for ends in (True, False):
            headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
            answer = client.post(url, json=hello, headers=headers)
            assert answer.status_code == 200
            headers["mcp-session-id"] = answer.headers["mcp-session-id"]
            for body in odd:
                client.post(url, content=body, headers=headers)
            if ends:
                assert client.delete(url, headers=headers).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_client_hears_what_it_heard_while_recording(
    recorded: tuple[Path, list[Any]], transport: str
) -> None:
    path, said = recorded
    if transport == "stdio":
        assert talk(("mcp-replay", str(path)), whole) == said
        return

    async def run(url: str) -> Any:
        async with streamable_http_client(url) as (read, write, _), ClientSession(read, write) as client:
            await client.initialize()
            return await whole(client)

    with over_http(path) as url:
        assert asyncio.run(run(url)) == said


@pytest.mark.slow
def test_a_server_that_speaks_http_is_recorded(recorded: tuple[Path, list[Any]], tmp_path: Path) -> None:
    path, said = recorded
    secret = "Authorization: Bearer synthetic" + "-0123456789"
    with over_http(path) as url:
        words = ("mcp-record", "-o", str(tmp_path / "site"), "--url", url, "--header", secret)
        assert talk(words, whole) == said
    assert talk(("mcp-replay", str(tmp_path / "site")), whole) == said
    written = b"".join(file.read_bytes() for file in (tmp_path / "site").rglob("*.json"))
    assert secret[-10:].encode() not in written


@pytest.mark.slow
def test_an_http_server_that_is_not_there_is_an_error_in_a_line(tmp_path: Path) -> None:
    words = ["mcp-record", "-o", str(tmp_path / "site"), "--url", "http://127.0.0.1:9/mcp"]
    hello = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",' + (
        '"capabilities":{},"clientInfo":{"name":"a","version":"1"}}}\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "stillweb", *words], input=hello, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "http://127.0.0.1:9/mcp: the MCP server can't be reached" in done.stderr
    assert "Traceback" not in done.stderr


SECRET = "sk-" + "synthetic0" * 4


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tape of a client that only calls: a tool that asks its client, and one that is given a secret."""
    site = tmp_path_factory.mktemp("called") / "site"

    async def calls(client: ClientSession) -> str:
        await client.call_tool("add", {"text": SECRET})
        return text(await client.call_tool("ask"))

    assert talk(("mcp-record", "-o", str(site), "--", *COUNTER), calls) == "asked"
    return site


@pytest.mark.slow
def test_what_the_client_never_listed_is_on_the_tape(called: Path) -> None:
    async def lists(client: ClientSession) -> list[str]:
        resources = [str(r.uri) for r in (await client.list_resources()).resources]
        return resources + [p.name for p in (await client.list_prompts()).prompts]

    assert talk(("mcp-replay", str(called)), lists) == ["notes://first", "summary"]


def test_a_call_that_was_not_recorded_says_what_came_nearest(recorded: tuple[Path, list[Any]]) -> None:
    async def missed(client: ClientSession) -> list[str]:
        said = []
        for name, given in (("add", {"text": "bread", "tags": ["a", "b"]}), ("drop", {})):
            with pytest.raises(McpError) as told:
                await client.call_tool(name, given)
            said.append(str(told.value))
        return said

    other, unknown = talk(("mcp-replay", str(recorded[0])), missed)
    assert "not in the snapshot: POST http://note-keeper.invalid/tools/call/add" in other
    assert "nearest: POST http://note-keeper.invalid/tools/call/add" in other
    assert "bread" in other
    assert "not in the snapshot" in unknown


def test_arguments_are_matched_as_json_and_the_answer_tells_its_confidence(
    recorded: tuple[Path, list[Any]],
) -> None:
    async def reordered(client: ClientSession) -> types.CallToolResult:
        return await client.call_tool("add", {"tags": ["a", "b"], "text": "milk"})

    result = talk(("mcp-replay", str(recorded[0])), reordered)
    assert text(result) == "note 1"
    assert result.meta is not None
    assert result.meta["stillweb"]["verdict"] == "exact"
    one = request_of("s", "tools/call", {"name": "n", "arguments": {"a": 1, "b": None}, "_meta": {"x": 1}})
    other = request_of("s", "tools/call", {"arguments": {"b": None, "a": 1.0}, "name": "n"})
    apart = request_of("s", "tools/call", {"arguments": {"a": 1}, "name": "n"})
    assert request_key(one).canonical == request_key(other).canonical != request_key(apart).canonical


def test_reading_again_without_the_write_changes_nothing(recorded: tuple[Path, list[Any]]) -> None:
    async def skipping(client: ClientSession) -> None:
        await client.call_tool("show")
        await client.call_tool("show")
        second = await client.call_tool("show")
        assert text(second) == "no notes"

    talk(("mcp-replay", str(recorded[0])), skipping)


@pytest.mark.slow
def test_a_call_in_which_the_server_asks_its_client_is_not_recorded(called: Path) -> None:
    async def missed(client: ClientSession) -> None:
        with pytest.raises(McpError, match="not in the snapshot"):
            await client.call_tool("ask")

    talk(("mcp-replay", str(called)), missed)


@pytest.mark.slow
def test_two_servers_in_one_snapshot_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "site"
    for name in ("one", "two"):
        words = ("mcp-record", "-o", str(site), "--name", name, "--", *COUNTER)
        talk(words, lambda c, name=name: c.call_tool("add", {"text": name}))
    for server, said in ((["--server", "one"], "one"), (["--server", "two"], "two")):
        result = talk(("mcp-replay", str(site), *server), lambda c, t=said: c.call_tool("add", {"text": t}))
        assert text(result) == "note 1"
    assert call(capsys, "mcp-replay", site)[0] == 2
    assert call(capsys, "mcp-replay", site, "--server", "three")[0] == 2


@pytest.mark.slow
def test_a_secret_is_not_recorded(called: Path) -> None:
    with Snapshot.open(called) as snapshot:
        sent = [snapshot.read_request(c).body for c in snapshot.captures()]
    assert any(b'"add"' in body and b"arguments" in body for body in sent)
    assert not any(SECRET.encode() in body for body in sent)


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "mcp-record", "-o", tmp_path / "site", "--", "no-such-server")[0] == 2
    assert call(capsys, "mcp-record", "-o", tmp_path / "other")[0] == 2


# what a server says to a call whose id is 2: the member `result` and more, as JSON
ODD = {
    "ids of other types": ('{"jsonrpc":"2.0","id":[2],"result":{}}\n{"jsonrpc":"2.0","id":{},"result":{}}', "no answer"),
    "half a pair": ('{"jsonrpc":"2.0","id":2,"result":{"x":"\\ud800"}}', "can't be kept"),
    "no number": ('{"jsonrpc":"2.0","id":2,"result":{"x":NaN}}', "can't be kept"),
    "depth": ('{"jsonrpc":"2.0","id":2,"result":' + "[" * 100_000 + "]" * 100_000 + "}", "no answer"),
    "a long number": ('{"jsonrpc":"2.0","id":2,"result":{"x":' + "9" * 5_000 + "}}", "no answer"),
    "no objects": ('{"jsonrpc":"2.0","method":"m","params":[1]}\n{"jsonrpc":"2.0","id":2,"result":{"tools":7}}', ""),
    "no messages": ('7\n[]\nnull\nwords\n{"jsonrpc":"2.0","id":2,"error":"none"}', ""),
}  # fmt: skip


@pytest.mark.parametrize("what", ODD)
def test_odd_answers_pass_and_what_is_not_kept_is_told(what: str, tmp_path: Path) -> None:
    said, told = ODD[what]
    (tmp_path / "said").write_text(said + "\n")
    program = "import sys; input(); print(sys.argv[1]); input(); sys.stdout.write(open('said').read())"
    first = '{"jsonrpc":"2.0","id":1,"result":{"serverInfo":{"name":"odd"},"capabilities":{}}}'
    asked = '{"jsonrpc":"2.0","id":1,"method":"initialize"}\n' + ASKED.format(id=2, value=1)
    words = ("mcp-record", "-o", "site", "--", sys.executable, "-c", program, first)
    done = Started(*words, cwd=tmp_path, stdin=subprocess.PIPE).end(told=asked)
    assert done.code == 0, done.err
    assert done.out == f"{first}\n{said}\n"
    assert told in done.err
    assert ("not recorded: tools/call t: " in done.err) is bool(told)
    answers = replayed(tmp_path / "site", ASKED.format(id=7, value=1))
    assert '"id":7' in answers


def test_arguments_that_no_tape_holds_are_an_error(recorded: tuple[Path, list[Any]]) -> None:
    """Such arguments ended the server in a traceback."""
    values = ("NaN", "1e999", "9007199254740993", 1)
    asked = "".join(ASKED.format(id=7 + n, value=value) for n, value in enumerate(values))
    answers = replayed(recorded[0], asked).splitlines()
    assert ['"code":-32602' in answer for answer in answers] == [True, True, True, False]
    assert '"id":10' in answers[3]


def test_a_tape_that_another_program_wrote_asks_nothing_and_ends_no_server(tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [
        {"result": {}, "notifications": [{"params": {}}]},
        {"result": {}, "notifications": [{"id": 1, "method": "sampling/createMessage", "params": {}}]},
        {"result": {"content": "\ud800"}},
        {"result": {}, "error": {"code": 1, "message": "x"}},
        {"id": 3, "method": "x"},
    ]
    site = Site(tmp_path / "site")
    for n, said in enumerate((*wrong, {"id": 7, "result": {"x": 1}})):
        request = request_of("srv", "tools/call", {"name": "t", "arguments": {"a": n}})
        site.add(
            request.url, json.dumps(said).encode(), method="POST", headers=(("Content-Type", "application/json"),),
            request_headers=request.headers, request_body=request.body,
        )  # fmt: skip
    with site.open(), Writer.open(site.path) as writer:
        writer.metadata(f"{SERVER}srv", {})
    asked = "".join(ASKED.format(id=7 + n, value=n) for n in range(6))
    *refused, answer = map(json.loads, replayed(site.path, asked).splitlines())
    assert [(one["id"], one["error"]["code"]) for one in refused] == [(7 + n, -32603) for n in range(5)]
    assert (answer["id"], answer["result"]["x"]) == (12, 1)


ASKED = '{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","arguments":{{"a":{value}}}}}}}\n'


def replayed(path: Path, asked: str) -> str:
    """Return what a tape answers to lines."""
    done = Started("mcp-replay", path, stdin=subprocess.PIPE).end(told=asked)
    assert done.code == 0, done.err
    return done.out
