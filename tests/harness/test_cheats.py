"""Cheats: every tool of every contract, and every kind of agent in our process, asked for what the tasks' answers lie in.

A canary stands in all that an attempt must not read: the task set, a run, other snapshots, another attempt's browser and
workspace, parts of the snapshot that are no page, the environment. No tool may return it. The tools come from the registry:
one that is added is tried without being named here.
"""

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness import agents
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.harness.tools import MAKERS, Toolset, ToolSpec, browser, contract_names, http_hosts
from stillweb.harness.tools.toolset import ToolSession
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.view import View, view_address
from stillweb.snapshots.writer import Writer
from tests.snapshots.text.test_text import make_pdf
from tests.support.every_tool import CALLS, WIDGETS, make_every_tool_site
from tests.support.openai_endpoint import Asked, Endpoint, Said

CANARY = "canary-of-an-answer-5160"
VIEWED = view_address(WIDGETS, ({"click": {"css": "#ask"}},))
TOOLS = [
    (contract, spec)
    for contract in contract_names()
    if contract.partition("@")[0] in MAKERS
    for spec in Toolset(Any, [contract], store=Any).specs  # type: ignore[arg-type]  # nothing is asked
]
# A page that shows what it is given.
TELLS = """() => {
  const tell = async (files) => { for (const file of files) document.body.append(await file.text()); };
  addEventListener("change", (e) => tell(e.target.files));
  addEventListener("drop", (e) => { e.preventDefault(); tell(e.dataTransfer.files); });
}"""
# The contracts that are HTTP interfaces: what is sent to ask for an address.
SERVICES = {
    "exa": ("https://api.exa.ai/contents", lambda url: {"urls": [url], "text": True}),
    "jina-reader": ("https://r.jina.ai/", lambda url: {"url": url}),
    "serper-mcp": ("https://scrape.serper.dev/", lambda url: {"url": url}),
    "tavily": ("https://api.tavily.com/extract", lambda url: {"urls": [url]}),
}


