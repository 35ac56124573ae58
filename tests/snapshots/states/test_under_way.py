"""What a page asks for at once, as a script does when it starts: each is answered, whichever was quicker when it was recorded."""

from __future__ import annotations

from itertools import permutations

import pytest

from tests.support.memory_store import Recorded, Replay, get, html, matcher, plain, post

A = "http://a.test"
PAGE = get(f"{A}/list")
FORM = [("sort", "up"), ("size", "ten"), ("tree", "open")]
# the sessions' event numbers of three requests: when each was sent, and when its answer was there
SPANS = [(3, 6), (4, 7), (5, 8)], [(3, 8), (4, 7), (5, 6)], [(3, 6), (4, 5), (7, 8)], [(3, 4), (5, 8), (6, 7)]


def told(name: str, value: str) -> Recorded:
    return Recorded(post(f"{A}/{name}", f"v={value}"), plain(f"{name} is {value}"))


def recorded(spans: list[tuple[int, int]]) -> list[Recorded]:
    sent = [told(*one) for one in FORM]
    for one, events in zip(sent, spans, strict=True):
        one.events = events
    return [Recorded(PAGE, html("as it was")), *sent, Recorded(PAGE, html("as it was set"))]


@pytest.mark.parametrize("spans", SPANS)
def test_what_was_under_way_at_once_is_answered_one_after_the_other(spans: list[tuple[int, int]]) -> None:
    asked = recorded(spans)
    replay = Replay(matcher(*asked))
    assert [replay.ask(one.request) for one in asked] == [one.response.body.decode() for one in asked]


def test_where_another_change_was_under_way_the_answer_is_not_sure() -> None:
    asked = recorded(SPANS[0])
    replay = Replay(matcher(*asked))
    replay.ask(asked[0].request)
    doubts = []
    for one in asked[1:4]:
        replay.ask(one.request)
        doubts.append(replay.last.ambiguous)
    assert doubts == [True, True, True]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_where_none_was_under_way_beside_it_the_state_decides(order: tuple[int, ...]) -> None:
    asked = recorded([(3, 4), (5, 6), (7, 8)])
    replay = Replay(matcher(*asked))
    answers = [replay.ask(asked[1 + number].request) for number in order]
    assert (answers == [asked[1 + number].response.body.decode() for number in order]) == (order == (0, 1, 2))


def in_the_order_sent(recorded: list[Recorded]) -> list[tuple[str, bool]]:
    """What each is answered with, one after the other, and whether that is sure."""
    replay = Replay(matcher(*recorded))
    return [
        (replay.ask(one.request), not replay.last.ambiguous)
        for one in sorted(recorded, key=lambda one: one.events or (0, 0))
    ]


def test_what_was_added_at_once_counts_in_the_order_in_which_it_was_sent() -> None:
    def add(thing: str, begin: int, end: int) -> Recorded:
        return Recorded(post(f"{A}/add", f"thing={thing}"), plain("added"), events=(begin, end))

    basket = get(f"{A}/basket")
    recorded = [
        Recorded(basket, html("nothing"), events=(1, 2)),
        add("tea", 3, 6),
        add("salt", 4, 5),
        Recorded(basket, html("tea, salt"), events=(7, 8)),
        add("rice", 9, 10),
        Recorded(basket, html("tea, salt, rice"), events=(11, 12)),
    ]
    answers = in_the_order_sent(recorded)
    assert [answer for answer, _ in answers] == [
        "nothing",
        "added",
        "added",
        "tea, salt",
        "added",
        "tea, salt, rice",
    ]


def test_a_page_asked_beside_two_changes_fits_what_both_leave() -> None:
    """Though the one that was sent first was over last, so that no answer ever came between."""
    recorded = [
        Recorded(PAGE, html("as it was"), events=(1, 2)),
        Recorded(post(f"{A}/sort", "v=up"), plain("ok"), events=(3, 8)),
        Recorded(post(f"{A}/sort", "v=down"), plain("ok"), events=(4, 5)),
        Recorded(PAGE, html("in between"), events=(6, 7)),
    ]
    assert in_the_order_sent(recorded)[3] == ("in between", False)


def test_what_was_asked_beside_a_change_is_answered_where_another_one_made_no_difference_later() -> None:
    """As editors do: texts are asked for while the settings are saved, and again after the document was, twice."""
    texts = get(f"{A}/texts")

    def save(version: int, begin: int) -> Recorded:
        return Recorded(post(f"{A}/save", f"v={version}"), plain("saved"), events=(begin, begin + 1))

    recorded = [
        Recorded(post(f"{A}/settings", "wide=1"), plain("ok"), events=(1, 4)),
        Recorded(texts, plain("texts"), events=(2, 3)),
        save(1, 5),
        Recorded(texts, plain("texts"), events=(7, 8)),
        save(2, 9),
        Recorded(texts, plain("texts"), events=(11, 12)),
    ]
    assert in_the_order_sent(recorded)[1] == ("texts", False)
