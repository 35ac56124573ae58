"""What follows from a write of which it is not sure that it was answered as the chosen capture says."""

from __future__ import annotations

import pytest

from stillweb.snapshots.request import Request
from stillweb.snapshots.states.conditions import UNSET, added
from tests.support.memory_store import Replay, get, html, post, stated

A = "http://a.test"
U = f"{A}/d"


def told(replay: Replay, request: Request) -> tuple[str, bool]:
    text = replay.ask(request)
    return text, bool(replay.last.ambiguous)


@pytest.mark.parametrize("effect", [" >cccccccc~dddddddd", " >cccccccc=dddddddd", ""])
def test_what_a_write_may_have_done_leaves_nothing_sure(effect: str) -> None:
    write = post(f"{A}/send", "token=1")
    replay = stated(
        (write, html("expired", 403), "#aaaaaaaa.0/."),
        (write, html("sent"), f"#aaaaaaaa.0/.{effect}"),
        (get(U), html("none"), ""),
    )
    assert told(replay, get(U)) == ("none", False)
    assert told(replay, write) == ("expired", True)
    assert told(replay, get(U)) == ("none", bool(effect))


def test_what_is_held_is_in_doubt_after_a_write_that_may_have_changed_it() -> None:
    write, sure = post(f"{A}/send", "token=1"), post(f"{A}/send", "token=2")
    held = "cccccccc=eeeeeeee cccccccc/" + added(UNSET, "eeeeeeee")
    replay = stated(
        (sure, html("sent"), ">cccccccc~eeeeeeee"),
        (write, html("expired", 403), "cccccccc* #aaaaaaaa.0/."),
        (write, html("sent"), "cccccccc* #aaaaaaaa.0/. >cccccccc~dddddddd"),
        (get(U), html("one"), held),
    )
    assert told(replay, sure) == ("sent", False)
    assert told(replay, get(U)) == ("one", False)
    assert told(replay, write) == ("expired", True)
    assert told(replay, get(U)) == ("one", True)
