"""SGI-Bench's wet experiments: the vectors, both modes, and how the official pattern reads odd protocols."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.harness.benchmarks.sgi.wet import parse_steps, sequence_fixed, sequence_official
from stillweb.harness.scoring import Context, Score, score
from stillweb.harness.task import Task
from tests.harness.benchmarks.sgi.samples import vector
from tests.support.spending import cpu_seconds


def wet(gold: str, predicted: str | None, mode: Any = "faithful") -> Score:
    return score(Task("w", "?", {"answer": gold}, "sgi-wet-experiment"), predicted, Context(mode=mode))


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
    assert wet("x", None).status == wet("x", " ").status == "zero"


def test_where_there_is_an_answer_tag_only_what_it_holds_is_read() -> None:
    text = f"{protocol('Z')}\n<answer>\n{protocol('AB')}\n</answer>"
    assert wet(protocol("AB"), text).metrics["final"] == 1


def test_a_reference_without_steps_earns_nothing_for_any() -> None:
    got = wet("no protocol", protocol("A"))
    assert (got.status, set(got.metrics.values())) == ("scored", {0})


def test_official_similarity_counts_pairs_that_compare_the_other_way_round() -> None:
    """Two equal names compare no way round."""
    for gold, predicted in product(product("ABC", repeat=3), repeat=2):
        ways = [
            (
                (gold[i] > gold[j]) - (gold[i] < gold[j]),
                (predicted[i] > predicted[j]) - (predicted[i] < predicted[j]),
            )
            for i, j in ((0, 1), (0, 2), (1, 2))
        ]
        assert sequence_official(list(gold), list(predicted)) == 1 - sum(a * b < 0 for a, b in ways) / 3


@pytest.mark.parametrize(
    ("gold", "predicted", "right"),
    [
        ("a", "m", 3),  # the counterpart's output, whatever its name
        ('"one"', '"other"', 3),  # literals may differ
        ("a", "n", 2),  # another step's
        ("a", '"a literal"', 2),
        ('"a literal"', "m", 2),
    ],
)
def test_an_input_that_another_step_made_is_that_of_its_counterpart(
    gold: str, predicted: str, right: int
) -> None:
    step = "{} = <{}>(\n  x={}\n)"
    reference = [step.format(*one) for one in (("a", "A", "1"), ("b", "B", "1"), ("c", "C", gold))]
    answer = [step.format(*one) for one in (("m", "A", "2"), ("n", "B", "2"), ("o", "C", predicted))]
    got = wet("\n".join(reference), "\n".join(answer))
    assert got.metrics["parameter_accuracy"] == pytest.approx(right / 3)


def test_only_quotes_around_a_value_are_taken_away() -> None:
    text = 'a = <X>(\n  p=5",\n  q="five,\n  r="5"\n)'
    assert parse_steps(text)[0].inputs == {"p": '5"', "q": '"five', "r": "5"}


def test_a_protocol_of_one_step_has_no_order() -> None:
    other = wet(protocol("A"), protocol("B"))
    assert (other.metrics["sequence_similarity"], other.metrics["parameter_accuracy"]) == (1, 0)
    for actions, right in (("A", 1), ("B", 0)):
        assert wet(protocol("A"), protocol(actions), "fixed").metrics["sequence_similarity"] == right


def test_a_step_without_parameters_is_read_as_the_official_pattern_reads_it() -> None:
    """The pattern's white space takes the line break of the bracket, so that a step goes on to the next one's parameters."""
    gold = 'a = <Wash>(\n)\nb = <Dry>(\n  x="1"\n)\nc = <Weigh>(\n)'
    assert [(s.action, s.inputs) for s in parse_steps(gold, faithful=True)] == [
        ("Wash", {"b": "<Dry>(", "x": "1"}),
        ("Weigh", {}),
    ]
    assert [step.action for step in parse_steps(gold)] == ["Wash", "Dry", "Weigh"]
    got = wet(gold, gold.replace("Dry", "Heat"))
    # One of two steps has another input, and literals may differ; to fixed one of three has another action.
    assert (got.metrics["sequence_similarity"], got.metrics["parameter_accuracy"]) == (1, 1)
    assert got.detail["steps"] == 2
    differs = {entry["metric"]: entry["fixed"] for entry in got.detail["differs"]}
    assert differs["parameter_accuracy"] == pytest.approx(2 / 3)
    assert wet(gold, gold.replace("Dry", "Heat"), "fixed").detail["steps"] == 3


def test_a_word_or_blank_lines_without_end_are_read() -> None:
    with cpu_seconds() as spent:
        for odd in ("a" * 50_000, "a = <Wash>(" + "\n" * 50_000):
            assert parse_steps(odd) == parse_steps(odd, faithful=True) == []
    assert spent[0] < 1.0
