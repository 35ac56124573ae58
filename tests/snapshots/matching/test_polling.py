"""Engine.IO's channels: polls are answered in recorded order, each when all was said that it came after."""

from __future__ import annotations

from itertools import count

import pytest

from stillweb.snapshots.identity.rules import builtin
from stillweb.snapshots.matching.ladder import Matcher
from stillweb.snapshots.request import Request
from tests.support.memory_store import MemoryStore, Recorded, Replay, get, plain, post

AT = "http://a.test/socket.io/?EIO=4&transport=polling"
ONE, TWO = "Vq1xLk4tR8mZp0cJwA3d", "Hn7sQy2bG5fUe9oTiX6k"
drawn = count()


def at(channel: str = "") -> str:
    """An address as a client asks for it: never the same twice."""
    return f"{AT}&t=k{next(drawn):07}" + (f"&sid={channel}" if channel else "")


def hello() -> Request:
    return get(at())


def poll(channel: str = ONE) -> Request:
    return get(at(channel))


def say(text: str, channel: str = ONE) -> Request:
    return post(at(channel), text, "text/plain;charset=UTF-8")


def socket(channel: str = ONE) -> Request:
    address = AT.replace("polling", "websocket") + (f"&sid={channel}" if channel else "")
    return get(address, Connection="Upgrade", Upgrade="websocket")


def recorded(*exchanges: tuple[Request, str, int, int]) -> Matcher:
    """Exchanges of one session, with the numbers of the events at which each began and ended."""
    return Matcher(MemoryStore([Recorded(r, plain(t), "s", events=(b, e)) for r, t, b, e in exchanges]))


def a_channel() -> Matcher:
    return recorded(
        (hello(), "0", 1, 2),
        (say("40"), "ok", 3, 5),
        (poll(), "40 welcome", 4, 6),
        (poll(), "42 a was said", 7, 10),
        (say("42 a"), "ok", 8, 9),
        (poll(), "2", 11, 12),
        (say("3"), "ok", 13, 14),
        (poll(), "2", 15, 16),
        (say("3"), "ok", 17, 18),
    )


def told(replay: Replay, request: Request) -> str:
    """The answer; before `...` what is not yet to be said, and before `?` what is not sure."""
    waits = replay.matcher.polling.waits(request, replay.session)
    text = replay.ask(request)
    return text + ("..." if waits else "") + ("?" if replay.last.ambiguous and text != "miss" else "")


def test_a_poll_is_answered_when_all_was_said_before_it() -> None:
    replay = Replay(a_channel())
    assert told(replay, hello()) == "0"
    assert replay.last.verdict == "rule:engine-io"
    assert replay.matcher.polling.waits(poll(), replay.session)
    assert told(replay, say("40")) == "ok"
    assert told(replay, poll()) == "40 welcome"
    assert replay.matcher.polling.waits(poll(), replay.session)
    assert told(replay, say("42 a")) == "ok"
    assert told(replay, poll()) == "42 a was said"


def test_the_same_said_twice_counts_twice() -> None:
    replay = Replay(a_channel())
    for request in (hello(), say("40"), poll(), say("42 a"), poll()):
        assert "?" not in told(replay, request)
    assert [told(replay, r) for r in (poll(), say("3"), poll(), say("3"))] == ["2", "ok", "2", "ok"]
    assert told(replay, say("3")) == "ok?"


def test_after_the_last_a_poll_stays_open() -> None:
    replay = Replay(recorded((hello(), "0", 1, 2), (poll(), "2", 3, 4)))
    assert [told(replay, r) for r in (hello(), poll())] == ["0", "2"]
    assert told(replay, poll()) == "2...?"


def test_each_handshake_begins_a_channel_of_its_own() -> None:
    replay = Replay(
        recorded(
            (hello(), "0 one", 1, 2),
            (poll(), "of one", 3, 4),
            (hello(), "0 two", 5, 6),
            (poll(TWO), "of two", 7, 8),
        )
    )
    asked = (hello(), poll(), hello(), poll(TWO))
    assert [told(replay, request) for request in asked] == ["0 one", "of one", "0 two", "of two"]
    assert told(replay, hello()).endswith("?")


def test_what_another_page_says_counts() -> None:
    replay = Replay(
        recorded(
            (hello(), "0 one", 1, 2),
            (hello(), "0 two", 3, 4),
            (poll(ONE), "42 said on two", 5, 8),
            (say("42", TWO), "ok", 6, 7),
        )
    )
    assert [told(replay, r) for r in (hello(), hello())] == ["0 one", "0 two"]
    assert replay.matcher.polling.waits(poll(ONE), replay.session)
    assert [told(replay, r) for r in (say("42", TWO), poll(ONE))] == ["ok", "42 said on two"]


