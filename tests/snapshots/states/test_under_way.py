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
