"""What is suspected without proof, and cleared: of changing other answers, but not those to itself."""

from __future__ import annotations

import json

import pytest

from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Request
from tests.support.memory_store import Replay, get, html, matcher, post, redirect

A = "http://a.test"
PAGES = [get(f"{A}/p{n}") for n in range(3)]
LONG = "x" * 300


def operation(number: int, *, name: str = "a") -> Request:
    """One of GraphQL of which a server knows the text by its hash."""
    told = {
        "variables": {"sku": number},
        "extensions": {"persistedQuery": {"version": 1, "sha256Hash": name * 64}},
    }
    return post(f"{A}/graphql", json.dumps(told), "application/json")


def said(count: int, more: str = "") -> Response:
    body = json.dumps({"data": {"count": count, "more": more}}).encode()
    return Response(200, "OK", (("Content-Type", "application/json"),), body)


def across(*exchanges: tuple[Request, Response]) -> list[tuple[Request, Response]]:
    """Pages before and after, which stay the same: nothing that they show is changed."""
    return [
        *((page, html(page.url)) for page in PAGES),
        *exchanges,
        *((page, html(page.url)) for page in PAGES),
    ]


@pytest.mark.parametrize("more", ["", LONG])
def test_an_adding_operation_that_is_cleared_is_not_served_for_itself_as_sure(more: str) -> None:
    over = matcher(*across((operation(1), said(1, more))))
    asked = Replay(over)
    for request, sure in ((operation(1), True), (PAGES[0], True), (operation(1), False), (PAGES[1], True)):
        assert asked.ask(request) != "miss"
        assert asked.last.ambiguous is not sure


def test_a_short_answer_may_count_what_was_asked_before() -> None:
    over = matcher(*across((operation(1), said(1)), (operation(2), said(2))))
    asked = Replay(over)
    for number in (2, 1):
        asked.ask(operation(number))
        assert asked.last.ambiguous
    asked.ask(PAGES[0])
    assert not asked.last.ambiguous
    recorded = Replay(over)
    for number in (1, 2):
        recorded.ask(operation(number))
        assert not recorded.last.ambiguous


def test_long_answers_are_of_questions_and_have_no_order() -> None:
    over = matcher(*across((operation(1), said(1, LONG)), (operation(2), said(2, LONG))))
    asked = Replay(over)
    for number in (2, 1):
        asked.ask(operation(number))
        assert not asked.last.ambiguous


def test_what_stayed_the_same_when_it_was_asked_again_may_be_asked_again() -> None:
    over = matcher(*across((operation(1), said(1)), (operation(2), said(2)), (operation(1), said(1))))
    asked = Replay(over)
    for number in (2, 1, 1, 2):
        asked.ask(operation(number))
        assert not asked.last.ambiguous


def test_two_sessions_that_asked_once_show_nothing_of_twice() -> None:
    pairs = [(request, answer, "one") for request, answer in across((operation(1), said(1)))]
    over = matcher(*across((operation(1), said(1))), *pairs)
    asked = Replay(over)
    for sure in (True, False):
        asked.ask(operation(1))
        assert asked.last.ambiguous is not sure


def test_one_that_nobody_recorded_makes_no_other_answer_unsure() -> None:
    over = matcher(*across((operation(1), said(1))))
    asked = Replay(over)
    assert asked.ask(operation(3)) == "miss"
    asked.ask(PAGES[0])
    assert not asked.last.ambiguous


def test_a_redirect_that_stayed_the_same_clears_nothing() -> None:
    """A draft that is kept until it is published: that all who publish are sent on tells nothing of what was kept."""
    keep = post(f"{A}/keep", json.dumps({"text": "x"}), "application/json")
    publish, page = post(f"{A}/publish"), get(f"{A}/page")
    kept = Response(200, "OK", (("Content-Type", "application/json"),), b'"kept"')
    over = matcher(
        (publish, redirect("/page")), (page, html("none")), (keep, kept), (keep, kept), (page, html("none")),
        (keep, kept), (page, html("none")),
        (publish, redirect("/page"), "two"), (page, html("none"), "two"), (keep, kept, "two"),
        (publish, redirect("/page"), "two"), (page, html("x"), "two"),
    )  # fmt: skip
    asked = Replay(over, "new")
    for request in (keep, publish, page):
        asked.ask(request)
    assert asked.last.ambiguous


FLOWS = get(f"{A}/flows")
WIDE = Request("PUT", f"{A}/settings", (("Content-Type", "application/json"),), b'{"wide": true}')


def save(version: int) -> tuple[Request, Response]:
    saved = Response(200, "OK", (("Content-Type", "application/json"),), b'{"saved": true}')
    return post(f"{A}/deploy", json.dumps({"flows": version}), "application/json"), saved


def edited(*first: tuple[Request, Response]) -> list[tuple[Request, Response]]:
    """An editor that saves its settings and what was edited, and is loaded again."""
    return [
        (FLOWS, html("one")),
        *first,
        *((page, html(page.url)) for page in PAGES),
        (WIDE, Response(204, "No Content", (), b"")),
        save(2),
        (FLOWS, html("two")),
        *((page, html(page.url)) for page in PAGES),
    ]


def without(left_out: Request, exchanges: list[tuple[Request, Response]]) -> Replay:
    """A replay up to where the editor has been loaded again, with one request left out."""
    asked = Replay(matcher(*exchanges))
    for request, response in exchanges:
        if request != left_out:
            asked.ask(request)
        if response.body == b"two":
            break
    return asked


def test_what_was_written_each_time_that_an_answer_changed_is_not_cleared_for_that() -> None:
    """Though it left others as they were, and a setting that was saved beside it explains the change, too (Node-RED)."""
    recorded = Replay(matcher(*edited()))
    for request, _ in edited():
        recorded.ask(request)
        assert not recorded.last.ambiguous
    asked = without(save(2)[0], edited())
    assert asked.last.capture is not None
    assert asked.last.ambiguous
    asked.ask(PAGES[0])
    assert not asked.last.ambiguous


def test_nor_by_being_written_again() -> None:
    asked = without(save(2)[0], [*edited(), save(2), (FLOWS, html("two"))])
    assert asked.last.capture is not None
    assert asked.last.ambiguous


def test_it_is_cleared_where_the_answer_stayed_the_same_across_it() -> None:
    asked = without(save(2)[0], edited(save(1), (FLOWS, html("one"))))
    assert asked.last.capture is not None
    assert not asked.last.ambiguous
