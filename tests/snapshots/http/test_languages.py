"""How near two `Accept-Language` fields are, and what an answer recorded for one is for the other."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillweb.snapshots.http.languages import EQUAL, NEAR, OTHER, SAME, nearness, wanted
from tests.support.memory_store import Replay, get, html, matcher

URL = "http://a.test/p"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("fr", "fr-CA", SAME),
        ("fr, en;q=0.5", "fr, de;q=0.5", NEAR),  # a server without French would tell them apart
        ("fr-CA,fr;q=0.9,en;q=0.8", "fr", NEAR),  # as would one that has English
        ("fr-CA,fr;q=0.9", "fr", SAME),
        ("fr;q=0.5, fr-CA", "fr;q=0.7", SAME),
        ("en;q=0.5, fr", "fr;q=0.7, en;q=0.1", SAME),  # what weighs most is asked for first
        ("en, fr;q=0.7", "fr, en;q=0.7", OTHER),
        ("en;q=0, fr", "fr", SAME),
        ("en;q=odd, fr", "fr", SAME),
        ("fr-CA, fr-FR;q=0.9, en", "fr, en;q=0.3", SAME),
        ("en-US", "en-GB", NEAR),
        ("pt-BR", "pt-PT", NEAR),
        ("es-419", "es-MX", NEAR),
        ("de-1996", "de", NEAR),
        ("ca-valencia", "ca-ES", NEAR),
        ("ca-ES-valencia", "ca-valencia", SAME),
        ("en-u-ca-iso8601", "en", SAME),
        ("zh-TW", "zh-CN", OTHER),
        ("zh-TW", "zh-Hant", SAME),
        ("zh_TW", "zh-hant-tw", SAME),
        ("zh-TW", "zh-HK", NEAR),
        ("zh-Hans-HK", "zh-HK", OTHER),
        ("zh-cmn-Hant", "zh-TW", SAME),
        ("cmn-TW", "zh-Hant", SAME),
        ("zh-yue", "zh-CN", OTHER),
        ("zh-yue-HK", "yue", SAME),
        ("zh-min-nan", "zh", OTHER),
        ("ja-Latn", "ja", NEAR),  # Japanese for who can't read it
        ("ja-Latn", "ja-JP", NEAR),
        ("x-a", "x-b", OTHER),
        ("i-hak", "i-lux", OTHER),
        ("zh", "zh-CN", SAME),
        ("zh", "zh-TW", NEAR),  # a bare one may get either
        ("sr-Latn", "sr-RS", OTHER),
        ("sr-Latn", "sr", NEAR),
        ("sr-ME", "sr-Latn", SAME),
        ("en-Latn", "en", NEAR),
        ("", "*", SAME),
        ("", "en", OTHER),
        ("*;q=0.1, en", "en", SAME),
    ],
)
def test_nearness(one: str, other: str, expected: int) -> None:
    assert min(nearness(one, other), SAME) == expected
    assert nearness(other, one) == nearness(one, other)
    assert nearness(one, one) == EQUAL


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("en-US", "en-US,en;q=0.9", True),
        ("fr", "fr,en;q=0.5", False),
        ("fr,en", "fr,en;q=0.5", True),
        ("zh-TW", "zh_hant_TW", True),
        ("fr", "fr-FR", False),
        ("zh", "zh-Hans", False),
        ("en-US, fr", "en-US, de", False),
    ],
)
def test_equal_are_those_that_no_region_tells_apart(one: str, other: str, equal: bool) -> None:
    assert (nearness(one, other) == EQUAL) is equal


def test_the_most_wanted_is_first_and_of_equals_the_first_named() -> None:
    assert [tag.language for tag in wanted("a;q=0.2,b, c;q=0.2 ,d;q=1.0,*")] == ["b", "d", "a", "c"]


@pytest.mark.parametrize(
    ("recorded", "asked", "expected"),
    [
        ({"zh-TW": "T"}, "zh-CN", "miss"),
        ({"zh-TW": "T", "fr": "F"}, "zh-CN", "miss"),
        ({"zh-TW": "T", "fr": "F"}, "zh-Hant-TW", "T"),
        ({"zh-TW": "T", "zh-CN": "C"}, "zh-CN", "C?"),
        ({"zh-TW": "T", "zh-CN": "C"}, "zh-Hant", "T?"),
        ({"zh-CN": "C", "zh-TW": "T"}, "zh-HK", "T?"),
        ({"zh-CN": "C", "zh-TW": "T"}, "zh", "C?"),
        ({"zh-TW": "T", "zh-HK": "H"}, "zh-Hant", "miss"),
        ({"zh-TW": "T", "zh-HK": "H"}, "zh-MO", "miss"),
        ({"zh-TW": "T", "zh-HK": "T", "zh-CN": "C"}, "zh-MO", "T?"),
        ({"en-US": "A", "en-GB": "B"}, "en-US,en;q=0.9", "A"),
        ({"en-US": "A", "en": "E"}, "en-US,en;q=0.9", "A"),
        ({"en-US,en;q=0.9": "A", "en-US": "E"}, "en-US,en;q=0.5", "A"),
        ({"en-US": "A", "en-GB": "B"}, "en", "miss"),
        ({"en-US": "A", "en-US,en;q=0.9": "A"}, "fr", "miss"),
        ({"en-US": "A", "en-GB": "A"}, "fr", "miss"),
        ({"en-US": "A", "": "A"}, "fr", "miss"),
        ({"en-US": "A", "de": "A"}, "fr", "miss"),
        ({"en-US": "A", "de": "A"}, "", "miss"),
        ({"en-US": "A", "de,en": "A"}, "", "miss"),
        ({"en": "A", "de": "A"}, "de,en;q=0.5", "A?"),
        ({"en-US": "A", "en-GB": "A"}, "en-AU", "A?"),
        ({"en-US": "A", "en": "A"}, "en-AU", "A?"),
        ({"en-US": "A", "en-US,en;q=0.9": "A", "fr": "F"}, "en-GB", "A?"),
        ({"en-US": "A", "en-GB": "B"}, "en-AU", "miss"),
        ({"en-US": "A"}, "en-GB", "A?"),
        ({"en-US": "A", "fr": "F"}, "en-GB", "A?"),
        ({"en-US": "A", "en": "E", "fr": "F"}, "en-GB", "miss"),
        ({"en-US": "A", "en": "A", "fr": "F"}, "en-GB", "A?"),
        ({"en-US": "A", "fr": "F"}, "en", "A?"),
        ({"en-US": "A", "fr": "F"}, "fr-CA,fr;q=0.9", "F?"),
        ({"en-US": "A", "fr": "F"}, "fr;q=0.9", "F?"),
        ({"fr": "D", "en": "E"}, "fr,en;q=0.5", "D?"),
        ({"fr,en;q=0.5": "E", "de": "D"}, "fr", "E?"),
        ({"ja": "J", "en": "E"}, "ja-Latn", "miss"),
        ({"zh-CN": "C", "en": "E"}, "zh-yue", "miss"),
    ],
)  # fmt: skip
def test_an_answer_for_another_script_or_region_is_not_surely_the_one(
    recorded: dict[str, str], asked: str, expected: str
) -> None:
    """`?` stands for ambiguous."""
    vary = ("Vary", "Accept-Language")
    over = matcher(
        *[(get(URL, accept_language=tag), html(text, 200, vary)) for tag, text in recorded.items()]
    )
    replay = Replay(over)
    said = replay.ask(get(URL, accept_language=asked))
    assert said + ("?" if replay.last.ambiguous else "") == expected


def test_another_browser_gets_what_the_recorded_one_got_and_is_told_that_it_is_not_sure() -> None:
    recorded = get(URL, user_agent="Mozilla/5.0 Chrome")
    replay = Replay(matcher((recorded, html("A", 200, ("Vary", "User-Agent")))))
    assert (replay.ask(get(URL, user_agent="curl/8")), replay.last.verdict) == ("A", "varies:user-agent")
    assert replay.last.ambiguous


_FIELDS = (
    "", "*", "en", "en-US", "en-US,en;q=0.9", "en-GB,en;q=0.8", "fr", "fr-CA,fr;q=0.9", "fr,en;q=0.5", "fr;q=0.5,en",
    "de,en;q=0.5", "zh", "zh-CN", "zh-TW", "zh-TW,zh;q=0.9,en;q=0.5", "zh-Hant", "ja", "ja-Latn", "pt", "pt-BR,pt;q=0.9",
)  # fmt: skip
_TAGS = ("en", "en-US", "en-GB", "fr", "fr-CA", "de", "zh", "zh-Hans", "zh-Hant", "ja", "pt", "pt-BR")


def negotiated(site: list[str], field: str) -> str:
    """What a site that has these languages says: by RFC 4647, 3.4, or else any of the language, or else its first."""
    items = [item.partition(";q=") for item in field.split(",") if item not in ("", "*")]
    names = [name for name, _, weight in sorted(items, key=lambda item: -float(item[2] or 1))]
    for name in names:
        tag = {"zh-CN": "zh-Hans", "zh-TW": "zh-Hant"}.get(name, name)
        while tag:
            if tag in site:
                return tag
            tag = tag.rpartition("-")[0]
    kin = [tag for name in names for tag in site if tag.partition("-")[0] == name.partition("-")[0]]
    return (kin or site)[0]


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.sampled_from(_TAGS), min_size=1, max_size=4, unique=True),
    st.lists(st.sampled_from(_FIELDS), min_size=1, max_size=4, unique=True),
    st.sampled_from(_FIELDS),
)
def test_what_is_sure_is_what_the_site_says(site: list[str], recorded: list[str], asked: str) -> None:
    vary = ("Vary", "Accept-Language")
    pages = [(get(URL, accept_language=f), html(negotiated(site, f), 200, vary)) for f in recorded]
    replay = Replay(matcher(*pages))
    said = replay.ask(get(URL, accept_language=asked))
    assert said in ("miss", negotiated(site, asked)) or replay.last.ambiguous
