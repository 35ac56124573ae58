"""Comparing runs: pairing, clusters, exact tests against brute force, intervals, and gates."""

import json
import re
from dataclasses import replace
from itertools import product
from math import comb
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillweb.harness.compare.compare import (
    Outcome,
    compare,
    compare_variants,
    errors_by_base,
    flips,
    main_metric,
    other_rules,
    parts_of,
    read_outcomes,
    rules_of,
)
from stillweb.harness.compare.gates import check_gates, failed_gates
from stillweb.harness.compare.statistics import bootstrap_interval, permutation_test, sign_test
from stillweb.harness.results.certificate import write_certificate
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.snapshots.errors import GateFailed, UsageError
from tests.harness.commands.calling import call
from tests.support.pages import chromium
from tests.support.runs import SHELF, bird_task, make_run, write_script


def run(values: dict[str, Any], status: str = "scored") -> list[Outcome]:
    """Outcomes from task -> value (or a list, one an attempt); the base is the id without `-g`."""
    outcomes = []
    for task_id, given_values in values.items():
        for attempt, value in enumerate(
            given_values if isinstance(given_values, list) else [given_values], 1
        ):
            state = "unparsable" if value is None else status
            variant = "goal" if task_id.endswith("-g") else "constraint"
            outcomes.append(
                Outcome(
                    task_id, task_id.removesuffix("-g"), attempt, {"em": value, "f1": 0.5}, state, variant
                )
            )
    return outcomes


def test_pairs_means_and_what_got_worse() -> None:
    result = compare(run({"a": 1, "b": 0, "c": 1}), run({"a": 0, "b": 1, "c": 1}))
    assert (result.metric, result.mean_a, result.mean_b, result.difference) == ("em", 2 / 3, 2 / 3, 0)
    assert [pair.task_id for pair in result.worse] == ["a"]
    assert [pair.task_id for pair in result.better] == ["b"]
    assert result.p == 1
    json.dumps(result.to_json())


def test_order_of_outcomes_changes_nothing() -> None:
    a, b = run({"a": 1, "b": 0, "c": 1, "c-g": 1}), run({"a": 0, "b": 1, "c": 0, "c-g": 0.5})
    assert compare(a, b) == compare(a[::-1], b[::-1], "em")


def test_what_can_not_be_paired_is_named() -> None:
    a = run({"a": 1, "b": 1, "x": 1}) + run({"u": 1}, "unsolvable")
    b = run({"a": 1, "b": None, "y": 1}) + run({"u": 1}) + [Outcome("a", "a", 2, {}, "unfinished")]
    result = compare(a, b)
    assert [pair.task_id for pair in result.pairs] == ["b"]
    assert result.pairs[0].b == 0
    assert dict(result.left_out) == {
        "a": "unfinished (1 of 2 attempts)",
        "u": "unsolvable (1 of 1 attempt)",
        "x": "only in the first run",
        "y": "only in the second run",
    }
    with pytest.raises(UsageError, match=r"'em': 2 tasks left out, a among them: only in the first run$"):
        compare(run({"a": 1}), run({"b": 1}))
    with pytest.raises(UsageError, match=r"'colour': no task has that metric \(they have em, f1\)"):
        compare(run({"a": 1}), run({"a": 1}), "colour")


def test_an_attempt_of_a_scorer_of_ones_own_that_gave_no_metric_counts_as_nothing_earned() -> None:
    a = run({"a": 1, "b": 1, "c": [1, 1]})
    lost = [
        Outcome("a", "a", 1, {}, "timeout"),
        Outcome("b", "b", 1, {}, "unparsable"),
        Outcome("c", "c", 1, {}, "zero"),
        Outcome("c", "c", 2, {"em": 1.0}, "scored"),
    ]
    result = compare(a, lost)
    assert [(pair.task_id, pair.b) for pair in result.pairs] == [("a", 0), ("b", 0), ("c", 0.5)]
    assert compare(lost, a, "em").difference == -result.difference
    with pytest.raises(UsageError, match="has no metric 'em'"):
        compare(lost[:2], lost[:2], "em")


def test_a_task_that_both_runs_failed_counts_by_the_metric_of_its_own_scorer() -> None:
    own = "mine:scorer"
    both = [
        Outcome("t", "t", 1, {"exact": 1.0}, "scored"),
        Outcome("a", "a", 1, {"share": 1.0}, "scored", own=own),
        Outcome("b", "b", 1, {}, "zero", own=own),
    ]
    (_, part) = parts_of(both, both)
    result = compare(part.a, part.b, part.metric)
    assert (result.mean_a, len(result.pairs), result.left_out) == (0.5, 2, ())


