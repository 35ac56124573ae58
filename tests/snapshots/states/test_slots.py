"""What an exchange may change, judged from itself alone: shown by what a replay is given before it, and after."""

from __future__ import annotations

import json

import pytest

from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Request
from tests.support.memory_store import Replay, get, html, matcher, post, redirect

A = "http://a.test"
VIEW = get(f"{A}/view")
LONG = "x" * 300
SID, OTHER = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
PARTS = "multipart/form-data; boundary=b"


def data(value: object = LONG, status: int = 200, *more: tuple[str, str]) -> Response:
    return Response(status, "OK", (("Content-Type", "application/json"), *more), json.dumps(value).encode())


def told(value: object, url: str = f"{A}/api/x", method: str = "POST") -> Request:
    return Request(method, url, (("Content-Type", "application/json"),), json.dumps(value).encode())


def before(change: Request, answer: Response) -> str:
    """What a page that was recorded after an exchange is without it: `sure`, `unsure` or a `miss`."""
    cookie = change.header("cookie")
    view = VIEW if cookie is None else get(VIEW.url, cookie=cookie)
    asked = Replay(matcher((change, answer), (view, html("after"))))
    if asked.ask(view) == "miss":
        return "miss"
    return "unsure" if asked.last.ambiguous else "sure"


@pytest.mark.parametrize(
    ("change", "answer", "found"),
    [
        (told({"a": 1}), data(), "sure"),
        (told({"a": 1}), data("short"), "unsure"),
        (told({"a": 1}), data(LONG, 201), "miss"),
        (told({"a": 1}, method="PATCH"), data(), "miss"),
        (told({"a": 1}, VIEW.url), data(), "sure"),
        (told({"a": 1}, f"{A}/api/runs/count"), data(6), "unsure"),
        (told({"a": 1}, f"{A}/runs/_count"), data(), "sure"),
        (told({"a": 1}, f"{A}/api/count-by/day"), data(), "sure"),
        (told({"a": 1}, f"{A}/api/next-runs"), data(), "sure"),
        (told({"a": 1}, f"{A}/api/next"), data(), "miss"),
        (told({"a": 1}, f"{A}/count/add"), data(), "miss"),
        (post(f"{A}/count", "a=1"), html(LONG), "miss"),
        (post(f"{A}/x", "a=1"), html(LONG), "unsure"),
        (post(f"{A}/x", "a=1"), redirect("/"), "miss"),
        (post(f"{A}/x", "a=1", cookie=f"sid={SID}"), html(LONG), "miss"),
        (post(f"{A}/x", "__VIEWSTATE=abc&a=1", cookie=f"sid={SID}"), html(LONG), "unsure"),
        (Request("POST", f"{A}/x", (), b"ping"), html(""), "sure"),
        (get(f"{A}/logout"), redirect("/?bye=1"), "miss"),
        (Request("HEAD", f"{A}/logout"), redirect("/?bye=1"), "sure"),
        (Request("OPTIONS", f"{A}/logout"), redirect("/?bye=1"), "sure"),
        (get(f"{A}/x?by=a"), redirect("/x"), "miss"),
        (get(f"{A}/x?by=a"), redirect("http://b.test/"), "sure"),
        (get(f"{A}/add"), redirect("/"), "miss"),
        (get(f"{A}/x"), redirect("/y"), "sure"),
    ],
)
def test_what_an_exchange_may_have_changed(change: Request, answer: Response, found: str) -> None:
    assert before(change, answer) == found


def test_what_is_read_at_the_address_of_a_post_may_be_what_it_wrote() -> None:
    lines = get(f"{A}/api/lines")
    for change, found in ((told({"sku": 1}, lines.url), "unsure"), (told({"sku": 1}), "sure")):
        asked = Replay(matcher((change, data()), (lines, data({"cart": [1]}))))
        asked.ask(lines)
        assert asked.last.ambiguous is (found == "unsure")


def test_a_client_that_is_given_another_cookie_became_somebody_else() -> None:
    enter = post(f"{A}/api/enter", '{"u": "ann"}', "application/json", cookie=f"sid={SID}")
    mine = get(f"{A}/me", cookie=f"sid={OTHER}")
    for given, found in ((("Set-Cookie", f"sid={OTHER}"), "miss"), (("Set-Cookie", "seen=1"), "unsure")):
        first = (get(f"{A}/", cookie=""), html("hello", 200, ("Set-Cookie", f"sid={SID}")))
        asked = Replay(matcher(first, (enter, data("ok", 200, given)), (mine, html("Ann"))))
        asked.ask(first[0])
        text = asked.ask(mine)
        assert (text == "miss") is (found == "miss"), given


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (post(f"{A}/x", "by=name"), post(f"{A}/x", "size=L")),
        (post(f"{A}/x", "action=a&to=1"), post(f"{A}/x", "action=b&to=1")),
        (
            post(f"{A}/x", '--b\r\nContent-Disposition: form-data; name="by"\r\n\r\n1\r\n--b--\r\n', PARTS),
            post(f"{A}/x", '--b\r\nContent-Disposition: form-data; name="size"\r\n\r\n1\r\n--b--\r\n', PARTS),
        ),
        (told({"by": 1}), told({"size": 1})),
        (told({"op": "a", "to": 1}), told({"op": "b", "to": 1})),
    ],
)
def test_forms_of_one_address_are_told_apart_by_their_fields(one: Request, other: Request) -> None:
    """What one wrote is not replaced by what the other does."""
    back = redirect("/view")
    over = matcher((one, back), (VIEW, html("1")), (other, back), (VIEW, html("1 and 2")))
    asked = Replay(over)
    asked.ask(other)
    assert asked.ask(VIEW) == "miss"


def test_a_post_that_deletes_writes_to_what_was_put() -> None:
    thing = get(f"{A}/things/1")
    put = Request("PUT", thing.url, (), b"new")
    delete = post(thing.url, "_method=delete")
    done, gone = Response(204, "", (), b""), html("gone", 404)
    over = matcher((put, done), (thing, html("new")), (delete, done), (thing, gone))
    asked = Replay(over)
    asked.ask(delete)
    asked.ask(put)
    assert asked.ask(thing) == "new"


def test_a_patch_comes_on_top_of_what_was_put() -> None:
    thing = get(f"{A}/things/1")
    put, patch = told({"n": 1}, thing.url, "PUT"), told({"more": 1}, thing.url, "PATCH")
    over = matcher((put, data("ok")), (thing, data(1)), (patch, data("ok")), (thing, data(2)))
    asked = Replay(over)
    for request, text in (
        (put, '"ok"'),
        (thing, "1"),
        (patch, '"ok"'),
        (thing, "2"),
        (patch, "miss"),
        (thing, "miss"),
    ):
        assert asked.ask(request) == text
