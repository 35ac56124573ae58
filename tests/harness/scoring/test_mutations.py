"""A change to any term of a formula must be noticed: each source is altered in one place and checked again."""

import json
from fractions import Fraction
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


def table(m: ModuleType) -> None:
    for case in vector("sgr_table_scores.json"):
        key = [case["schema"].index(name) for name in case["row_key"]]
        got = m.compare_tables(case["gold"], case["pred"], key, True)
        assert str(got.item_f1) == case["item_f1"]
        assert str(got.row_f1) == case["row_f1"]
        assert str(got.order_accuracy) == case["order_acc"]
        assert got.em == case["em"]
    ab = [("1", "A"), ("2", "B")]
    long = m.compare_tables(ab, [("1", "A", "z"), ("2", "B")], [0], True)
    assert (long.item_f1, long.row_f1, long.em) == (Fraction(8, 9), Fraction(1, 2), 0)
    assert m.compare_tables([("1", "")], [("1", "")], [0], True).item_f1 == Fraction(1, 2)
    assert m.compare_tables(ab, ab[::-1], [0], False).em == 1
    assert m.compare_tables(ab, [("1", "X"), ("1", "A")], [0], True).right_items == 1
    assert m.compare_tables([("", "x")], [("", "x")], [0], True).right_items == 0
    assert m.compare_tables([], [], [0], True).item_f1 == 1
    assert m.compare_tables([], [("1", "A")], [0], True).item_f1 == 0
    assert m.compare_tables(ab, [*ab, ("3", "C")], [0], True).em == 0
    assert m.compare_tables([("1", "A"), ("1", "B")], [("1", "A"), ("1", "B")], [0], True).em == 1


def fitting(m: ModuleType) -> None:
    for case in vector("bclc_fit_pages.json"):
        assert m.fit_pages(case["tokens"], case["budget"]) == (case["n"], case["left"])
    assert m.fit_pages([10], 10) == (1, 0)
    assert m.parse_budget("128k") == 131_072
    assert m.parse_budget("1M") == 1_048_576


def idea(m: ModuleType) -> None:
    for characters, penalty in vector("sgi_length_penalty.json"):
        assert m.length_penalty(characters) == pytest.approx(penalty)
    assert [m.length_penalty(n) for n in (700, 701, 5000)] == [0, 0.01, 10]
    for case in vector("sgi_vote_gates.json"):
        assert m.verdict("novelty", case["votes"]) == case["novelty"]
        assert m.verdict("other", case["votes"]) == case["other"]
    assert [m.verdict("novelty", n) for n in (2, 3, 5)] == ["lose", "tie", "win"]
    assert [m.verdict("other", n) for n in (2, 3)] == ["lose", "tie"]
    assert [m.detailedness(*v) for v in ((10, 0, 0), (0, 0, 0), (10, 10, 0), (10, 0, 10))] == pytest.approx(
        [10, 8, 6, 6]
    )
    words = Words()
    assert m.repetition(words, "the same words here. the same words here.") == pytest.approx(8)
    assert m.repetition(words, "the same words here. short. tiny.") == 0
    assert m.repetition(words, "exactly 10. exactly 10.") == 0
    assert m.distance(words, "alpha", ["alpha", "omega"]) == pytest.approx(5)
    assert m.distance(words, "alpha", ["alpha"]) == pytest.approx(0)
    assert m.effectiveness(words, ["alpha", "beta"], "alpha beta") == pytest.approx(10)
    assert m.completeness({"Idea": "x", "Dataset": "y", "ImplementationSteps": {}}) == pytest.approx(20 / 6)
    gold = {"1": "mix well", "2": "heat"}
    assert m.feasibility(gold, ["2-1"], gold, ["1-2"], faithful=True) == pytest.approx(4)
    assert m.feasibility({"1": "cut", "2": "paste"}, ["1-2"], gold, ["1-2"], faithful=True) == pytest.approx(
        6
    )
    half = {"1": "mix well", "2": "cool"}
    assert m.feasibility(half, ["1-2"], gold, ["1-2"], faithful=True) == pytest.approx(10 * (0.6 + 0.4 * 0.5))
    ten = dict.fromkeys(["1", "2", "10"], "x")
    assert m.edges(ten, ["10", "2", "1"], faithful=True) == {("1", "10"), ("10", "2")}
    assert m.edges(ten, ["10", "2", "1"], faithful=False) == {("10", "2"), ("2", "1")}