def test_two_scales_of_one_metric_are_no_pairs_of_one_comparison() -> None:
    """SGI-Bench's `final` is of 100 for an idea and of 1 for a protocol."""

    def both(wet: float, idea: float) -> list[Outcome]:
        one = Outcome("wet", "wet", 1, {"final": wet}, "scored")
        return [one, Outcome("idea", "idea", 1, {"final": idea}, "scored", best=100.0)]

    result = compare(both(0.5, 50.0), both(0.1, 90.0))
    assert (result.mean_a, result.mean_b, len(result.pairs)) == (0.5, 0.1, 1)
    assert result.left_out == (("idea", "has final on another scale"),)


def test_attempts_are_averaged() -> None:
    result = compare(run({"a": [1, 0]}), run({"a": [1, 1, 1, 0]}))
    assert result.difference == 0.25


def test_forms_of_one_base_are_one_cluster() -> None:
    a = run({f"t{i}{form}": 0 for i in range(5) for form in ("", "-g")})
    b = run({f"t{i}{form}": 1 for i in range(5) for form in ("", "-g")})
    result = compare(a, b)
    assert (len(result.pairs), result.clusters) == (10, 5)
    assert result.p == 2 / 2**5
    assert result.sign_p == 2 / 2**5


def test_goal_against_constraint() -> None:
    outcomes = run({"a": 1, "a-g": 0, "b": 1, "b-g": 1, "lonely": 1})
    result = compare_variants(outcomes)
    assert [(pair.task_id, pair.a, pair.b) for pair in result.pairs] == [("a", 1, 0), ("b", 1, 1)]
    assert result.difference == -0.5
    assert dict(result.left_out) == {"lonely": "its other form is not in the run"}


def test_errors_by_base_and_flips() -> None:
    outcomes = run({"a": [1, 0], "a-g": 0, "b": 1, "c": None})
    clusters = errors_by_base(outcomes, "em")
    assert [(cluster.base, cluster.wrong, cluster.attempts) for cluster in clusters] == [
        ("c", 1, 1),
        ("a", 2, 3),
    ]
    assert clusters[0].statuses == {"unparsable": 1}
    assert flips(outcomes, "em") == {"a": [1, 0]}


def test_forms_are_paired_within_a_language_and_none_is_dropped_silently() -> None:
    outcomes = [
        Outcome(f"a{form}{place}", "a", 1, {"em": value}, "scored", variant, language=language)
        for form, variant in (("", "constraint"), ("-g", "goal"))
        for place, language, value in (("", "en", 1.0), ("@zh", "zh", 1.0 if form == "" else 0.0))
    ]
    result = compare_variants(outcomes)
    assert [(p.task_id, p.base, p.a, p.b) for p in result.pairs] == [
        ("a (en)", "a", 1, 1),
        ("a (zh)", "a", 1, 0),
    ]
    assert result.clusters == 1
    again = Outcome("a2", "a", 1, {"em": 0.0}, "scored", "constraint", language="en")
    odd = Outcome("a3", "a", 1, {"em": 0.0}, "scored", "other", language="en")
    lost = [
        Outcome("b", "b", 1, {}, "unfinished", "constraint"),
        Outcome("b-g", "b", 1, {"em": 0.0}, "scored", "goal"),
    ]
    assert dict(compare_variants([*outcomes, again, odd, *lost]).left_out) == {
        "a2": "has the same form as a",
        "a3": "is neither constraint nor goal",
        "b": "unfinished (1 of 1 attempt)",
        "b-g": "its other form is left out",
    }


def test_of_a_time_less_is_better_and_none_is_not_the_best() -> None:
    def timed(values: dict[str, float | None]) -> list[Outcome]:
        return [Outcome(name, name, 1, {"aet": value}, "scored") for name, value in values.items()]

    slow = timed({f"t{i}": 9.0 for i in range(8)} | {"timeout": 9.0})
    quick = timed({f"t{i}": 1.0 for i in range(8)} | {"timeout": None})
    result = compare(slow, quick)
    assert (len(result.better), result.worse, result.difference) == (8, (), -8)
    assert dict(result.left_out) == {"timeout": "aet was not measured"}
    assert failed_gates(result, ["regressed", "worse>0"]) == []
    assert failed_gates(compare(quick, slow), ["regressed"])


