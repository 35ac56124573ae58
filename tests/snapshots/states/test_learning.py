"""What a recording proves of its server, shown by what is answered in another order: `?` marks what is not sure."""

from __future__ import annotations

import json

from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Request
from tests.support.memory_store import Replay, answers, get, html, matcher, post, redirect

A = "http://a.test"
PAGE, OTHER = get(f"{A}/page"), get(f"{A}/other")
BACK = redirect("/page")
DONE = Response(200, "OK", (("Content-Type", "application/json"),), b'"ok"')
CONTENT = Response(200, "OK", (("Content-Type", "application/json"),), json.dumps("x" * 300).encode())


def doing(what: str, value: int = 1) -> Request:
    """A POST that may have changed something, if it is answered shortly; else it asked something."""
    return post(f"{A}/api/{what}", json.dumps({"v": value}), "application/json")


def filtered(value: int) -> Request:
    return post(f"{A}/filter", f"v={value}")


def test_what_changed_by_itself_before_convicts_nothing_that_came_in_between() -> None:
    over = matcher(
        (PAGE, html("10%")), (PAGE, html("50%")), (doing("x"), DONE), (PAGE, html("90%")), (OTHER, html("other")),
    )  # fmt: skip
    assert answers(over, OTHER) == ["other?"]


def test_of_two_suspects_one_that_changed_nothing_before_is_innocent() -> None:
    over = matcher(
        (PAGE, html("a")), (doing("x", 1), DONE), (PAGE, html("a")),
        (doing("x", 2), DONE), (doing("y"), DONE), (PAGE, html("b")),
    )  # fmt: skip
    assert answers(over, doing("x", 1), doing("y"), PAGE) == ['"ok"', '"ok"?', "b?"]
    assert answers(over, doing("y"), PAGE) == ['"ok"?', "b?"]
    assert answers(over, doing("x", 2), PAGE) == ['"ok"?', "a?"]


def test_of_two_suspects_one_that_changed_the_page_before_is_guilty() -> None:
    """Here a form that adds: the third time it is not as it was the first time."""
    over = matcher(
        (filtered(1), BACK), (PAGE, html("1")), (filtered(2), BACK), (PAGE, html("1, 2")),
        (filtered(1), BACK), (doing("x"), DONE), (PAGE, html("1, 2, 1")),
    )  # fmt: skip
    assert answers(over, filtered(1), filtered(2), filtered(1), PAGE)[-1] == "1, 2, 1?"
    assert answers(over, filtered(1), filtered(2), filtered(1), doing("x"), PAGE)[-1] == "1, 2, 1"


def test_a_cookie_that_made_no_difference_is_not_blamed_beside_one_that_may() -> None:
    def page(size: int, color: str) -> Request:
        return get(PAGE.url, cookie=f"size={size}; color={color}")

    over = matcher((page(1, "red"), html("a")), (page(1, "blue"), html("a")), (page(2, "red"), html("b")))
    assert answers(over, page(2, "blue"), page(1, "green")) == ["miss", "miss"]
    assert answers(over, page(2, "red"), page(1, "blue")) == ["b", "a"]


def test_what_was_answered_otherwise_when_it_was_repeated_adds_something_every_time() -> None:
    first, second = redirect("/n/1"), redirect("/n/2")
    over = matcher((filtered(1), first), (filtered(1), second), (PAGE, html("two")))
    assert answers(over, filtered(1), PAGE) == ["", "miss"]
    assert answers(over, filtered(1), filtered(1), PAGE) == ["", "", "two"]


def test_what_was_written_alike_before_both_is_not_suspected() -> None:
    both = [(filtered(2), BACK), (filtered(1), BACK)]
    over = matcher(
        *((*pair, "s1") for pair in both), (PAGE, html("a"), "s1"),
        *((*pair, "s2") for pair in both), (doing("x"), DONE, "s2"), (PAGE, html("b"), "s2"),
    )  # fmt: skip
    # that the last filter replaces those before it is presumed
    assert answers(over, filtered(1), PAGE)[-1] == "a?"
    assert answers(over, *(pair[0] for pair in both), doing("x"), PAGE)[-1] == "b"


def test_a_question_is_not_suspected_beside_what_may_have_changed_something() -> None:
    over = matcher((PAGE, html("a")), (doing("x"), DONE), (doing("ask"), CONTENT), (PAGE, html("b")))
    assert answers(over, doing("x"), PAGE) == ['"ok"', "b"]
    assert answers(over, doing("ask"), PAGE)[-1] == "a"


def test_what_the_request_itself_says_is_suspected_before_what_may_have_changed_something() -> None:
    small, large = get(PAGE.url, cookie="size=1"), get(PAGE.url, cookie="size=2")
    over = matcher((small, html("a")), (doing("x"), DONE), (large, html("b")))
    assert answers(over, small, large) == ["a", "b?"]


def test_a_beacon_explains_no_change() -> None:
    def beacon(number: int) -> Request:
        return post(f"{A}/collect", f"n={number}")

    over = matcher((PAGE, html("a")), (beacon(1), Response(204, "", (), b"")), (PAGE, html("b")))
    assert answers(over, PAGE, beacon(1), PAGE) == ["a", "", "b"]
    assert answers(over, PAGE, beacon(2), PAGE) == ["a", "miss", "b"]
    assert answers(over, PAGE, get(f"{A}/else"), PAGE) == ["a", "miss", "b?"]


def test_which_answer_says_that_nothing_was_changed_is_learnt_from_what_follows() -> None:
    """By its page alone: each request was always answered in the same way."""

    def login(user: str, word: str) -> Request:
        return post(f"{A}/login", f"user={user}&word={word}")

    recorded = []
    for user in "cde":
        inside, outside = (PAGE, html(f"in {user}"), user), (PAGE, html("out"), user)
        refused = (login(user, "bad"), html("wrong word, try again"), user)
        recorded += [
            outside,
            refused,
            outside,
            (login(user, "good"), html("welcome"), user),
            inside,
            refused,
            inside,
        ]
    over = matcher(*recorded)
    assert answers(over, login("d", "bad"), PAGE)[-1] == "out"
    assert answers(over, login("d", "bad"), login("c", "good"), login("c", "bad"), PAGE)[-1] == "in c"


def test_what_one_session_asked_tells_why_another_was_answered_differently() -> None:
    """Though each of them saw one answer only."""
    over = matcher(
        (PAGE, html("a"), "one"), (doing("x"), CONTENT, "two"), (PAGE, html("b"), "two"),
    )  # fmt: skip
    for name in ("one", "two"):
        for asked, text in (([], "a"), ([doing("x")], "b")):
            replay = Replay(over, name)
            for request in asked:
                replay.ask(request)
            assert (replay.ask(PAGE), replay.last.ambiguous) == (text, False)


def test_a_resource_that_is_put_and_patched_is_what_both_made_it() -> None:
    def write(method: str, text: str) -> Request:
        return Request(method, PAGE.url, (("Content-Type", "text/plain"),), text.encode())

    put, patch, empty = write("PUT", "x"), write("PATCH", "y"), Response(204, "", (), b"")
    over = matcher((put, empty), (PAGE, html("x")), (patch, empty), (PAGE, html("x y")))
    assert answers(over, put, patch, PAGE, put, PAGE) == ["", "", "x y", "", "x"]
    assert answers(over, put, patch, patch, PAGE)[-1] == "miss"
    assert answers(over, patch, PAGE)[-1] == "miss"
