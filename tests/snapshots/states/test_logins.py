"""A client that was signed in before the recording began, and one that is not."""

from __future__ import annotations

import pytest

from stillweb.snapshots.capture import Response
from tests.support.memory_store import Replay, get, html, matcher, post, redirect

A = "http://a.test"
SID = "PHPSESSID=k3v9q0t7m2x8b4n6c1z5r0p7d2"
OTHER = "PHPSESSID=a8d2f6h1j5l9q3w7e0r4t8y2u6"


def test_a_page_of_a_signed_in_client_is_not_surely_that_of_another() -> None:
    over = matcher((get(f"{A}/me", cookie=SID), html("Hello Ann")), (get(f"{A}/faq"), html("Questions")))
    replay = Replay(over)
    for request, text, ambiguous in (
        (get(f"{A}/me", cookie=SID), "Hello Ann", False),
        (get(f"{A}/me"), "Hello Ann", True),
        (get(f"{A}/faq"), "Questions", False),
        (get(f"{A}/faq", cookie=SID), "Questions", True),
    ):
        assert replay.ask(request) == text
        assert (replay.last.verdict, replay.last.ambiguous) == ("exact", ambiguous)
        refusing = over.lookup(request, over.session(), accept="rule+unambiguous")
        assert (refusing.verdict == "miss") is ambiguous


def test_where_both_were_recorded_each_gets_its_own() -> None:
    over = matcher(
        (get(f"{A}/me", cookie=SID), html("Hello Ann")),
        (get(f"{A}/me"), html("Who are you?")),
        (get(f"{A}/faq", cookie=SID), html("Questions")),
        (get(f"{A}/faq"), html("Questions")),
        (get(f"{A}/s.css", cookie=SID), html("Style")),
    )
    for headers, text, unsure in (
        ({"cookie": SID}, "Hello Ann", False),
        ({"cookie": OTHER}, "Hello Ann", True),  # whose it is nobody knows
        ({}, "Who are you?", False),
    ):
        replay = Replay(over)
        for _ in range(2):
            for path, expected in (("me", text), ("faq", "Questions")):
                assert replay.ask(get(f"{A}/{path}", **headers)) == expected
                assert (replay.last.verdict, replay.last.ambiguous) == ("exact", unsure)


def test_a_cookie_that_the_site_gave_or_that_is_no_login_says_nothing() -> None:
    given = ("Set-Cookie", f"{SID}; Path=/")
    over = matcher(
        (get(f"{A}/"), html("Home", 200, given)),
        (get(f"{A}/list", cookie=SID), html("List")),
        (get("http://b.test/list", cookie="visitor=550e8400-e29b-41d4-a716-446655440000"), html("B")),
    )
    for url in (f"{A}/list", "http://b.test/list"):
        replay = Replay(over)
        replay.ask(get(url))
        assert (replay.last.verdict, replay.last.ambiguous) == ("exact", False)


def test_signing_out_and_in_again_in_a_session_that_began_signed_in() -> None:
    over = matcher(
        (get(f"{A}/me", cookie=SID), html("Hello Ann")),
        (post(f"{A}/logout", "x=1", cookie=SID), redirect("/", ("Set-Cookie", "PHPSESSID=; Max-Age=0"))),
        (get(f"{A}/me"), html("Who are you?")),
    )
    replay = Replay(over)
    assert replay.ask(get(f"{A}/me", cookie=SID)) == "Hello Ann"
    replay.ask(post(f"{A}/logout", "x=1", cookie=SID))
    assert replay.ask(get(f"{A}/me")) == "Who are you?"
    assert not replay.last.ambiguous
    assert replay.ask(get(f"{A}/me", cookie=SID)) != "Hello Ann" or replay.last.ambiguous


def test_who_is_signed_in_does_not_make_up_for_another_state() -> None:
    over = matcher(
        (post(f"{A}/f", "by=x", cookie=SID), redirect("/me")), (get(f"{A}/me", cookie=SID), html("by x"))
    )
    for headers in ({"cookie": SID}, {}):
        assert Replay(over).ask(get(f"{A}/me", **headers)) == "miss"


def test_a_login_that_the_site_gave_is_not_one_that_was_brought() -> None:
    over = matcher(
        (get(f"{A}/me", cookie=SID), html("Hello Ann"), "s1"),
        (get(f"{A}/"), html("Home", 200, ("Set-Cookie", OTHER)), "s2"),
        (get(f"{A}/me", cookie=OTHER), html("Hello Bob"), "s2"),
    )
    replay = Replay(over)
    for request, text in ((get(f"{A}/"), "Home"), (get(f"{A}/me", cookie=OTHER), "Hello Bob")):
        assert replay.ask(request) == text
        assert not replay.last.ambiguous