def test_what_is_wrong_is_what_earned_less_than_there_was() -> None:
    hundred = [Outcome(name, name, 1, {"final": value}, "scored", best=100.0) for name, value in
               (("half", 50.0), ("whole", 100.0), ("none", None))]  # fmt: skip
    assert {cluster.base for cluster in errors_by_base(hundred, "final")} == {"half", "none"}
    other = Outcome("other", "other", 1, {"exact": 1.0}, "scored")
    late = Outcome("late", "late", 1, {}, "unfinished")
    assert {cluster.base for cluster in errors_by_base([*hundred, other, late], "final")} == {
        "half",
        "none",
        "late",
    }
    assert flips([*run({"a": 1}), Outcome("a", "a", 2, {}, "unfinished")], "em") == {}


def test_gates() -> None:
    a = run({f"t{i}": 1 for i in range(8)})
    b = run({f"t{i}": 0 for i in range(8)})
    result = compare(a, b)
    assert failed_gates(result, ["regressed"])
    assert not failed_gates(compare(b, a), ["regressed", "worse>0", "difference<0"])
    assert failed_gates(result, ["worse > 0", "difference<-0.5", "p<=0.05", "upper<0", "worse>=9"]) == [
        "worse > 0: worse is 8",
        "difference<-0.5: difference is -1",
        "p<=0.05: p is 0.007812",
        "upper<0: upper is -1",
    ]
    assert failed_gates(result, ["worse>=8", "better<=0", "worse>8", "better<0"]) == [
        "worse>=8: worse is 8",
        "better<=0: better is 0",
    ]
    with pytest.raises(GateFailed, match="worse is 8"):
        check_gates([result], ["worse>0"])
    check_gates([result], ["better>0"])
    for wrong in ("", "worse", "colour>1", "worse>x", "worse>1.2.3", "worse=1"):
        with pytest.raises(UsageError, match="gate"):
            failed_gates(result, [wrong])


def test_outcomes_of_a_run_on_disk(tmp_path: Path) -> None:
    names = ["right", "wrong", "silent", "babble", "broken"]
    files = make_run(tmp_path, names)
    files.trace_path("broken", 1).unlink()
    outcomes = read_outcomes(files.path)
    assert {outcome.task_id: outcome.status for outcome in outcomes} == {
        "right": "scored",
        "wrong": "scored",
        "silent": "zero",
        "babble": "unparsable",
        "broken": "unfinished",
    }
    assert main_metric(outcomes) == "em"
    result = compare(outcomes, outcomes)
    assert (result.difference, result.p, result.interval) == (0, 1, None)
    assert dict(result.left_out) == {"broken": "unfinished (1 of 1 attempt)"}
    assert Path(result.pairs[0].traces_a[0]).is_file()


def test_too_little_evidence_does_not_pass_for_no_regression() -> None:
    five, more = {f"t{i}": 1 for i in range(5)}, {f"t{i}": 1 for i in range(6)}
    worse = dict.fromkeys(five, 0)
    assert failed_gates(compare(run(five), run(worse)), ["regressed"]) == [
        "regressed: difference -1 over 5 clusters, too few to tell it from chance (6 could); "
        "gate on difference or worse instead"
    ]
    assert failed_gates(compare(run(worse), run(five)), ["regressed"]) == []
    assert failed_gates(compare(run(five), run(five)), ["regressed"]) == []
    assert failed_gates(compare(run(more), run({**more, "t0": 0})), ["regressed"]) == []
    cut = [*run(more), Outcome("late", "late", 1, {}, "unfinished")]
    assert failed_gates(compare([*run(more), *run({"late": 1})], cut), ["regressed"]) == [
        "regressed: can't be told while tasks are unfinished (1)"
    ]


def test_a_small_change_is_no_regression() -> None:
    a = run({f"t{i}": 1 for i in range(8)})
    b = run({f"t{i}": 0 if i == 0 else 1 for i in range(8)})
    assert failed_gates(compare(a, b), ["regressed"]) == []