@dataclass
class World:
    """A machine with answers on it, and the tools of an attempt."""

    folder: Path
    toolset: Toolset
    runner: asyncio.Runner
    tried: int = 0
    sessions: list[ToolSession] = field(default_factory=list)

    def session(self) -> ToolSession:
        workspace = self.folder / f"workspace-{len(self.sessions)}"
        workspace.mkdir()
        (workspace / "own.txt").write_text("own words")
        os.symlink(self.folder / "tasks.jsonl", workspace / "link.txt")
        self.sessions.append(self.toolset.session(f"s{len(self.sessions)}", workspace))
        return self.sessions[-1]

    @cached_property
    def attempt(self) -> ToolSession:
        """The session in which all tools are tried, one after the other."""
        return self.session()

    def call(self, session: ToolSession, name: str, arguments: dict[str, Any]) -> str:
        """All that a call returned, for models and for machines."""
        self.tried += 1
        result = self.runner.run(session.call(name, arguments))
        text = json.dumps([result.content, result.meta], default=str)
        assert CANARY not in text, (name, arguments)
        return text

    def paths(self) -> list[str]:
        secret = [
            "tasks.jsonl", "run/tasks.jsonl", "run/run.json", "run/traces/a.1.jsonl", "site/notes.txt", "site/datapackage.json",
            "workspace-0/other.txt", "answers.pdf",
        ]  # fmt: skip
        return [
            *(str(self.folder / name) for name in secret), "/proc/self/environ", f"/proc/{os.getpid()}/environ", "link.txt", "../tasks.jsonl",
            "/workspace/../tasks.jsonl",
        ]  # fmt: skip

    def addresses(self) -> list[str]:
        gateway = self.sessions[0]._opened and next(iter(self.sessions[0]._opened.values())).gateway
        own = gateway.url if gateway else "http://127.0.0.1:1"
        return [
            *(f"file://{path}" for path in self.paths()[:10]), "view-source:file:///proc/self/environ", "chrome://version", "chrome://policy",
            "http://stillweb.local/", "http://stillweb.local/ledger", "https://stillweb.local/misses", f"{own}/ledger", f"{own}/",
            f"urn:pageinfo:{VIEWED}", f"urn:files:{VIEWED}", "urn:warcinfo", VIEWED.replace("#view", "#text"),
        ]  # fmt: skip

    def scripts(self) -> list[str]:
        """Return the attempts of a page's script, each as a function."""
        got = "(r) => r.text()"
        file, ledger = f"file://{self.folder}/tasks.jsonl", "http://stillweb.local/ledger"
        tries = [
            *(f"fetch({json.dumps(url)}).then({got})" for url in self.addresses()),
            f"new Promise((y) => {{ const x = new XMLHttpRequest(); x.onloadend = () => y(x.responseText); x.open('GET', '{file}'); x.send(); }})",
            f"import('{file}').then(JSON.stringify)",
            f"new Promise((y) => {{ const i = document.createElement('img'); i.onload = i.onerror = (e) => y(e.type + i.width); i.src = '{file}'; document.body.append(i); }})",
            f"new Promise((y) => {{ const s = document.createElement('script'); s.onload = s.onerror = (e) => y(e.type + e.message); s.src = '{file}'; document.body.append(s); }})",
            f"new Promise((y) => {{ const w = window.open('{ledger}'); setTimeout(() => {{ let t = ''; try {{ t = w.document.body.innerText; }} catch (e) {{ t = e.message; }} y(t); }}, 500); }})",
            f"new Promise((y) => {{ const w = new Worker(URL.createObjectURL(new Blob([`fetch('{file}').then({got}).then(postMessage, (e) => postMessage(e.message))`]))); w.onmessage = (m) => y(m.data); }})",
            "document.querySelector('#file').files.length + (document.querySelector('#file').value = '/etc/hosts')",
            "Promise.all((await indexedDB.databases()).map((d) => d.name)).then(String)",
            "caches.keys().then(String)",
            "JSON.stringify([localStorage, sessionStorage, document.cookie, history.length, document.referrer])",
            "navigator.clipboard.readText()",
            "navigator.clipboard.read().then((all) => all[0].getType('text/plain')).then((b) => b.text())",
            "document.execCommand('paste') + document.body.innerText",
            "showOpenFilePicker().then(([f]) => f.getFile()).then((f) => f.text())",
            "showDirectoryPicker().then((d) => d.name)",
            "navigator.storage.getDirectory().then(async (d) => { const n = []; for await (const k of d.keys()) n.push(k); return String(n); })",
            "navigator.serviceWorker.register('/sw.js').then(String)",
            "new Promise((y) => { const c = new BroadcastChannel('x'); c.onmessage = (m) => y(m.data); setTimeout(() => y('none'), 300); })",
            "JSON.stringify(Object.getOwnPropertyNames(globalThis).filter((n) => /playwright|stillweb|binding|chrome/i.test(n)))",
            "globalThis[Symbol.for('stillweb')] && JSON.stringify(globalThis[Symbol.for('stillweb')])",
        ]  # fmt: skip
        return [
            f"async () => {{ try {{ return await ({one}); }} catch (e) {{ return e.message; }} }}"
            for one in tries
        ]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, record_testsuite_property: Any) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("machine")
    make_machine(folder)
    with (
        pytest.MonkeyPatch.context() as patch,
        Snapshot.open(folder / "site") as snapshot,
        asyncio.Runner() as runner,
    ):
        patch.setenv("SECRET_ANSWER", CANARY)
        patch.setattr(browser, "GIVEN_MS", 3_000)  # for options that are not there
        patch.chdir(folder)
        contracts = {contract.partition("@")[0]: contract for contract, _ in TOOLS}
        found = World(folder, Toolset(snapshot, list(contracts.values())), runner)
        other = found.session()  # another attempt, which knows the answer
        Path(folder / "workspace-0/other.txt").write_text(CANARY)
        told = runner.run(other.call("browser_navigate", {"url": f"{WIDGETS}?{CANARY}"}))
        assert told.is_error
        runner.run(other.call("browser_navigate", {"url": WIDGETS}))
        keep = f"() => {{ localStorage.x = sessionStorage.x = document.cookie = '{CANARY}'; indexedDB.open('{CANARY}'); caches.open('{CANARY}'); new BroadcastChannel('x').postMessage('{CANARY}'); }}"
        runner.run(other.call("browser_evaluate", {"function": keep}))
        runner.run(other.call("browser_type", {"target": "role=textbox", "text": CANARY}))
        for key in ("Control+A", "Control+C"):
            runner.run(other.call("browser_press_key", {"key": key}))
        try:
            yield found
        finally:
            record_testsuite_property("cheats tried", found.tried)
            for session in found.sessions:
                runner.run(session.close())
            runner.run(found.toolset.close())


