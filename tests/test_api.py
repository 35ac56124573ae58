"""The page of code in docs/api.md, run with a page of a local site."""

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import stillweb
from tests.snapshots.making import record

ROOT = Path(__file__).resolve().parents[1]
PAGE = b"<!doctype html><title>Example</title><h1>Example</h1><p>An example page, with words.</p>"
RUBRIC = {"columns": ["id", "v"], "row_key": ["id"]}
TASK = {"id": "one", "question": "Which?", "answer": "1|A", "scorer": "table", "options": {"rubric": RUBRIC}}


def built() -> Any:
    """The script that writes docs/api.md, as a module."""
    spec = importlib.util.spec_from_file_location("build_api", ROOT / "docs" / "build_api.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "api.md").read_text(encoding="utf-8") == built().page(), "run `make api`"


def test_importing_it_is_light() -> None:
    code = "import sys, stillweb; stillweb.record, stillweb.run; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"mitmproxy", "playwright", "openai", "httpx"} & set(loaded.split())


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_page_of_code_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    Path("agent.py").write_text(f"import urllib.request; urllib.request.urlopen({url!r})\n")
    Path("tasks.jsonl").write_text(json.dumps({**TASK, "start_url": url}) + "\n")

    async def my_agent(attempt: Any) -> str:
        page = await attempt.call("fetch", {"url": attempt.task.start_url})
        assert "An example page" in page.text
        return "1|A"

    stillweb.run(tasks="tasks.jsonl", agent=my_agent, out="run0", note=lambda text: None, contracts=())
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    code = built().EXAMPLE.replace("https://example.org/", url)
    names: dict[str, Any] = {"my_agent": my_agent}
    head, rest = code.split("snap = sw.open", 1)
    exec(head, names)
    server.shutdown()
    server.server_close()
    exec(f"snap = sw.open{rest}", names)
    assert names["hit"].verdict == "exact"
    assert names["hit"].response.status == 200
    assert names["run"].scores["em"].mean == 1.0
    assert names["run"].certificate["hash"] in capsys.readouterr().out
    names["snap"].close()


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("api") / "site"
    with stillweb.Writer.open(path) as writer:
        record(writer, "http://mill.test/", PAGE)
    return path


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.lookup("mill.test/"), "'mill.test/' is not a URL"),
        (lambda s: s.lookup("http://mill.test/#view=0123456789abcdef"), "a view is not a request"),
        (
            lambda s: s.lookup(stillweb.Request("POST", "http://mill.test/", (), "a=1")),
            "body .* bytes, not str",
        ),
        (lambda s: s.lookup(stillweb.Request("GET", "http://mill.test/", {"A": "b"})), "headers .* tuple"),
        (lambda s: stillweb.fetch(s, "mill.test"), "'mill.test' is not a URL"),
        (lambda s: stillweb.lookup(s, "http://mill.test/", min_confidence=65), "min-confidence 65: must be"),
        (lambda s: stillweb.replay(s, port=99999).__enter__(), "port 99999: must be a whole number"),
        (
            lambda s: stillweb.Recorder(None, resolve={"mill.test": "127.0.0.1"}),
            "resolve: 'mill.test': write",
        ),
        (lambda s: stillweb.open(""), "path of the snapshot is empty"),
    ],
)
def test_a_wrong_argument_is_named(snapshot: Path, call: Any, message: str) -> None:
    with stillweb.open(snapshot) as opened, pytest.raises(stillweb.UsageError, match=message):
        call(opened)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tape": "rekord"}, "'rekord', none of auto, none, record, replay - at \\$.tape"),
        ({"epochs": 0}, "Expected int >= 1 - at \\$.epochs"),
        ({"parallel": 0}, "must be at least 1, not 0"),
        ({"min_confidence": 65}, "min-confidence 65: must be"),
        ({"tasks": [{"id": "one"}]}, "question"),
    ],
)
def test_a_wrong_setting_of_a_run_is_named_before_it_begins(
    tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    settings = {"tasks": [TASK], "agent": lambda attempt: "1|A", "out": tmp_path / "run", **wrong}
    with pytest.raises(stillweb.UsageError, match=message):
        stillweb.run(**settings)
    assert not list(tmp_path.glob("run/traces/*"))


def test_a_closed_snapshot_answers_nothing(snapshot: Path) -> None:
    opened = stillweb.open(snapshot)
    hit = opened.lookup("http://mill.test/")
    opened.close()
    asked = [
        lambda: opened.lookup("http://mill.test/"),
        lambda: hit.response,
        lambda: stillweb.fetch(opened, "http://mill.test/"),
    ]
    for ask in asked:
        with pytest.raises(stillweb.UsageError, match="closed"):
            ask()


def test_tools_are_given_a_path_as_all_others(snapshot: Path) -> None:
    with stillweb.tools(snapshot, "fetch") as tools:
        assert "An example page" in tools.call("fetch", url="http://mill.test/").text


def test_a_run_is_made_where_an_event_loop_runs(tmp_path: Path) -> None:
    async def notebook() -> stillweb.Run:
        return stillweb.run(
            tasks=[TASK],
            agent=lambda attempt: "1|A",
            out=tmp_path / "run",
            contracts=(),
            note=lambda text: None,
        )

    assert asyncio.run(notebook()).scores["em"].mean == 1.0


@pytest.mark.slow
def test_a_run_is_repeated(tmp_path: Path) -> None:
    (script := tmp_path / "agent.yaml").write_text("agent: script\ndefault: {steps: [], answer: '1|A'}\n")
    (tasks := tmp_path / "tasks.jsonl").write_text(json.dumps(TASK) + "\n")
    run = stillweb.run(tasks=tasks, agent=f"script:{script}", out=tmp_path / "run")
    found = stillweb.certify(run, times=1)
    assert (found.holds, found.hash) == (True, run.certificate["hash"])
    with pytest.raises(stillweb.UsageError, match="at least once"):
        stillweb.certify(run, times=0)
