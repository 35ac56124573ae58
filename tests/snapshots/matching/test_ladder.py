"""The ladder from exact to miss, what is remembered of it, and who asks."""

from __future__ import annotations

import pytest

from stillweb.snapshots.capture import Response
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.matching.ladder import Matcher
from stillweb.snapshots.request import Request
from tests.support.memory_store import Recorded, Replay, get, html, matcher, post, redirect

A = "http://a.test"


def verdict(over: Matcher, request: Request, accept: str = "rule") -> str:
    return over.lookup(request, over.session(), accept=accept).verdict


LADDER = {
    "exact": (get(f"{A}/p?a=1&b=2"), get(f"{A}/p?a=1&b=2")),
    "canonical": (get(f"{A}/p?a=1&b=2"), get(f"{A}/p?b=2&a=1")),
    "varies:accept-language": (
        get(f"{A}/p", accept_language="en"),
        get(f"{A}/p", accept_language="fr"),
    ),
    "rule:tracking": (get(f"{A}/p"), get(f"{A}/p?gclid=1")),
    "miss": (get(f"{A}/p"), get(f"{A}/q")),
}


@pytest.mark.parametrize("expected", LADDER)
@pytest.mark.parametrize("accept", ["exact", "canonical", "varies", "rule"])
def test_the_ladder_and_how_much_of_it_is_accepted(expected: str, accept: str) -> None:
    recorded, asked = LADDER[expected]
    over = matcher((recorded, html("x", 200, ("Vary", "Accept-Language"))))
    levels = ["exact", "canonical", "varies", "rule"]
    name = expected.partition(":")[0]
    served = name != "miss" and levels.index(name) <= levels.index(accept)
    assert verdict(over, asked, accept) == (expected if served else "miss")


@pytest.mark.parametrize("accept", ["", "fuzzy", "rule+", "rule+sure", "+unambiguous"])
def test_an_unknown_level_is_a_usage_error(accept: str) -> None:
    with pytest.raises(UsageError, match="accept"):
        verdict(matcher(), get(A), accept)


def test_no_session_is_a_session_before_any_change() -> None:
    assert matcher((get(f"{A}/p"), html("x"))).lookup(get(f"{A}/p")).verdict == "exact"


def test_head_and_other_methods_are_their_own() -> None:
    over = matcher((get(f"{A}/p"), html("x")))
    for method in ("HEAD", "OPTIONS", "POST", "DELETE"):
        assert verdict(over, Request(method, f"{A}/p")) == "miss"


def test_a_capture_made_with_the_value_is_the_answer() -> None:
    vary = ("Vary", "Accept-Language, Accept-Encoding")
    replay = Replay(
        matcher(
            (get(f"{A}/p", accept_language="en", accept_encoding="br"), html("hello", 200, vary)),
            (get(f"{A}/p", accept_language="fr", accept_encoding="br"), html("bonjour", 200, vary)),
        )
    )
    assert replay.ask(get(f"{A}/p", accept_language="fr", accept_encoding="gzip")) == "bonjour"
    assert replay.last.verdict == "exact"
    assert replay.ask(get(f"{A}/p", accept_language="fr-CA,fr;q=0.9")) == "bonjour"
    assert replay.last.verdict == "varies:accept-language"
    assert replay.ask(get(f"{A}/p", accept_language="de")) == "miss"


def test_a_fragment_never_stands_in_for_a_page() -> None:
    vary = ("Vary", "HX-Request")
    over = matcher((get(f"{A}/p", hx_request="true"), html("<li>", 200, vary)))
    assert verdict(over, get(f"{A}/p", hx_request="true")) == "exact"
    assert verdict(over, get(f"{A}/p")) == "miss"


def test_a_field_that_decides_without_being_named_is_learnt() -> None:
    ask = [get(f"{A}/p", accept="text/html"), get(f"{A}/p", accept="application/json")]
    over = matcher(
        *[(r, html(text)) for _ in range(2) for r, text in zip(ask, ["page", "data"], strict=True)]
    )
    assert Replay(over).ask(ask[1]) == "data"
    assert Replay(over).ask(ask[0]) == "page"


