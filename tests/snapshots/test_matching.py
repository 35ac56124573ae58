"""The ladder and the choice among several captures, each step shown by a case that needs it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from snapshots import choosing, keys
from snapshots.capture import Response
from snapshots.choosing import Situation, next_in_order
from snapshots.conditions import read
from snapshots.errors import UsageError
from snapshots.keys import request_key
from snapshots.matching import Matcher
from snapshots.request import Request
from snapshots.rules import builtin
from tests.support.hard_set import pairs
from tests.support.memory_store import MemoryStore, Recorded, Replay, get, html, matcher, post, redirect

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


# Each step of the choice: what was recorded, what is asked, and the right answer.


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
        (get(f"{A}/q"), first), (get(f"{A}/p", cookie=f"sid={sid}"), html("hi ")), (get(f"{A}/p"), first), (get(f"{A}/p", cookie=f"sid={sid}"), html("hi "))
    )  # fmt: skip
    return over, [get(f"{A}/p")], "hi"


def _same_cookies() -> tuple[Matcher, list[Request], str]:
    over = matcher(
        (get(f"{A}/p", cookie="size=1"), html(_long("a"))), (get(f"{A}/p", cookie="size=2"), html(_long("b"))),
    )  # fmt: skip
    return over, [get(f"{A}/p", cookie="size=2")], _long("b")


def _next_in_order() -> tuple[Matcher, list[Request], str]:
    over = matcher(*[(get(f"{A}/p"), html(text)) for text in ("10%", "50%", "done")])
    return over, [get(f"{A}/p")] * 3, "done"


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
    "whole_or_asked": _whole_or_asked,
    "highest_layer": _highest_layer,
    "same_text": _same_text,
    "same_order": _same_order,
    "same_acquaintance": _same_acquaintance,
    "same_cookies": _same_cookies,
    "next_in_order": _next_in_order,
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


def test_the_last_of_a_changing_answer_is_held_and_called_unsure() -> None:
    replay = Replay(matcher(*[(get(f"{A}/p"), html(text)) for text in ("10%", "done")]))
    told = [replay.ask(get(f"{A}/p")) for _ in range(3)]
    assert told == ["10%", "done", "done"]
    assert replay.last.ambiguous
    strict = Replay(replay.matcher, accept="rule+unambiguous")
    assert [strict.ask(get(f"{A}/p")) for _ in range(3)] == ["10%", "done", "miss"]


def test_of_a_changing_answer_its_beginning_is_its_beginning_for_whoever_asks() -> None:
    """The first was recorded by a client that the server did not know yet, the asking one is known: no later one."""
    hello, tick = get(f"{A}/hello"), get(f"{A}/tick")
    known, other = (Response(200, "OK", (("Set-Cookie", f"sid={c * 32}; Path=/"),), b"1") for c in "ab")
    back = get(f"{A}/tick", cookie="sid=" + "a" * 32)
    over = matcher((tick, known), (back, html("2")), (back, html("3")), (get(f"{A}/x"), other))
    asked = get(f"{A}/tick", cookie="sid=" + "b" * 32)
    replay = Replay(over)
    replay.ask(get(f"{A}/x"))
    assert replay.ask(hello) == "miss"
    assert [replay.ask(asked) for _ in range(3)] == ["1", "2", "3"]


def test_what_comes_later_in_an_order_is_no_beginning() -> None:
    now = Situation(get(f"{A}/p"), request_key(get(f"{A}/p")), None, None)
    recorded = matcher(*[(get(f"{A}/p"), html(t)) for t in "123"]).snapshot.captures()
    later = [c for c in recorded if (order := read(c.state).sequence) and order.place]
    assert len(later) == 2
    assert next_in_order(later, now) == []
    assert now.why == ["order"]


def test_an_order_never_seen_of_a_repeated_name_is_unsure() -> None:
    over = matcher((get(f"{A}/p?s=b&s=a"), html("x")))
    lookup = over.lookup(get(f"{A}/p?s=a&s=b"), over.session())
    assert (lookup.verdict, lookup.ambiguous) == ("canonical", True)


def test_where_the_order_of_pairs_mattered_only_the_same_text_answers() -> None:
    recorded = [(get(f"{A}/p?{q}"), html(q)) for q in ("a=1&b=2&c=3", "b=2&a=1&c=3") for _ in range(2)]
    over = matcher(*recorded)
    assert Replay(over).ask(get(f"{A}/p?b=2&a=1&c=3")) == "b=2&a=1&c=3"
    other = Replay(over)
    assert other.ask(get(f"{A}/p?c=3&a=1&b=2")) == "miss"
    assert other.last.why == ("text",)


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


# The hard set.


def _hard(count: int, seed: int = 1) -> tuple[int, int, list[str]]:
    """How many pairs that are the same were found, of how many, and what was wrong."""
    found = asked = 0
    wrong = []
    for pair in pairs(count, seed):
        over = Matcher(MemoryStore([Recorded(pair.recorded, html("x"))]))
        hit = over.lookup(pair.asked, over.session()).capture is not None
        asked += pair.same
        found += pair.same and hit
        if hit and not pair.same:
            wrong.append(f"{pair.kind}: {pair.recorded} / {pair.asked}")
    return found, asked, wrong


def test_the_hard_set_has_no_wrong_answer(capsys: pytest.CaptureFixture[str]) -> None:
    found, asked, wrong = _hard(5000)
    with capsys.disabled():
        print(f"\nhard set: 5000 pairs, {len(wrong)} wrong, {found} of {asked} joined ({found / asked:.1%})")  # noqa: T201
    assert wrong == []
    assert found == asked


@pytest.mark.parametrize("part", [p.__name__ for p in keys.KEY_PARTS])
def test_without_a_part_of_the_key_the_hard_set_has_wrong_answers(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "KEY_PARTS", [p for p in keys.KEY_PARTS if p.__name__ != part])
    monkeypatch.setattr(keys, "plain_key", lambda url: None)  # the same key, made without the list
    assert _hard(400)[2]


@pytest.mark.parametrize("rule", [r.id for r in builtin().rules if r.kind not in ("issued", "redacted")])
def test_without_a_rule_the_hard_set_has_misses(rule: str) -> None:
    missed = 0
    for pair in pairs(400):
        if pair.same:
            store = MemoryStore([Recorded(pair.recorded, html("x"))], builtin().without(rule))
            missed += Matcher(store).lookup(pair.asked).capture is None
    assert missed


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


@pytest.mark.parametrize("media", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=b"])
def test_another_order_of_a_repeated_name_in_a_form_is_ambiguous(media: str) -> None:
    def ask(*pairs: str) -> Request:
        if media.startswith("multipart"):
            part = '--b\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
            return post(f"{A}/s", "".join(part.format(*p.split("=")) for p in pairs) + "--b--\r\n", media)
        return post(f"{A}/s", "&".join(pairs), media)

    over = matcher((ask("s=a", "s=b", "x=1"), html("by a")))
    for request, ambiguous in ((ask("x=1", "s=a", "s=b"), False), (ask("s=b", "s=a", "x=1"), True)):
        replay = Replay(over)
        assert replay.ask(request) == "by a"
        assert (replay.last.verdict, replay.last.ambiguous) == ("canonical", ambiguous)


def _seen_by(ann: list[str], bob: list[str]) -> Matcher:
    """An answer that changes, as two recorded sessions saw it."""
    seen = [
        Recorded(get(f"{A}/now"), html(t), name) for name, said in (("ann", ann), ("bob", bob)) for t in said
    ]
    return matcher(*seen)


def test_another_session_speaks_for_what_came_next_only_where_both_saw_the_same_so_far() -> None:
    now = get(f"{A}/now")
    replay = Replay(_seen_by(["1", "2"], ["1", "2", "3"]), "ann")
    assert [replay.ask(now) for _ in range(3)] == ["1", "2", "3"]
    assert not replay.last.ambiguous
    replay = Replay(_seen_by(["1", "2"], ["5", "6", "7"]), "ann")
    assert [replay.ask(now) for _ in range(3)] == ["1", "2", "2"], "its own last, not the other's next"
    assert replay.last.ambiguous


def test_what_recorded_sessions_saw_differently_is_unsure_for_a_new_one() -> None:
    replay = Replay(_seen_by(["1", "2"], ["5", "6"]), "new")
    replay.ask(get(f"{A}/now"))
    assert replay.last.ambiguous
    replay = Replay(_seen_by(["1", "2"], ["1", "2"]), "new")
    replay.ask(get(f"{A}/now"))
    assert not replay.last.ambiguous


@pytest.mark.parametrize("order", [("ann", "bob"), ("bob", "ann"), ("bob",), ("ann", "new", "bob")])
def test_a_session_follows_the_recorded_one_of_its_name_whoever_came_before(order: tuple[str, ...]) -> None:
    recorded = [Recorded(get(f"{A}/alone.css"), html("alone"), "ann")]
    for name in ("ann", "bob"):
        recorded += [
            Recorded(get(f"{A}/both.css"), html("both"), name),
            Recorded(get(f"{A}/now"), html(f"{name} 1"), name),
            Recorded(get(f"{A}/now"), html(f"{name} 2"), name),
        ]
    over = matcher(*recorded)
    for name in order:
        session = over.session(name)
        for path in ("both.css", "alone.css", "now", "both.css", "now"):
            found = over.lookup(get(f"{A}/{path}"), session)
            session.answered(found)
            assert found.capture is not None
            expected = "ann" if path == "alone.css" or name == "new" else name
            assert (found.capture.session, found.ambiguous) == (expected, False)


def test_an_order_that_was_the_same_whatever_the_cookies_goes_on_whatever_they_are() -> None:
    now = [get(f"{A}/now", cookie=f"size={size}") for size in range(4)]
    seen = [("s1", 1, "a"), ("s1", 2, "b"), ("s1", 3, "c"), ("s2", 2, "a"), ("s2", 1, "b"), ("s2", 2, "c")]
    replay = Replay(matcher(*[Recorded(now[size], html(text), name) for name, size, text in seen]))
    assert [replay.ask(now[1]) for _ in range(3)] == ["a", "b", "c"]
