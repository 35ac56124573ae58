"""The table scorer: the vectors, its bounds and symmetries, and a test for each term of each formula."""

import json
import sys
import unicodedata
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.harness.rubric.sidecar import FieldRule, Rubric
from stillweb.harness.scoring import METRICS, Context, score
from stillweb.harness.scoring.table import TABLE_METRICS, compare_tables
from stillweb.harness.task import Task

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "sgr_table_scores.json").read_text())
ABC = Rubric(columns=("id", "x", "y"), row_key=("id",))
GOLD = "1|A|B\n2|C|D\n3|E|F"


def scored(answer: str | None, gold: str = GOLD, rubric: Rubric = ABC, **context: Any) -> Any:
    task = Task("t", "?", gold, "table", base="b")
    return score(task, answer, Context(rubrics={"b": rubric}, **context))


@pytest.mark.parametrize("case", VECTORS, ids=lambda c: c["name"])
def test_vectors(case: dict[str, Any]) -> None:
    key = [case["schema"].index(name) for name in case["row_key"]]
    result = compare_tables(case["gold"], case["pred"], key, ordered=True)
    assert str(result.item_f1) == case["item_f1"]
    assert str(result.row_f1) == case["row_f1"]
    assert str(result.order_accuracy) == case["order_acc"]
    assert result.em == case["em"]


@pytest.mark.parametrize("case", VECTORS, ids=lambda c: c["name"])
def test_vectors_through_the_text(case: dict[str, Any]) -> None:
    rubric = Rubric(columns=tuple(case["schema"]), row_key=tuple(case["row_key"]))
    text = "\n".join("|".join(row) for row in case["pred"])
    got = scored(text, "\n".join("|".join(row) for row in case["gold"]), rubric)
    assert got.detail["exact"]["canonical"]["item_f1"] == case["item_f1"]
    assert got.metrics["row_f1"] == float(Fraction(case["row_f1"]))
    assert got.metrics["em"] == case["em"]
    assert got.status == ("scored" if case["pred"] else "zero")


@pytest.mark.parametrize("gold", ["1|A|B\n2|C|D\n3", "3\n1|A|B", "1|A|B\n3\n2|C|D"])
def test_no_line_of_the_reference_goes_missing(gold: str) -> None:
    """A row that lost its marks would leave the denominator, and the answer without it would be wholly right."""
    got = scored("1|A|B\n2|C|D", gold)
    assert (got.status, got.metrics["em"]) == ("unparsable", None)
    assert "rows of [1] cells for 3 columns" in got.detail["problems"][0]


def test_a_long_row_grows_the_denominator_and_is_not_right() -> None:
    result = compare_tables([("1", "A"), ("2", "B")], [("1", "A", "z"), ("2", "B")], [0], True)
    assert result.item_f1 == Fraction(2 * 4, 4 + 5)
    assert result.row_f1 == Fraction(2 * 1, 4)
    assert result.em == 0


def test_an_empty_cell_is_never_right_even_against_an_empty_reference() -> None:
    result = compare_tables([("1", "")], [("1", "")], [0], True)
    assert result.item_f1 == Fraction(1, 2)
    assert (result.row_f1, result.em) == (0, 0)


def test_a_second_row_with_the_same_key_counts_but_can_not_match() -> None:
    first_wrong = compare_tables([("1", "A")], [("1", "X"), ("1", "A")], [0], True)
    assert first_wrong.right_items == 1
    assert first_wrong.item_f1 == Fraction(2, 6)


def test_composite_keys_and_keys_with_no_content() -> None:
    gold = [("a", "1", "x"), ("a", "2", "y")]
    assert compare_tables(gold, [("a", "2", "y"), ("a", "1", "x")], [0, 1], False).em == 1
    assert compare_tables([("", "x")], [("", "x")], [0], True).right_items == 0


def test_order_counts_only_where_it_is_required() -> None:
    backwards = [("2", "B"), ("1", "A")]
    gold = [("1", "A"), ("2", "B")]
    assert compare_tables(gold, backwards, [0], ordered=True).em == 0
    assert compare_tables(gold, backwards, [0], ordered=False).em == 1


