"""Engine.IO's channels: polls are answered in recorded order, each when all was said that it came after."""

from __future__ import annotations

from itertools import count

import pytest

from snapshots.matching.ladder import Matcher
from snapshots.request import Request
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


def test_other_addresses_with_such_words_wait_for_nothing() -> None:
    page = get("http://a.test/timetable?transport=polling&sid=1")
    replay = Replay(recorded((page, "trains", 1, 2)))
    assert [told(replay, page) for _ in range(2)] == ["trains", "trains"]