def test_a_part_or_not_modified_answers_only_who_asked_for_it() -> None:
    over = matcher((get(f"{A}/p", range="bytes=0-1"), html("wh", 206)))
    assert verdict(over, get(f"{A}/p", range="bytes=0-1")) == "exact"
    assert verdict(over, get(f"{A}/p")) == "miss"
    over = matcher((get(f"{A}/p", if_none_match='"1"'), html("", 304)))
    assert verdict(over, get(f"{A}/p", if_none_match='"1"')) == "exact"
    assert verdict(over, get(f"{A}/p")) == "miss"


# Issued values.


def _contact(token: str, session: str = "s") -> list[Recorded]:
    return [
        Recorded(get(f"{A}/contact"), html(f'<input type="hidden" name="csrf" value="{token}">'), session),
        Recorded(post(f"{A}/contact", f"text=hi&csrf={token}"), html("thanks"), session),
    ]


def test_an_issued_value_is_matched_by_where_it_came_from() -> None:
    one, two = "Zk3qP9xT2vLm8Rw1", "Qw8rT5yU1oPs6Lk2"
    over = matcher(*_contact(one, "s1"), Recorded(get(f"{A}/contact"), _contact(two)[0].response, "s2"))
    replay = Replay(over)
    replay.session.served.append(next(c for c in over.snapshot.captures() if c.session == "s2"))
    assert replay.ask(post(f"{A}/contact", f"text=hi&csrf={two}")) == "thanks"
    assert replay.last.verdict == "rule:issued-value"
    assert replay.ask(post(f"{A}/contact", f"text=ho&csrf={two}")) == "miss"


def test_a_value_that_nobody_gave_is_not_an_issued_one() -> None:
    over = matcher(*_contact("Zk3qP9xT2vLm8Rw1"))
    replay = Replay(over)
    replay.ask(get(f"{A}/contact"))
    assert replay.ask(post(f"{A}/contact", "text=hi&csrf=Made7Up8By9Me0abc")) == "miss"


def test_of_several_issued_values_every_one_must_have_been_given() -> None:
    recorded = []
    for session, token, nonce in (
        ("s1", "Zk3qP9xT2vLm8Rw1", "8f3a6c1e9b22"),
        ("s2", "Qw8rT5yU1oPs6Lk2", "1b2c3d4e5f66"),
    ):
        page = html(f'<input name="csrf" value="{token}"><input name="nonce" value="{nonce}">')
        sent = post(f"{A}/c", f"text=hi&csrf={token}&nonce={nonce}")
        recorded += [Recorded(get(f"{A}/c"), page, session), Recorded(sent, html("thanks"), session)]
    over = matcher(*recorded)
    for nonce, expected in (("8f3a6c1e9b22", "thanks"), ("wrong", "miss"), ("", "miss"), ("input", "miss")):
        replay = Replay(over)
        replay.ask(get(f"{A}/c"))
        assert replay.ask(post(f"{A}/c", f"text=hi&csrf=Zk3qP9xT2vLm8Rw1&nonce={nonce}")) == expected


def test_ids_of_entries_keep_captures_apart() -> None:
    ids = ["k3Jd82Lq0sPz", "p0Zx7Yw5Vu3T"]
    shown = html("".join(f'<a href="/item?id={i}">' for i in ids))
    over = matcher((get(f"{A}/list"), shown), *[(get(f"{A}/item?id={i}"), html(i)) for i in ids])
    replay = Replay(over)
    replay.ask(get(f"{A}/list"))
    assert replay.ask(get(f"{A}/item?id={ids[0]}")) == ids[0]
    assert replay.ask(get(f"{A}/item?id=zzZ9Xx8Yy7Ww")) == "miss"


# What is remembered must not outlive the state it was true in.


def test_a_remembered_answer_is_forgotten_when_something_changes() -> None:
    change = post(f"{A}/f", "x=1")
    over = matcher((get(f"{A}/l"), html("all")), (change, redirect("/l")), (get(f"{A}/l"), html("one")))
    replay = Replay(over)
    for _ in range(3):
        assert replay.ask(get(f"{A}/l")) == "all"
    replay.ask(change)
    assert replay.ask(get(f"{A}/l")) == "one"
    assert Replay(over).ask(get(f"{A}/l")) == "all"