def test_what_was_not_said_is_a_miss() -> None:
    replay = Replay(a_channel())
    assert [told(replay, r) for r in (say("42 b"), poll("Kw3jNs8vD1qYh5rB0zMx"))] == ["miss", "miss"]


@pytest.mark.parametrize("accept", ["exact", "canonical", "varies"])
def test_without_rules_none_is_the_same(accept: str) -> None:
    replay = Replay(a_channel(), accept=accept)
    assert [replay.ask(r) for r in (hello(), poll())] == ["miss", "miss"]


@pytest.mark.parametrize("query", ["transport=polling&sid=1", "EIO=4&its-transport=polling&sid=1"])
def test_other_addresses_with_such_words_wait_for_nothing(query: str) -> None:
    page = get(f"http://a.test/timetable?{query}")
    replay = Replay(recorded((page, "trains", 1, 2)))
    assert [told(replay, page) for _ in range(2)] == ["trains", "trains"]


def upgrading(*more: tuple[Request, str, int, int]) -> Matcher:
    """A channel that went on in a web socket before its last poll was answered."""
    over = recorded((hello(), "0", 1, 2), (poll(), "6", 5, 8), *more)
    assert isinstance(over.snapshot, MemoryStore)
    over.snapshot.talks = [(socket().url, {"messages": []})]
    return over


def test_the_last_poll_waits_for_the_web_socket_that_takes_its_place() -> None:
    replay = Replay(upgrading())
    assert told(replay, hello()) == "0"
    assert replay.matcher.polling.waits(poll(), replay.session)
    replay.session.opened(socket(TWO).url)
    assert replay.matcher.polling.waits(poll(), replay.session), "another page's"
    replay.session.opened(socket().url)
    assert told(replay, poll()) == "6"


def test_a_poll_before_what_was_posted_waits_for_no_web_socket() -> None:
    replay = Replay(upgrading((say("42"), "ok", 9, 10)))
    assert [told(replay, r) for r in (hello(), poll())] == ["0", "6"]


def test_a_web_socket_waits_for_what_was_posted_on_its_channel() -> None:
    unrelated = (post("http://a.test/socket.io/?log", "x"), "ok", 13, 14)
    replay = Replay(upgrading((say("42"), "ok", 6, 7), (say("42", TWO), "ok", 11, 12), unrelated))
    waits = replay.matcher.polling.waits
    assert waits(socket(), replay.session)
    assert not waits(socket(""), replay.session), "it was opened without polls"
    told(replay, say("42"))
    assert not waits(socket(), replay.session)


def test_a_poll_waits_for_nothing_that_is_on_no_channel_or_was_said_by_others() -> None:
    store = MemoryStore(
        [
            Recorded(hello(), plain("0"), "s", events=(1, 2)),
            Recorded(post("http://a.test/socket.io/?log", "x"), plain("ok"), "s", events=(3, 4)),
            Recorded(poll(), plain("2"), "s", events=(5, 6)),
            Recorded(say("42", TWO), plain("ok"), "other", events=(1, 2)),
        ]
    )
    replay = Replay(Matcher(store))
    assert [told(replay, r) for r in (hello(), poll())] == ["0", "2"]


def test_what_answers_no_poll_is_none() -> None:
    """A web socket that was refused, and what a browser asks beforehand."""
    asks = Request("OPTIONS", at(ONE))
    refused = (socket(), "no web sockets here", 3, 4)
    over = recorded(
        (hello(), "0", 1, 2), refused, (asks, "you may", 5, 6), (poll(), "1", 7, 8), (poll(), "2", 9, 10)
    )
    replay = Replay(over)
    assert [told(replay, r) for r in (hello(), poll())] == ["0", "1"]
    assert told(replay, Request("OPTIONS", at(ONE))) == "you may"
    again = Replay(over)
    assert [told(again, r) for r in (hello(), socket(), poll(), poll())] == ["0", refused[1], "1", "2"]


def test_another_query_is_another_request() -> None:
    named = [get(f"{at(ONE)}&token={name}") for name in "AB"]
    replay = Replay(recorded((hello(), "0", 1, 2), (named[0], "for A", 3, 4)))
    assert [told(replay, r) for r in (hello(), named[1], named[0])] == ["0", "miss", "for A"]


def test_in_a_snapshot_sealed_without_the_rule_nothing_is_the_same() -> None:
    rules = builtin().without("engine-io")
    store = MemoryStore(
        [Recorded(r, plain(t)) for r, t in ((hello(), "0"), (poll(), "1"), (poll(), "2"))], rules
    )
    replay = Replay(Matcher(store))
    assert [replay.ask(r) for r in (hello(), poll(), poll())] == ["miss"] * 3
