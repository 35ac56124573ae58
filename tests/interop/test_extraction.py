"""The corpus of page text: what Chromium shows arrives, and no page reads worse than in mcp-server-fetch."""

import pytest

from benchmarks.extraction import words
from benchmarks.extraction.words import Read
from stillweb.snapshots.text import html_text

LEAST = 0.99  # of the visible words of each page


@pytest.fixture(scope="module")
def seen() -> dict[str, str]:
    return words.seen_in_browser(words.pages())


def test_the_visible_words_of_each_page_arrive(seen: dict[str, str]) -> None:
    found = {name: words.read(seen[name], words.ours(body)) for name, body in words.pages().items()}
    assert len(found) >= 20
    assert {name: one.lost for name, one in found.items() if one.words < LEAST} == {}


def test_no_page_reads_worse_than_in_mcp_server_fetch(seen: dict[str, str]) -> None:
    rows = [(name, we, they) for name, _, we, they in words.compared(seen)]
    assert [row for row in rows if row[1].words < row[2].words or row[1].pairs < row[2].pairs] == []
    assert max(they.words for _, _, they in rows) > 0.9  # it does read them


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("time", "time"), ("output", "time"), ("label", "form"), ("button", "form"), ("textarea", "form"), ("select", "form"),
        ("option", "listbox"), ("math", "mathml"), ("figcaption", "figures"), ("section", "bare"), ("form", "bare"),
        ("span", "classes"), ("h3", "index"), ("a", "links"), ("li", "lists"), ("caption", "tables"), ("table", "small-table"),
        ("pre", "escapes"), ("sub", "sup"), ("dd", "definitions"), ("cite", "results"), ("text", "svg"),
    ],
)  # fmt: skip
def test_a_kind_of_words_that_is_left_out_breaks_the_bound(
    seen: dict[str, str], monkeypatch: pytest.MonkeyPatch, tag: str, name: str
) -> None:
    monkeypatch.setattr(html_text, "SKIP", html_text.SKIP | {tag})
    assert words.read(seen[name], words.ours(words.pages()[name])).words < LEAST


@pytest.mark.parametrize(
    ("text", "words_", "pairs"),
    [
        ("one two three", 1, 1),
        ("[one](/a_(b)) two\n\n- three", 1, 1),
        ("three two one", 1, 0),
        ("one three", 2 / 3, 0),
    ],
)
def test_the_measure_sees_what_is_lost_and_what_is_out_of_order(
    text: str, words_: float, pairs: float
) -> None:
    found: Read = words.read("one two three", text)
    assert (found.words, found.pairs) == (pytest.approx(words_), pytest.approx(pairs))
