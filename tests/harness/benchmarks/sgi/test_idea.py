"""SGI-Bench's idea generation: each formula, each quirk in both modes, and judges that misbehave."""

import json
from typing import Any

import pytest

from stillweb.harness.benchmarks.sgi import idea as formulas
from stillweb.harness.benchmarks.sgi.idea import official_reading, official_votes, parse_idea, parse_votes
from stillweb.harness.scoring import Context, JudgeFailed, Score, score
from stillweb.harness.task import Task
from tests.harness.benchmarks.sgi.samples import BALLOT, IDEA, RECORD, vector
from tests.harness.scoring.standins import Answers, Words


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


def test_a_judge_that_fails_is_tried_again_and_the_others_vote() -> None:
    class Flaky(Answers):
        def complete(self, messages: Any, model: str, temperature: float) -> str:
            if model == "gemini-3-pro-preview" or (model.startswith("gpt") and len(self.calls) < 3):
                self.calls.append(("", model, temperature))
                raise JudgeFailed("busy")
            return super().complete(messages, model, temperature)

    task, judge = Task("i", "?", RECORD, "sgi-idea-generation"), Flaky(generated_wins)
    got = score(task, json.dumps(IDEA), Context(judge=judge, embedder=Words()))
    assert got.detail["votes"]["novelty"] == 4  # of six: one judge gave none
    assert got.detail["fault"] == "judge"
    assert [problem.partition(":")[0] for problem in got.detail["problems"]] == [
        "no vote of gemini-3-pro-preview",
        "no vote of gemini-3-pro-preview (swapped)",
    ]
    assert "the last failed: busy" in got.detail["problems"][0]


def test_the_modes_read_a_ballot_apart_where_the_official_expressions_do() -> None:
    tight = BALLOT.replace("[Win %s]", "WinA")  # a vote for B there
    assert set(official_votes(tight).values()) == {"B"}  # type: ignore[union-attr]
    assert set(parse_votes(tight).values()) == {"A"}  # type: ignore[union-attr]
    repeated = "\n".join(f"{n}: [Win A or Win B] because ..." for n in (*formulas.DIMENSIONS, "overall"))
    assert set(official_votes(repeated).values()) == {"A"}  # type: ignore[union-attr]
    assert official_votes(BALLOT.replace("Overall", "All")) is None
    got, _ = idea(json.dumps(IDEA), tight)
    assert got.detail["votes"]["feasibility"] == 3
    fixed, _ = idea(
        json.dumps(IDEA), lambda prompt, model: generated_wins(prompt, model).replace("[Win A]", "WinA")
    )
    assert "reads other votes" in fixed.detail["differs"][0]["why"]


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
    """The official graph wants an object of steps and an order of texts; anything else raises there, and counts 0."""
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


SECTIONS = {
    "Idea": "alpha beta, warmed by \\(\\alpha\\)",
    "ImplementationSteps": {"1": "mix", "2": "heat"},
    "ImplementationOrder": ["1-2"],
    "Dataset": "plates",
    "EvaluationMetrics": {"growth": "grams"},
    "ExpectedOutcome": "less",
}


def scored(answer: str, mode: Any = "faithful") -> tuple[Score, Answers]:
    judge = Answers(BALLOT.replace("%s", "A"))
    task = Task("i", "?", RECORD, "sgi-idea-generation")
    return score(task, answer, Context(judge=judge, embedder=Words(), mode=mode)), judge


@pytest.mark.parametrize(
    "answer",
    [
        "Here it is:\n" + json.dumps(SECTIONS),
        json.dumps(SECTIONS).replace(
            "\\\\", "\\"
        ),  # a formula's backslash, which JSON has no such escape for
        "```json\n" + json.dumps(SECTIONS, indent=2)[:-1] + ",}\n```",
        "1. Idea: alpha beta, warmed by \\(\\alpha\\)\n2. Implementation Steps: {'1': 'mix', '2': 'heat'}\n"
        "3. Implementation Order: ['1-2']\n4. Dataset: plates\n5. Evaluation Metrics: 'growth': 'grams'\n"
        "6. Expected Outcome: less\n",
    ],
    ids=["prose", "backslash", "comma", "headings"],
)
def test_sections_of_what_is_not_json_alone(answer: str) -> None:
    read = official_reading(answer)
    assert read == SECTIONS | {"Idea": read["Idea"]}
    assert read["Idea"].startswith("alpha beta, warmed by \\")
    got, judge = scored(answer)
    assert got.detail["objective"]["feasibility"] == pytest.approx(10)
    assert "Idea: alpha beta" in judge.calls[0][0]


def test_a_text_ends_at_the_first_quote_of_any_kind_as_the_official_pattern_has_it() -> None:
    answer = 'Sure! {"Idea": "alpha beta don\'t gamma", "ImplementationSteps": {"1": "it\'s hot"}}'
    assert official_reading(answer) == {"Idea": "alpha beta don", "ImplementationSteps": {"1": "it"}}
    got, judge = scored(answer, "fixed")
    assert "don't gamma" in judge.calls[0][0]  # fixed takes the object amid the prose
    why = {entry["metric"]: entry["why"] for entry in got.detail["differs"]}
    assert "not JSON alone" in why["effectiveness"]


def test_json_is_taken_as_it_is_and_prose_has_no_sections() -> None:
    assert official_reading(json.dumps(SECTIONS)) == SECTIONS
    assert official_reading("```\n[1]\n```") == [1]
    assert official_reading("I'd rather not.") == {}
    assert official_reading("[" * 100_000) == {}
    assert official_reading("1. Idea" + "\n" * 30_000) == {}


def test_headings_without_a_text_between() -> None:
    assert official_reading("1. Idea:\n2. Implementation Steps") == {"Idea": ""}
    assert official_reading("1. Idea\n\n\n2. x") == {"Idea": ""}


@pytest.mark.parametrize("answer", ["```json\n[1]\n```", "3", '{"Idea": null}', '{"Idea": 3}'])
def test_where_the_official_scorer_fails_it_counts_0(answer: str) -> None:
    got, _ = scored(answer)
    assert set(got.metrics.values()) == {0}
    assert "counts 0" in got.detail["differs"][0]["why"]
    assert set(scored('{"Data": "x"}')[0].metrics.values()) != {0}  # no idea is an empty one, not a failure


def test_sections_given_as_null_are_the_ones_the_official_scorer_misses() -> None:
    whole = scored(json.dumps(SECTIONS))[0].detail["objective"]["detailedness"]
    for name in ("Dataset", "ExpectedOutcome"):
        without = {key: value for key, value in SECTIONS.items() if key != name}
        null = scored(json.dumps(SECTIONS | {name: None}))[0].detail["objective"]["detailedness"]
        assert scored(json.dumps(without))[0].detail["objective"]["detailedness"] == whole
        assert null == pytest.approx(whole - 0.2 * 10 / 6)


def test_no_newer_work_to_compare_with_is_the_most_novel_there_is_to_the_official_scorer() -> None:
    task = Task("i", "?", RECORD | {"related_work_test": {}}, "sgi-idea-generation")
    found = {}
    for mode in ("faithful", "fixed"):
        context = Context(judge=Answers(BALLOT.replace("%s", "A")), embedder=Words(), mode=mode)  # type: ignore[arg-type]
        found[mode] = score(task, json.dumps(SECTIONS), context).detail["objective"]["novelty"]
    assert found["faithful"] == pytest.approx(found["fixed"] + 5)
