"""Reading tables: every accepted form, and what must not be taken for one."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.harness.rubric.sidecar import Rubric
from stillweb.harness.rubric.tables import LEVELS, parse_table

RUBRIC = Rubric(columns=("id", "site name", "x"), row_key=("id",))
ROWS = (("1", "a, b", "c"), ("2", "d", "e"))

FORMS = {
    "pipe": "1|a, b|c\n2|d|e",
    "pipe with spaces and bars": "| 1 | a, b | c |\n| 2 | d | e |",
    "pipe with header": "ID|Site_Name|X\n1|a, b|c\n2|d|e",
    "header with units": "ID|Site_Name [en]|X (m)\n1|a, b|c\n2|d|e",
    "markdown": "| id | site name | x |\n|---|:--:|--:|\n| 1 | a, b | c |\n| 2 | d | e |",
    "markdown, other names": "| no | where | what |\n|---|---|---|\n| 1 | a, b | c |\n| 2 | d | e |",
    "fenced": "```text\n1|a, b|c\n2|d|e\n```",
    "tsv": "1\ta, b\tc\n2\td\te",
    "tsv with header": "id\tsite name\tx\r\n1\ta, b\tc\r\n2\td\te\r\n",
    "csv with header": 'id,site name,x\n1,"a, b",c\n2,d,e',
    "csv, header with units": 'id,site name,x (m)\n1,"a, b",c\n2,d,e',
    "csv, prose around": 'Here is the table:\nid,site name,x\n1,"a, b",c\n2,d,e\nThat is all.',
    "prose around": "Here is the table:\n1|a, b|c\n2|d|e\nThat is all.",
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("level", ["canonical", "forgiven"])
def test_accepted_forms(text: str, level: str) -> None:
    table = parse_table(text, RUBRIC, level)  # type: ignore[arg-type]
    assert table is not None
    assert table.rows == ROWS


def test_csv_without_header_is_never_read() -> None:
    """A comma is text as often as a mark: guessing would destroy right cells."""
    for level in LEVELS:
        assert parse_table('1,"a, b",c\n2,d,e', RUBRIC, level) is None


def test_a_quoted_cell_goes_on_in_the_next_line() -> None:
    table = parse_table('id,site name,x\n1,"a\nb",c', RUBRIC, "canonical")
    assert table is not None
    assert table.rows == (("1", "a\nb", "c"),)


def test_commas_of_a_pipe_table_stay_in_their_cell() -> None:
    table = parse_table("id|site name|x\n1|a, b, c, d|e", RUBRIC, "canonical")
    assert table is not None
    assert table.rows == (("1", "a, b, c, d", "e"),)


def test_separators_alone_are_no_table() -> None:
    odd = Rubric(columns=("id",), row_key=("id",), record_separator=";")
    for level in LEVELS:
        table = parse_table(";;", odd, level)
        assert table is None or table.rows == ()


def test_raw_takes_every_line_as_a_row() -> None:
    table = parse_table("Here:\n1|a|b", RUBRIC, "raw")
    assert table is not None
    assert table.rows == (("Here:",), ("1", "a", "b"))
    assert parse_table("1\ta\tb", RUBRIC, "raw") is None


def test_raw_drops_a_header_only_where_the_rubric_allows_one() -> None:
    strict = Rubric(columns=RUBRIC.columns, row_key=("id",), header="forbidden")
    text = "id|site name|x\n1|a|b"
    assert len(parse_table(text, RUBRIC, "raw").rows) == 1  # type: ignore[union-attr]
    assert len(parse_table(text, strict, "raw").rows) == 2  # type: ignore[union-attr]
    assert len(parse_table(text, strict, "canonical").rows) == 1  # type: ignore[union-attr]


def test_prose_between_rows_is_a_short_row_unless_forgiven() -> None:
    text = "1|a|b\nand\n2|c|d"
    assert parse_table(text, RUBRIC, "canonical").rows[1] == ("and",)  # type: ignore[union-attr]
    assert len(parse_table(text, RUBRIC, "forgiven").rows) == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["NONE", " none. ", "```\nNONE\n```", "**NONE**", "", " \n"])
def test_none(text: str) -> None:
    table = parse_table(text, RUBRIC, "canonical")
    assert table is not None
    assert (table.form, table.rows) == ("none", ())


@pytest.mark.parametrize("text", ["I can't.", "a, b and c", "----", "<html><body>429</body></html>"])
def test_what_is_no_table(text: str) -> None:
    for level in LEVELS:
        assert parse_table(text, RUBRIC, level) is None


def test_escaped_bars_and_empty_outer_cells() -> None:
    table = parse_table("1|a \\| b|c", RUBRIC, "canonical")
    assert table is not None
    assert table.rows == (("1", "a | b", "c"),)
    empty = parse_table("1|a|\n|b|c", RUBRIC, "canonical")
    assert empty is not None
    assert empty.rows == (("1", "a", ""), ("", "b", "c"))


def test_columns_move_only_when_forgiven() -> None:
    text = "x|id|site name\nc|1|a"
    assert parse_table(text, RUBRIC, "canonical").rows == (("c", "1", "a"),)  # type: ignore[union-attr]
    moved = parse_table(text, RUBRIC, "forgiven")
    assert moved is not None
    assert moved.rows == (("1", "a", "c"),)


def test_columns_that_differ_by_their_unit_alone_keep_it() -> None:
    depth = Rubric(columns=("id", "depth (m)", "depth (ft)"), row_key=("id",))
    moved = parse_table("depth (ft)|id|depth (m)\n6|1|2", depth, "forgiven")
    assert moved is not None
    assert moved.rows == (("1", "2", "6"),)


def test_one_column_and_other_separators() -> None:
    one = Rubric(columns=("id",), row_key=("id",))
    assert parse_table("id\n1\n2", one, "canonical").rows == (("1",), ("2",))  # type: ignore[union-attr]
    semicolons = Rubric(columns=("a", "b"), row_key=("a",), field_separator=";", record_separator="//")
    table = parse_table("1;2//3;4", semicolons, "raw")
    assert table is not None
    assert table.rows == (("1", "2"), ("3", "4"))


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_without_an_error(text: str) -> None:
    for level in LEVELS:
        table = parse_table(text, RUBRIC, level)
        assert table is None or all(isinstance(cell, str) for row in table.rows for cell in row)


@pytest.mark.parametrize(
    "text",
    [
        *("|" * 100_000, "a|" * 50_000, "`" * 100_000, "-|" * 50_000, '"' * 100_000, "a\n" * 50_000),
        *("a" * 150_000, "id,site name,x\n" + "a" * 150_000, "```\n" + " " * 100_000),
    ],
)
def test_hostile_answers_take_no_time(text: str) -> None:
    start = time.process_time()
    for level in LEVELS:
        parse_table(text, RUBRIC, level)
    assert time.process_time() - start < 10  # 1 s for 50,000 lines
