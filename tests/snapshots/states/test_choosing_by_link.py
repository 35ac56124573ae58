"""Links that choose (`/lang/fr`, `/currency/eur`) and lead back: with them, and without those that nobody recorded."""

from __future__ import annotations

import pytest

from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Request
from tests.support.memory_store import Replay, get, html, matcher, redirect

A = "http://a.test"
HOME, ABOUT = get(f"{A}/shop?page=1"), get(f"{A}/about")
BACK = redirect("/shop?page=1")


def lang(code: str, **more: str) -> Request:
    return get(f"{A}/lang/{code}", **more)


def known(code: str) -> Response:
    return redirect("/shop?page=1", ("Set-Cookie", f"lang={code}"))


def test_what_was_recorded_after_a_choice_is_not_sure_before_it() -> None:
    over = matcher((lang("fr"), BACK), (HOME, html("en français")))
    asked = Replay(over)
    assert (asked.ask(HOME), asked.last.ambiguous) == ("en français", True)
    asked.ask(lang("fr"))
    assert (asked.ask(HOME), asked.last.ambiguous) == ("en français", False)


def test_two_choices_of_one_path_replace_each_other() -> None:
    pairs = [
        pair
        for code in ("fr", "de", "fr", "de")
        for pair in ((lang(code), BACK), (HOME, html(code)), (ABOUT, html(f"{code} about")))
    ]
    asked = Replay(matcher((HOME, html("en")), *pairs))
    for code in ("de", "fr", "de"):
        asked.ask(lang(code))
        assert (asked.ask(HOME), asked.last.ambiguous) == (code, False)
        assert (asked.ask(ABOUT), asked.last.ambiguous) == (f"{code} about", False)


@pytest.mark.parametrize("code", ["de", "it"])
def test_after_a_choice_that_nobody_recorded_nothing_is_sure(code: str) -> None:
    asked = Replay(matcher((HOME, html("en")), (lang("fr"), BACK), (HOME, html("fr")), (ABOUT, html("fr"))))
    assert asked.ask(lang(code)) == "miss"
    assert asked.ask(HOME) == "miss"
    alone = Replay(matcher((HOME, html("en"))))
    assert alone.ask(lang(code)) == "miss"
    assert (alone.ask(HOME), alone.last.ambiguous) == ("en", True)


def test_nor_where_the_choice_is_left_with_the_client() -> None:
    asked = Replay(matcher((HOME, html("en")), (lang("en"), known("en")), (HOME, html("en"))))
    assert asked.ask(lang("de")) == "miss"
    assert (asked.ask(HOME), asked.last.ambiguous) == ("en", True)


def test_a_choice_that_a_cookie_holds_leaves_nothing_else_in_doubt() -> None:
    mine = get(HOME.url, cookie="lang=fr")
    asked = Replay(
        matcher((HOME, html("en")), (lang("fr"), known("fr")), (mine, html("fr")), (ABOUT, html("a")))
    )
    for request in (lang("fr"), mine, ABOUT):
        asked.ask(request)
        assert not asked.last.ambiguous


def test_pages_of_languages_are_no_choices() -> None:
    pages = [(get(f"{A}/language/{name}"), html(name)) for name in ("welsh", "irish")]
    asked = Replay(matcher((HOME, html("home")), *pages))
    assert asked.ask(get(f"{A}/language/manx")) == "miss"
    assert (asked.ask(HOME), asked.last.ambiguous) == ("home", False)


def test_after_a_logout_that_nobody_recorded_nothing_is_sure() -> None:
    asked = Replay(matcher((HOME, html("Ann"))))
    for path, sure in (("about", True), ("logout", False)):
        assert asked.ask(get(f"{A}/{path}")) == "miss"
        asked.ask(HOME)
        assert asked.last.ambiguous is not sure


def test_a_redirect_is_found_out_by_what_changed_after_it() -> None:
    """Though nothing in its address says that it chooses."""
    turn = get(f"{A}/mobile")
    over = matcher((HOME, html("wide")), (turn, BACK), (HOME, html("narrow")), (HOME, html("narrow")))
    asked = Replay(over)
    for _ in range(2):
        assert (asked.ask(HOME), asked.last.ambiguous) == ("wide", False)
    asked.ask(turn)
    assert (asked.ask(HOME), asked.last.ambiguous) == ("narrow", False)


@pytest.mark.parametrize("code", ["fr", "en"])
def test_that_two_values_of_a_cookie_made_no_difference_is_not_sure_for_a_third(code: str) -> None:
    def page(url: str, text: str, code: str) -> tuple[Request, Response]:
        return get(url, cookie=f"shelf={code}"), html(text)

    def shelf(code: str, **more: str) -> tuple[Request, Response]:
        return get(f"{A}/go/{code}", **more), redirect("/shop?page=1", ("Set-Cookie", f"shelf={code}"))

    over = matcher(
        (HOME, html("en")), (ABOUT, html("about")), shelf("de"), page(HOME.url, "de", "de"),
        shelf("en", cookie="shelf=de"), page(HOME.url, "en", "en"), page(ABOUT.url, "about", "en"),
        shelf("fr", cookie="shelf=en"), page(HOME.url, "fr", "fr"),
    )  # fmt: skip
    asked = Replay(over)
    assert asked.ask(get(ABOUT.url, cookie=f"shelf={code}")) == "about"
    assert asked.last.ambiguous is (code == "fr")