@pytest.mark.slow
def test_the_command_shows_what_got_worse_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = {"default": {"answer": "7|3900\n9|3700"}, "tasks": {"b": {"answer": "NONE"}}}
    bad = {"default": {"answer": "7|3900\n9|<b>1</b>"}}
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one = make_run(tmp_path / "one", ["a", "b"], script=good)
    two = make_run(tmp_path / "two", ["a", "b"], script=bad)
    code, out = call(
        capsys, "compare", one.path, two.path, "--html", tmp_path / "worse.html", "--metric", "item_f1"
    )
    assert code == 0
    assert "1 worse, 1 better" in out
    with chromium(viewport={"width": 1300, "height": 800}) as page:
        page.goto((tmp_path / "worse.html").as_uri())
        assert "better by" in page.locator('section[aria-label^="Compare "] tr[data-row=b]').inner_text()
        page.locator('section[aria-label^="Compare "] tr[data-row=a]').get_by_role(
            "link", name="first divergence"
        ).click()
        sides = page.locator("section:target .two > section")
        assert sides.count() == 2
        left, right = (sides.nth(i).bounding_box() for i in (0, 1))
        assert left["x"] + left["width"] <= right["x"]
        assert "3700" in sides.nth(0).inner_text()
        assert "<b>1</b>" in sides.nth(1).inner_text()
        assert page.complaints == []
        assert (
            page.evaluate("new Set([...document.querySelectorAll('[id]')].map(e => e.id)).size")
            == page.locator("[id]").count()
        )
    with chromium(viewport={"width": 390, "height": 800}) as page:
        page.goto((tmp_path / "worse.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_every_attempt_of_a_task_that_got_worse_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = []
    for name, rows, epochs in (("one", "7|3900\n9|3700", 3), ("two", "7|3900\n9|1", 2)):
        (tmp_path / name).mkdir()
        script = {"default": {"answer": rows}}
        ready = Settings(agent=write_script(tmp_path / name, script), contracts=(), epochs=epochs)
        files = start_run(tmp_path / name / "run", ready, [bird_task("a")])
        run_attempts(files.path, display=SilentDisplay())
        runs.append(files.path)
    page = tmp_path / "worse.html"
    assert call(capsys, "compare", *runs, "--html", page)[0] == 0
    html = page.read_text()
    row = html.partition('<tr data-row="a">')[2].partition("</tr>")[0]
    cells = re.findall(r'href="#([^"]+)" aria-label="([^"]+):', row)
    names = [name for _, name in cells]
    assert names == [
        "a, run, epoch 1",
        "a, run, epoch 2",
        "a, run, epoch 3",
        "a, run-2, epoch 1",
        "a, run-2, epoch 2",
    ]
    assert all(f' id="{target}"' in html for target, _ in cells)


def test_the_command_compares_the_forms_and_repeats_of_one_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = {"default": {"answer": "7|3900\n9|3700"}, "tasks": {"x-g": {"answer": "7|3900"}}}
    ready = Settings(agent=write_script(tmp_path, script), contracts=())
    tasks = [
        bird_task(name, base="x", meta={"variant": form})
        for name, form in (("x", "constraint"), ("x-g", "goal"))
    ]
    files = start_run(tmp_path / "run", ready, tasks)
    run_attempts(files.path, display=SilentDisplay())
    code, out = call(capsys, "compare", files.path)
    assert code == 0
    assert "em: 1.0000 to 0.0000" in out
    assert "constraint" in out
    assert "errors: x: 1 of 2 attempts" in out
    code, out = call(capsys, "compare", files.path, "--json")
    assert (json.loads(out)["flips"], json.loads(out)["worse"]) == ({}, ["x"])
    assert call(capsys, "compare", files.path, "--fail-on", "worse>0")[0] == 1


def test_a_run_without_forms_tells_of_its_repeats(tmp_path, capsys):
    script = {"default": {"answer": "7|3900\n9|3700"}}
    ready = Settings(agent=write_script(tmp_path, script), contracts=(), epochs=2)
    files = start_run(tmp_path / "run", ready, [bird_task("x")])
    run_attempts(files.path, display=SilentDisplay())
    code, out = call(capsys, "compare", files.path)
    assert code == 0
    assert "no task has both a goal and a constraint form" in out
    assert "repeats: 1 task attempted again, 0 with differing scores" in out
    code, out = call(capsys, "compare", files.path, "--json")
    assert (code, json.loads(out)["repeated"], json.loads(out)["flips"]) == (0, 1, {})
    assert call(capsys, "compare", files.path, "--fail-on", "worse>0")[0] == 2
    once = start_run(tmp_path / "once", replace(ready, epochs=1), [bird_task("x")])
    run_attempts(once.path, display=SilentDisplay())
    assert call(capsys, "compare", once.path)[0] == 2


def test_several_runs_are_each_compared_with_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = []
    for name, answer in (("one", "7|3900\n9|3700"), ("two", "7|3900"), ("three", "7|3900\n9|3700")):
        (tmp_path / name).mkdir()
        runs.append(make_run(tmp_path / name, ["a"], script={"default": {"answer": answer}}).path)
    code, out = call(capsys, "compare", *runs)
    assert code == 0
    two, three = out.split(f"{runs[2]} against {runs[0]}:")
    assert f"{runs[1]} against {runs[0]}:" in two
    assert "1 worse, 0 better" in two
    assert "0 worse, 0 better" in three
    code, out = call(capsys, "compare", *runs, "--json")
    assert [(Path(one["run"]), one["worse"]) for one in json.loads(out)["runs"]] == [
        (runs[1], ["a"]),
        (runs[2], []),
    ]
    assert call(capsys, "compare", *runs, "--fail-on", "worse>0")[0] == 1


def test_scores_by_other_rules_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = {"default": {"answer": "7|3900\n9|3700"}}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one = make_run(tmp_path / "one", ["a", "b", "c"], script=script)
    changed = [bird_task("a"), replace(bird_task("b"), reference="7|3900"), bird_task("c")]
    rubric = {**changed[2].options["rubric"], "ordered": True}
    changed[2] = replace(changed[2], options={"rubric": rubric})
    settings = Settings(agent=write_script(tmp_path / "two", script), contracts=(SHELF,), accept="exact")
    two = start_run(tmp_path / "two" / "run", settings, changed)
    run_attempts(two.path, display=SilentDisplay())
    result = compare(read_outcomes(one.path), read_outcomes(two.path))
    assert [pair.task_id for pair in result.pairs] == ["a"]
    assert dict(result.left_out) == {
        "b": "is scored by another reference in the second run",
        "c": "is scored by other options in the second run",
    }
    code, out = call(capsys, "compare", one.path, two.path, "--fail-on", "left_out>0")
    assert code == 1
    assert re.search(
        'the runs differ in their inputs: tasks: [0-9a-f]{12} -> [0-9a-f]{12}; accept: "rule" -> "exact"\n',
        out,
    )
    code, out = call(capsys, "compare", one.path, two.path, "--json")
    assert (code, json.loads(out)["differs"]) == (0, ["tasks", "accept"])
    with pytest.raises(
        UsageError, match=r"by other options in the second run; `stillweb score A -o NEW` scores the first"
    ):
        compare([o for o in read_outcomes(one.path) if o.task_id == "c"], read_outcomes(two.path)[-1:])
    assert "stand on" not in call(capsys, "compare", one.path, one.path)[1]


def test_tasks_that_are_asked_otherwise_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Under one id the second run may hold a question that gives its answer away."""
    runs = []
    for name, question in (("one", "?"), ("two", "? It is 7."), ("three", "?")):
        (tmp_path / name).mkdir()
        tasks = [Task("a", question, "7"), Task("b", question, "7"), Task("c", "?", "7")]
        settings = Settings(agent=write_script(tmp_path / name, {"default": {"answer": "7"}}), contracts=())
        runs.append(start_run(tmp_path / name / "run", settings, tasks))
        run_attempts(runs[-1].path, display=SilentDisplay())
    one, two, three = runs
    files = RunFiles(three.path)
    made, stands_on = files.manifest()
    files.write_manifest(made, {**stands_on, "code": "of another version"})
    page = tmp_path / "page.html"
    told = "B asks 2 tasks in other words or from another start URL (the first: a)"
    assert told in call(capsys, "compare", one.path, two.path, "--html", page)[1]
    assert told in page.read_text()
    assert told in json.loads(call(capsys, "compare", one.path, two.path, "--json")[1])["parts"]
    out = call(capsys, "compare", one.path, three.path)[1]
    assert "the runs differ in their inputs: code: " in out
    assert "in other words" not in out
    assert "B has no certificate, so that nothing shows an edited trace\n" in out
    write_certificate(one.path)
    assert "certificate" not in call(capsys, "compare", one.path, one.path)[1]


def test_folded_case_matters_to_tables_only(tmp_path: Path) -> None:
    header = {"scoring": {"mode": "faithful", "fold_case": False, "models": {}, "embedder": None}}
    folded = {"scoring": {**header["scoring"], "fold_case": True}}
    table, exact = bird_task("a"), replace(bird_task("a"), scorer="exact")
    assert other_rules(rules_of(table, header), rules_of(table, folded)) == ["fold_case"]
    assert other_rules(rules_of(exact, header), rules_of(exact, folded)) == []
    assert other_rules(rules_of(exact, header), rules_of(table, header)) == ["fold_case", "scorer"]
    assert other_rules((), rules_of(table, header)) == []


@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), max_size=8))
def test_the_permutation_test_counts_every_flip(sums: list[float]) -> None:
    changed = [value for value in sums if value]
    flipped = [
        abs(sum(s * v for s, v in zip(signs, changed, strict=True)))
        for signs in product((1, -1), repeat=len(changed))
    ]
    expected = sum(total >= abs(sum(changed)) for total in flipped) / len(flipped)
    p, how = permutation_test(sums)
    assert p == expected
    assert how.startswith("exact")
    assert permutation_test([-value for value in sums])[0] == p


@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), max_size=12))
def test_the_sign_test_is_binomial(sums: list[float]) -> None:
    up, n = sum(v > 0 for v in sums), sum(v != 0 for v in sums)
    likelihood = [comb(n, k) for k in range(n + 1)]
    expected = sum(ways for k, ways in enumerate(likelihood) if abs(k - n / 2) >= abs(up - n / 2)) / 2**n
    assert sign_test(sums) == pytest.approx(expected)


def test_too_many_sums_are_sampled_with_the_seed() -> None:
    sums = [0.1 + i * 0.0137**2 + (i % 7) * 0.01 for i in range(60)]
    mixed = [value if i % 2 else -value for i, value in enumerate(sums)]
    p, how = permutation_test(mixed, seed=3, resamples=500)
    assert "sampled with seed 3" in how
    assert (p, how) == permutation_test(mixed, seed=3, resamples=500)
    assert permutation_test(sums, resamples=500)[0] == 1 / 501


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.floats(-1, 1), min_size=1, max_size=3), min_size=1, max_size=6), st.integers(0, 5)
)
def test_the_interval_is_seeded_and_within_the_clusters_means(groups: list[list[float]], seed: int) -> None:
    low, high = bootstrap_interval(groups, seed=seed, resamples=200)
    means = [sum(group) / len(group) for group in groups]
    assert min(means) - 1e-9 <= low <= high <= max(means) + 1e-9
    assert (low, high) == bootstrap_interval(groups, seed=seed, resamples=200)


def test_a_constant_difference_has_a_point_interval() -> None:
    assert bootstrap_interval([[0.5], [0.5, 0.5]]) == (0.5, 0.5)


# Values of scipy 1.17: stats.permutation_test (samples, exact) and stats.binomtest.
AGAINST_SCIPY = [
    ([0.5, -0.25, 0.125, 0.0, 0.75, 0.5], 0.1875, 0.375),
    ([1 / 3, -1 / 3, 2 / 3, 1 / 3, 0.0, -1 / 6, 1 / 2, 5 / 6], 0.140625, 0.453125),
    ([0.1] * 10, 0.001953125, 0.001953125),
    ([0.3 - 0.1 - 0.2, 0.1 + 0.2 - 0.3, 0.4, -0.2, 0.6], 0.5, 1.0),  # the first two are 0 but for rounding
    ([1, 1, -1, 0.5, 0.5, -0.5, 1, 0, 0, -1, 1, 1], 0.2890625, 0.34375),
    (
        [
            -0.2145,
            0.153,
            -0.056,
            0.2247,
            0.2511,
            -0.4213,
            -0.4840,
            0.5037,
            -0.1888,
            -0.2201,
            0.4,
            0.33,
            0.01,
            0.25,
        ],
        0.6417236328125,
        0.79052734375,
    ),
]


@pytest.mark.parametrize(("sums", "p", "sign"), AGAINST_SCIPY)
def test_both_tests_agree_with_scipy(sums: list[float], p: float, sign: float) -> None:
    found, how = permutation_test(sums)
    assert found == pytest.approx(p, abs=1e-12)
    assert how.startswith("exact")
    assert sign_test(sums) == pytest.approx(sign, abs=1e-12)


def test_the_bootstrap_agrees_with_scipy() -> None:
    """stats.bootstrap (percentile, 20,000 resamples) of the mean; its own noise is about 0.01."""
    low, high = bootstrap_interval([[value] for value in AGAINST_SCIPY[4][0]])
    assert (low, high) == pytest.approx((-0.1667, 0.7083), abs=0.05)