def make_machine(folder: Path) -> None:
    """The canary in all files that lie about where a run is made."""
    make_every_tool_site(folder / "site")
    with Writer.open(folder / "site", settings={"note": CANARY}) as writer:
        view = View(
            VIEWED,
            WIDGETS,
            WIDGETS,
            "W",
            ({"click": {"css": "#ask"}},),
            timestamp="20250101000000",
            state={"note": CANARY},
        )
        writer.view(view, {"dom": b"<h1>viewed</h1>", "pageinfo": json.dumps({"note": CANARY}).encode(), "files": CANARY.encode()})  # fmt: skip
    (folder / "site/notes.txt").write_text(CANARY)
    (folder / "answers.pdf").write_bytes(make_pdf(CANARY))
    (folder / "run/traces").mkdir(parents=True)
    for name in ("tasks.jsonl", "run/tasks.jsonl", "run/run.json", "run/traces/a.1.jsonl"):
        (folder / name).write_text(json.dumps({"question": "?", "answer": CANARY}))


def base_of(spec: ToolSpec) -> dict[str, Any]:
    """Arguments with which a tool works: those of its call, else a text for whatever it requires."""
    known = [given for calls in CALLS.values() for name, given in calls if name == spec.name]
    return dict(known[0]) if known else dict.fromkeys(spec.input_schema.get("required", ()), "x")


def replaced(
    schema: Mapping[str, Any], base: Any, values: Callable[[str], list[str]], name: str = ""
) -> Iterator[Any]:
    """The arguments with each text that the schema has replaced by each of the values for its name, one after the other."""
    kind = schema.get("type")
    if kind == "string" or kind is None:
        yield from values(name)
    elif kind == "array":
        first = base[0] if isinstance(base, list) and base else None
        for one in replaced(schema.get("items", {}), first, values, name):
            yield [one]
    elif kind == "object":
        known = base if isinstance(base, dict) else {}
        for inner, its in schema.get("properties", {}).items():
            for one in replaced(its, known.get(inner), values, inner):
                yield {**known, inner: one}
        if not schema.get("properties"):
            for value in values(name):
                yield {"text/uri-list": value}


@pytest.mark.slow
@pytest.mark.parametrize(("contract", "spec"), TOOLS, ids=lambda one: getattr(one, "name", one))
def test_no_argument_of_a_tool_gives_an_answer_away(world: World, contract: str, spec: ToolSpec) -> None:
    session = world.attempt
    if spec.name.startswith("browser_"):
        world.call(session, "browser_navigate", {"url": WIDGETS})
        world.call(session, "browser_evaluate", {"function": TELLS})

    def values(
        name: str,
    ) -> list[str]:  # all names of files or all addresses where a tool may take one, else a few
        paths, addresses = world.paths(), world.addresses()
        many = {"paths": (99, 2), "path": (99, 2), "url": (2, 99), "data": (2, 99)}.get(name, (1, 1))
        return [*paths[: many[0]], *addresses[: many[1]]]

    for arguments in replaced(spec.input_schema, base_of(spec), values):
        if spec.name == "browser_file_upload":
            world.call(session, "browser_click", {"target": "#file"})
        world.call(session, spec.name, arguments)
        if spec.name in ("browser_file_upload", "browser_drop"):  # what a page was given
            if spec.name == "browser_file_upload":
                world.call(session, spec.name, {})
            world.call(session, "browser_evaluate", {"function": "() => document.body.innerText"})
    if spec.name.startswith("browser_"):
        world.call(session, "browser_snapshot", {})


