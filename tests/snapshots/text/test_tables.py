"""Tables of pages as rows: spans, hidden rows, captions, grids of other elements."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.snapshots.decompression import TooLarge
from stillweb.snapshots.text import html_text
from stillweb.snapshots.text.tables import Table, tables_of


def rows(html: str) -> list[tuple[str, ...]]:
    (table,) = tables_of(f"<html><body>{html}</body></html>")
    return list(table.rows)


def test_cells_that_span_stand_in_each_of_their_places() -> None:
    html = """<table>
    <tr><th rowspan=2>Year<th colspan=2>Mills
    <tr><th>Wind<th>Water
    <tr><td>2012<td>7<td>9
    </table>"""
    assert rows(html) == [("Year", "Mills", "Mills"), ("Year", "Wind", "Water"), ("2012", "7", "9")]


def test_a_span_ends_with_its_row_group() -> None:
    html = """<table><tbody><tr><td rowspan=0>a<td>1<tr><td>2<tr><td>3</tbody>
    <tbody><tr><td>b<td rowspan=9>4<tr><td>c</tbody></table>"""
    assert rows(html) == [("a", "1"), ("a", "2"), ("a", "3"), ("b", "4"), ("c", "4")]


def test_short_rows_are_filled_and_empty_ones_left_out() -> None:
    assert rows("<table><tr><td>a<td>b<tr><td><td><tr><td>c</table>") == [("a", "b"), ("c", "")]


def test_what_is_hidden_is_left_out() -> None:
    html = """<table style="display: none"><tr><td>x<td>y</table><div hidden><table><tr><td>x<td>y</table></div>
    <table><tr><th>a<th hidden>no<th>b<tr style="display:none"><td>1<td>2<tr><td>3<td>4</table>"""
    assert rows(html) == [("a", "b"), ("3", "4")]


def test_only_the_innermost_tables_and_none_of_one_cell() -> None:
    html = """<table><tr><td>layout<td><table><tr><td>a<td>b</table></table><table><tr><td>alone</table>"""
    assert rows(html) == [("a", "b")]


def test_grids_of_other_elements() -> None:
    html = """<div role=grid aria-label=" Rows of mills "><div role=rowgroup><div role=row><span role=columnheader>Name
    <span role=columnheader aria-colspan=2>Sails</span></div></div>
    <div role=row><b role=rowheader>North</b><i role=gridcell>4</i><i role=gridcell>new</i></div></div>"""
    html = html.replace("Name\n    <span", "Name</span><span")
    assert rows(html) == [("Name", "Sails", "Sails"), ("North", "4", "new")]
    assert tables_of(html)[0].caption == "Rows of mills"


def test_captions_labels_and_headings() -> None:
    html = """<h2>Mills <i>of 2012</i></h2><table><tr><td>a<td>b</table>
    <table aria-label=Labelled><tr><td>a<td>b</table>
    <table><caption>Its own</caption><tr><td>a<td>b</table>"""
    assert [t.caption for t in tables_of(html)] == ["Mills of 2012", "Labelled", "Its own"]


def test_spans_that_make_no_sense_are_one_and_large_ones_end() -> None:
    assert rows("<table><tr><td colspan=x rowspan=-2>a<td colspan=0>b</table>") == [("a", "b")]
    assert len(rows("<table><tr><td colspan=99999999>a</table>")[0]) == 1000


def test_a_page_without_tables() -> None:
    assert tables_of("") == []
    assert tables_of("<p>no table") == []


@given(
    st.lists(
        st.lists(st.text(st.characters(exclude_characters="\r"), max_size=8), min_size=2, max_size=2),
        min_size=1,
        max_size=4,
    )
)
def test_csv_is_read_back(cells: list[list[str]]) -> None:
    table = Table("", tuple(tuple(row) for row in cells))
    read = list(csv.reader(io.StringIO(table.csv(), newline="")))
    assert read == cells


def test_a_page_of_too_many_tags_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_text, "MOST_TAGS", 10)
    with pytest.raises(TooLarge, match=r"a page with more than 10 tags \(11\)"):
        tables_of("<table>" + "<td>x" * 10)
