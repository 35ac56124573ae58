"""Text of markup: links joined with their base, and cells of tables."""

from urllib.parse import urljoin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.snapshots.text import html_text
from stillweb.snapshots.text.text import extract_html


@pytest.mark.parametrize(
    ("base", "link", "expected"),
    [
        ("", " z ", "https://a.test/d/z"),
        ("", "#part", "https://a.test/d/x#part"),
        ("<base href='../y/'>", "z", "https://a.test/y/z"),
        ("<base href='https://o.test/k/'><base href='/later/'>", "z", "https://o.test/k/z"),
        ("<base href='https://o.test/k/'>", "http://[", "http://["),
        ("<base href='http://['>", "z", "https://a.test/d/z"),
    ],
)
def test_links_are_joined_with_the_page_or_its_base(base: str, link: str, expected: str) -> None:
    html = f"{base}<p>Some words that make a paragraph, and <a href='{link}'>a link</a> in it.</p>"
    assert f"[a link]({expected})" in extract_html("https://a.test/d/x", html).markdown


_PIECES = ["a", "b.html", "..", ".", "/", "//", "#", "?", "=", "&", ";", "%20", ":", "http", "https", "mailto:", " ", "\t", "[", "ä", "\u2028", "host.test"]  # fmt: skip
_BASES = ["https://h.test/a/b.html", "http://h.test", "https://h.test/a//b/../c;p?q=1", "http://H.test:80/a/./b", "https://u:p@h.test/x/#y", "mailto:x", "a/b", "//h.test/q"]  # fmt: skip


@given(
    st.sampled_from(_BASES), st.lists(st.lists(st.sampled_from(_PIECES), max_size=6).map("".join), max_size=4)
)
def test_links_are_joined_as_the_standard_library_joins_them(base: str, links: list[str]) -> None:
    joined = html_text.Joiner(base)
    for link in links:
        for one in (link, link + "#z"):
            try:
                right = urljoin(base, one.strip())
            except ValueError:
                right = one.strip()
            assert joined(one) == right


def test_cells_without_markup_are_read_as_others_are() -> None:
    rows = [[" a\u00a0 b\n c ", "<b>x</b> y"], ["<i></i>", "\u2003z\t"], ["", "&lt;"]]
    cells = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in rows)
    tree = html_text.parse(
        f'<table>{cells}<tr><td hidden>no</td><td style="display: none">no</td></tr></table>'
    )
    assert tree is not None
    read = html_text.rows(tree.find(".//table"))
    marked = html_text.parse("<table>" + cells.replace("<td>", "<td><wbr>") + "</table>")
    assert marked is not None
    assert read == html_text.rows(marked.find(".//table"))
    assert read == [["a b c", "x y"], ["", "z"], ["", "<"]]
