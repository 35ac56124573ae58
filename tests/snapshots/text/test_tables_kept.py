"""The rows of a page's tables are in its text, wherever the tables stand and however trafilatura reads them."""

import pytest

from stillweb.snapshots.text.text import extract_html

WORDS = "<p>" + "These are some words about what is measured at the wells of this county. " * 6 + "</p>"
TABLE = (
    "<table><thead><tr><th>id<th>depth<th>rock</thead><tbody>"
    "<tr><td><code>W-01</code><td><td>chalk<tr><td>W-02<td>17.5<td>gravel<tr><td>W-03<td><b>88</b><td></tbody></table>"
)
ROWS = ["| W-01 |  | chalk |", "| W-02 | 17.5 | gravel |", "| W-03 | 88 |  |"]


@pytest.mark.parametrize(
    "around", ["%s", "<dl><dt>wells</dt><dd>of them %s</dd></dl>", "<ul><li>of them %s</li></ul>"]
)
@pytest.mark.parametrize("before", [WORDS, "<p>few</p>"], ids=["long", "short"])
def test_each_row_is_a_line_and_an_empty_cell_is_a_cell(around: str, before: str) -> None:
    page = f"<html><body><article><h1>Wells</h1>{before}{around % TABLE}{before}</article></body></html>"
    text = extract_html("http://a.test/", page)
    lines = [line.replace("`", "").replace("**", "").strip() for line in text.markdown.split("\n")]
    cells = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines if line.startswith("|")]
    for row in ROWS:
        assert [cell.strip() for cell in row[1:-1].split("|")] in cells
    assert sum(row[:1] == ["W-02"] for row in cells) == 1


def test_a_table_of_long_texts_alone_is_told_by_its_cells() -> None:
    long = "word " * 40
    page = f"<html><body>{WORDS}<table><tr><td>{long}a<td>{long}b<tr><td>{long}c<td>{long}d</table></body></html>"
    text = extract_html("http://a.test/", page)
    assert all(text.markdown.count(f"word {letter}") == 1 for letter in "abcd")
