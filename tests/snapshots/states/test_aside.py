"""What a page's scripts write in the background: other pages are answered, unsure, whether it is over or not."""

from __future__ import annotations

import json

import pytest

from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Request
from tests.support.memory_store import Replay, get, html, matcher, redirect

A = "http://a.test"
ME = get(f"{A}/me")
PAGES = [get(f"{A}/p{number}") for number in range(3)]
NEW = get(f"{A}/new")
Exchanges = list[tuple[Request, Response]]


def track(page: str) -> Request:
    """Where a reader is, as a script tells it: to be kept."""
    told = json.dumps({"page": page}).encode()
    return Request("PATCH", f"{A}/me/track/page", (("Content-Type", "application/json"),), told)


DONE = Response(204, "No Content", (), b"")


def visit(
    tracked: str, *, shown: str = "", pages: list[Request] = PAGES, answer: Response = DONE
) -> Exchanges:
    """Pages, and then the writing."""
    return [*((page, html(f"{page.url} {shown}")) for page in pages), (track(tracked), answer)]


def recorded(*, shown: str = "", pages: list[Request] = PAGES, answer: Response = DONE) -> Exchanges:
    return [
        (ME, html("nowhere yet")),
        *visit("first", pages=pages, answer=answer),
        (ME, html("was at first")),
        *visit("second", shown=shown, pages=pages, answer=answer),
        (NEW, html("new")),
    ]


def asked_before_it(exchanges: Exchanges) -> str:
    """What a page says that was recorded after the writing and is asked for without it."""
    replay = Replay(matcher(*exchanges))
    replay.ask(track("first"))
    answer = replay.ask(NEW)
    assert answer == "miss" or replay.last.ambiguous
    return answer


def test_another_page_is_answered_unsure_before_the_writing_is_over() -> None:
    assert asked_before_it(recorded()) == "new"


def test_and_after_it_where_it_was_recorded_before() -> None:
    replay = Replay(matcher(*recorded()))
    replay.ask(track("first"))
    replay.ask(track("second"))
    replay.ask(track("first"))
    assert replay.ask(PAGES[0]) == html(f"{PAGES[0].url} ").body.decode()
    assert replay.last.ambiguous


def test_as_recorded_all_is_sure() -> None:
    replay = Replay(matcher(*recorded()))
    for request, response in recorded():
        assert replay.ask(request) == response.body.decode()
        assert not replay.last.ambiguous


def test_what_lies_above_it_is_another_one_before() -> None:
    replay = Replay(matcher(*recorded()))
    for page in ("second", "first"):
        replay.ask(track(page))
        assert replay.ask(ME) == "miss"


@pytest.mark.parametrize(
    "others",
    [
        recorded(shown="with what was tracked"),
        recorded(pages=PAGES[:2]),
        recorded(answer=html("thank you")),
        recorded(answer=redirect("/me")),
    ],
    ids=[
        "it showed elsewhere",
        "too little stayed the same",
        "its answer is a page",
        "its answer leads to a page",
    ],
)
def test_a_writing_that_may_matter_elsewhere_makes_a_miss(others: Exchanges) -> None:
    assert asked_before_it(others) == "miss"


def test_a_writing_of_the_same_again_proves_nothing() -> None:
    same = [(track("first"), answer) if r.method == "PATCH" else (r, answer) for r, answer in recorded()]
    replay = Replay(matcher(*same[5:]))
    assert replay.ask(NEW) == "miss"