def test_rows_missing_from_either_side_do_not_join_the_order() -> None:
    gold = [("1",), ("2",), ("3",)]
    assert compare_tables(gold, [("9",), ("3",), ("8",), ("1",)], [0], True).order_accuracy == 0
    assert compare_tables(gold, [("9",), ("1",), ("8",), ("3",)], [0], True).order_accuracy == 1
    assert compare_tables(gold, [("2",)], [0], True).order_accuracy == 0


def test_none_is_right_only_where_the_reference_is_none() -> None:
    assert scored("NONE", "NONE").metrics["em"] == 1
    assert scored("", "NONE").metrics["em"] == 1
    assert scored("1|A|B", "NONE").metrics["item_f1"] == 0
    got = scored("NONE")
    assert (got.status, got.metrics["em"], got.metrics["item_f1"]) == ("scored", 0, 0)


def test_prose_is_not_scored_and_no_answer_is_zero() -> None:
    refused = scored("I could not reach the site, sorry.")
    assert refused.status == "unparsable"
    assert set(refused.metrics.values()) == {None}
    assert refused.detail["problems"]
    assert scored(None).status == "zero"
    assert set(scored(None).metrics.values()) == {0.0}


def test_an_unreadable_reference_is_named_not_scored() -> None:
    assert scored("1|A|B", "words only").status == "unparsable"
    assert "cells for 3 columns" in scored("1|A|B", "1|A").detail["problems"][0]


def test_three_levels_side_by_side() -> None:
    plain = scored(GOLD).metrics
    assert (plain["raw_em"], plain["em"], plain["forgiven_em"]) == (1, 1, 1)
    spelled = scored("1|**A**|B\n2|[C](https://x.test/a_(b))|D\n3|`E`|\uff26").metrics
    assert (spelled["raw_em"], spelled["em"], spelled["forgiven_em"]) == (0, 1, 1)
    prose = scored("Rows:\n1|A|B\nand then\n2|C|D\n3|E|F\nDone.").metrics
    assert (prose["em"], prose["forgiven_em"]) == (0, 1)
    cased = scored("1|a|b\n2|c|d\n3|e|f").metrics
    assert (cased["em"], cased["forgiven_em"]) == (0, 1)
    swapped = scored("y|id|x\nB|1|A\nD|2|C\nF|3|E").metrics
    assert (swapped["em"], swapped["forgiven_em"]) == (0, 1)


def test_folding_case_is_a_recorded_switch() -> None:
    off, on = scored("1|a|b\n2|c|d\n3|e|f"), scored("1|a|b\n2|c|d\n3|e|f", fold_case=True)
    assert (off.metrics["em"], on.metrics["em"]) == (0, 1)
    assert (off.detail["fold_case"], on.detail["fold_case"]) == (False, True)


def test_cells_say_value_normalised_reference_and_right() -> None:
    got = scored("1|**A**|X\n9|Q|R", rubric=ABC)
    cells, rows = got.detail["cells"], got.detail["rows"]
    assert cells[0][1] == {
        "column": "x",
        "value": "**A**",
        "normalised": "A",
        "reference": "A",
        "right": True,
    }
    assert cells[0][2]["right"] is False
    assert cells[1][0] == {"column": "id", "value": "9", "normalised": "9", "reference": None, "right": False}
    assert [row["reference"] for row in rows] == [0, None, 1, 2]
    assert cells[2][0]["value"] is None
    assert cells[2][0]["reference"] == "2"
    assert sum(cell["right"] for row in cells for cell in row) == got.detail["counts"]["right_items"]


def test_decimals_are_exact() -> None:
    rubric = Rubric(("id", "v"), ("id",), fields={"v": FieldRule("decimal")})
    assert scored("a|1.50", "a|1.5", rubric).metrics["em"] == 1
    assert scored("a|1,234.0", "a|1234", rubric).metrics["em"] == 1
    assert scored("a|0.30000000000000004", "a|0.3", rubric).metrics["em"] == 0
    assert scored("a|1.5", "a|1.50", Rubric(("id", "v"), ("id",))).metrics["em"] == 0


def test_metric_names_are_those_registered() -> None:
    assert tuple(scored(GOLD).metrics)
    assert list(scored(GOLD).metrics) == list(METRICS["table"]) == list(TABLE_METRICS)


