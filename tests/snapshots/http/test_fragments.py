"""A fragment for a script is not served for the page, nor the page for the fragment."""

from __future__ import annotations

import pytest

from stillweb.snapshots.request import Request
from tests.support.memory_store import Replay, get, html, matcher

U = "http://a.test/list"
FIELDS = [
    ("HX-Request", "true"),
    ("RSC", "1"),
    ("X-PJAX", "true"),
    ("Turbo-Frame", "rows"),
    ("X-Inertia", "true"),
]


@pytest.mark.parametrize("field", FIELDS)
def test_a_fragment_alone_is_no_page(field: tuple[str, str]) -> None:
    fragment, page = Request("GET", U, (field,)), get(U)
    over = matcher((fragment, html("<li>")))
    replay = Replay(over)
    for _ in range(2):
        assert replay.ask(page) == "miss"
        assert replay.ask(fragment) == "<li>"
        assert (replay.last.verdict, replay.last.ambiguous) == ("exact", False)
    assert f"header {field[0].lower()} matters was never seen" in over.lookup(page).explain()[0].differs[0]


def test_what_a_library_asked_for_is_not_surely_what_others_get() -> None:
    """It sends its field whatever it asks for; many servers send it parts of pages, or data."""
    asked, page = get(U, x_requested_with="XMLHttpRequest"), get(U)
    replay = Replay(matcher((asked, html("<li>"))))
    for request, told in ((page, ("exact", True)), (asked, ("exact", False))) * 2:
        assert replay.ask(request) == "<li>"
        assert (replay.last.verdict, replay.last.ambiguous) == told
    alike = Replay(matcher((asked, html("<li>")), (page, html("<li>"))))
    for request in (page, asked):
        assert alike.ask(request) == "<li>"
        assert (alike.last.verdict, alike.last.ambiguous) == ("exact", False)


@pytest.mark.parametrize(
    ("field", "text"), [*((f, "miss") for f in FIELDS), (("X-Requested-With", "XMLHttpRequest"), "<html>")]
)
def test_a_page_alone_is_not_surely_the_fragment(field: tuple[str, str], text: str) -> None:
    fragment, page = Request("GET", U, (field,)), get(U)
    replay = Replay(matcher((page, html("<html>"))))
    for _ in range(2):
        assert replay.ask(page) == "<html>"
        assert (replay.last.verdict, replay.last.ambiguous) == ("exact", False)
        assert replay.ask(fragment) == text
        assert replay.last.confidence < 0.99


@pytest.mark.parametrize("same", [True, False])
def test_where_both_were_recorded_each_is_served(same: bool) -> None:
    fragment, page = Request("GET", U, (("HX-Request", "true"),)), get(U)
    answers = ("<li>", "<li>") if same else ("<html>", "<li>")
    over = matcher((page, html(answers[0])), (fragment, html(answers[1])))
    for order in ((page, fragment, page), (fragment, page, fragment)):
        replay = Replay(over)
        for request in order:
            assert replay.ask(request) == answers[request is fragment]
            assert replay.last.verdict == "exact"
            assert replay.last.confidence > 0.9


def test_what_is_known_of_one_field_says_nothing_of_another() -> None:
    over = matcher((get(U), html("<html>")), (get(U, hx_request="true"), html("<li>")))
    for field, text in (("X-Requested-With", "<html>"), ("HX-Request", "<li>")):
        replay = Replay(over)
        assert replay.ask(Request("GET", U, ((field, "true"),))) == text
        assert replay.last.confidence < 0.99
