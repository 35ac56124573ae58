"""Cells, list items and headings that say just a word which trafilatura takes for a button are kept."""

from __future__ import annotations

import pytest
from lxml import etree

from stillweb.snapshots.text import html_text
from stillweb.snapshots.text.lone_words import kept
from stillweb.snapshots.text.text import extract_html

WORDS = ("Google", "Facebook", "PDF", "Print", "E-Mail", "Reddit", "QQ")
PARAGRAPH = "<p>The firms of the region are listed here with the year in which each of them was founded, and where.</p>"


def page(middle: str) -> str:
    return f"<html><body><main><h1>Firms</h1>{PARAGRAPH}{middle}{PARAGRAPH}</main></body></html>"


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(
    ("markup", "line"),
    [
        ("<li>{}</li>", "- {}"),
        ("<h2>{}</h2><p>It is the oldest of all the firms of the region by far.</p>", "## {}"),
        ("<tr><td>{}</td><td>1998</td></tr>", "| {} | 1998 |"),
        ("<tr><td> <b>{}</b>\n</td><td>1998</td></tr>", "| **{}** | 1998 |"),
    ],
)
def test_a_word_alone_is_kept(word: str, markup: str, line: str) -> None:
    first, last = "<tr><td>Hooli</td><td>2014</td></tr>" * 8, "<li>Initech</li>"
    middle = f"<table>{first}{markup}</table>" if "<tr>" in markup else f"<ul>{last}{markup}</ul>"
    if "<h2>" in markup:
        middle = markup
    found = extract_html("https://firms.test/", page(middle.format(word)))
    assert found.extractor == "trafilatura"
    assert line.format(word) in [one.strip() for one in found.markdown.splitlines()]
    assert found.options["lone_words"] == "kept"


def test_other_pages_are_what_they_were() -> None:
    found = extract_html("https://firms.test/", page("<ul><li>Google Maps</li></ul>"))
    assert "lone_words" not in found.options


def test_the_tree_is_as_before() -> None:
    tree = html_text.parse(page("<p>By <i>them</i> Google </p><p>PDF</p>"))
    assert tree is not None
    before = etree.tostring(tree)
    with kept(tree) as many:
        assert many == 2
        assert etree.tostring(tree) != before
    assert etree.tostring(tree) == before