def test_a_login_that_is_only_renewed_was_brought() -> None:
    renewed = html("Hello Ann", 200, ("Set-Cookie", f"{SID}; Max-Age=3600"))
    replay = Replay(
        matcher((get(f"{A}/me", cookie=SID), renewed), (get(f"{A}/faq", cookie=SID), html("Questions")))
    )
    assert replay.ask(get(f"{A}/faq")) == "Questions"
    assert replay.last.ambiguous


def test_what_was_changed_without_a_cookie_and_without_being_given_one_is_changed_for_all_who_have_none() -> (
    None
):
    """A site that knows its clients by a cookie would have given one to whom it keeps something for."""
    home, page, change = get(f"{A}/"), get(f"{A}/list"), post(f"{A}/f", "by=x")
    mine = (get(f"{A}/me", cookie=SID), html("me"))
    first = (home, html("home", 200, ("Set-Cookie", SID)))
    over = matcher(first, (change, redirect("/list")), (page, html("by x")), mine)
    assert Replay(over).ask(page) == "miss"
    both = matcher(first, mine, (page, html("all")), (change, redirect("/list")), (page, html("by x")))
    for matching, before in ((over, "miss"), (both, "all")):
        replay = Replay(matching)
        for request, text in ((home, "home"), (page, before), (change, ""), (page, "by x")):
            assert replay.ask(request) == text
            assert not replay.last.ambiguous


@pytest.mark.parametrize("media", ["text/html", "application/json"])
def test_a_login_that_was_refused_first_replays(media: str) -> None:
    """With 200, as many answer a wrong password; the page that is then asked for depends on the right one alone."""

    def told(text: str, *more: tuple[str, str]) -> Response:
        return Response(200, "OK", (("Content-Type", media), *more), text.encode())

    wrong = (post(f"{A}/session?in", "name=ann&password=x"), told("wrong password"))
    right = (
        post(f"{A}/session?in", "name=ann&password=y"),
        told("welcome", ("Set-Cookie", f"{SID}; Path=/")),
    )
    mine = (get(f"{A}/me", cookie=SID), html("Hello Ann"))
    out = (post(f"{A}/session?out", cookie=SID), told("bye", ("Set-Cookie", "PHPSESSID=; Max-Age=0")))
    over = matcher((get(f"{A}/"), html("Home")), wrong, right, mine, out, (get(f"{A}/bye"), html("Bye")))
    for order in (
        (wrong, right, mine, out),
        (right, mine, out, wrong),
        (right, mine),
        (wrong, wrong, right, mine),
    ):
        replay = Replay(over)
        for request, answer in order:
            assert replay.ask(request) == answer.body.decode()
            assert not replay.last.ambiguous
    assert Replay(over).ask(mine[0]) == "miss"
    replay = Replay(over)
    replay.ask(wrong[0])
    assert replay.ask(mine[0]) == "miss"


def test_what_a_stranger_changes_elsewhere_is_still_changed_for_all_though_logins_are_refused() -> None:
    wrong = (post(f"{A}/login", "name=ann&password=x"), html("wrong password"))
    right = (post(f"{A}/login", "name=ann&password=y"), redirect("/me", ("Set-Cookie", SID)))
    mine = (get(f"{A}/me", cookie=SID), html("Hello Ann"))
    page, change = get(f"{A}/list"), post(f"{A}/f", "by=x")
    over = matcher(wrong, right, mine, (page, html("all")), (change, redirect("/list")), (page, html("by x")))
    replay = Replay(over)
    for request, text in (
        (page, "all"),
        (change, ""),
        (page, "by x"),
    ):
        assert replay.ask(request) == text
        assert not replay.last.ambiguous


def test_a_page_that_first_led_a_stranger_to_the_login_replays() -> None:
    """The redirect is no change that the login's page waits for: nobody was there to keep one for."""
    given = ("Set-Cookie", f"{SID}; Path=/")
    walk = (
        (get(f"{A}/auth/user/"), redirect("/login?next=/auth/user/")),
        (get(f"{A}/login?next=/auth/user/"), html("Who are you?", 200, ("Set-Cookie", f"{OTHER}; Path=/"))),
        (post(f"{A}/login?next=/auth/user/", "password=y", cookie=OTHER), redirect("/auth/user/", given)),
        (get(f"{A}/auth/user/", cookie=SID), html("Ann, Bob")),
    )
    replay = Replay(matcher(*walk))
    for request, answer in walk:
        assert replay.ask(request) == answer.body.decode()
        assert (replay.last.verdict, replay.last.ambiguous) == ("exact", False)
