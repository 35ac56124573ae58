"""`stillweb cut`: a run repeats on the cut with the same tool results."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from stillweb.api import cut, replay
from stillweb.harness.runs.run_files import RunFiles
from stillweb.harness.trace import digest
from stillweb.snapshots.operations.cut import ORIGIN
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.view import View
from stillweb.snapshots.writer import Writer
from tests.harness.commands.calling import call
from tests.snapshots.making import record
from tests.snapshots.operations.test_cut import SITE, STEPS, TWIN, VIEW, page, places, site
from tests.support.command_line import stillweb
from tests.support.recorded_runs import run_on

SCRIPT = {
    "agent": "script",
    "tasks": {
        "pages": {
            "steps": [
                {"call": "fetch", "with": {"url": f"{TWIN}/again", "max_length": 20}},
                {"call": "fetch", "with": {"url": f"{SITE}/rows"}},
                {"call": "fetch", "with": {"url": f"{SITE}/rows?year=2012"}, "may_fail": True},
                {"call": "fetch", "with": {"url": VIEW}},
            ]
        },
        "search": {
            "steps": [{"call": "google_search", "with": {"q": "mills of number 4", "gl": "us", "hl": "en"}}]
        },
    },
}
SETTINGS: dict[str, Any] = {"contracts": ("mcp-fetch", "serper-mcp"), "synthetic_search": True}


def results(files: RunFiles) -> dict[str, str]:
    """A hash of the tool results of each attempt: all of them but where in a file the captures lie."""
    found = {}
    for task, _, trace in files.attempts():
        assert trace is not None
        events = [
            {k: v for k, v in e.items() if k not in ("aside", "captures")} for e in trace.of("tool_call")
        ]
        digests = [[c["digest"] for c in e["captures"]] for e in trace.of("tool_call")]
        assert [e["verdict"] for e in events] == VERDICTS[task.id]
        found[task.id] = digest([events, digests])
    return found


VERDICTS = {"pages": ["exact", "exact", "miss", "rendered"], "search": ["synthetic"]}


def test_a_run_has_the_same_tool_results_on_its_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = site(tmp_path / "site")
    first = run_on(whole, tmp_path, ["pages", "search"], SCRIPT, **SETTINGS)
    code, out = call(capsys, "cut", whole, "--run", first.path, "-o", tmp_path / "part.wacz", "--json")
    assert code == 0
    report = json.loads(out)
    assert report["captures"][0] < report["captures"][1]
    second = run_on(tmp_path / "part.wacz", tmp_path, ["pages", "search"], SCRIPT, into="again", **SETTINGS)
    assert results(first) == results(second)


def test_without_a_search_only_the_texts_of_the_run_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = site(tmp_path / "site")
    first = run_on(whole, tmp_path, ["pages"], SCRIPT, **SETTINGS)
    code, out = call(capsys, "cut", whole, "--run", first.path, "-o", tmp_path / "part.wacz", "--json")
    assert code == 0
    assert json.loads(out)["texts"][0] < json.loads(out)["texts"][1]
    second = run_on(tmp_path / "part.wacz", tmp_path, ["pages"], SCRIPT, into="again", **SETTINGS)
    assert results(first) == results(second)


def test_a_run_of_another_snapshot_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = site(tmp_path / "site")
    first = run_on(whole, tmp_path, ["search"], SCRIPT, **SETTINGS)
    call(capsys, "cut", whole, "--run", first.path, "-o", tmp_path / "part")
    code, _ = call(capsys, "cut", tmp_path / "part", "--run", first.path, "-o", tmp_path / "x")
    assert code == 2
    assert not (tmp_path / "x").exists()


def test_ledgers_of_replays_say_what_is_needed(tmp_path: Path) -> None:
    whole = site(tmp_path / "site")
    ledgers = []
    for number, url in enumerate((f"{SITE}/rows", f"{TWIN}/again")):
        with (
            replay(whole, ledger=tmp_path / f"{number}.jsonl") as served,
            httpx.Client(**served.httpx()) as client,
        ):
            client.get(url)
        ledgers.append(tmp_path / f"{number}.jsonl")
    kept, whole_number = cut(whole, tmp_path / "part", ledgers=ledgers).captures
    assert kept < whole_number
    with replay(tmp_path / "part") as served, httpx.Client(**served.httpx()) as client:
        verdicts = [client.get(url).headers["stillweb-verdict"] for url in (f"{SITE}/rows", f"{TWIN}/again")]
    assert verdicts == ["exact", "exact"]


@pytest.mark.parametrize("file", ["other.warc.gz", "data-00000.warc.gz"])
def test_a_ledger_of_another_snapshot_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    """Also one that names a place at which this snapshot has another capture."""
    whole = site(tmp_path / "site")
    ((_, offset),) = places(whole, f"{TWIN}/twin")
    line = {
        "session": "s",
        "seq": 0,
        "method": "GET",
        "url": f"{SITE}/rows",
        "verdict": "exact",
        "status": 200,
        "capture": {"file": file, "offset": offset, "digest": "sha256:00"},
    }
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_text(json.dumps(line) + "\n")
    code, _ = call(capsys, "cut", whole, "--ledger", ledger, "-o", tmp_path / "part")
    assert code == 2


def test_layers_are_cut_to_one_snapshot_that_answers_alike(tmp_path: Path) -> None:
    """The base's payload is kept of which the layer hides the capture; the layer's answers, text and view win there, too."""
    base, more, part = site(tmp_path / "site"), tmp_path / "more", tmp_path / "part.wacz"
    with Writer.open(more, serial=1000) as writer:  # all records of these tests have one date
        record(writer, f"{TWIN}/twin", page("Other twins"))
        record(writer, f"{SITE}/new", page("New"))
        record(writer, "http://new.test/unused", page("Unused"))
        old = View(VIEW, f"{SITE}/view", f"{SITE}/view", "New mills", STEPS, timestamp="20240102030405")
        writer.view(old, {"text": b"New mills", "dom": page("New")})
    urls = f"{TWIN}/twin", f"{TWIN}/again", f"{SITE}/new", f"{SITE}/rows"

    def replayed(name: str, *snapshots: Path) -> list[tuple[str, bytes]]:
        with (
            Snapshot.open(*snapshots) as snapshot,
            replay(snapshot, ledger=tmp_path / name) as served,
            httpx.Client(**served.httpx()) as client,
        ):
            return [(r.headers["stillweb-verdict"], r.content) for r in map(client.get, urls)]

    answers = replayed("ledger.jsonl", base, more)
    run = run_on((base, more), tmp_path, ["pages"], SCRIPT, **SETTINGS)
    with Snapshot.open(base, more) as layers:
        source = layers.id
    refused = stillweb("cut", base, "--run", run.path, "-o", part)
    assert refused.code == 2
    assert "all of them, the last on top" in refused.err
    needs = "--run", run.path, "--ledger", tmp_path / "ledger.jsonl"
    assert stillweb("cut", base, more, *needs, "-o", part).code == 0
    assert replayed("again.jsonl", part) == answers
    again = run_on(part, tmp_path, ["pages"], SCRIPT, into="again", **SETTINGS)
    assert results(run) == results(again)
    assert verify(part) == []
    with Snapshot.open(part) as opened:
        assert opened.metadata(ORIGIN) == {"cut_from": source}
        assert not any("unused" in c.url or "other.test" in c.url for c in opened.captures())
        found = opened.view(VIEW)
        assert found is not None
        assert found.title == "New mills"
    assert stillweb("cut", part, "--ledger", tmp_path / "again.jsonl", "-o", tmp_path / "smaller").code == 0
    with Writer.open(tmp_path / "top") as writer:
        record(writer, f"{TWIN}/twin", page("Newest twins"))
    newest = replayed("newest.jsonl", tmp_path / "smaller", tmp_path / "top")
    assert newest == [("exact", page("Newest twins")), *answers[1:]]