CELL = st.sampled_from(["", "1", "2", "3", "A", "B"])
ROWS = st.integers(1, 4).flatmap(
    lambda k: st.tuples(
        st.lists(st.tuples(*[CELL] * k), max_size=6),
        st.lists(st.lists(CELL, min_size=1, max_size=k + 2).map(tuple), max_size=6),
    )
)


@given(ROWS)
def test_bounds(pair: tuple[list[Any], list[Any]]) -> None:
    gold, predicted = pair
    result = compare_tables(gold, predicted, [0], True)
    for value in (result.item_f1, result.row_f1, result.order_accuracy):
        assert 0 <= value <= 1
    assert result.row_f1 <= 1
    assert result.right_items <= min(result.gold_items, result.predicted_items)
    if result.em:
        assert result.row_f1 == result.item_f1 == 1
    if result.row_f1 == 1:
        assert result.item_f1 == 1


def by_definition(gold: list[Any], predicted: list[Any], key: list[int]) -> tuple[Any, ...]:
    """item_f1, row_f1, order accuracy and em in order, counted cell by cell and pair by pair as the paper has them."""
    k, taken, met = len(gold[0]), set(), []
    for row in predicted:
        padded = [*row, *[""] * (k - len(row))]
        own = [padded[i] for i in key]
        same = [n for n, g in enumerate(gold) if [g[i] for i in key] == own and n not in taken]
        met.append(same[0] if same and any(own) else None)
        taken |= {met[-1]} - {None}
    items = sum(
        row[i] == gold[n][i] and row[i] != ""
        for row, n in zip(predicted, met, strict=True)
        if n is not None
        for i in range(min(k, len(row)))
    )
    whole = [
        n is not None and list(row) == list(gold[n]) and "" not in row
        for row, n in zip(predicted, met, strict=True)
    ]
    shared = [n for n in met if n is not None]
    pairs = [a < b for i, a in enumerate(shared) for b in shared[i + 1 :]]
    counted = len(gold) * k + sum(max(k, len(row)) for row in predicted)
    return (
        Fraction(2 * items, counted),
        Fraction(2 * sum(whole), len(gold) + len(predicted)),
        Fraction(sum(pairs), len(pairs)) if pairs else Fraction(0),
        int(all(whole) and len(whole) == len(gold) and all(pairs)),
    )


RAGGED = st.integers(1, 4).flatmap(
    lambda k: st.tuples(
        st.lists(st.lists(CELL, min_size=k, max_size=k), min_size=1, max_size=6),
        st.lists(st.lists(CELL, max_size=k + 2), max_size=7),
        st.lists(st.integers(0, k - 1), min_size=1, max_size=2, unique=True),
    )
)


@given(RAGGED)
def test_scores_are_those_of_the_definition(tables: tuple[list[Any], list[Any], list[int]]) -> None:
    gold, predicted, key = tables
    got = compare_tables(gold, predicted, key, True)
    assert (got.item_f1, got.row_f1, got.order_accuracy, got.em) == by_definition(gold, predicted, key)


ODD = st.sampled_from(["NaN", "inf", "-0", "1e400", "9" * 1200, "1" + "0" * 40, "é", "e\u0301", "ﬁ", "Ｆ７", "µg", "μg", "٣", "a,b", "x\u00a0y", "−5", "01", "1e3", "²"])  # fmt: skip


@given(st.lists(st.lists(ODD, min_size=2, max_size=2), min_size=1, max_size=5), st.data())
def test_odd_cells_are_right_in_every_form_and_order_of_columns(rows: list[list[str]], data: Any) -> None:
    """The characters of a cell change no score of an answer that repeats them, whatever form it comes in."""
    gold = [[f"k{n}", *row] for n, row in enumerate(rows)]
    plain = "\n".join("|".join(row) for row in gold)
    kinds = st.sampled_from(["string", "decimal", "integer", "date", "id_list"])
    rules = {name: FieldRule(data.draw(kinds)) for name in ("x", "y")}
    rubric = Rubric(("id", "x", "y"), ("id",), fields=rules)
    marked = "\n".join("|".join(f"**{cell}**" for cell in row) for row in gold)
    page = "| id | x | y |\n|---|---|---|\n" + "\n".join(f"| {' | '.join(row)} |" for row in gold)
    composed = unicodedata.normalize("NFD", plain)
    for answer in (plain, marked, page, composed, f"id|x|y\n{plain}"):
        metrics = scored(answer, plain, rubric).metrics
        assert (metrics["em"], metrics["item_f1"], metrics["row_f1"]) == (1, 1, 1), answer
    order = data.draw(st.permutations([0, 1, 2]))
    moved = "\n".join("|".join(row[i] for i in order) for row in [["id", "x", "y"], *gold])
    assert scored(moved, plain, rubric).metrics["forgiven_em"] == 1
    doubled = scored(f"{plain}\n{plain}", plain, rubric).metrics
    assert (doubled["em"], doubled["row_f1"]) == (0, float(Fraction(2, 3)))


