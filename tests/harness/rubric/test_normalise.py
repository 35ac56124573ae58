"""Normalisation joins spellings of one value and nothing else."""

import time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.harness.rubric.normalise import as_decimal, decimal_text, normalise_cell
from stillweb.harness.rubric.sidecar import FieldRule, Rubric
from stillweb.harness.rubric.spelling import fold, normalise_text
from stillweb.harness.rubric.tables import LEVELS, parse_table
from stillweb.harness.scoring import score
from stillweb.harness.task import Task
from tests.support.spending import cpu_seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  a \t b\u00a0c ", "a b c"),
        ("\uff21\u00b5", "A\u03bc"),
        ("[CVE-1](https://x.test/a_(b)?q=1)", "CVE-1"),
        ('[a](https://x.test "title") b', "a b"),
        ("**bold** and `code`", "bold and code"),
        ("significant*", "significant"),
        ("HLA-A*02:01", "HLA-A*02:01"),
        ("*1/*4", "1/*4"),
        ("[not a link]", "[not a link]"),
        ("f(x)[i](no)", "f(x)i"),
        ("***", ""),
    ],
)
def test_text(text: str, expected: str) -> None:
    assert normalise_text(text) == expected


@given(
    st.text(alphabet=st.characters(codec="utf-8"), max_size=60) | st.text("[]()*`a \u00b5\uff0a", max_size=30)
)
def test_twice_is_once(text: str) -> None:
    once = normalise_text(text)
    assert normalise_text(once) == once
    assert fold(fold(once)) == fold(once)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("decimal", "1.50", "1.5"),
        ("decimal", "1,234,567.00", "1234567"),
        ("decimal", "12,34", "12,34"),
        ("decimal", "1e3", "1000"),
        ("decimal", "-0.0", "0"),
        ("decimal", "\u22125", "-5"),
        ("decimal", "0.30000000000000004", "0.30000000000000004"),
        ("decimal", "n/a", "n/a"),
        ("decimal", "nan", "nan"),
        ("integer", "007", "7"),
        ("integer", "5.0", "5"),
        ("decimal", "1.50.2", "1.50.2"),
        ("decimal", "\u22125.0 C", "-5 C"),
        ("date", "January 31, 2024", "2024-01-31"),
        ("date", "31 Jan 2024", "2024-01-31"),
        ("date", "2024/1/31", "2024-01-31"),
        ("date", "2024年1月31日", "2024-01-31"),
        ("date", "2024-01-31T00:00:00Z", "2024-01-31"),
        ("date", "03/04/2024", "03/04/2024"),
        ("date", "2024-02-30", "2024-02-30"),
        ("id_list", "b; a,c ,a", "a; b; c"),
        ("string", "1.50", "1.50"),
    ],
)
def test_types(kind: str, text: str, expected: str) -> None:
    assert normalise_cell(text, FieldRule(kind), False) == expected


def test_aliases_and_case() -> None:
    rule = FieldRule(aliases={"U.S.": "United States"})
    assert normalise_cell("U.S.", rule, False) == "United States"
    assert normalise_cell("u.s.", rule, False) == "u.s."
    assert normalise_cell("u.s.", rule, True) == "united states"
    assert normalise_cell("ab", FieldRule(uppercase=True), False) == "AB"


def test_where_all_is_made_capitals_the_tables_hold_in_any_case() -> None:
    rule = FieldRule(uppercase=True, aliases={"usa": "US", "United States": "us"})
    spelled = ("usa", "USA", "US", "us", "United States", "UNITED STATES")
    assert {normalise_cell(text, rule, False) for text in spelled} == {"US"}
    length = FieldRule("decimal", uppercase=True, units={"km": {"to": "m", "factor": "1000"}, "m": "m"})
    assert {normalise_cell(text, length, False) for text in ("5 km", "5 KM", "5,000 m")} == {"5000 M"}


