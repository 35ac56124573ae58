"""A run scored by other references, scorers, options and side-cars: the same attempts, as a run of its own."""

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from stillweb.api import score
from stillweb.harness.cli import main
from stillweb.harness.results.certificate import certify, write_certificate
from stillweb.harness.results.scoring_otherwise import part_of, score_otherwise
from stillweb.harness.results.summary import score_run
from stillweb.harness.rubric import compile_rubrics
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace
from stillweb.snapshots.errors import StillwebError, UsageError
from tests.harness.commands.calling import call
from tests.support.openai_endpoint import KEY, Asked, Endpoint
from tests.support.runs import RUBRIC, SHELF, bird_task, make_run, write_script
from tests.support.waiting import HANG


def scores(path: Path) -> dict[str, tuple[str, object]]:
    found = {}
    for task, _, trace in RunFiles(path).attempts():
        assert trace is not None
        score = trace.last("score")
        assert score is not None
        found[task.id] = (score["status"], score["metrics"].get("item_f1", score["metrics"].get("exact")))
    return found


@pytest.mark.slow
def test_other_references_are_scored_as_if_they_had_been_there(files: RunFiles, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in files.traces.iterdir()}
    tasks = [replace(task, reference="7|3900\n9|3800") for task in files.tasks()]
    again = score(files.path, out=tmp_path / "again", tasks=tasks)
    assert again.different == ("right.1", "wrong.1")
    assert scores(tmp_path / "again") == {
        "right": ("scored", 0.75),
        "wrong": ("scored", 1.0),
        "silent": ("zero", 0.0),
        "babble": ("unparsable", None),
    }
    wrong = read_trace(RunFiles(tmp_path / "again").trace_path("right", 1)).last("answer")
    assert wrong is not None
    assert [cell["reference"] for row in wrong["rows"] for cell in row if not cell["right"]] == ["3800"]
    assert score_run(tmp_path / "again") == []
    write_certificate(tmp_path / "again")
    assert certify(tmp_path / "again", times=1).differences == ()
    assert {path.name: path.read_bytes() for path in files.traces.iterdir()} == before


def test_another_scorer_with_options_reads_the_same_answers(tmp_path: Path) -> None:
    script = {"agent": "script", "default": {"answer": "1,004"}}
    settings = Settings(agent=write_script(tmp_path, script), contracts=(SHELF,))
    made = start_run(tmp_path / "run", settings, [Task("t", "How many?", 1000, "exact")])
    run_attempts(made.path, display=SilentDisplay())
    for tolerance, value in (("3", 0.0), ("4", 1.0)):
        task = Task("t", "How many?", 1000, "exact", options={"numeric": True, "tolerance": tolerance})
        out = tmp_path / tolerance
        assert score_otherwise(made.path, out, tasks=[task, Task("other", "?", "x")]) == ["t.1"][: int(value)]
        assert scores(out) == {"t": ("scored", value)}


def test_what_was_asked_stays(files: RunFiles, tmp_path: Path) -> None:
    tasks = files.tasks()
    out = tmp_path / "again"
    with pytest.raises(UsageError, match="'babble' is not among those given"):
        score_otherwise(files.path, out, tasks=tasks[:-1])
    with pytest.raises(UsageError, match="'right' has another question now"):
        score_otherwise(files.path, out, tasks=[replace(task, question="What?") for task in tasks])
    assert list(tmp_path.iterdir()) == []
    (out / "kept").mkdir(parents=True)
    with pytest.raises(UsageError, match="is not empty"):
        score_otherwise(files.path, out, tasks=tasks)


def test_a_judge_that_was_never_asked_is_not_made_up(files: RunFiles, tmp_path: Path) -> None:
    tasks = [replace(task, scorer="judge", options={"model": "m"}) for task in files.tasks()]
    with pytest.raises(StillwebError, match="something that this trace does not hold"):
        score_otherwise(files.path, tmp_path / "again", tasks=tasks)
    assert list(tmp_path.iterdir()) == []


def test_an_unfinished_run_is_not_scored(tmp_path: Path) -> None:
    made = make_run(tmp_path, ["right", "wrong"])
    made.trace_path("wrong", 1).unlink()
    with pytest.raises(UsageError, match=r"wrong\.1 is unfinished"):
        score_otherwise(made.path, tmp_path / "again", fold_case=True)


def test_side_cars_of_ones_own_are_named_again(tmp_path: Path) -> None:
    task = replace(bird_task("right"), options={}, meta={"columns": RUBRIC["columns"]})
    compiled = {name: rubric.to_json() for name, rubric in compile_rubrics([task]).items()}
    own = {name: rubric | {"ordered": not rubric.get("ordered")} for name, rubric in compiled.items()}
    settings = Settings(agent=write_script(tmp_path), contracts=(SHELF,))
    made = start_run(tmp_path / "run", settings, [task], rubrics=own)
    run_attempts(made.path, display=SilentDisplay())
    changed = [replace(task, reference="7|3900")]
    with pytest.raises(UsageError, match="choose them with --rubrics"):
        score_otherwise(made.path, tmp_path / "again", tasks=changed)
    score_otherwise(made.path, tmp_path / "again", tasks=changed, rubrics=own)
    assert scores(tmp_path / "again")["right"][0] == "scored"
    score_otherwise(made.path, tmp_path / "folded", fold_case=True)
    assert scores(tmp_path / "folded") == scores(made.path)


def test_the_command_says_what_changed(
    files: RunFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks, out = tmp_path / "tasks.jsonl", tmp_path / "again"
    lines = [replace(task, reference="7|3900\n9|3800").to_json() for task in files.tasks()]
    tasks.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, said = call(capsys, "score", files.path, "--tasks", tasks, "-o", out)
    assert (code, "certificate " in said) == (0, True)
    assert call(capsys, "score", out)[0] == 0
    for words in (["--tasks", tasks], ["-o", out], ["--tasks", tasks, "-o", out, "--write"]):
        assert call(capsys, "score", files.path, *words)[0] == 2


def test_a_run_with_attempts_that_were_made_again_is_scored_otherwise(
    files: RunFiles, tmp_path: Path
) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    shutil.copytree(files.path, run)
    (run / "failed").mkdir()
    shutil.copy(files.trace_path("wrong", 1), run / "failed" / "wrong.1.failed-1.jsonl")
    score_otherwise(run, out, fold_case=True)
    assert RunFiles(out).made_again() == 1


def by_judge(files: RunFiles, **options: object) -> list[Task]:
    return [replace(task, scorer="judge", reference="7", options=dict(options)) for task in files.tasks()]


def graded(asked: Asked) -> str:
    said = asked.body["messages"][0]["content"]
    return "nonsense" if "sorry" in said else f"correct: {'yes' if '3700' in said else 'no'}"


@pytest.mark.slow
def test_a_judge_is_asked_where_that_is_wanted(
    files: RunFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each judge is asked once; the tape of its run holds its own answers and no other judge's."""
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
    assert sum(name.startswith("the judge failed") for name in failures(tmp_path / "four")) == 1
    assert sorted(path.name for path in files.path.rglob("*")) == before


def failures(path: Path) -> list[str]:
    scores = [trace.last("score") for _, _, trace in RunFiles(path).attempts() if trace is not None]
    return [str(problem) for score in scores for problem in (score or {})["detail"].get("problems", ())]


@pytest.mark.slow
def test_what_judges_said_before_it_was_broken_off_is_not_asked_again(
    files: RunFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two judges are asked at once; the same call goes on, and a call with another judge into the same folder is refused."""
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
