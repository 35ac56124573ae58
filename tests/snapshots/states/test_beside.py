"""A visit that stood beside a write, each time that an answer changed, may be why as well as the write."""

from __future__ import annotations

from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Request
from tests.support.memory_store import Replay, get, html, matcher, post, redirect

A = "http://a.test"
ONE, TWO, ABOUT, LIST = (get(f"{A}/{name}") for name in ("n/1", "n/2", "about", "list"))
READ = post(f"{A}/n/read-all", b"all=1")
RIGHT, DOUBTED = (True, False), (False, True)


class Notices:
    """A server whose notices are read by being looked at, or all at once."""

    def __init__(self) -> None:
        self.unread = {"1", "2"}

    def answer(self, request: Request) -> Response:
        path = request.url.removeprefix(A)
        if request == READ:
            self.unread.clear()
            return redirect("/about")
        self.unread.discard(path[3:])
        return html(" ".join(sorted(self.unread)) if path in ("/list", "/badge") else path)


def shown(recorded: list[Request], *asked: Request) -> list[tuple[bool, bool]]:
    """What a replay says to each request: whether that is right, and whether it is called unsure; a miss is neither."""
    server, live = Notices(), Notices()
    replay = Replay(matcher(*[(request, server.answer(request)) for request in recorded]))
    found = []
    for request in asked:
        said = replay.ask(request)
        found.append((said == live.answer(request).body.decode(), bool(replay.last.ambiguous)))
    return found


WALK = [LIST, ONE, READ, ABOUT, LIST]


def test_what_was_recorded_is_sure() -> None:
    assert shown(WALK, *WALK) == [RIGHT] * len(WALK)


def test_a_visit_may_be_why_as_well_as_the_write_beside_it() -> None:
    assert shown(WALK, LIST, ONE, LIST) == [RIGHT, RIGHT, DOUBTED]
    assert shown(WALK, READ, LIST)[-1] == (True, True)


def test_so_is_one_that_was_not_recorded_before_the_write() -> None:
    assert shown([LIST, READ, ABOUT, ONE, LIST], ONE, LIST) == [(False, False), DOUBTED]


def test_a_write_that_changed_it_alone_is_why() -> None:
    alone = [LIST, READ, ABOUT, LIST, ONE, LIST]
    assert shown([*WALK, LIST], READ, ABOUT, LIST)[-1] == (True, True)
    assert shown(alone, READ, ABOUT, LIST)[-1] == RIGHT


def test_what_a_write_leads_to_is_not_why() -> None:
    assert shown([LIST, READ, ABOUT, LIST], READ, LIST)[-1] == RIGHT


def test_a_visit_that_left_the_answer_as_it_was_is_not_why() -> None:
    cleared = [LIST, ABOUT, LIST, ABOUT, READ, LIST]
    assert shown(cleared, LIST, READ, LIST)[-1] == RIGHT
    other = get(f"{A}/other")
    assert shown([LIST, other, READ, ABOUT, LIST], LIST, other, LIST)[-1] == (True, True)
    assert shown([LIST, other, LIST, other, READ, ABOUT, LIST], READ, ABOUT, LIST)[-1] == RIGHT


def test_a_page_that_the_write_changed_as_well_is_not_why() -> None:
    badge = get(f"{A}/badge")
    assert shown([LIST, badge, READ, ABOUT, badge, LIST], READ, ABOUT, LIST)[-1] == RIGHT


def test_a_visit_that_came_before_both_answers_is_not_why() -> None:
    other = get(f"{A}/other")
    assert shown([other, LIST, other, READ, ABOUT, LIST], READ, ABOUT, LIST)[-1] == RIGHT
