"""Whether what was written last is all that counts: sure only where the recording shows it."""

from __future__ import annotations

import json

import pytest

from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Request
from tests.support.memory_store import Replay, get, html, matcher, post, redirect

A = "http://a.test"
LIST = get(f"{A}/list")


def turn(to: str) -> Request:
    return post(f"{A}/nav", f"go={to}")


def facet(field: str, value: str) -> Request:
    return post(f"{A}/filter", f"field={field}&value={value}")


RED, LARGE = facet("color", "red"), facet("size", "L")
SEEN = redirect("/list")


def test_what_was_recorded_after_two_values_is_not_sure_after_the_last_one() -> None:
    """Facets of a shop: one form, whose values come on top of each other."""
    over = matcher((LARGE, SEEN), (LIST, html("L")), (RED, SEEN), (LIST, html("red, L")))
    asked = Replay(over)
    asked.ask(RED)
    assert (asked.ask(LIST), asked.last.ambiguous) == ("red, L", True)
    recorded = Replay(over)
    for request, expected in ((LARGE, "L"), (RED, "red, L")):
        recorded.ask(request)
        assert (recorded.ask(LIST), recorded.last.ambiguous) == (expected, False)


def test_what_was_recorded_after_a_toggle_was_turned_twice_is_not_sure_after_once() -> None:
    star = post(f"{A}/api/star", '{"id": 1}', "application/json")
    page = get(f"{A}/post")
    over = matcher(
        (star, _data({"starred": True})), (star, _data({"starred": False})), (page, html("not starred"))
    )
    asked = Replay(over)
    asked.ask(star)
    asked.ask(page)
    assert asked.last.ambiguous


def test_that_the_same_was_written_again_does_not_show_that_values_replace_each_other() -> None:
    twice = [(LARGE, SEEN), (LIST, html("L"))] * 2 + [(RED, SEEN), (LIST, html("red, L"))] * 2
    asked = Replay(matcher(*twice))
    asked.ask(RED)
    assert (asked.ask(LIST), asked.last.ambiguous) == ("red, L", True)


def test_that_values_replace_each_other_does_not_show_that_one_may_be_written_again() -> None:
    """A place in a list: there and back again is not there twice."""
    back = [(LIST, html("1"))]
    for to, page in (("next", "2"), ("prev", "1"), ("next", "2"), ("prev", "1")):
        back += [(turn(to), SEEN), (LIST, html(page))]
    over = matcher(*back)
    asked = Replay(over)
    for to, sure in (("next", True), ("prev", True), ("next", True), ("next", False), ("prev", False)):
        asked.ask(turn(to))
        asked.ask(LIST)
        assert asked.last.ambiguous is not sure, to


@pytest.mark.parametrize("seen", [False, True])
def test_a_value_that_was_written_again_in_the_recording_may_be_in_replay(seen: bool) -> None:
    values = "xyxyxxyy" if seen else "xyxyxy"
    over = matcher(*(pair for v in values for pair in ((turn(v), SEEN), (LIST, html(v)))))
    asked = Replay(over)
    for value in "yxx":
        asked.ask(turn(value))
        assert asked.ask(LIST) == value
    assert asked.last.ambiguous is not seen


def test_what_was_written_that_nobody_recorded_may_be_left_under_what_was() -> None:
    """Where the answer to what was recorded was the same so often that it is sure whatever was written before."""

    def told(key: str) -> Request:
        return post(f"{A}/api/settings", json.dumps({"key": key}), "application/json")

    done = _data({"ok": True})
    others = [pair for n in range(7) for pair in ((told(f"y{n}"), done), (told("x"), done))]
    over = matcher(
        (told("x"), done, "one"), (LIST, html("x"), "one"), *others, (told("z"), done), (LIST, html("x, z"))
    )
    asked = Replay(over)
    assert asked.ask(told("never")) == "miss"
    asked.ask(told("x"))
    assert not asked.last.ambiguous
    assert (asked.ask(LIST), asked.last.ambiguous) == ("x", True)


def _data(value: object) -> Response:
    return Response(200, "OK", (("Content-Type", "application/json"),), json.dumps(value).encode())


def test_a_message_that_is_shown_once_is_not_shown_again_surely() -> None:
    """The same page was seen to change when it was asked for again, in the same state with another past."""
    save, page = post(f"{A}/save", "name=b"), get(f"{A}/profile")
    once, after = (page, html("saved b")), (page, html("b"))
    over = matcher((save, SEEN), once, (save, SEEN), once, after)
    asked = Replay(over)
    asked.ask(save)
    assert (asked.ask(page), asked.last.ambiguous) == ("saved b", False)
    asked.ask(page)
    assert asked.last.ambiguous
    asked.ask(save)
    assert [(asked.ask(page), asked.last.ambiguous) for _ in range(2)] == [("saved b", False), ("b", False)]


@pytest.mark.parametrize(("bodies", "unsure"), [(({"a": 1}, {"b": 2}), True), (({"b": 1}, {"b": 2}), False)])
def test_a_put_of_other_members_than_the_one_before_may_have_kept_those(
    bodies: tuple[dict[str, int], ...], unsure: bool
) -> None:
    """Though a PUT replaces what is there (RFC 9110, 9.3.4), some servers merge."""
    puts = [
        Request("PUT", f"{A}/doc", (("Content-Type", "application/json"),), json.dumps(body).encode())
        for body in bodies
    ]
    done = Response(204, "", (), b"")
    over = matcher(*[(put, done) for put in puts], (get(f"{A}/doc"), html("doc")))
    for asked, doubted in ((puts, False), (puts[1:], unsure)):
        replay = Replay(over)
        for put in asked:
            replay.ask(put)
        assert (replay.ask(get(f"{A}/doc")), bool(replay.last.ambiguous)) == ("doc", doubted)


def test_a_put_that_nobody_recorded_may_be_left_under_one_that_was() -> None:
    """A server that keeps the members that it isn't told, of which the recording shows one alone."""

    def told(**members: int) -> Request:
        return Request(
            "PUT", f"{A}/list", (("Content-Type", "application/json"),), json.dumps(members).encode()
        )

    done = Response(204, "", (), b"")
    over = matcher((told(b=1), done), (LIST, html("b 1")), (told(b=2), done), (LIST, html("b 2")))
    asked = Replay(over, "new")
    assert asked.ask(told(b=2)) == ""
    assert (asked.ask(LIST), asked.last.ambiguous) == ("b 2", False)
    assert asked.ask(told(a=1)) == "miss"
    for _ in range(2):
        asked.ask(told(b=1))
        assert (asked.ask(LIST), asked.last.ambiguous) == ("b 1", True)
