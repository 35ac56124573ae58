"""Each step of the choice among several captures, shown by a case that needs it: what was recorded, what is asked, and
the right answer.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stillweb.snapshots.matching import choosing
from stillweb.snapshots.matching.ladder import Matcher
from stillweb.snapshots.request import Request
from tests.support.memory_store import Recorded, Replay, get, html, matcher, plain, post, redirect, spoken

A = "http://a.test"


def _in_state() -> tuple[Matcher, list[Request], str]:
    over = matcher(
        (post(f"{A}/f", "x=1"), redirect("/l"), "s1"), (get(f"{A}/l"), html("one"), "s1"), (get(f"{A}/l"), html("all"), "s2"),
    )  # fmt: skip
    return over, [get(f"{A}/l")], "all"


def _same_headers() -> tuple[Matcher, list[Request], str]:
    vary = ("Vary", "Accept-Language")
    over = matcher(
        (get(f"{A}/p", accept_language="en"), html("hello", 200, vary)),
        (get(f"{A}/p", accept_language="fr"), html("bonjour", 200, vary)),
    )
    return over, [get(f"{A}/p", accept_language="fr")], "bonjour"


def _whole_or_asked() -> tuple[Matcher, list[Request], str]:
    over = matcher((get(f"{A}/p", range="bytes=0-1"), html("wh", 206)), (get(f"{A}/p"), html("whole")))
    return over, [get(f"{A}/p")], "whole"


def _same_preconditions() -> tuple[Matcher, list[Request], str]:
    def put(tag: str) -> Request:
        return Request("PUT", f"{A}/p", (("If-Match", tag),), b"new")

    over = matcher((put('"v0"'), html("stale", 412)), (put('"v1"'), html("saved")))
    return over, [put('"v1", "v2"')], "saved"


def _highest_layer() -> tuple[Matcher, list[Request], str]:
    base = [Recorded(get(f"{A}/p"), html(text)) for text in ("10%", "50%", "done")]
    return matcher(*base, Recorded(get(f"{A}/p"), html("new"), "later", 2)), [get(f"{A}/p")] * 2, "new"


def _same_text() -> tuple[Matcher, list[Request], str]:
    over = matcher((get(f"{A}/p?a=1&b=2"), html("ab")), (get(f"{A}/p?b=2&a=1"), html("ba")))
    return over, [get(f"{A}/p?b=2&a=1")], "ba"


def _same_order() -> tuple[Matcher, list[Request], str]:
    over = matcher(
        (get(f"{A}/p?s=b&s=a&x=1"), html("by b")), (get(f"{A}/p?s=a&s=b&x=1"), html("by a")),
    )  # fmt: skip
    return over, [get(f"{A}/p?x=1&s=a&s=b")], "by a"


def _same_acquaintance() -> tuple[Matcher, list[Request], str]:
    sid = "0123456789abcdef0123456789abcdef"
    first = html("hi", 200, ("Set-Cookie", f"sid={sid}"))
    over = matcher(
        (get(f"{A}/favicon.ico"), first), (get(f"{A}/p", cookie=f"sid={sid}"), html("hi ")), (get(f"{A}/p"), first), (get(f"{A}/p", cookie=f"sid={sid}"), html("hi "))
    )  # fmt: skip
    return over, [get(f"{A}/p")], "hi"


def _same_cookies() -> tuple[Matcher, list[Request], str]:
    over = matcher(
        (get(f"{A}/p", cookie="size=1"), html(_long("a"))), (get(f"{A}/p", cookie="size=2"), html(_long("b"))),
    )  # fmt: skip
    return over, [get(f"{A}/p", cookie="size=2")], _long("b")


def _same_words() -> tuple[Matcher, list[Request], str]:
    over = spoken(2, (get(f"{A}/p"), plain("nothing")), (get(f"{A}/p"), plain("tea")))
    return over, [get(f"{A}/p")] * 2, "nothing"


def _next_in_order() -> tuple[Matcher, list[Request], str]:
    over = matcher(*[(get(f"{A}/p"), plain(text)) for text in ("10%", "50%", "done")])
    return over, [get(f"{A}/p")] * 3, "done"


def _same_conditions() -> tuple[Matcher, list[Request], str]:
    part = get(f"{A}/p", range="bytes=0-1")  # which the server does not heed
    return matcher((get(f"{A}/p"), html(_long("a"))), (part, html(_long("b")))), [part], _long("b")


def _page_in_view() -> tuple[Matcher, list[Request], str]:
    page, style, script, last = get(f"{A}/", accept="text/html"), get(f"{A}/a"), get(f"{A}/b"), get(f"{A}/p")
    visits = [
        [(page, html("page")), (script, html("b")), (style, html("a")), (last, html(_long(x)))] for x in "ab"
    ]
    return matcher(*visits[0], *visits[1]), [page, style, script, last], _long("a")


def _own_session() -> tuple[Matcher, list[Request], str]:
    over = matcher(
        (get(f"{A}/p"), html("for s1"), "s1"), (get(f"{A}/p"), html("for s2"), "s2"), (get(f"{A}/only2"), html("2"), "s2"),
    )  # fmt: skip
    return over, [get(f"{A}/only2"), get(f"{A}/p")], "for s2"


def _nearest_time() -> tuple[Matcher, list[Request], str]:
    over = matcher(
        (get(f"{A}/p"), html(_long("a")), "s1"), (get(f"{A}/mark"), html("m"), "s2"), (get(f"{A}/p"), html(_long("b")), "s3"),
    )  # fmt: skip
    return over, [get(f"{A}/mark"), get(f"{A}/p")], _long("b")


def _long(letter: str) -> str:
    """Pages that say the same but for a value drawn at random."""
    return f"page 123e4567-e89b-12d3-a456-42661417400{letter}"


CASES: dict[str, Callable[[], tuple[Matcher, list[Request], str]]] = {
    "in_state": _in_state,
    "same_headers": _same_headers,
    "same_preconditions": _same_preconditions,
    "whole_or_asked": _whole_or_asked,
    "highest_layer": _highest_layer,
    "same_text": _same_text,
    "same_order": _same_order,
    "same_acquaintance": _same_acquaintance,
    "same_cookies": _same_cookies,
    "same_words": _same_words,
    "next_in_order": _next_in_order,
    "same_conditions": _same_conditions,
    "page_in_view": _page_in_view,
    "own_session": _own_session,
    "nearest_time": _nearest_time,
}


def _last(case: str) -> tuple[str, str]:
    over, requests, expected = CASES[case]()
    replay = Replay(over)
    return [replay.ask(request) for request in requests][-1], expected


def test_every_step_has_a_case() -> None:
    assert [step.__name__ for step in choosing.STEPS if step.__name__ not in CASES] == []


@pytest.mark.parametrize("case", CASES)
def test_a_step_chooses(case: str) -> None:
    found, expected = _last(case)
    assert found == expected


@pytest.mark.parametrize("case", CASES)
def test_without_the_step_the_choice_is_wrong(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [step for step in choosing.STEPS if step.__name__ != case]
    monkeypatch.setattr(choosing, "STEPS", left)
    found, expected = _last(case)
    assert found != expected