def test_unit_tables_are_normalised_like_cells() -> None:
    rule = FieldRule(
        "decimal", units={"\u00b5g/L": "ug/L", "ug/L": "ug/L", "mg/L": {"to": "ug/L", "factor": "1000"}}
    )
    micro = [normalise_cell(f"5.0 {unit}", rule, False) for unit in ("\u00b5g/L", "\u03bcg/L", "ug/L")]
    assert micro == ["5 ug/L"] * 3
    assert normalise_cell("0.005 mg/L", rule, False) == "5 ug/L"
    assert normalise_cell("5 kg", rule, False) == "5 kg"
    assert normalise_cell("\u00b5g/L", FieldRule(units=rule.units), False) == "ug/L"


@pytest.mark.parametrize("text", ["1,5 mg", "12,34 mg", "1.5.2 mg"])
def test_what_is_no_sure_number_is_not_converted(text: str) -> None:
    rule = FieldRule("decimal", units={"mg": {"to": "ug", "factor": "1000"}})
    assert normalise_cell(text, rule, False) == text
    assert normalise_cell("1,234.5 mg", rule, False) == "1234500 ug"


def test_a_unit_may_be_dropped() -> None:
    for text in ("1,200 m", "1\u202f200 m", "1'200 m"):
        assert normalise_cell(text, FieldRule("integer", units={"m": ""}), False) == "1200"


@given(st.decimals(allow_nan=False, allow_infinity=False, places=5))
def test_a_number_keeps_its_value(value: Decimal) -> None:
    text = decimal_text(value)
    assert as_decimal(text) == value
    assert decimal_text(Decimal(text)) == text


@pytest.mark.parametrize(
    "text", ["*a " * 30_000, "`" * 60_000 + "a", "[" * 50_000, "[x](" * 20_000, "9" * 60_000, "1," * 40_000]
)
@pytest.mark.parametrize("kind", ["string", "decimal", "date", "id_list"])
def test_hostile_cells_take_no_time(text: str, kind: str) -> None:
    with cpu_seconds() as spent:
        normalise_cell(text, FieldRule(kind, units={"m": {"to": "km", "factor": "0.001"}}), True)
    assert spent[0] < 0.5


def test_conversion_keeps_every_digit() -> None:
    rule = FieldRule("decimal", units={"m": {"to": "km", "factor": "0.001"}})
    digits = "1234567890" * 5
    assert normalise_cell(f"{digits} m", rule, False) == f"{digits[:-3]}.{digits[-3:].rstrip('0')} km"
    assert normalise_cell("1e500", FieldRule("decimal"), False) == "1" + "0" * 500


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("10⁶", "1000000"),
        ("10<sup>6</sup>", "1000000"),
        ("2.5 × 10**6", "2500000"),
        ("10 ^ 6", "1000000"),
        (r"$3 \times 10^{6}$", "3000000"),
        ("$3 × 10⁶", "$3000000"),
        ("1.2×10^−6", "0.0000012"),
        ("1.2×10^–6", "0.0000012"),
        ("3.2 × 10⁶", "3200000"),
        ("3.2x10^6", "3200000"),
        ("-5·10^{-2}", "-0.05"),
        ("10⁻³", "0.001"),
        ("about 5 × 10⁶ m²", "about 5000000 m2"),
        ("1.5 × 10 ⁶ cells", "1500000 cells"),
        ("10⁶.5", "10^6.5"),
        ("10^6,5", "10^6,5"),
        ("12 ¹⁴C", "12 ^14C"),
        ("2³", "2^3"),
        ("1,234²", "1,234^2"),  # a footnote, or a square: no longer number
        ("210⁶", "210^6"),
        ("10⁶⁶⁶", "10^666"),
        ("x10^6", "x10^6"),
        ("H₂O in km²", "H2O in km2"),
    ],
)
def test_a_raised_digit_is_never_one_of_the_number(text: str, plain: str) -> None:
    assert normalise_text(text) == plain == normalise_text(plain)


def test_a_power_of_ten_is_its_number_in_every_kind_of_cell() -> None:
    for kind in ("string", "integer", "decimal"):
        assert normalise_cell("10⁶", FieldRule(kind), False) == "1000000"
    for options in ({}, {"numeric": True}):
        task = Task("t", "?", "1000000", "exact", options=options)
        assert [score(task, said).metrics["exact"] for said in ("10⁶", "1 × 10^6", "106")] == [1, 1, 0]


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
