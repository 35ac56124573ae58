"""Search over frozen texts: found in English and Chinese, in an order that ties and building can't change."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.text.search import (
    SearchIndex,
    SnippetTexts,
    parse_query,
    plain_text,
    snippet,
    stem,
    tokens,
)
from stillweb.snapshots.text.text import PDF, FrozenText

TEXTS = [
    FrozenText("https://a.test/penguins", "# Penguins\n\nAdelie [penguins](https://x.test/y_(z)) live in the far south. | mass | 3700 |", title="Penguins of Palmer"),
    FrozenText("https://a.test/weather", "Seattle weather: it rained on 40 days in spring.", title="Weather"),
    FrozenText("https://b.test/paper.pdf", "Body mass of the penguin\n\nTable of masses", ("Body mass of the penguin", "Table of masses"), "A paper", PDF),
    FrozenText("https://c.test/zh", "南京市长江大桥位于江苏省。企鹅是一种不会飞的鸟。", title="中文页面"),
    FrozenText("https://d.test/ja", "ペンギンは飛べない鳥です。", title="日本語"),
    FrozenText("https://www.e.test/x", "Unrelated words about bridges and harbours", title="Other"),
]  # fmt: skip


@pytest.fixture(scope="module")
def index() -> SearchIndex:
    return SearchIndex(TEXTS)


def found(index: SearchIndex, query: str) -> list[str]:
    return [hit.address for hit in index.search(query)]


@pytest.mark.parametrize(
    ("query", "addresses"),
    [
        ("penguins", ["https://a.test/penguins", "https://b.test/paper.pdf"]),
        ("Penguin's", ["https://a.test/penguins", "https://b.test/paper.pdf"]),
        ("企鹅", ["https://c.test/zh"]),
        ("长江大桥", ["https://c.test/zh"]),
        ("大桥", ["https://c.test/zh"]),
        ("ペンギン", ["https://d.test/ja"]),
        ("ｐｅｎｇｕｉｎ filetype:pdf", ["https://b.test/paper.pdf"]),
        ("penguin site:a.test", ["https://a.test/penguins"]),
        ("penguin -site:a.test", ["https://b.test/paper.pdf"]),
        ("words site:e.test", ["https://www.e.test/x"]),
        ("site:a.test", ["https://a.test/penguins", "https://a.test/weather"]),
        ('"body mass"', ["https://b.test/paper.pdf"]),
        ('"mass body"', []),
        ("penguin -adelie", ["https://b.test/paper.pdf"]),
        ('penguin -"far south"', ["https://b.test/paper.pdf"]),
        ('penguin -"south far"', ["https://a.test/penguins", "https://b.test/paper.pdf"]),
        ("penguin -south-far", ["https://a.test/penguins", "https://b.test/paper.pdf"]),
        ('penguin -""', ["https://a.test/penguins", "https://b.test/paper.pdf"]),
        ("intitle:weather", ["https://a.test/weather"]),
        ("inurl:paper", ["https://b.test/paper.pdf"]),
        ("nothingofthesort", []),
        ("", []),
        ("-", []),
        ('"', []),
        ("site:", []),
        ("AND OR NOT (((", []),
    ],
)
def test_queries(index: SearchIndex, query: str, addresses: list[str]) -> None:
    assert sorted(found(index, query)) == addresses


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("Le musée ouvre dès l’été", ["musee", "MUSÉE", "mus\u00e9es", "muse\u0301e", "été", "l'été", "l’ete", '"des l\'ete"']),
        ("l'œuvre de l'architecte, aujourd’hui", ["œuvre", "oeuvre", "architecte", "d'aujourd'hui"]),
        ("nell’arte all'alba", ["arte", "l'alba"]),
        ("Zürich, an der Seestraße", ["Zurich", "Zürich", "seestrasse"]),
        ("São Paulo, Łódź, Smørrebrød, İzmir, Đà Nẵng", ["Sao", "Lodz", "smorrebrod", "izmir", '"da nang"']),
        ("Conan O’Brien of D’Arcy’s quay", ["O'Brien", "O’Brien", "OBrien", "D'Arcy", "arcy"]),
        ("Hawaiʻi and Oʻahu", ["Hawaii", "Hawai'i", "oahu"]),
        ("Η Αθήνα του Ὀδυσσέως", ["αθηνα", "ΑΘΗΝΑ", "οδυσσεως"]),
        ("Росси́я, чёрный", ["Россия", "черный"]),
        ("מֶלֶךְ שָׁלוֹם", ["מלך", "שלום", "שָׁלוֹם"]),
        ("مُحَمَّد كـــتاب", ["محمد", "كتاب", "مُحَمَّد"]),
        ("พิพิธภัณฑ์เปิดทุกวัน", ["พิพิธภัณฑ์", '"เปิด"']),
        ("हिन्दी में लिखा", ["हिन्दी"]),
        ("ﬁsh", ["fish"]),
    ],
)  # fmt: skip
def test_accents_ligatures_and_elisions_do_not_matter(text: str, queries: list[str]) -> None:
    index = SearchIndex(
        [FrozenText("https://a.test/", text), FrozenText("https://b.test/", "Nothing of this")]
    )
    for query in queries:
        assert found(index, query) == ["https://a.test/"], query
    assert not found(index, "aujour")


def test_letters_of_other_scripts_keep_their_marks() -> None:
    index = SearchIndex([FrozenText("https://a.test/", "йод")])
    assert found(index, "йод")
    assert not found(index, "иод")


def test_a_snippet_shows_a_word_with_its_apostrophe() -> None:
    text = "word " * 200 + "the captain Conan O’Brien sails"
    index = SearchIndex([FrozenText("https://a.test/", text)])
    for query in ("O'Brien", "obrien"):
        assert "O’Brien" in index.search(query)[0].snippet


def test_a_snippet_stands_around_the_word_as_the_page_writes_it() -> None:
    told = snippet("Straßenœuvre ﬁn " * 400 + "Le musée ouvre. " + "x " * 400, ["musee"])
    assert "Le musée ouvre." in told


def test_hits(index: SearchIndex) -> None:
    first, second = index.search("penguin")
    assert (first.address, first.title, first.rank) == ("https://a.test/penguins", "Penguins of Palmer", 1)
    assert "Adelie penguins live in the far south" in first.snippet
    assert first.score > second.score > 0
    assert index.search("penguin", 1) == [first]
    assert index.search("penguin", 0) == []


def test_ties_are_broken_by_address_wherever_the_limit_falls() -> None:
    texts = [FrozenText(f"https://t.test/{n:04}", "the same words here") for n in range(300)]
    index = SearchIndex(texts)
    for limit in (1, 2, 7, 100, 299, 300, 1000):
        assert found_limit(index, limit) == [t.address for t in texts[:limit]]


def found_limit(index: SearchIndex, limit: int) -> list[str]:
    return [hit.address for hit in index.search("same words", limit)]


def test_what_a_site_says_twice_is_found_once_at_the_address_that_is_asked_for_most_easily(
    tmp_path: Path,
) -> None:
    """A page before a view, also of steps from another page, a view before one of several answers; another URL, or site, stays."""
    ids = [f"{n:016x}" for n in range(3)]
    said = {
        "https://t.test/a": "same words at first",
        f"https://t.test/a#text={ids[0]}": "same words of a state",
        f"https://t.test/a#text={ids[1]}": "same words that no view has",
        f"https://t.test/a#view={ids[0]}": "same words at first",
        f"https://t.test/a#view={ids[1]}": "same words of a state",
        "https://t.test/b": "same words at first",
        f"https://t.test/b#view={ids[0]}": "same words at first.",
        f"https://t.test/b#view={ids[1]}": "same words at first",
        f"https://t.test/c#text={ids[1]}": "same words of a state",
        f"https://u.test/b#view={ids[1]}": "same words at first",
    }
    texts = [FrozenText(address, text) for address, text in said.items()]
    index = SearchIndex(texts)
    twice = {
        f"https://t.test/{a}"
        for a in (f"a#text={ids[0]}", f"a#view={ids[0]}", f"b#view={ids[1]}", f"c#text={ids[1]}")
    }
    kept = said.keys() - twice
    assert sorted(found(index, "same words")) == sorted(kept)
    titled = [FrozenText(t.address, t.markdown, title=t.address) for t in texts]
    assert len(found(SearchIndex(titled), "same words")) == len(said)
    every = index.search("same words", 100)
    assert all(index.search("same words", limit) == every[:limit] for limit in range(8))
    SearchIndex(texts, folder=tmp_path).close()
    assert SearchIndex.kept(tmp_path).search("same words", 100) == every


def test_building_again_and_asking_in_parallel_changes_nothing(index: SearchIndex) -> None:
    queries = ["penguin mass", "weather spring days", "企鹅 鸟", "words about"] * 20
    alone = [index.search(q) for q in queries]
    again = SearchIndex(iter(TEXTS))
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(again.search, queries)) == alone


def test_texts_must_come_in_order() -> None:
    with pytest.raises(UsageError, match="by address"):
        SearchIndex(reversed(TEXTS))


def test_its_files_go_with_it() -> None:
    index = SearchIndex(TEXTS)
    folder = index._folder
    assert os.path.isdir(folder)
    index.close()
    assert not os.path.exists(folder)


def test_an_empty_index_finds_nothing() -> None:
    assert SearchIndex([]).search("x") == []


@settings(max_examples=60)
@given(st.text(max_size=60))
def test_no_query_fails(index_query: str) -> None:
    assert isinstance(shared().search(index_query), list)


_SHARED: list[SearchIndex] = []


def shared() -> SearchIndex:
    if not _SHARED:
        _SHARED.append(SearchIndex(TEXTS))
    return _SHARED[0]


@given(st.text(max_size=300), st.lists(st.text(min_size=1, max_size=8), max_size=4))
def test_snippets_are_short_pieces_of_the_text(text: str, words: list[str]) -> None:
    shown = plain_text(text)
    piece = snippet(shown, words)
    assert len(piece) <= 200 + 8
    assert piece.removeprefix("... ").removesuffix(" ...").strip() in shown


def test_words() -> None:
    assert list(tokens("The Cities' glasses, and 3,700 g")) == [
        "the",
        "city",
        "glass",
        "and",
        "3",
        "700",
        "g",
    ]
    assert [stem(w) for w in ("status", "gas", "bus", "analysis", "classes", "boxes")] == [
        "status",
        "gas",
        "bus",
        "analysis",
        "class",
        "box",
    ]
    assert parse_query("a OR b").words == ("a", "b")


def test_markdown_marks_are_no_text() -> None:
    assert plain_text("# T\n\n| [a](https://x.test/_(b)) | **c** |\n|---|---|") == "T a c"


def test_texts_come_back_by_number_from_any_thread(tmp_path: Path) -> None:
    texts = ["", "a", "企鹅 🐧 " * 5000, "\ud800 alone", "x" * 200_000]
    shown = SnippetTexts(tmp_path / "shown")
    for text in texts:
        shown.add(text)
    shown.flush()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(shown.__getitem__, list(range(5)) * 20)) == texts * 20
    assert (tmp_path / "shown").stat().st_size < 20_000
    shown.close()
    shown.close()