def wet(m: ModuleType) -> None:
    for case in vector("sgi_wet_official.json"):
        gold, predicted = m.parse_steps(case["gold"]), m.parse_steps(case["pred"])
        assert [len(gold), len(predicted)] == case["parsed"]
        if isinstance(case["ss"], str):
            with pytest.raises(ZeroDivisionError):
                m.parameter_accuracy(gold, predicted)
            continue
        names = [[step.action for step in steps] for steps in (gold, predicted)]
        assert m.sequence_official(*names) == case["ss"]
        assert m.parameter_accuracy(gold, predicted) == case["pa"]
    two = "a = <Load>(\n x=1\n)\nb = <Load>(\n x=1\n)\nc = <Train>(\n m=%s\n)"
    accuracy = [m.parameter_accuracy(m.parse_steps(two % "a"), m.parse_steps(two % other)) for other in "abz"]
    assert accuracy == pytest.approx([1, 2 / 3, 2 / 3])
    assert m.parameter_accuracy(m.parse_steps(two % "z"), m.parse_steps(two % "a")) == pytest.approx(2 / 3)
    assert m.sequence_fixed(list("ABC"), list("XYZ")) == 0
    assert m.sequence_fixed(list("ABC"), list("CBA")) == 0
    assert m.sequence_fixed(list("ABC"), list("BAC")) == pytest.approx(2 / 3)
    assert m.sequence_fixed(list("ABC"), list("AB")) == pytest.approx(1 / 3)
    assert m.sequence_fixed(list("AAB"), list("AAB")) == 1
    assert [m.sequence_fixed(list(a), list(b)) for a, b in (("A", "A"), ("A", "B"))] == [1, 0]
    assert m.sequence_official(["A"], ["B"]) == 1


def dry(m: ModuleType) -> None:
    for case in vector("passall.json"):
        assert m.pass_all(case["passed"]) == {n: case[n] for n in ("passall5", "passall3", "passall1")}
    assert m.pass_all(0)["passall1"] == 0
    assert m.pass_all(2)["passall3"] == 0
    assert m.pass_all(4)["passall5"] == 0
    tests = [{"passed": n < 3, "seconds": n * 1.0, "returncode": n % 2} for n in range(5)]
    got = m._metrics(tests, True)
    assert (got["ser"], got["aet"], got["passall3"]) == (3 / 5, 2.5, 1)
    told = [{**test, "reason": m._NO_JUDGMENT if n > 2 else ""} for n, test in enumerate(tests)]
    assert m._metrics(told, False)["passall5"] is None  # both that nobody judged could have passed


def prompts(m: ModuleType) -> None:
    fitting(m)
    order(m)


def order(m: ModuleType) -> None:
    for case in vector("bclc_shuffle.json"):
        assert "".join(m.shuffled("ABCDE", case["seed"])) == case["out"]
    case = vector("bclc_hash_order.json")
    assert "".join(m.hash_order(case["pages"], case["seed"])) == case["order"]


def decryption(m: ModuleType) -> None:
    for case in vector("bclc_decrypt.json"):
        assert m.decrypt(case["ciphertext"], case["password"]) == case["plaintext"]
    for case in vector("bclc_derive_key.json"):
        assert m.derive_key(case["password"], case["length"]).hex() == case["hex"]


def tags(m: ModuleType) -> None:
    for text, expected in vector("sgi_extract_final_answer.json"):
        assert m.extract_final_answer(text) == expected
    assert m.extract_final_answer("</answer><answer> a </answer> b </answer>") == "a"
    assert m.extract_final_answer("a</answer>") is None


