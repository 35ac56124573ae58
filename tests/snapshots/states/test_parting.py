"""What requests themselves tell apart is blamed on no exchange that came between."""

from __future__ import annotations

import pytest

from stillweb.snapshots.request import Request
from tests.support.memory_store import Replay, get, html, matcher, post

A = "http://a.test"
PAGE = get(f"{A}/page")
SID = "0123456789abcdef0123456789abcdef"
SUSPECT, SHOWN = post(f"{A}/x", "a=1"), html("x" * 300)


@pytest.mark.parametrize(
    "mine",
    [
        get(PAGE.url, x_tenant="ann"),
        get(PAGE.url, cookie=f"session_id={SID}"),
        get(PAGE.url, authorization="Bearer ann"),
        get(PAGE.url, hx_request="true"),
    ],
)
def test_who_asks_is_blamed_on_no_change(mine: Request) -> None:
    asked = Replay(matcher((PAGE, html("anybody's")), (SUSPECT, SHOWN), (mine, html("Ann's"))))
    asked.ask(SUSPECT)
    assert (asked.ask(PAGE), asked.last.ambiguous) == ("anybody's", True)
    assert asked.ask(mine) == "Ann's"


def test_a_field_that_goes_with_different_answers_explains_none() -> None:
    """Answers that change by themselves have one order, whoever asks."""
    one, other = get(PAGE.url, user_agent="Mozilla/5.0 one"), get(PAGE.url, user_agent="curl")
    over = matcher(*((request, html(str(n))) for n, request in enumerate((one, other, one, other))))
    asked = Replay(over)
    assert [asked.ask(one), asked.ask(one)] == ["0", "1"]


def test_who_was_signed_in_is_blamed_on_no_change_of_theirs() -> None:
    mine = get(PAGE.url, cookie=f"session_id={SID}")
    change = post(f"{A}/x", '{"a": 1}', "application/json", cookie=f"session_id={SID}")
    asked = Replay(
        matcher((change, html("done"), "a"), (mine, html("Ann's"), "a"), (PAGE, html("anybody's"), "b"))
    )
    assert (asked.ask(mine), asked.last.ambiguous) == ("Ann's", True)
    assert Replay(asked.matcher).ask(PAGE) == "anybody's"