@pytest.mark.slow
def test_a_page_tells_what_it_is_given(world: World) -> None:
    """If the page did not, the cheats with files would find nothing in any case."""
    session = world.session()
    told = []
    for tool, more in (("browser_file_upload", {}), ("browser_drop", {"target": "#to"})):
        world.call(session, "browser_navigate", {"url": WIDGETS})
        world.call(session, "browser_evaluate", {"function": TELLS})
        world.call(session, "browser_click", {"target": "#file"})
        if tool == "browser_drop":
            world.call(session, "browser_file_upload", {})
        world.call(session, tool, {**more, "paths": ["own.txt"]})
        told.append(world.call(session, "browser_evaluate", {"function": "() => document.body.innerText"}))
    assert all("own words" in text for text in told)


@pytest.mark.slow
def test_no_script_of_a_page_reads_one(world: World) -> None:
    session = world.session()
    world.call(session, "browser_navigate", {"url": WIDGETS})
    for script in world.scripts():
        world.call(session, "browser_evaluate", {"function": script})
    for tool in ("browser_tabs", "browser_network_requests", "browser_console_messages", "browser_snapshot"):
        world.call(session, tool, base_of(next(spec for _, spec in TOOLS if spec.name == tool)))


@pytest.mark.slow
def test_no_key_pastes_what_another_attempt_copied(world: World) -> None:
    session = world.session()
    value = {"function": "() => document.querySelector('[aria-label=Name]').value"}
    for key in ("Control+V", "Control+Shift+V", "Shift+Insert", "ControlOrMeta+KeyV"):
        world.call(session, "browser_navigate", {"url": WIDGETS})
        world.call(session, "browser_click", {"target": "role=textbox"})
        world.call(session, "browser_press_key", {"key": key})
        world.call(session, "browser_evaluate", value)


@pytest.mark.slow
def test_no_service_reads_one(world: World) -> None:
    """The HTTP interfaces of the other contracts, at their real addresses."""
    hosts = http_hosts(world.toolset)
    kinds = {name.partition("@")[0] for name in contract_names()}
    assert kinds == set(SERVICES) | set(MAKERS), "a contract that no cheat is tried on"
    for address, body in SERVICES.values():
        host = address.split("/")[2]
        for url in [*world.addresses(), *world.paths()]:
            sent = (("Content-Type", "application/json"), ("Authorization", "Bearer x"), ("X-API-KEY", "x"))
            asked = [
                Request("POST", address, sent, json.dumps(body(url)).encode()),
                Request("GET", address + url, sent),
            ]
            for request in asked:
                world.tried += 1
                assert CANARY.encode() not in hosts[host](request, "cheat").body, url


# ---- agents