@given(ROWS, st.randoms(use_true_random=False))
def test_order_of_rows_changes_only_order(pair: tuple[list[Any], list[Any]], random: Any) -> None:
    gold, predicted = pair
    # Rows with one key compete for the first place, so only keys that are unique can be moved freely.
    predicted = list({row[0]: row for row in predicted}.values())
    moved = predicted[:]
    random.shuffle(moved)
    a, b = (compare_tables(gold, rows, [0], False) for rows in (predicted, moved))
    assert (a.item_f1, a.row_f1, a.em) == (b.item_f1, b.row_f1, b.em)


@given(
    st.integers(1, 4).flatmap(
        lambda k: st.tuples(*[st.lists(st.tuples(*[CELL] * k), min_size=1, max_size=6)] * 2)
    )
)
def test_gold_and_answer_may_change_places(pair: tuple[list[Any], list[Any]]) -> None:
    one, other = pair
    a, b = compare_tables(one, other, [0], True), compare_tables(other, one, [0], True)
    unique = len({r[0] for r in one}) == len(one) and len({r[0] for r in other}) == len(other)
    if unique:
        assert (a.item_f1, a.row_f1, a.order_accuracy, a.em) == (b.item_f1, b.row_f1, b.order_accuracy, b.em)


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from("xyz")), min_size=1, unique_by=lambda r: r[0]
    )
)
def test_a_table_is_worth_one_against_itself(rows: list[Any]) -> None:
    result = compare_tables(rows, rows, [0], True)
    assert (result.item_f1, result.row_f1, result.em) == (1, 1, 1)
    assert result.order_accuracy == (1 if len(rows) > 1 else 0)


def test_what_a_cell_costs() -> None:
    """Calls in all, of Python and of C: whatever the machine."""
    columns = tuple(f"c{i}" for i in range(10))
    rules = {"c1": FieldRule("decimal"), "c2": FieldRule("date"), "c3": FieldRule(aliases={"yes": "Y"})}
    rubric = Rubric(columns, ("c0",), fields=rules)
    pairs = []
    for n in range(5):
        gold = [
            [f"k{n}-{r}", f"{r}.50", "2024-01-05", "Y", *(f"v{n} {r} {c}" for c in range(6))]
            for r in range(44)
        ]
        answer = [[row[0], row[1][:-1], "January 5, 2024", "yes", f"**{row[4]}**", *row[5:]] for row in gold]
        pairs.append(["\n".join("|".join(row) for row in rows) for rows in (gold, answer)])
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        results = [scored(answer, gold, rubric) for gold, answer in pairs]
    finally:
        sys.setprofile(before)
    assert all(result.metrics["em"] == 1 for result in results)
    assert calls < 120 * 5 * 44 * len(columns), calls / (5 * 44 * len(columns))  # some 70


def test_ten_thousand_rows_are_ordered_without_asking_each_pair() -> None:
    """Lines of Python in all, whatever the machine."""
    done: list[int] = []

    def count(_frame: object, event: str, _argument: object) -> object:
        done[-1] += event == "line"
        return count

    before = sys.gettrace()
    for half in (500, 5_000):
        gold = [(str(n), "x") for n in range(2 * half)]
        answer = [*gold[half:], *gold[:half]]
        done.append(0)
        sys.settrace(count)
        try:
            found = compare_tables(gold, answer, [0], True)
        finally:
            sys.settrace(before)
        assert found.ordered_pairs == 2 * (half * (half - 1) // 2)
    assert done[1] < 20 * done[0]  # some 10; 100 if each pair were asked
