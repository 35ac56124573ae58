"""`stillweb coverage`: searches of a task set, and what another run asked for."""

import json
from pathlib import Path

import pytest

import stillweb
from stillweb.harness.datasets import load_tasks
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.writer import Writer
from tests.harness.commands.calling import call
from tests.harness.tools.frozen import BIRDS, REPORT, Recorder, make_site
from tests.support.recorded_runs import run_on

ASKED = {
    "steps": [
        {"call": "fetch", "with": {"url": BIRDS}},
        {"call": "read_pdf", "with": {"sources": [{"url": REPORT}]}},
        {"call": "google_search", "with": {"q": "penguins", "gl": "us", "hl": "en"}},
    ],
    "answer": "nothing",
}


def needs(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, list[tuple[str, str, str]]]:
    code, out = call(capsys, "coverage", *words, "--json")
    return code, [(need["kind"], need["what"], need["verdict"]) for need in json.loads(out)["needs"]]


@pytest.mark.slow
def test_searches_of_a_task_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_site(tmp_path / "site").close()
    tasks = tmp_path / "tasks.jsonl"
    task = {"id": "t", "question": "?", "reference": "x", "meta": {"searches": ["penguins", "gentoo"]}}
    tasks.write_text(json.dumps(task) + "\n")
    words = (tmp_path / "site", "--tasks", tasks)
    assert needs(capsys, *words) == (1, [("search", "penguins", "exact"), ("search", "gentoo", "miss")])
    code, found = needs(capsys, *words, "--synthetic-search")
    assert (code, found[1]) == (0, ("search", "gentoo", "synthetic"))


@pytest.mark.slow
def test_what_a_run_asked_for_of_another_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_site(tmp_path / "site").close()
    run = run_on(
        tmp_path / "site", tmp_path, ["t"], {"agent": "script", "tasks": {"t": ASKED}},
        contracts=("fetch", "pdf-reader", "serper"),
    ).path  # fmt: skip
    wanted = [("url", BIRDS, "exact"), ("pdf", REPORT, "exact"), ("search", "penguins", "exact")]
    assert needs(capsys, tmp_path / "site", "--run", run) == (0, wanted)
    (trace,) = (run / "traces").glob("*.jsonl")
    assert needs(capsys, tmp_path / "site", "--run", trace) == (0, wanted)
    with Writer.open(tmp_path / "other") as writer:
        Recorder(writer).add(BIRDS, "<p>birds</p>")
    code, found = needs(capsys, tmp_path / "other", "--run", run)
    assert (code, [verdict for _, _, verdict in found]) == (1, ["exact", "miss", "miss"])


@pytest.mark.slow
def test_the_python_call_gives_what_the_command_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_site(tmp_path / "site").close()
    tasks = tmp_path / "tasks.jsonl"
    task = {"id": "t", "question": "Is it x?", "reference": "x", "meta": {"searches": ["penguins", "gentoo"]}}
    tasks.write_text(json.dumps(task) + "\n" + json.dumps({"id": "u", "questoin": "?"}) + "\n")
    code, printed = call(
        capsys, "coverage", tmp_path / "site", "--tasks", tasks, "--check-references", "--json"
    )
    found = stillweb.coverage(tmp_path / "site", tasks=tasks, check_references=True)
    assert (code, json.loads(printed)) == (1, json.loads(json.dumps(found.to_json())))
    assert len(found.refused) == 1
    assert "leak" in [finding.check for finding in found.findings]
    assert [need.what for need in found.missing] == ["gentoo"]
    with stillweb.open(tmp_path / "site") as snapshot:
        given = stillweb.coverage(snapshot, tasks=load_tasks(tasks))
        assert (given.needs, given.refused) == (found.needs, found.refused)
        for wrong in ({}, {"tasks": tasks, "run": tmp_path}, {"run": tmp_path, "check_references": True}):
            with pytest.raises(UsageError, match=r"^coverage: .*[Gg]ive "):
                stillweb.coverage(snapshot, **wrong)  # type: ignore[arg-type]


@pytest.mark.slow
def test_one_of_both_is_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_site(tmp_path / "site").close()
    assert call(capsys, "coverage", tmp_path / "site")[0] == 2
    assert call(capsys, "coverage", tmp_path / "site", "--run", tmp_path, "--check-references")[0] == 2


@pytest.mark.slow
def test_a_run_lacks_nothing_on_the_snapshot_that_it_was_made_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Calls that missed in the run miss again: told, and a gate on another snapshot only."""
    make_site(tmp_path / "site").close()
    steps = [
        *ASKED["steps"],
        {"call": "fetch", "with": {"url": "https://elsewhere.test/"}, "may_fail": True},
        {"call": "google_search", "with": {"q": "nobody asked", "gl": "us", "hl": "en"}, "may_fail": True},
    ]
    run = run_on(
        tmp_path / "site", tmp_path, ["t"], {"agent": "script", "tasks": {"t": ASKED | {"steps": steps}}},
        contracts=("fetch", "pdf-reader", "serper"),
    ).path  # fmt: skip
    code, out = call(capsys, "coverage", tmp_path / "site", "--run", run)
    assert code == 0
    assert out.count("missed in the run, too") == 2
    with Writer.open(tmp_path / "other") as writer:
        Recorder(writer).add(BIRDS, "<p>birds</p>")
    assert call(capsys, "coverage", tmp_path / "other", "--run", run)[0] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "answer", "gates", "code"),
    [
        ("How many?", "5076", "leak,gold-missing,expiry", 0),
        ("How many of 7 or 9?", "7", "leak", 1),
        ("How many of 7 or 9?", "7", "gold-missing", 0),
        ("How many?", "no such value", "gold-missing", 1),
        ("How many on 2026-05-01?", "5076", "expiry", 1),
        ("How many on 2026-05-01?", "5076", "leak, gold-missing", 0),
    ],
)
def test_findings_are_a_gate_on_request(
    question: str, answer: str, gates: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_site(tmp_path / "site").close()
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"id": "t", "question": question, "answer": answer}) + "\n")
    words = ("coverage", tmp_path / "site", "--tasks", tasks, "--today", "2026-01-01")
    assert call(capsys, *words, "--check-references")[0] == 0
    assert call(capsys, *words, "--fail-on", gates)[0] == code
    each = [word for gate in gates.split(",") for word in ("--fail-on", gate)]
    assert call(capsys, *words, *each, "--json")[0] == code
    assert call(capsys, *words, "--fail-on", "leek")[0] == 2
