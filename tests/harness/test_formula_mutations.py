"""The other formulas (see scoring/test_mutations.py): tags, verdicts, judged sums, statistics, agreement, money."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest

from stillweb.harness.compare.compare import Outcome, compare
from stillweb.harness.models.client import Usage
from stillweb.harness.scoring import Context
from stillweb.harness.task import Task
from tests.harness.benchmarks.sgi.samples import BALLOT, IDEA, RECORD, vector
from tests.harness.compare.test_compare import AGAINST_SCIPY
from tests.harness.scoring.standins import Answers, Words
from tests.support.altered import Check, cases, load, notice


def tags(m: ModuleType) -> None:
    for text, expected in vector("sgi_extract_final_answer.json"):
        assert m.extract_final_answer(text) == expected
    assert m.extract_final_answer("</answer><answer> a </answer> b </answer>") == "a"
    assert m.extract_final_answer("a</answer>") is None


def verdicts(m: ModuleType) -> None:
    grade = m.parse_grade("extracted_final_answer: 5\nreasoning: no, yes\ncorrect: no\nconfidence: 250 %")
    assert (grade.correct, grade.extracted_final_answer, grade.reasoning, grade.confidence) == (
        False,
        "5",
        "no, yes",
        100,
    )
    assert m.parse_grade("correct: no\n**correct**: YES").correct
    for text in ("correct: maybe", "it is correct: yes", ""):
        with pytest.raises(m.GradeError):
            m.parse_grade(text)
    assert (
        m.grader_prompt("q{response}", "r", "c", "{question}|{response}|{correct_answer}")
        == "q{response}|r|c"
    )


def research(m: ModuleType) -> None:
    def em(answer: str, parsed: str, gold: str, mode: str = "faithful") -> Any:
        steps = '[{"judge": "correct"}, {"judge": "incorrect"}, {"judge": "correct"}]'
        judge = Answers(lambda prompt, model: parsed if model == "gpt-4.1-mini" else steps)
        task = Task("d", "?", {"answer": gold, "steps": ["one"]}, "sgi-deep-research")
        return m.score_deep_research(task, answer, Context(judge=judge, mode=mode))  # type: ignore[arg-type]

    assert em("<answer>1</answer>", "2", "1").metrics == {"em": 1.0, "step_accuracy": 2 / 3}
    assert em("<answer>2</answer>", "1", "1").metrics["em"] == 1
    assert em("<answer>2</answer>", "3", "1").metrics["em"] == 0
    assert em("1", "2", "1").metrics["em"] == 1
    assert em("1", "2", "1", "fixed").metrics["em"] == 0
    assert em("1", "1", "1", "fixed").metrics["em"] == 0
    assert em("<answer>1.0</answer>", "2", "1").metrics["em"] == 0
    assert em("<answer>1.0</answer>", "2", "1", "fixed").metrics["em"] == 1
    assert em("<answer>t Cell</answer>", "2", "T cell", "fixed").metrics["em"] == 1


def ideas(m: ModuleType) -> None:
    def mine(prompt: str, model: str) -> str:
        letter = "A" if prompt.index("Original thought.") > prompt.index("Alpha beta") else "B"
        if model == "one":
            letter = "AB"[letter == "A"]
        return BALLOT.replace("%s", letter)

    def scored(**env: str) -> Any:
        task = Task("i", "?", RECORD, "sgi-idea-generation")
        context = Context(judge=Answers(mine), embedder=Words(), env=env)
        return m.score_idea(task, json.dumps(IDEA), context)

    all_won, one_lost = scored(), scored(SGI_JUDGE_MODEL_1="one")
    objective = all_won.detail["objective"]
    assert set(all_won.detail["votes"].values()) == {6}
    assert set(one_lost.detail["votes"].values()) == {4}
    for name, value in objective.items():
        assert all_won.metrics[name] == pytest.approx((value * 10 + 100) / 2)
    assert one_lost.metrics["novelty"] == pytest.approx(objective["novelty"] * 10 / 2)
    assert one_lost.metrics["feasibility"] == all_won.metrics["feasibility"]
    assert all_won.metrics["final"] == pytest.approx(sum(all_won.metrics[name] for name in objective) / 4)
    near = dict(RECORD, related_work={"a": "alpha beta gamma"}, existing_solutions={}, related_work_test={})
    novelty = m._objective(Words(), {"Idea": "alpha beta gamma"}, near, True)["novelty"]
    far = m._objective(Words(), {"Idea": "alpha beta gamma"}, dict(near, related_work={"a": "omega"}), True)
    assert far["novelty"] - novelty == pytest.approx(5)


def statistics(m: ModuleType) -> None:
    for sums, p, sign in AGAINST_SCIPY:
        assert m.permutation_test(sums)[0] == pytest.approx(p, abs=1e-12)
        assert m.sign_test(sums) == pytest.approx(sign, abs=1e-12)
    groups = [[value] for value in AGAINST_SCIPY[4][0]]
    assert m.bootstrap_interval(groups) == pytest.approx((-0.1667, 0.7083), abs=0.05)
    wide = m.bootstrap_interval([[0.0, 0.0, 0.0], [1.0]], resamples=2000)
    assert wide == (0.0, 1.0)
    assert m.bootstrap_interval([[1.0, 1.0, 1.0], [1.0]], resamples=200) == (1.0, 1.0)
    assert m.sign_test([1.0, -1.0]) == 1
    assert m._sampled([1.0] * 12, 0, 2000)[0] == pytest.approx(2 / 4096, abs=0.002)
    assert m._sampled([1.0, -1.0] * 6, 0, 2000)[0] == 1


def comparisons(m: ModuleType) -> None:
    outcomes = [m.Outcome("t", "t", n, {"x": value}, "scored") for n, value in enumerate((1.0, None, 0.5))]
    lost = m.Outcome("t", "t", 4, {}, "timeout")
    assert m._by_task(outcomes, "x", {"t"}, (1.0, ""))[0]["t"][1] == 0.5
    assert m._by_task([*outcomes, lost], "x", {"t"}, (1.0, ""))[0]["t"][1] == 0.375


def gates(m: ModuleType) -> None:
    few = [Outcome(f"t{n}", f"t{n}", 1, {"x": 1.0}, "scored") for n in range(6)]
    none = [Outcome(f"t{n}", f"t{n}", 1, {"x": 0.0}, "scored") for n in range(6)]
    assert m.failed_gates(compare(few, none), ["regressed"]) == ["regressed: difference -1, p 0.03125"]
    assert "too few" in m.failed_gates(compare(few[:5], none[:5]), ["regressed"])[0]
    assert not m.failed_gates(compare(few, [*few[1:], none[0]]), ["regressed"])
    assert not m.failed_gates(compare(none, few), ["regressed"])
    assert not m.failed_gates(compare(few[:5], few[:5]), ["regressed"])


def agreement(m: ModuleType) -> None:
    pairs = [("a", "a"), ("a", "b"), ("b", "b"), ("b", "b")]
    assert m.kappa(pairs) == pytest.approx((0.75 - 0.5) / (1 - 0.5))
    assert m.kappa([("a", "a")]) == 1
    assert m.kappa([("a", "b"), ("b", "a")]) == -1
    assert m.kappa([]) is None


def money(m: ModuleType) -> None:
    price = {"input": 2.0, "output": 10.0, "cached": 0.5}
    assert m.cost_of(Usage(1_000_000, 100_000, 400_000), price) == 1.2 + 0.2 + 1.0
    assert m.cost_of(Usage(1_000_000, 0, 400_000), {"input": 2.0, "output": 10.0}) == 2.0
    assert m.cost_of(Usage(1, 1, 0), None) is None


SOURCES: dict[str, tuple[Check, list[tuple[str, str]]]] = {
    "harness/benchmarks/sgi/common.py": (
        tags,
        [
            ('text.rfind("<answer>")', 'text.find("<answer>")'),
            ('text.find("</answer>", start)', 'text.rfind("</answer>", start)'),
            ('text.find("</answer>", start)', 'text.find("</answer>")'),
            (": end].strip()", ": end]"),
            ("if end >= 0 else None", "if end > 0 else text"),
        ],
    ),
    "harness/scoring/grading.py": (
        verdicts,
        [
            ('verdict[1].lower() == "yes"', "bool(verdict)"),
            ("_VERDICT.match(said[-1])", "_VERDICT.match(said[0])"),
            ("verdict[1].lower()", "verdict[1]"),
            ("(yes|no)", "(yes|no|maybe)"),
            ('"extracted_final_answer")', '"reasoning")'),
            ("min(int(confidence[0]), 100)", "int(confidence[0])"),
            ('_FIELD = r"^', '_FIELD = r"'),
        ],
    ),
    "harness/benchmarks/sgi/deep_research.py": (
        research,
        [
            ("gold in (shown, parsed)", "gold in (shown,)"),
            ("gold in (shown, parsed)", "gold in (parsed,)"),
            ("answer if extracted is None else extracted", 'extracted or ""'),
            ("extracted is not None and any", "any"),
            ("for text in (extracted, parsed)", "for text in (parsed,)"),
            ('step["judge"] == "correct"', 'step["judge"] != "correct"'),
            (") / len(steps)", ") / 2"),
            ("return x == y", "return False"),
            ("fold(normalise_text(gold))", "gold"),
        ],
    ),
    "harness/benchmarks/sgi/idea.py": (
        ideas,
        [
            ("(values[name] * 10 + 100.0 *", "(values[name] + 100.0 *"),
            ("(values[name] * 10 + 100.0 *", "(values[name] * 10 + 10.0 *"),
            ('== "win")) / 2', '== "win"))'),
            ('== "win"', '!= "lose"'),
            ("sum(values.values()) / 4", "sum(values.values()) / 5"),
            ("0.5 * formulas.distance(embedder, text, known)", "formulas.distance(embedder, text, known)"),
            ("0.5 * formulas.distance(embedder, text, known) + ", ""),
            ('("A" if ballot["swapped"] else "B")', '"B"'),
            ("(generated, original) if swapped", "(original, generated) if swapped"),
            ("for swapped in (False, True)", "for swapped in (False,)"),
            ("for n in (1, 2, 3)]", "for n in (1, 2)]"),
        ],
    ),
    "harness/compare/statistics.py": (
        statistics,
        [
            (".limit_denominator(1_000_000)", ""),
            ("abs(total) >= observed", "abs(total) > observed"),
            ("2 ** len(values)", "2 ** (len(values) + 1)"),
            ("following[total - value] = following.get(total - value, 0) + ways\n", "pass\n"),
            ("min(up, down) + 1", "min(up, down)"),
            ("Fraction(2 * tail, 2**n)", "Fraction(tail, 2**n)"),
            ("min(Fraction(1), Fraction", "max(Fraction(0), Fraction"),
            ("value > 0 for value in found", "value >= 0 for value in found"),
            ("cut = 0.025", "cut = 0.05"),
            ("/ sum(count for _, count in drawn)", "/ len(drawn)"),
            ("means[int(cut * (resamples - 1))]", "means[0]"),
            ("(far + 1) / (resamples + 1)", "far"),
            ("random.random() < 0.5", "random.random() < 0.9"),
        ],
    ),
    "harness/compare/compare.py": (
        comparisons,
        [
            ("o.metrics.get(metric) or 0.0 for o in group", "o.metrics.get(metric) or 1.0 for o in group"),
            ("o.metrics and metric not in", "metric not in"),
        ],
    ),
    "harness/compare/gates.py": (
        gates,
        [
            ("comparison.sense >= 0", "comparison.sense > 0"),
            ("comparison.sense >= 0", "comparison.sense <= 0"),
            (">= LEAST_CLUSTERS", ">= LEAST_CLUSTERS - 1"),
            (">= LEAST_CLUSTERS", "> LEAST_CLUSTERS"),
            ("comparison.p <= 0.05", "comparison.p <= 0.5"),
        ],
    ),
    "harness/review/reviews.py": (
        agreement,
        [
            ("one == two for one, two in pairs", "one != two for one, two in pairs"),
            ("/ len(pairs) ** 2", "/ len(pairs)"),
            ("first[name] * second[name]", "first[name]"),
            ("else (observed - expected) / (1 - expected)", "else observed - expected"),
            ("else (observed - expected) / (1 - expected)", "else observed / (1 - expected)"),
            ("1.0 if expected == 1", "0.0 if expected == 1"),
        ],
    ),
    "harness/models/client.py": (
        money,
        [
            ("usage.input - usage.cached", "usage.input"),
            ('price.get("cached", price["input"])', 'price.get("cached", 0)'),
            ('fresh * price["input"]', 'fresh * price["output"]'),
            ('usage.output * price["output"]', "usage.output"),
            ("/ 1e6, 9)", "/ 1e3, 9)"),
        ],
    ),
}
CASES = cases(SOURCES)


@pytest.mark.parametrize("path", SOURCES)
def test_the_unaltered_source_passes(path: str) -> None:
    SOURCES[path][0](load(path))


@CASES
def test_an_altered_term_is_noticed(path: str, old: str, new: str) -> None:
    notice(SOURCES[path][0], path, old, new)
