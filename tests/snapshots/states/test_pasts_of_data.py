"""Data that goes on by itself, as what is polled does: what of it hangs on what was asked before."""

from __future__ import annotations

import json

from stillweb.snapshots.capture import Response
from tests.support.memory_store import Replay, get, html, matcher, post, redirect

A = "http://a.test"
ONE, RECENT = get(f"{A}/p/1"), get(f"{A}/recent")


def data(value: object) -> Response:
    return Response(200, "OK", (("Content-Type", "application/json"),), json.dumps(value).encode())


def test_how_often_data_was_polled_is_in_no_past() -> None:
    poll = get(f"{A}/status")
    recorded = [RECENT, poll, poll, ONE, RECENT]
    said = [html(""), data(1), data(2), html("p1"), html("1")]
    replay = Replay(matcher(*zip(recorded, said, strict=True)))
    for request in (poll, ONE):
        replay.ask(request)
    assert (replay.ask(RECENT), replay.last.ambiguous) == ("", True), "the first of its own was not asked"
    replay = Replay(matcher(*zip(recorded, said, strict=True)))
    for request in (RECENT, poll, ONE):
        replay.ask(request)
    assert (replay.ask(RECENT), replay.last.ambiguous) == ("1", False)


def test_data_below_an_address_hangs_on_what_was_asked_there() -> None:
    """A list that goes on: its first answers came after the list was opened, which nobody saw left out."""
    feed, more = get(f"{A}/feed"), get(f"{A}/feed/more")
    recorded = [(feed, html("feed")), (more, data(1)), (more, data(2)), (more, data(3))]
    replay = Replay(matcher(*recorded))
    assert [(replay.ask(request), replay.last.ambiguous) for request in (feed, more, more)] == [
        ("feed", False), ("1", False), ("2", False),
    ]  # fmt: skip
    replay = Replay(matcher(*recorded))
    assert (replay.ask(more), replay.last.ambiguous) == ("1", True)


def test_data_below_an_address_goes_on_across_it_where_it_was_seen_to() -> None:
    feed, more = get(f"{A}/feed"), get(f"{A}/feed/more")
    asked = [(feed, html("feed")), (more, data(1)), (more, data(2)), (more, data(3))]
    recorded = [(r, a, "one") for r, a in asked]
    recorded += [(r, a, "two") for r, a in (*asked[:2], asked[0], *asked[2:])]
    replay = Replay(matcher(*recorded), "new")
    assert (replay.ask(more), replay.last.ambiguous) == ("1", False)


def test_data_that_was_asked_for_once_since_a_change_may_have_gone_on_by_itself() -> None:
    feed, more, clear = get(f"{A}/feed"), get(f"{A}/feed/more"), post(f"{A}/feed/clear", "x=1")
    said = [(feed, html("feed")), (more, data(1)), (more, data(2)), (more, data(3))]
    replay = Replay(matcher(*said, (clear, redirect("/feed")), (more, data(9))))
    for request in (feed, more, clear, more):
        replay.ask(request)
    assert not replay.last.ambiguous
    assert (replay.ask(more), replay.last.ambiguous) == ("9", True)


def test_data_that_is_put_back_by_another_request_is_not_only_polled() -> None:
    """A list that the server scrolls: `more` goes on by itself, and begins anew where the list was asked for."""
    first, more = get(f"{A}/feed"), get(f"{A}/feed/more")
    top = [(first, data("0 1")), (more, data("2 3"))]
    over = matcher(*top, (more, data("4 5")), *top, (more, data("4 5")), *top)
    recorded = Replay(over, "new")
    for request in (first, more, more, first, more):
        recorded.ask(request)
        assert not recorded.last.ambiguous
    asked = Replay(over, "new")
    said = [(asked.ask(request), bool(asked.last.ambiguous)) for request in (first, more, first, more)]
    assert said[-1] == ('"2 3"', False) or said[-1][1], "after the first again, it is not surely the next"


def test_an_order_is_not_sure_before_what_was_there_each_time_it_began() -> None:
    """A job that is asked for until it is done: whoever started none was not seen to be answered so."""
    start, job = post(f"{A}/jobs", "kind=a"), get(f"{A}/jobs/1")
    polls = [(job, data("running")), (job, data("running")), (job, data("done"))]
    first, second = (start, data({"id": 1})), (start, data({"id": 2}))
    walks = [[first, *polls, second], [first, polls[0], second, *polls[1:]]]
    over = matcher(*[(r, a, f"s{n}") for n, walk in enumerate(walks) for r, a in walk])
    asked = Replay(over, "new")
    assert asked.ask(job) == "miss" or asked.last.ambiguous
    for walk in walks:
        recorded = Replay(over, "new")
        for request, answer in walk:
            assert (recorded.ask(request), recorded.last.ambiguous) == (answer.body.decode(), False)
