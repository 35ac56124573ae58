"""Attempts that are no evidence about an agent are left out of a comparison by name; uncertain results are not told."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from stillweb.harness.compare.compare import (
    Outcome,
    compare,
    compare_runs,
    errors_by_base,
    flips,
    parts_of,
    read_outcomes,
)
from stillweb.harness.compare.gates import failed_gates
from stillweb.harness.results.certificate import write_certificate
from stillweb.harness.results.summary import summarise
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.scoring import Context, score
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace, replace_events
from stillweb.snapshots.errors import DamagedInput, UsageError
from tests.harness.commands.calling import call
from tests.harness.scoring.standins import Answers
from tests.support.runs import bird_task, make_run, write_script


def attempts(task: str, *values: float | None, status: str = "scored", fault: str = "") -> list[Outcome]:
    return [
        Outcome(task, task, number, {"correct": value}, status, fault=fault)
        for number, value in enumerate(values, 1)
    ]


def test_a_mean_that_rounding_moved_is_neither_worse_nor_better() -> None:
    one = [o for name in "abcdef" for o in attempts(name, 0.1, 0.2)]
    two = [o for name in "abcdef" for o in attempts(name, 0.3, 0.0)]
    for a, b in ((one, two), (two, one)):
        result = compare(a, b)
        assert (result.difference, result.interval, result.worse, result.better) == (0, (0, 0), (), ())
        gates = ["regressed", "worse>0", "better>0", "difference<0", "difference>0", "lower<0", "upper>0"]
        assert failed_gates(result, gates) == []
    before = attempts("a", 0.1) + attempts("b", 0.3) + attempts("c", 0.0)
    after = attempts("a", 0.3) + attempts("b", 0.0) + attempts("c", 0.1)
    assert compare(before, after).difference == 0  # +0.2, -0.3 and +0.1 sum to a hair beside it


def test_of_few_clusters_there_is_no_interval(tmp_path: Path) -> None:
    """Five that changed alike would give a point, and their range holds a median in 94 of 100 cases."""

    def every(value: float, names: str) -> list[Outcome]:
        return [o for name in names for o in attempts(name, value)]

    assert compare(every(1.0, "abcdef"), every(0.0, "abcdef")).interval == (-1, -1)
    result = compare(every(1.0, "abcde"), every(0.0, "abcde"))
    assert result.interval is None
    assert json.loads(json.dumps(result.to_json()))["interval"] is None
    assert failed_gates(result, ["upper<0", "lower<-0.5"]) == [
        "upper<0: no interval: it takes 6 clusters, and there are 5",
        "lower<-0.5: no interval: it takes 6 clusters, and there are 5",
    ]
    files = make_run(tmp_path, ["right"])
    outcomes = read_outcomes(files.path)
    assert "no interval: it takes 6 clusters, and there are 1" in str(compare_runs(files.path, files.path))
    assert compare(outcomes, outcomes).interval is None


def test_what_a_judge_or_scorer_failed_is_nothing_that_the_agent_earned() -> None:
    good = [o for name in "abcdefgh" for o in attempts(name, 1.0)]
    judge = attempts("a", None, status="unparsable", fault="judge") + good[1:]
    result = compare(good, judge)
    assert (result.difference, result.worse) == (0, ())
    assert result.left_out == (("a", "unscored: its judge failed (1 of 1 attempt)"),)
    assert failed_gates(result, ["regressed"]) == []
    scorer = attempts("a", None, status="unparsable", fault="scorer") + good[1:]
    assert failed_gates(compare(good, scorer), ["regressed"]) == [
        "regressed: can't be told while the scoring of tasks failed, which --retry-failed does again (1)"
    ]
    babbled = attempts("a", None, status="unparsable") + good[1:]
    assert compare(good, babbled).worse[0].b == 0  # its own fault


def test_what_judges_failed_hides_no_regression() -> None:
    good = [o for name in "abcdefgh" for o in attempts(name, 1.0)]
    lost = [o for name in "abcdefg" for o in attempts(name, None, status="unparsable", fault="judge")]
    result = compare(good, [*lost, good[-1]])
    assert (len(result.pairs), result.difference, result.worse) == (1, 0, ())
    assert "at_worst" not in result.to_json()
    assert failed_gates(result, ["regressed"]) == [
        "regressed: can't be told while a judge said of 7 tasks in the second run what can't be read, "
        "which --retry-failed asks again"
    ]
    assert failed_gates(compare([*lost, good[-1]], good), ["regressed"]) == []
    assert failed_gates(compare([*lost, good[-1]], [*lost, good[-1]]), ["regressed"]) == []


def test_an_attempt_that_its_judge_failed_leaves_its_task_the_others() -> None:
    def judged(task: str, *values: float | None) -> list[Outcome]:
        return [replaced(o) if o.metrics["correct"] is None else o for o in attempts(task, *values)]

    def replaced(o: Outcome) -> Outcome:
        return structs.replace(o, status="unparsable", fault="judge")

    good = [o for name in "abcdefgh" for o in judged(name, 1.0, 1.0, 1.0)]
    some = [o for name in "abcdef" for o in judged(name, 1.0, None, 1.0)]
    rest = judged("g", 0.0, None, 1.0) + judged("h", None, None, None)
    result = compare(good, some + rest)
    assert [(pair.task_id, pair.b) for pair in result.pairs] == [
        *((name, 1.0) for name in "abcdef"),
        ("g", 0.5),
    ]
    assert result.left_out == (("h", "unscored: its judge failed (3 of 3 attempts)"),)
    assert result.part_judged_lines == ["a and 6 more: 1 of 3 attempts in B"]
    assert result.at_worst is not None
    assert [pair.b for pair in result.at_worst.pairs] == [*[2 / 3] * 6, 1 / 3, 0]
    assert failed_gates(result, ["worse>1"]) == [
        "worse>1: can't be told while a judge said of 8 tasks in the second run what can't be read, "
        "which --retry-failed asks again"
    ]
    assert failed_gates(compare(some, good), ["regressed"]) == []
    assert (flips(some, "correct"), errors_by_base(some, "correct")) == ({}, [])
    assert compare(some, good).part_judged == tuple((name, "1 of 3 attempts in A") for name in "abcdef")


def test_of_a_time_nothing_is_no_worst() -> None:
    a, b = (
        [Outcome(t, t, 1, {"ser": 1.0, "aet": 2.0}, "scored", fault=fault) for t in "ab"]
        for fault in ("", "judge")
    )
    b[0] = Outcome("a", "a", 1, {"ser": None, "aet": None}, "scored", fault="judge")
    assert compare(a, b, "aet").at_worst is None
    worst = compare(a, b, "ser").at_worst
    assert worst is not None
    assert worst.mean_b == 0.5


def test_a_fault_is_of_the_metrics_that_have_no_value() -> None:
    half = [Outcome("a", "a", 1, {"em": 1.0, "step_accuracy": None}, fault="judge", status="scored")]
    whole = [Outcome("a", "a", 1, {"em": 1.0, "step_accuracy": 1.0}, status="scored")]
    both = [*whole, Outcome("b", "b", 1, {"em": 0.0, "step_accuracy": 0.5}, status="scored")]
    assert compare(both, half + both[1:], "em").left_out == ()
    found = compare(both, half + both[1:], "step_accuracy")
    assert (found.difference, [task for task, _ in found.left_out]) == (0, ["a"])


def test_what_the_second_run_lacks_is_no_pass() -> None:
    eight = [o for name in "abcdefgh" for o in attempts(name, 1.0)]
    told = "regressed: can't be told while "
    assert failed_gates(compare(eight, eight[:6]), ["regressed"]) == [
        f"{told}tasks of the first run are not in the second (2)"
    ]
    assert failed_gates(compare(eight[:6], eight), ["regressed"]) == []  # a set may grow
    lacking = eight[:7] + attempts("h", None, status="unsolvable")
    result = compare(eight, lacking)
    assert result.left_out == (("h", "unsolvable (1 of 1 attempt), in the second run only"),)
    assert failed_gates(result, ["regressed"]) == [
        f"{told}the second run's snapshot lacks what tasks need (1)"
    ]
    assert failed_gates(compare(lacking, eight), ["regressed"]) == []
    assert failed_gates(compare(lacking, lacking), ["regressed"]) == []
    gone = compare(lacking, eight[:7])
    assert gone.left_out == (("h", "only in the first run"),)
    assert failed_gates(gone, ["regressed"]) == [f"{told}tasks of the first run are not in the second (1)"]


def test_a_gate_on_a_number_is_passed_by_nothing_that_is_not_there() -> None:
    eight = [o for name in "abcdefgh" for o in attempts(name, 1.0)]
    gates = ["worse>0", "difference<-0.02", "mean_b<0.9", "upper<-0.5"]

    def seconds(*first: Outcome) -> dict[str, str]:
        result = compare(eight, [*first, *eight[1:]])
        assert failed_gates(result, ["left_out>1", *gates]) == []
        assert failed_gates(result, ["left_out>0", *gates]) == ["left_out>0: left_out is 1"]
        return dict(one.split(": ", 1) for one in failed_gates(result, gates))

    told = "can't be told while "
    assert seconds() == dict.fromkeys(gates, f"{told}tasks of the first run are not in the second (1)")
    failed = attempts("a", None, status="unparsable", fault="scorer")
    assert list(seconds(*failed)) == gates
    assert list(seconds(*attempts("a", None, status="unfinished"))) == gates
    # had it given nothing, the mean of eight would be 0.875 and the interval would hold 0
    judged = seconds(*attempts("a", None, status="unparsable", fault="judge"))
    assert list(judged) == gates[:3]
    assert judged["worse>0"].startswith(f"{told}a judge said of 1 task in the second run what can't be read")


def test_tasks_that_were_scored_by_other_rules_pass_no_gate() -> None:
    rules = (("scorer", "1"), ("reference", "1")), (("scorer", "1"), ("reference", "2"))
    eight = [structs.replace(o, rules=rules[0]) for name in "abcdefgh" for o in attempts(name, 1.0)]
    broken = attempts("a", None, status="unparsable", fault="reference")[0]
    for first in (eight[0], broken):
        result = compare(eight, [structs.replace(first, rules=rules[1]), *eight[1:]])
        assert result.left_out == (("a", "is scored by another reference in the second run"),)
        assert len(failed_gates(result, ["regressed", "worse>0"])) == 2


def test_every_task_is_gated_by_the_metric_that_ranks_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = []
    for name, text in (("one", "x"), ("two", "y")):
        (tmp_path / name).mkdir()
        tables = [bird_task("table"), bird_task("other")]
        texts = [Task(f"t{n}", "?", "x") for n in range(7)]
        script = {"default": {"answer": text}, "tasks": {t.id: {"answer": "7|3900"} for t in tables}}
        settings = Settings(agent=write_script(tmp_path / name, script), contracts=())
        files = start_run(
            tmp_path / name / "run",
            settings,
            [*tables, *texts, Task("odd", "?", "x", "stillweb.harness.task:Task")],
        )
        run_attempts(files.path, display=SilentDisplay())
        paths.append(files.path)
    page = tmp_path / "page.html"
    code, out = call(capsys, "compare", *paths, "--html", page)
    assert code == 0
    assert "em: 0.0000 to 0.0000" in out
    assert "exact: 1.0000 to 0.0000" in out
    assert "left out of em: odd: unscored: its scorer failed (1 of 1 attempt)" in out
    assert "has no metric" not in out  # it is compared by the other
    html = page.read_text()
    assert "exact 1 → 0 over 7 tasks" in html
    assert html.count("Left out of em: odd") == 1
    assert 'data-row="t0"' in html
    gate = ("--fail-on", "difference<-0.5")
    assert call(capsys, "compare", *paths, *gate)[0] == 1
    # whose scoring failed can't be told, unless somebody says how many may be left out
    assert call(capsys, "compare", *paths, *gate, "--metric", "em")[0] == 1
    assert call(capsys, "compare", *paths, *gate, "--metric", "em", "--fail-on", "left_out>8")[0] == 0
    both = json.loads(call(capsys, "compare", *paths, "--json")[1])
    assert (both["metric"], [one["metric"] for one in both["others"]]) == ("em", ["exact"])
    for number in range(7):
        RunFiles(paths[1]).trace_path(f"t{number}", 1).unlink()
    assert call(capsys, "compare", *paths, "--fail-on", "worse>9")[0] == 2  # nothing to compare by `exact`
    assert call(capsys, "compare", *paths)[0] == 0


def test_parts_are_ranked_by_one_metric_on_one_scale() -> None:
    wet = Outcome("wet", "wet", 1, {"final": 0.5, "sequence_similarity": 1.0}, "scored")
    idea = Outcome("idea", "idea", 1, {"final": 50.0}, "scored", best=100.0)
    text, lost = (
        Outcome("text", "text", 1, {"exact": 1.0}, "scored"),
        Outcome("odd", "odd", 1, {}, "unparsable"),
    )
    new = Outcome("new", "new", 1, {"correct": 1.0}, "scored")
    parts = parts_of([lost, wet, idea, text], [idea, text, new])
    assert [(part.name, part.metric) for part in parts] == [
        ("final of 1", "final"),
        ("final of 100", "final"),
        ("exact", "exact"),
    ]
    assert [[o.task_id for o in part.a] for part in parts] == [["odd", "wet"], ["idea"], ["text"]]
    assert [[o.task_id for o in part.b] for part in parts] == [["new"], ["idea"], ["text"]]
    assert [(part.name, len(part.a)) for part in parts_of([wet, idea], [], "final")] == [("final", 2)]
    with pytest.raises(UsageError, match="no attempt of the run has a score"):
        parts_of([lost])


def test_a_run_of_one_kind_first_and_forms_later_is_compared_by_its_forms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forms = [
        replace(bird_task(name, base="birds"), meta={"variant": variant})
        for name, variant in (("birds", "constraint"), ("birds-g", "goal"))
    ]
    script = {"default": {"answer": "7|3900"}}
    settings = Settings(agent=write_script(tmp_path, script), contracts=(), epochs=2)
    files = start_run(tmp_path / "run", settings, [Task("text", "?", "x"), *forms])
    run_attempts(files.path, display=SilentDisplay())
    code, out = call(capsys, "compare", files.path)
    assert code == 0
    assert "em: 0.0000 to 0.0000" in out
    assert "errors: text: 2 of 2 attempts (2 scored)" in out
    assert "errors: birds: 4 of 4 attempts (4 scored)" in out


def test_reasons_are_counted_each_for_itself() -> None:
    mixed = [
        *attempts("a", None, status="unsolvable"),
        Outcome("a", "a", 2, {}, "unfinished"),
        *attempts("b", 1),
    ]
    there = attempts("a", 1, 1) + attempts("b", 1)
    assert compare(there, mixed).left_out == (("a", "unfinished (1 of 2 attempts)"),)


def test_scores_say_whose_fault_it_is() -> None:
    context = Context(judge=Answers("<html>Too many requests"), env={"GRADER_MODEL": "grader"})
    for name in ("judge", "browsecomp"):
        assert score(Task("t", "?", "Alpha", name), "Alpha", context).detail["fault"] == "judge"
    research = Task("t", "?", {"answer": "5", "steps": ["a"]}, "sgi-deep-research")
    found = score(research, "<answer>5</answer>", context)
    assert (found.metrics["step_accuracy"], found.detail["fault"]) == (None, "judge")
    side_car = {"rubric": {"columns": ["a", "b"], "row_key": ["a"]}}
    table = Task("t", "?", "prose", "table", options=side_car)
    assert score(table, "1|2").detail["fault"] == "reference"
    assert "fault" not in score(Task("t", "?", "1|2", "table", options=side_car), "prose").detail


def test_a_failed_scoring_is_read_back_as_such(tmp_path: Path) -> None:
    files = make_run(tmp_path, ["right", "wrong"])
    path = files.path / "tasks.jsonl"
    path.write_text(
        path.read_text().replace('"scorer": "table"', '"scorer": "stillweb.harness.task:Task"', 1)
    )
    settings, stands_on = files.manifest()
    files.write_manifest(settings, {name: value for name, value in stands_on.items() if name != "tasks"})
    shutil.rmtree(files.traces)
    make_again(files)
    assert {o.task_id: (o.status, o.fault) for o in read_outcomes(files.path)} == {
        "right": ("unparsable", "scorer"),
        "wrong": ("scored", ""),
    }


def make_again(files: RunFiles) -> None:
    files.traces.mkdir()
    run_attempts(files.path, display=SilentDisplay())


def test_traces_that_are_not_those_of_the_certificate_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        runs.append(make_run(tmp_path / name, ["right", "wrong"]))
        write_certificate(runs[-1].path)
    paths = [run.path for run in runs]
    assert call(capsys, "compare", *paths, "--fail-on", "worse>0")[0] == 0
    trace = read_trace(runs[1].trace_path("wrong", 1))
    score = {**trace.events[-1], "metrics": {**trace.events[-1]["metrics"], "em": 1.0}}
    replace_events(trace.path, [trace.header, *trace.events[:-1], score])
    with pytest.raises(DamagedInput, match="the trace of wrong/1 is not the one"):
        read_outcomes(paths[1])
    assert call(capsys, "compare", *paths)[0] == 3
    trace.path.unlink()
    assert call(capsys, "compare", *paths)[0] == 3
    shutil.copy(runs[1].trace_path("right", 1), trace.path)
    with pytest.raises(DamagedInput, match=r"wrong\.1\.jsonl: is the trace of attempt 1 at 'right'"):
        read_outcomes(paths[1])


def test_a_scorer_of_ones_own_has_a_scale_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = "tests.harness.scoring.standins:percent"
    script = {"default": {"answer": "x"}}
    settings = Settings(agent=write_script(tmp_path, script), contracts=())
    files = start_run(tmp_path / "run", settings, [Task("a", "?", "x"), Task("b", "?", "x", own)])
    run_attempts(files.path, display=SilentDisplay())
    means = {name: mean.mean for name, mean in summarise(files.path).means.items()}
    assert means == {"exact (exact)": 1.0, f"exact ({own})": 80.0}
    out = call(capsys, "compare", files.path, files.path)[1]
    assert "exact of 1: 1.0000 to 1.0000" in out
    assert f"exact of {own}: 80.0000 to 80.0000" in out