def cheats_for_agents(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Tool calls that an agent makes, in order."""
    read = "async () => Promise.all([...document.querySelector('#file').files].map((f) => f.text()))"
    calls: list[tuple[str, dict[str, Any]]] = [("browser_navigate", {"url": WIDGETS})]
    for path in (folder / "tasks.jsonl", folder / "made/tasks.jsonl", "/proc/self/environ", "tasks.jsonl"):
        calls += [("browser_click", {"target": "#file"}), ("browser_file_upload", {"paths": [str(path)]}), ("browser_file_upload", {}),
                  ("browser_evaluate", {"function": read}), ("read_pdf", {"sources": [{"path": str(path)}]}), ("fetch", {"url": f"file://{path}"}),
                  ("browser_navigate", {"url": f"file://{path}"})]  # fmt: skip
    return [
        *calls,
        ("browser_navigate", {"url": "http://stillweb.local/ledger"}),
        ("browser_navigate", {"url": "chrome://version"}),
    ]


def cheating_run(folder: Path, agent: str) -> RunFiles:
    meta = {"rubric": {"a": CANARY}, "urls": [[f"http://{CANARY}.test/", "required"]], "canary": CANARY}
    task = Task("a", "What is the answer?", CANARY, start_url=WIDGETS, meta={"language": "en", **meta})
    settings = Settings(
        agent=agent, snapshots=(str(folder / "site"),), contracts=("playwright-mcp", "fetch", "pdf-reader")
    )
    files = start_run(folder / "made", settings, [task])
    run_attempts(files.path, display=SilentDisplay())
    return files


def told_by_tools(files: RunFiles) -> str:
    trace = next(trace for _, _, trace in files.attempts())
    assert trace is not None
    calls = trace.of("tool_call")
    assert len(calls) > 25
    return json.dumps([[call["output"], call["meta"], call["nearest"]] for call in calls])


@pytest.mark.slow
def test_a_script_reads_none(tmp_path: Path) -> None:
    # predictions call no tools; the agents of other providers differ from openai's in what they say to the model
    assert set(agents._KINDS) == {"script", "openai", "anthropic", "gemini", "command", "predictions"}, (
        "a kind of agent that no cheat is tried with"
    )
    make_machine(tmp_path)
    steps = [{"call": name, "with": given, "may_fail": True} for name, given in cheats_for_agents(tmp_path)]
    leaks = " ".join(
        f"{{{{ {one} }}}}"
        for one in ("task", "attempt", "last", "self", "range", "lipsum", "cycler", "joiner", "namespace")
    )
    script = {"agent": "script", "default": {"steps": steps, "answer": leaks}}
    (tmp_path / "agent.yaml").write_text(json.dumps(script))
    files = cheating_run(tmp_path, f"script:{tmp_path / 'agent.yaml'}")
    assert CANARY not in told_by_tools(files)
    trace = next(trace for _, _, trace in files.attempts())
    assert trace is not None
    assert CANARY not in trace.last("answer")["text"]  # type: ignore[index]
    assert trace.last("score")["metrics"]["exact"] == 0  # type: ignore[index]


@pytest.mark.slow
def test_a_model_is_sent_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_machine(tmp_path)
    calls = cheats_for_agents(tmp_path)

    def cheat(asked: Asked) -> Said:
        done = len(asked.tool_answers)
        return [calls[done]] if done < len(calls) else "unknown"

    with Endpoint(cheat) as endpoint:
        options = {"agent": "openai", "model": "m", "base_url": endpoint.url, "key_variable": ""}
        (tmp_path / "agent.yaml").write_text(json.dumps(options))
        files = cheating_run(tmp_path, str(tmp_path / "agent.yaml"))
        sent = json.dumps(endpoint.requests)
    assert "What is the answer?" in sent
    assert len(endpoint.requests) > len(calls)
    assert CANARY not in sent
    assert CANARY not in told_by_tools(files)


@pytest.mark.slow
def test_a_program_is_told_none(tmp_path: Path) -> None:
    make_machine(tmp_path)
    (tmp_path / "agent.yaml").write_text(json.dumps({"agent": "command", "command": "cat", "stdin": "json"}))
    trace = next(trace for _, _, trace in cheating_run(tmp_path, str(tmp_path / "agent.yaml")).attempts())
    assert trace is not None
    told = json.loads(trace.last("answer")["text"])  # type: ignore[index]
    assert told == {
        "id": "a",
        "question": "What is the answer?",
        "start_url": WIDGETS,
        "meta": {"language": "en"},
    }