def test_settled_is_only_what_no_session_can_change() -> None:
    over = matcher(
        (get(f"{A}/p"), html("x")),
        (get("http://b.test/"), html("y")),
        (post("http://b.test/f", "x=1"), redirect("/")),
    )
    assert over.lookup(get(f"{A}/p"), over.session()).settled
    assert not over.lookup(get("http://b.test/"), over.session()).settled


def test_redirects_without_a_body_differ_by_where_they_lead() -> None:
    one, other, third = (f"{A}/go?sid={c}8f3kQ7z2Lm5Wp9X4v{c}" for c in "abc")
    over = matcher((get(one), redirect("/x")), (get(other), redirect("/y")))
    assert verdict(over, get(third)) == "miss"
    assert verdict(matcher((get(one), redirect("/x")), (get(other), redirect("/x"))), get(third)) != "miss"
    vary = ("Vary", "Accept-Language")
    over = matcher(
        (get(f"{A}/", accept_language="en"), redirect("/en", vary)),
        (get(f"{A}/", accept_language="fr"), redirect("/fr", vary)),
    )
    assert verdict(over, get(f"{A}/", accept_language="fr-CA")) == "varies:accept-language"
    assert verdict(over, get(f"{A}/", accept_language="de")) == "miss"


def test_what_one_session_was_answered_does_not_change_another_ones_answer() -> None:
    sid = "sid=0123456789abcdef0123456789abcdef"
    known = get(f"{A}/", cookie=sid)
    recorded = [
        (get(f"{A}/"), html("home", 200, ("Set-Cookie", sid))),
        (known, html("home")),
        (post(f"{A}/f", "x=1", cookie=sid), redirect("/")),
        (get(f"{A}/i.png"), Response(200, "OK", (("Content-Type", "image/png"),), b"png")),
    ]
    for first in (get(f"{A}/"), known):
        over = matcher(*recorded)
        over.lookup(first, over.session())
        for request, gives in ((get(f"{A}/"), sid), (known, None)):
            capture = over.lookup(request, over.session()).capture
            assert capture is not None
            assert over.snapshot.read(capture).header("set-cookie") == gives
    over = matcher(*recorded)
    replay = Replay(over)
    replay.ask(post(f"{A}/f", "x=1", cookie=sid))
    states = {over.lookup(get(f"{A}/i.png"), s).state for s in (replay.session, over.session())}
    assert states == {""}


def _secret(letter: str) -> str:
    return f"Bearer stillweb-secret-{letter * 24}"


def test_a_page_for_somebody_is_not_the_page_for_nobody() -> None:
    me, nobody = get(f"{A}/me", authorization="Bearer mine"), get(f"{A}/me")
    recorded = [
        (nobody, html("who?", 401)),
        (get(f"{A}/me", authorization=_secret("a")), html("ann")),
        (get(f"{A}/open"), html("all")),
    ]
    over = matcher(*recorded)
    for order in ([nobody, me, me, nobody], [me, nobody, nobody, me]):
        replay = Replay(over)
        for request in order:
            assert replay.ask(request) == ("ann" if request is me else "who?")
            assert replay.last.verdict == "exact"
    assert verdict(over, get(f"{A}/me", authorization="Basic eDp5")) == "miss"
    assert verdict(over, get(f"{A}/open", authorization="Bearer mine")) == "exact"
    # of one who was never asked for without, that is said
    replay = Replay(matcher(recorded[1]))
    assert replay.ask(me) == "ann"
    assert (replay.last.verdict, replay.last.ambiguous) == ("exact", False)
    assert replay.ask(nobody) == "ann"
    assert (replay.last.verdict, replay.last.ambiguous) == ("varies:credentials", True)


def test_which_of_two_users_asks_is_not_known_once_their_names_are_replaced() -> None:
    pages = [(get(f"{A}/me", authorization=_secret(name[0])), html(name)) for name in ("ann", "bob")]
    over = matcher(*pages, *pages)
    replay = Replay(over)
    assert replay.ask(get(f"{A}/me", authorization="Bearer mine")) in ("ann", "bob")
    assert (replay.last.verdict, replay.last.ambiguous) == ("varies:credentials", True)
    assert verdict(over, get(f"{A}/me")) == "miss"
    for request, _ in pages:  # not replaced, they can be compared
        assert Replay(over).ask(request) == {"a": "ann", "b": "bob"}[str(request.header("authorization"))[-1]]
        assert verdict(over, request) == "exact"
