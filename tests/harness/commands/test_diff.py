"""`stillweb diff`: what it prints, its exit code, and the tasks it names."""

import json
from pathlib import Path

import pytest

import stillweb
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.view import View
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.harness.commands.calling import call
from tests.snapshots.making import record
from tests.support.recorded_runs import run_on

SITE = "http://mill.test"


def site(path: Path, rows: str) -> Path:
    with Writer.open(path) as writer:
        page = "<html><title>Mills</title><p>The mills of the valley: %s</p></html>"
        record(writer, f"{SITE}/", page.encode() % b"a list")
        record(writer, f"{SITE}/old", page.encode() % b"as they were")
        api = record(writer, f"{SITE}/api", rows.encode(), headers=(("Content-Type", "application/json"),))
        caused = ({"url": api.url, "method": "GET", "status": 200, "digest": api.digest},)
        writer.view(View(f"{SITE}/", f"{SITE}/", f"{SITE}/", "Mills", captures=caused), {"text": b"a list"})
    return seal(path, workers=1).path


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    return site(tmp_path / "a", "[1, 2]"), site(tmp_path / "b", "[1, 2, 3]")


def test_equal_snapshots_end_with_0(two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    code, out = call(capsys, "diff", two[0], two[0])
    assert code == 0
    assert out.startswith("the same: ")


def test_a_difference_is_named_and_ends_with_1(
    two: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = call(capsys, "diff", *two)
    assert code == 1
    assert out.splitlines() == [
        "~ GET http://mill.test/api",
        "captures: 0 added, 0 removed, 1 changed; views: 0 added, 0 removed, 0 changed; "
        "texts: 0 added, 0 removed, 0 changed",
    ]
    code, out = call(capsys, "diff", *two, "--json")
    assert code == 1
    assert [c["url"] for c in json.loads(out)["captures"]] == [f"{SITE}/api"]


def test_tasks_are_affected_through_what_their_pages_loaded(
    two: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(
        json.dumps({"id": "t1", "question": "How many?", "answer": "2", "start_url": f"{SITE}/"})
        + "\n"
        + json.dumps({"id": "t2", "question": "How many?", "answer": "2", "start_url": f"{SITE}/old"})
        + "\n"
    )
    code, out = call(capsys, "diff", *two, "--tasks", tasks)
    assert code == 1
    assert "task t1: changed: GET http://mill.test/api" in out
    assert "t2" not in out
    assert "1 task affected" in out


def test_a_run_says_exactly_which_attempts_are_touched(
    two: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = {
        name: {"steps": [{"call": "fetch", "with": {"url": f"{SITE}/{name}"}}]} for name in ("api", "old")
    }
    run_on(two[0], tmp_path, ["api", "old"], {"agent": "script", "tasks": steps})
    code, out = call(capsys, "diff", *two, "--json", "--tasks", tmp_path / "run")
    assert code == 1
    assert json.loads(out)["tasks"] == [{"task": "api", "reasons": [f"changed: GET {SITE}/api"]}]
    found = stillweb.diff(*two, run=tmp_path / "run")
    assert [one.task for one in found.tasks or ()] == ["api"]


def test_a_record_that_can_not_be_read_is_noted(two: tuple[Path, Path], tmp_path: Path) -> None:
    tasks, notes = tmp_path / "tasks.jsonl", []
    tasks.write_text(
        json.dumps({"id": "t1", "question": "?", "answer": "2", "start_url": f"{SITE}/"}) + "\n{}\n"
    )
    found = stillweb.diff(*two, tasks=tasks, note=notes.append)
    assert [one.task for one in found.tasks or ()] == ["t1"]
    assert [note.startswith("left out: ") for note in notes] == [True]
    with pytest.raises(UsageError, match="tasks or run"):
        stillweb.diff(*two, tasks=tasks, run=tmp_path)
