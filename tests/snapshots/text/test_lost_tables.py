"""When a table is lost from an extracted text, and where it comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.snapshots.text import html_text
from stillweb.snapshots.text.lost_tables import lost_tables, put_back


@pytest.mark.parametrize(("gone", "lost"), [(0, False), (1, False), (2, True), (10, True)])
def test_a_table_is_lost_when_a_fifth_of_its_cells_is(gone: int, lost: bool) -> None:
    words = [f"word{n}" for n in range(10)]
    rows = list(zip(words[::2], words[1::2], strict=True))
    cells = "".join(f"<tr><td>{a}</td><td>{b}</td></tr>" for a, b in rows)
    tree = html_text.parse(f"<body><table>{cells}</table></body>")
    for kept in (words[gone:], words[: len(words) - gone]):
        text = "\n".join("| " + " | ".join(word for word in row if word in kept) + " |" for row in rows)
        assert bool(lost_tables(tree, text)) is lost
        assert lost_tables(tree, " ".join(kept)) != [], "cells in no rows are no table"


def table(name: str) -> str:
    return f"<table><tr><td>{name}</td><td>mass</td></tr><tr><td>bird</td><td>7</td></tr></table>"


def markdown(name: str) -> str:
    return f"| {name} | mass |\n|---|---|\n| bird | 7 |"


def returned(html: str, text: str) -> tuple[str, int]:
    tree = html_text.parse(html)
    assert tree is not None
    return put_back(tree, text, list(tree.iter("table")))


def test_a_table_stands_where_its_page_has_it() -> None:
    page = f"<h2>First</h2><p>Birds of the <b>north</b> are heavy.</p>{table('A')}<h2>Second</h2><p>Others are not.</p>{table('B')}<p>So it ends.</p>"
    text = "## First\n\nBirds of the **north**\nare heavy.\n\n## Second\n\nOthers are not.\n\nSo it ends.\n"
    assert returned(page, text) == (
        "## First\n\nBirds of the **north**\nare heavy.\n\n"
        f"{markdown('A')}\n\n## Second\n\nOthers are not.\n\n{markdown('B')}\n\nSo it ends.",
        0,
    )


def test_a_table_comes_before_what_is_left_of_it() -> None:
    page = f"<p>What birds weigh:</p>{table('A')}<p>They were weighed at noon.</p>"
    text = "What birds weigh:\n\nA\n\nmass\n\nbird\n\n7\n\nThey were weighed at noon."
    assert returned(page, text)[0].startswith(f"What birds weigh:\n\n{markdown('A')}\n\nA\n\nmass")


@pytest.mark.parametrize(
    ("page", "text", "expected", "nowhere"),
    [
        (f"{table('A')}<p>It was cold.</p>", "It was cold.", f"{markdown('A')}\n\nIt was cold.", 0),
        (f"<p>Menu</p>{table('A')}", "It was cold.", f"It was cold.\n\n{markdown('A')}", 1),
        (
            f"<p>See</p><pre>one two\nthree four</pre>{table('A')}<p>Nothing else.</p>",
            "See ```\none two\nthree four\n```\n\nNothing else.",
            f"See ```\none two\nthree four\n```\n\n{markdown('A')}\n\nNothing else.",
            0,
        ),
        (
            f"<p>Read this</p><ul><li>first of all</li></ul>{table('A')}<ul><li>second</li></ul>",
            "Read this\n\n- first of all\n- second",
            f"Read this\n\n- first of all\n\n{markdown('A')}\n\n- second",
            0,
        ),
    ],
)
def test_what_stands_beside_it_tells_its_place(page: str, text: str, expected: str, nowhere: int) -> None:
    assert returned(page, text) == (expected, nowhere)


WORDS = st.sampled_from(
    [
        "the",
        "heavy",
        "bird",
        "of",
        "north",
        "sea",
        "was",
        "seen",
        "at",
        "noon",
        "and",
        "then",
        "it",
        "left",
        "again",
    ]
)
PARAGRAPHS = st.lists(st.lists(WORDS, min_size=1, max_size=9).map(" ".join), max_size=8)


@given(PARAGRAPHS, st.sets(st.integers(0, 8)), st.sets(st.integers(0, 7)), st.booleans())
def test_the_text_and_the_tables_keep_their_order(
    paragraphs: list[str], places: set[int], dropped: set[int], numbered: bool
) -> None:
    said = [f"{n}x {one}" if numbered else one for n, one in enumerate(paragraphs)]
    page, whole = "", []
    for number in range(len(said) + 1):
        if number in places:
            page += table(f"T{number}")
            whole.append(f"T{number}")
        if number < len(said):
            page += f"<p>{said[number]}</p>"
            if number not in dropped:
                whole.append(said[number])
    kept = [one for number, one in enumerate(said) if number not in dropped]
    if not places or not page:
        return
    text, nowhere = returned(page, "\n\n".join(kept))
    lines = [line for line in text.split("\n") if line and not line.startswith(("|---", "| bird"))]
    names = [line.split()[1] if line.startswith("|") else line for line in lines]
    assert [one for one in names if one in said] == kept
    assert [one for one in names if one not in said] == [one for one in whole if one not in said]
    if numbered and not nowhere:
        assert names == whole
