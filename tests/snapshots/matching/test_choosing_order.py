"""Answers that change by themselves, and requests whose pairs come in another order: which of several is next."""

from __future__ import annotations

import pytest

from stillweb.snapshots.capture import Response
from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.matching.choosing import next_in_order
from stillweb.snapshots.matching.ladder import Matcher
from stillweb.snapshots.evidence.situation import Situation
from stillweb.snapshots.request import Request
from stillweb.snapshots.states.conditions import read
from tests.support.memory_store import MemoryStore, Recorded, Replay, get, html, matcher, plain, post

A = "http://a.test"


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
    over, asked = matcher(*[(get(f"{A}/p"), html(t)) for t in "123"]), get(f"{A}/p")
    store = over.snapshot
    now = Situation(asked, request_key(asked), None, None, store.read_request, store.read, over.peek)
    later = [c for c in store.captures() if (order := read(c.state).sequence) and order.place]
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
    def style(text: str) -> Response:
        return Response(200, "OK", (("Content-Type", "text/css"),), text.encode())

    recorded = [Recorded(get(f"{A}/alone.css"), style("alone"), "ann")]
    for name in ("ann", "bob"):
        recorded += [
            Recorded(get(f"{A}/both.css"), style("both"), name),
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


P, Q, STYLE = get(f"{A}/p"), get(f"{A}/q"), get(f"{A}/s.css")


@pytest.mark.parametrize(
    ("between", "asked", "unsure"),
    [
        ([], [P, P], [False, False]),  # it changes by itself
        ([Q], [P, Q, P], [False, False, False]),
        ([Q], [P, P], [False, True]),  # or was it the other one?
        ([Q], [Q, P], [False, True]),
        ([Q, STYLE], [P, STYLE, P], [False, False, True]),  # a file that stays the same is none
        ([], [P, Q, P], [False, False, False]),  # what was recorded after both is none of it
    ],
)
def test_what_came_between_two_answers_may_be_why_the_second_differs(
    between: list[Request], asked: list[Request], unsure: list[bool]
) -> None:
    style = Response(200, "OK", (("Content-Type", "text/css"),), b"a{}")
    first, second = (P, plain("en")), (P, plain("de"))
    others = [(r, style if r is STYLE else html("ok")) for r in between]
    over = matcher(first, *others, second, *([] if Q in between else [(Q, html("ok"))]))
    replay = Replay(over)
    found = []
    for request in asked:
        replay.ask(request)
        found.append(bool(replay.last.ambiguous))
    assert found == unsure


def test_what_came_between_two_answers_that_say_the_same_does_not_matter() -> None:
    over = matcher((P, plain("1")), (Q, html("ok")), (P, plain("1")), (P, plain("2")))
    replay = Replay(over)
    assert [(replay.ask(P), bool(replay.last.ambiguous)) for _ in range(2)] == [("1", False)] * 2


@pytest.mark.parametrize("between", [True, False])
def test_an_order_is_proven_where_nothing_came_between_once(between: bool) -> None:
    """Two sessions that did the same show as little as one."""
    one, two = ((P, "1"), (Q, "ok"), (P, "2")), ((P, "1"), *[(Q, "ok")] * between, (P, "2"))
    over = matcher(*[(r, html(t), s) for s, asked in (("one", one), ("two", two)) for r, t in asked])
    replay = Replay(over)
    assert [(replay.ask(P), bool(replay.last.ambiguous)) for _ in range(2)] == [("1", False), ("2", between)]


def test_what_follows_from_an_unsure_write_is_unsure() -> None:
    shown, one, other = get(f"{A}/t"), post(f"{A}/t", "tag=a&tag=b"), post(f"{A}/t", "tag=b&tag=a")
    over = matcher((shown, html("none")), (one, html("ok", 303, ("Location", "/t"))), (shown, html("a, b")))
    for write, unsure in ((one, False), (other, True)):
        replay = Replay(over)
        replay.ask(write)
        assert bool(replay.last.ambiguous) is unsure
        assert (replay.ask(shown), bool(replay.last.ambiguous)) == ("a, b", unsure)


@pytest.mark.parametrize("pad", ["", "x" * 300])
def test_the_same_asked_several_times_at_once_has_each_answer_once(pad: str) -> None:
    """As an agent does that samples a model; what each may have written begins the order anew for none of them."""
    ask = post("http://a.test/api/ask", '{"q": 1}', "application/json")
    recorded = [Recorded(ask, html(f"{number}{pad}"), events=(number + 1, number + 6)) for number in range(5)]
    store = MemoryStore(recorded)
    over = Matcher(store)
    session = over.session("replay")
    found = []
    for _ in range(6):
        lookup = over.lookup(ask, session)
        assert lookup.capture is not None
        session.answered(lookup)
        found.append((store.read(lookup.capture).body[:1], lookup.ambiguous))
    assert found == [(b"%d" % number, False) for number in range(5)] + [(b"4", True)]
