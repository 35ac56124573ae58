"""Recording by running the tools once; replay then says the same."""

import asyncio
import gzip
import json
import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from stillweb.harness.servers.mcp import prompt
from stillweb.harness.tools import Toolset
from stillweb.harness.tools.recording import RecordingToolset, recording_toolset
from stillweb.proxy import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.origin import Answer, Asked, Origin
from tests.snapshots.text.test_text import ARTICLE, make_pdf
from tests.support.command_line import stillweb

KEY = "5f3c9a1be07d42688c1d90ab37e6f2545f3c9a1b"


class Pages(BaseHTTPRequestHandler):
    """A page, a redirect, a PDF, a robots.txt and a page that it forbids."""

    def do_GET(self) -> None:
        pages = {
            "/robots.txt": ("text/plain", b"User-agent: *\nDisallow: /private\n", 200),
            "/birds": ("text/html; charset=utf-8", ARTICLE.encode(), 200),
            "/old": ("text/html", b"", 302),
            "/paper.pdf": ("application/pdf", make_pdf("One", "Two"), 200),
            "/private/x": ("text/html", b"secret", 200),
        }
        media, body, status = pages.get(self.path, ("text/html", b"none", 404))
        self.send_response(status)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        if status == 302:
            self.send_header("Location", "/birds")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def origin() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_the_tools_did_is_replayed_the_same(
    tmp_path: Path, origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    calls = [
        ("fetch", {"url": f"{origin}/birds", "max_length": 100}),
        ("fetch", {"url": f"{origin}/old", "start_index": 20}),
        ("fetch", {"url": f"{origin}/birds", "raw": True}),
        ("fetch", {"url": f"{origin}/none"}),
        ("fetch", {"url": f"{origin}/private/x"}),
        ("read_pdf", {"sources": [{"url": f"{origin}/paper.pdf", "pages": "2"}]}),
        ("fetch", {"url": "nope"}),
    ]

    async def run(toolset: Toolset) -> list[tuple[bool, object]]:
        session = toolset.session("agent")
        results = [await session.call(*call) for call in calls]
        await session.close()
        return [(r.is_error, r.content) for r in results]

    with recording_toolset(tmp_path / "snap", ["fetch", "pdf-reader"], private=True) as toolset:
        real = asyncio.run(run(toolset))
    assert [error for error, _ in real] == [False, False, False, True, True, False, True]
    assert "specifies that autonomous fetching" in str(real[4])
    with Snapshot.open(tmp_path / "snap") as snapshot:
        assert asyncio.run(run(Toolset(snapshot, ["fetch", "pdf-reader"]))) == real
        assert {c.session for c in snapshot.captures()} == {"agent"}
        assert [one.origin for one in snapshot.provenance] == ["tools fetch pdf-reader"]


def test_the_prompt_is_a_persons_and_waits_its_turn(
    tmp_path: Path, origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No robots.txt holds for it, and beside a call that goes on it gets its own page."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    async def run(toolset: Toolset) -> list[str]:
        session = toolset.session("agent")
        given = await asyncio.gather(
            session.call("fetch", {"url": f"{origin}/birds"}),
            prompt(toolset, session, "fetch", {"url": f"{origin}/private/x"}),
            session.call("fetch", {"url": f"{origin}/none"}),
        )
        await session.close()
        return [given[0].text, given[1]["messages"][0]["content"]["text"], given[2].text]

    with Writer.open(tmp_path / "snap") as writer, Recorder(writer) as recorder:
        birds, private, none = asyncio.run(run(RecordingToolset(recorder, ["fetch"])))
    assert "Penguins" in birds
    assert private == "secret"
    assert none.endswith("status code 404")
    with Snapshot.open(tmp_path / "snap") as snapshot:
        (capture,) = [c for c in snapshot.captures() if c.url.endswith("/private/x")]
        assert "User-Specified" in (snapshot.read_request(capture).header("user-agent") or "")


def test_a_host_that_does_not_answer_is_an_error_and_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with Writer.open(tmp_path / "snap") as writer, Recorder(writer) as recorder:
        session = RecordingToolset(recorder, ["fetch"]).session("agent")
        result = asyncio.run(session.call("fetch", {"url": "http://127.0.0.1:9/"}))
        assert result.is_error
        assert result.text.startswith(
            "Failed to fetch robots.txt http://127.0.0.1:9/robots.txt due to a connection issue"
        )
        asyncio.run(session.close())
    with Snapshot.open(tmp_path / "snap") as snapshot:
        assert list(snapshot.captures()) == []


class Serper(BaseHTTPRequestHandler):
    """The search service, for who has the key."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = self.headers.get("X-API-KEY") == KEY
        found = {
            "searchParameters": asked,
            "organic": [{"title": "Birds", "link": "https://a.test/", "position": 1}],
        }
        body = json.dumps(found if known else {"message": "Unauthorized.", "statusCode": 403}).encode()
        self.send_response(200 if known else 403)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_a_search_is_recorded_with_the_users_key_which_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERPER_API_KEY", KEY)
    theirs = Authority.load_or_create(tmp_path / "theirs")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Serper)
    server.socket = theirs.context_for("google.serper.dev").wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    calls = [{"q": "penguins"}, {"q": "gulls", "num": 3}]

    async def run(toolset: Toolset) -> list[tuple[bool, object]]:
        session = toolset.session("agent")
        results = [await session.call("google_search", call) for call in calls]
        await session.close()
        return [(r.is_error, r.content) for r in results]

    with (
        Writer.open(tmp_path / "snap") as writer,
        Recorder(
            writer,
            authority=Authority.load_or_create(tmp_path / "ours"),
            upstream_ca=theirs.certificate_path,
            resolve={"google.serper.dev": ("127.0.0.1", server.server_address[1])},
        ) as recorder,
    ):
        real = asyncio.run(run(RecordingToolset(recorder, ["serper"])))
    server.shutdown()
    thread.join()
    server.server_close()
    assert [error for error, _ in real] == [False, False]
    assert "Birds" in str(real[0])
    monkeypatch.delenv("SERPER_API_KEY")
    for path in (tmp_path / "snap").rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        assert KEY.encode() not in (gzip.decompress(data) if path.suffix == ".gz" else data), path
    with Snapshot.open(tmp_path / "snap") as snapshot:
        assert asyncio.run(run(Toolset(snapshot, ["serper"]))) == real
        missed = asyncio.run(Toolset(snapshot, ["serper"]).session("s").call("google_search", {"q": "terns"}))
        assert missed.is_error
        assert missed.meta["verdict"] == "miss"


def test_a_contract_that_can_t_record_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"playwright-mcp@.* can't record"):
        RecordingToolset(None, ["playwright-mcp"])  # type: ignore[arg-type]


def test_a_call_has_no_cookies_of_the_calls_before_it(tmp_path: Path) -> None:
    """As with the real tools, whose clients are new; within one call they last from redirect to redirect."""

    def answer(asked: Asked) -> Answer:
        told = [("Content-Type", "text/plain"), ("Set-Cookie", "sid=1")]
        cookie = asked.header("cookie")
        if asked.path == "/robots.txt":
            return Answer(404)
        if asked.path == "/wall" and cookie is None:
            return Answer(302, headers=[*told, ("Location", "/wall")])
        return Answer(headers=told, body=f"{asked.path} with {cookie}".encode())

    async def run(toolset: Toolset) -> list[str]:
        session = toolset.session("agent")
        paths = ("/a", "/b", "/wall", "/a")
        texts = [(await session.call("fetch", {"url": site.url + path})).text for path in paths]
        await session.close()
        return [text.rpartition("\n")[2] for text in texts]

    with Origin(answer) as site:
        with Writer.open(tmp_path / "snap") as writer, Recorder(writer) as recorder:
            real = asyncio.run(run(RecordingToolset(recorder, ["fetch"])))
        assert real == ["/a with None", "/b with None", "/wall with sid=1", "/a with None"]
        with Snapshot.open(tmp_path / "snap") as snapshot:
            assert asyncio.run(run(Toolset(snapshot, ["fetch"]))) == real


def test_a_robots_file_that_redirects_without_end_denies(tmp_path: Path) -> None:
    """As a connection that fails; its redirect was read as rules, which forbid nothing."""

    def answer(asked: Asked) -> Answer:
        if asked.path == "/robots.txt":
            return Answer(302, headers=[("Location", "/robots.txt")])
        return Answer(body=b"a page")

    with Origin(answer) as site, Writer.open(tmp_path / "snap") as writer, Recorder(writer) as recorder:
        session = RecordingToolset(recorder, ["fetch"]).session("agent")
        result = asyncio.run(session.call("fetch", {"url": f"{site.url}/page"}))
        asyncio.run(session.close())
    assert result.is_error
    assert result.text.startswith(f"Failed to fetch robots.txt {site.url}/robots.txt due to a connection")
    assert {asked.path for asked in site.asked} == {"/robots.txt"}


@pytest.mark.slow
@pytest.mark.parametrize("allowed", [False, True])
def test_a_model_asks_private_addresses_only_where_that_is_allowed(
    tmp_path: Path, origin: str, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    """`mcp --record` as its client has it, which chooses what is asked."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    words = [
        *["mcp", "--record", "--contract", "fetch"],
        *(["--private"] if allowed else []),
        str(tmp_path / "snap"),
    ]

    async def call() -> bool:
        command = ["-c", "from stillweb.harness.cli import run; run()", *words]
        parameters = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
        with (tmp_path / "said").open("w") as said:
            async with stdio_client(parameters, said) as (read, write), ClientSession(read, write) as client:
                await client.initialize()
                return bool((await client.call_tool("fetch", {"url": f"{origin}/birds"})).isError)

    assert asyncio.run(call()) is not allowed
    line = "127.0.0.1 is not a public address; --private (in Python private=True) lets it pass"
    assert (line in (tmp_path / "said").read_text()) is not allowed
    with Snapshot.open(tmp_path / "snap") as snapshot:
        assert [failure.reason for failure in snapshot.failures()] == ([] if allowed else ["private"])


def test_the_option_is_for_recording_alone(tmp_path: Path) -> None:
    done = stillweb("mcp", "--private", tmp_path)
    assert done.code == 2
    assert "--private goes with --record" in done.err