def verdicts(m: ModuleType) -> None:
    grade = m.parse_grade("extracted_final_answer: 5\nreasoning: no, yes\ncorrect: no\nconfidence: 250 %", "")
    assert (grade.correct, grade.extracted_final_answer, grade.reasoning, grade.confidence) == (
        False,
        "5",
        "no, yes",
        100,
    )
    assert m.parse_grade("**correct**: YES", "").correct
    for text in ("correct: maybe", "correct: yes\ncorrect: maybe", "it is correct: yes", ""):
        with pytest.raises(m.GradeError):
            m.parse_grade(text, "")
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

    idea(m)
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
    "harness/scoring/table.py": (
        table,
        [
            ("Fraction(2 * right,", "Fraction(right,"),
            ("Fraction(2 * right, gold + predicted)", "Fraction(2 * right, gold)"),
            ("if gold + predicted else Fraction(1)", "if gold else Fraction(1)"),
            ("if gold + predicted else Fraction(1)", "if gold + predicted else Fraction(0)"),
            ('a == b != ""', "a == b"),
            ("max(width, len(row))", "len(row)"),
            ("max(width, len(row))", "width"),
            ("right == width == len(row)", "right == width"),
            ("right == width == len(row)", "width == len(row)"),
            ("len(gold) * width", "len(gold)"),
            ("len(gold) * width", "len(predicted) * width"),
            ("ordered += smaller", "ordered += len(before) - smaller"),
            ("before.insert(smaller, place)", "before[:] = [place]"),
            ("if all_pairs else Fraction(0)", "if all_pairs else Fraction(1)"),
            ("right_rows == len(gold) == len(predicted)", "right_rows == len(gold)"),
            ("right_rows == len(gold) == len(predicted)", "len(gold) == len(predicted)"),
            ("not ordered or ordered_pairs", "ordered or ordered_pairs"),
            ("(not ordered or ordered_pairs == all_pairs)", "True"),
            ("if any(wanted) else None", "if True else None"),
            ("free.popleft()", "free[0]"),
            ("free.popleft()", "free.pop()"),
            ("_f1(right_rows, len(gold), len(predicted))", "_f1(right_rows, len(gold), len(gold))"),
            (
                "_f1(right_items, gold_items, predicted_items)",
                "_f1(right_items, predicted_items, predicted_items)",
            ),
        ],
    ),
    "harness/benchmarks/browsecomp/prompts.py": (
        prompts,
        [
            ("random.Random(seed).shuffle(order)", "random.Random(str(seed)).shuffle(order)"),
            ("str(seed).encode()", 'b""'),
            ("if count > budget", "if count >= budget"),
            ("        budget -= count\n", ""),
            ("            break\n", "            continue\n"),
            ("fitted += 1", "fitted += 2"),
            ('"k": 1024', '"k": 1000'),
            ("1024 * 1024", "1000 * 1000"),
        ],
    ),
    "harness/benchmarks/sgi/wet.py": (
        wet,
        [
            ("if n <= 1:\n        return 1.0", "if n <= 1:\n        return 0.0"),
            ("return 1.0 - inversions /", "return inversions /"),
            ("predicted[i] > predicted[j])", "predicted[i] < predicted[j])"),
            ("len(gold) != len(predicted)", "len(gold) > 99"),
            ("n = max(len(gold), len(predicted))", "n = min(len(gold), len(predicted))"),
            ("a < b for a, b in combinations(ranks", "a > b for a, b in combinations(ranks"),
            ("places[action].popleft()", "places[action].pop()"),
            ("float(gold == predicted)", "1.0"),
            ("errors = abs(len(gold) - len(predicted))", "errors = 0"),
            ("want.action != have.action or ", ""),
            (" or want.inputs.keys() != have.inputs.keys()", ""),
            ("counterpart.get(given) != wanted", "False"),
            ("(wanted in made_gold) != (given in made_predicted)", "False"),
            ("counterpart[have.output] = want.output", "pass"),
            (
                "return 1 - errors / max(len(gold), len(predicted))",
                "return 1 - errors / min(len(gold), len(predicted))",
            ),
        ],
    ),
    "harness/benchmarks/sgi/dry.py": (
        dry,
        [
            ("passed == tests", "passed >= 4"),
            ("passed >= 3", "passed >= 2"),
            ("passed >= 3", "passed > 3"),
            ("passed >= 1", "passed >= 0"),
            ("passed + silent", "passed"),
            ('test["returncode"] == 0', 'test["returncode"] != 0'),
            ('if test["seconds"] > 0', 'if test["seconds"] >= 0'),
        ],
    ),
    "harness/benchmarks/browsecomp/dataset.py": (
        decryption,
        [
            ("hashlib.sha256(password", "hashlib.sha3_256(password"),
            (
                "a ^ b for a, b in zip(data, derive_key(password, len(data)), strict=True)).decode()",
                "a for a in data).decode()",
            ),
            ("[:length]", "[: length + 1]"),
        ],
    ),
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
            ("_VERDICT.match(lines[-1])", "_VERDICT.match(lines[0])"),
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
            ("(cosine(a, b) * 10)", "(cosine(a, b))"),
            ("(1 - sum(", "(sum("),
            ("/ len(vectors)) * 10", ") * 10"),
            ("/ len(SECTIONS) * 10", "/ 5 * 10"),
            ("> 10]", "> 11 - 99]"),
            ("- 0.2) * 10", ") * 10"),
            ("characters - 700", "characters - 600"),
            ("300 - characters", "200 - characters"),
            ("0) / 100, 10.0)", "0) / 100, 99.0)"),
            ("if characters == 0", "if characters == -1"),
            ("0.2 * complete", "0.3 * complete"),
            ("0.4 * (10 - repeated)", "0.4 * repeated"),
            ("0.4 * (10 - long)", "0.5 * (10 - long)"),
            ("0.6 * jaccard", "0.5 * jaccard"),
            ("0.4 * text", "0.5 * text"),
            ("len(a & b) / len(a | b)", "len(a & b) / len(a)"),
            ("sorted(listed) if faithful else listed", "listed"),
            ("sorted(listed) if faithful else listed", "sorted(listed)"),
            ('(4 if dimension == "novelty" else 3)', "3"),
            ('(4 if dimension == "novelty" else 3)', "4"),
            ("if votes <= 2", "if votes <= 1"),
            ("if votes <= 2", "if votes <= 3"),
            ("(values[name] * 10 + 100.0 *", "(values[name] + 100.0 *"),
            ("(values[name] * 10 + 100.0 *", "(values[name] * 10 + 10.0 *"),
            ('== "win")) / 2', '== "win"))'),
            ('== "win"', '!= "lose"'),
            ("sum(values.values()) / 4", "sum(values.values()) / 5"),
            ("0.5 * distance(embedder, text, known)", "distance(embedder, text, known)"),
            ("0.5 * distance(embedder, text, known) + ", ""),
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
            ("o.metrics.get(metric) or 0.0 for o in judged", "o.metrics.get(metric) or 1.0 for o in judged"),
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
