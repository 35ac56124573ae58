"""A run scored by judges that it did not ask: each is asked once, and the new run is certified with what they said."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from stillweb.harness.cli import main
from stillweb.harness.results.certificate import certify, write_certificate
from stillweb.harness.results.scoring_otherwise import part_of, score_otherwise
from stillweb.harness.results.summary import score_run
from stillweb.harness.runs.run_files import RunFiles
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace
from stillweb.snapshots.errors import UsageError
from tests.harness.commands.calling import call
from tests.support.openai_endpoint import KEY, Asked, Endpoint
from tests.support.waiting import HANG


def by_judge(files: RunFiles, **options: object) -> list[Task]:
    return [replace(task, scorer="judge", reference="7", options=dict(options)) for task in files.tasks()]


def graded(asked: Asked) -> str:
    said = asked.body["messages"][0]["content"]
    return "nonsense" if "sorry" in said else f"correct: {'yes' if '3700' in said else 'no'}"


@pytest.mark.slow
def test_a_judge_is_asked_where_that_is_wanted(
    files: RunFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is asked once, what it says is on the tape of the new run, and another judge's words are no part of it."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    one, two, exact = tmp_path / "one", tmp_path / "two", tmp_path / "exact"
    before = sorted(path.name for path in files.path.rglob("*"))
    with Endpoint(graded) as endpoint:
        judges = {"GRADER_MODEL": "m", "OPENAI_BASE_URL": endpoint.url}
        score_otherwise(files.path, one, tasks=by_judge(files), judges=judges)
        assert len(endpoint.requests) == 3  # who said nothing needs no judge
        score_otherwise(one, two, judges=judges)
        assert len(endpoint.requests) == 3  # what a trace holds is asked of nobody
        score_otherwise(one, tmp_path / "three", judges=judges | {"GRADER_MODEL": "other"})
        assert [request["model"] for request in endpoint.requests[3:]] == ["other"] * 3
        endpoint.faults[:] = [400]
        score_otherwise(one, tmp_path / "four", judges=judges | {"GRADER_MODEL": "refused"})
    for path in (one, two, tmp_path / "three"):
        found = {t.id: trace.last("score") for t, _, trace in RunFiles(path).attempts() if trace is not None}
        assert {name: (score or {})["metrics"] for name, score in found.items()} == {
            "right": {"correct": 1.0}, "wrong": {"correct": 0.0}, "silent": {"correct": 0.0}, "babble": {"correct": None}
        }  # fmt: skip
        assert score_run(path) == []
        write_certificate(path)
        assert certify(path, times=1).differences == ()
    model = read_trace(RunFiles(tmp_path / "three").trace_path("right", 1)).of("model")
    assert [event["model"] for event in model] == ["other"]
    score_otherwise(one, exact, tasks=files.tasks())
    assert read_trace(RunFiles(exact).trace_path("right", 1)).of("model") == []
    write_certificate(exact)
    assert certify(exact, times=1).differences == ()
    assert sum(name.startswith("scoring failed") for name in failures(tmp_path / "four")) == 1
    assert sorted(path.name for path in files.path.rglob("*")) == before


def failures(path: Path) -> list[str]:
    scores = [trace.last("score") for _, _, trace in RunFiles(path).attempts() if trace is not None]
    return [str(problem) for score in scores for problem in (score or {})["detail"].get("problems", ())]


@pytest.mark.slow
def test_what_judges_said_before_it_was_broken_off_is_not_asked_again(
    files: RunFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several are asked at once; the same call goes on, another one at the same place is refused."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    both, out, whole = threading.Barrier(2), tmp_path / "out", tmp_path / "whole"

    def together(asked: Asked) -> str:
        if len(endpoint.requests) <= 2:
            both.wait(HANG)
        return graded(asked)

    def broken_off(done: int, of: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with Endpoint(together) as endpoint:
        judges = {"GRADER_MODEL": "m", "OPENAI_BASE_URL": endpoint.url}
        tasks = by_judge(files)
        with pytest.raises(KeyboardInterrupt):
            score_otherwise(files.path, out, tasks=tasks, judges=judges, parallel=2, progress=broken_off)
        assert not out.exists()
        assert part_of(out).exists()
        with pytest.raises(UsageError, match="holds what judges said for another scoring"):
            score_otherwise(files.path, out, tasks=tasks, judges=judges | {"GRADER_MODEL": "other"})
        before = len(endpoint.requests)
        score_otherwise(files.path, out, tasks=tasks, judges=judges, parallel=2)
        assert len(endpoint.requests) <= 3 + 1, "at most the one that was broken off is asked again"
        assert before >= 2
        assert not part_of(out).exists()
        score_otherwise(files.path, whole, tasks=tasks, judges=judges)
    assert not (out / ".begun").exists()
    assert score_run(out) == []
    assert write_certificate(out)["hash"] == write_certificate(whole)["hash"]
    assert certify(out, times=1).differences == ()


def test_what_a_judge_needs_is_said_before_it_is_asked(
    files: RunFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("GRADER_MODEL", raising=False)
    tasks, out = tmp_path / "tasks.jsonl", tmp_path / "out"
    tasks.write_text("".join(json.dumps(task.to_json()) + "\n" for task in by_judge(files)))
    words = ["score", files.path, "--tasks", tasks]
    told = "scorer 'judge' needs a judge, and the run named none; set GRADER_MODEL (or options.model) and say --ask-judge"
    for more, code, said in (
        (["-o", out], 2, told),
        (["-o", out, "--ask-judge"], 2, "needs options.model or GRADER_MODEL"),
        (["--ask-judge"], 2, "name its directory with -o"),
    ):
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in (*words, *more)])
        assert (ended.value.code, said in capsys.readouterr().err) == (code, True)
    monkeypatch.setenv("GRADER_MODEL", "m")
    assert call(capsys, *words, "-o", out, "--ask-judge")[0] == 4  # no key
    assert not out.exists()
