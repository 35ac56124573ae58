"""A GET that changes what its server says next: an answer is sure only after what it was recorded after."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Request
from tests.support.memory_store import (
    MemoryStore,
    Recorded,
    Replay,
    answers,
    get,
    html,
    matcher,
    post,
    redirect,
)

A = "http://a.test"
ONE, TWO, THREE, RECENT, ABOUT = (get(f"{A}/{name}") for name in ("p/1", "p/2", "p/3", "recent", "about"))
STYLE = get(f"{A}/a.css")


def data(value: object) -> Response:
    return Response(200, "OK", (("Content-Type", "application/json"),), json.dumps(value).encode())


class Shop:
    """A server that keeps what each of its clients looked at."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def answer(self, request: Request) -> Response:
        path = request.url.removeprefix(A)
        if path.startswith("/p/"):
            self.seen.append(path[3:])
        if request == STYLE:
            return Response(200, "OK", (("Content-Type", "text/css"),), b"p {}")
        return html(" ".join(self.seen) if request == RECENT else path)


def shown(recorded: list[Request], *asked: Request) -> list[tuple[bool, bool]]:
    """What a replay of a shop says to each request: whether that is right, and whether it is called unsure."""
    server, live = Shop(), Shop()
    replay = Replay(matcher(*[(request, server.answer(request)) for request in recorded]))
    found = []
    for request in asked:
        right = replay.ask(request) == live.answer(request).body.decode()
        found.append((right, bool(replay.last.ambiguous)))
    return found


RIGHT, DOUBTED = (True, False), (False, True)
WALK = [RECENT, RECENT, ONE, RECENT, ABOUT, RECENT, TWO, RECENT, THREE]


def test_what_was_recorded_is_sure_in_its_order() -> None:
    assert shown(WALK, *WALK) == [RIGHT] * len(WALK)


def test_what_follows_from_another_get_is_not_sure_without_it() -> None:
    assert shown(WALK, TWO, RECENT) == [RIGHT, DOUBTED]
    assert shown(WALK, ONE, TWO, ONE, RECENT)[-1] == DOUBTED


def test_what_was_not_seen_to_make_no_difference_may_make_one() -> None:
    assert shown(WALK, ONE, THREE, RECENT)[-1] == DOUBTED
    assert shown(WALK, ONE, ABOUT, ABOUT, RECENT, RECENT, ABOUT, RECENT)[1:] == [RIGHT] * 6


def test_what_comes_before_the_first_of_a_session_counts() -> None:
    assert shown([ONE, RECENT, TWO, RECENT], RECENT) == [DOUBTED]


def test_a_page_that_was_not_recorded_may_have_changed_something_and_a_file_not() -> None:
    def told(miss: str) -> bool:
        server = Shop()
        replay = Replay(matcher(*[(request, server.answer(request)) for request in WALK]))
        assert replay.ask(get(f"{A}/{miss}")) == "miss"
        assert replay.ask(RECENT) == ""
        return bool(replay.last.ambiguous)

    assert (told("p/4"), told("p/4.png")) == (True, False)


def test_files_count_in_no_past() -> None:
    assert shown([STYLE, *WALK], RECENT, STYLE, ONE, STYLE, RECENT) == [RIGHT] * 5


def test_another_site_is_in_no_past() -> None:
    server = Shop()
    other = (get("http://b.test/"), html("b"))
    replay = Replay(matcher(other, *[(request, server.answer(request)) for request in WALK]))
    for request in (ONE, other[0], RECENT):
        replay.ask(request)
    assert not replay.last.ambiguous


def test_what_was_asked_at_once_has_no_order() -> None:
    asked = [ONE, TWO, RECENT, THREE, RECENT]
    times = [(1, 4), (2, 3), (5, 6), (7, 8), (9, 10)]
    said = ["p1", "p2", "1 2", "p3", "1 2 3"]
    recorded = [
        Recorded(r, html(t), events=when) for r, t, when in zip(asked, said, times, strict=True)
    ]  # fmt: skip
    over = matcher(*recorded)
    for order in ((ONE, TWO), (TWO, ONE)):
        replay = Replay(over)
        for request in order:
            replay.ask(request)
        assert (replay.ask(RECENT), replay.last.ambiguous) == ("1 2", False)


def test_an_answer_of_each_session_that_stayed_the_same_in_it_hangs_on_nothing_that_was_asked() -> None:
    recorded = [
        (request, html(text), name)
        for name, said in (("one", "A"), ("two", "B"))
        for request, text in ((RECENT, said), (ONE, "p1"), (RECENT, said))
    ]
    replay = Replay(matcher(*recorded), "one")
    for request in (TWO, ABOUT):
        replay.ask(request)
    for request, text in ((RECENT, "A"), (ONE, "p1"), (RECENT, "A")):
        assert (replay.ask(request), replay.last.ambiguous) == (text, False)


def test_sessions_that_differ_by_what_they_asked_first_are_told_by_that() -> None:
    """A count of what was asked; or it may be fixed at the first, so that what counted in none later may count before it."""
    recorded = [(r, data(t), "one") for r, t in ((RECENT, 0), (ABOUT, "about"), (RECENT, 0))]
    recorded += [(r, data(t), "two") for r, t in ((ONE, "p1"), (RECENT, 1), (ABOUT, "about"), (RECENT, 1))]
    for asked, count, unsure in (([], "0", False), ([ONE], "1", False), ([ABOUT], "0", True)):
        replay = Replay(matcher(*recorded), "new")
        for request in asked:
            replay.ask(request)
        assert (replay.ask(RECENT), replay.last.ambiguous) == (count, unsure)


def test_a_design_that_is_chosen_by_the_first_page_is_told_by_that() -> None:
    """Each page stays the same in its session, whatever comes between: what was asked before the first of them counts."""
    a, b, p = (get(f"{A}/{name}") for name in "abp")
    recorded = [(r, html(f"{r.url[-1]} x"), "one") for r in (a, p, a, b, a, b)]
    recorded += [(r, html(f"{r.url[-1]} y"), "two") for r in (b, p, b, a, b, a)]
    for first, said in ((a, "x"), (b, "y")):
        replay = Replay(matcher(*recorded), "new")
        for request in (first, p):
            assert (replay.ask(request)[-1], replay.last.ambiguous) == (said, False)
    replay = Replay(matcher(*recorded), "new")
    replay.ask(p)
    assert replay.last.ambiguous


def test_what_stopped_another_from_going_on_as_usual_makes_a_difference() -> None:
    """Pages that the server turns: to go back changed nothing at the beginning, and something later."""
    forth, back, about = (get(f"{A}/{name}") for name in ("next", "back", "about"))
    asked = [
        back,
        back,
        back,
        about,
        back,
        about,
        forth,
        about,
        about,
        about,
        forth,
        about,
        back,
        forth,
        forth,
    ]
    said = ["0", "0", "0", "about", "0", "about", "1", "about", "about", "about", "2", "about", "1", "2", "3"]
    replay = Replay(matcher(*zip(asked, map(html, said), strict=True)))
    for request in (forth, back, forth):
        replay.ask(request)
    assert replay.last.ambiguous


def after(recorded: dict[str, list[tuple[Request, str]]], *asked: Request) -> tuple[str, bool]:
    """What a new session is answered at last, and whether that is called unsure."""
    over = matcher(*[(r, html(t), name) for name, items in recorded.items() for r, t in items])
    replay = Replay(over, "new")
    return [(replay.ask(request), bool(replay.last.ambiguous)) for request in asked][-1]


def test_a_link_that_had_nothing_to_clear_may_clear_another_time() -> None:
    basket, clear, add, other = (get(f"{A}/basket{query}") for query in ("", "?clear=1", "?add=1", "?add=2"))
    recorded = {
        "one": [(basket, ""), (clear, ""), (basket, "")],
        "two": [(other, "2"), (basket, "2"), (clear, ""), (add, "1"), (clear, ""), (basket, "")],
        "three": [(add, "1"), (clear, ""), (basket, "")],
    }
    assert after(recorded, add, basket)[1], "it was only recorded after it was cleared"
    assert after(recorded, add, clear, basket) == ("", False)


def test_of_two_requests_that_were_new_one_may_undo_the_other() -> None:
    fr, de, here = get(f"{A}/set?lang=fr"), get(f"{A}/set?lang=de"), get(f"{A}/here")
    recorded = {
        "one": [(fr, "chosen"), (here, "fr"), (de, "chosen"), (fr, "chosen"), (here, "fr")],
        "two": [(fr, "chosen"), (fr, "chosen"), (de, "chosen"), (here, "de")],
        "three": [(here, "en")],
    }
    assert after(recorded, fr, fr, here)[1], "it was only recorded after another choice"
    assert after(recorded, fr, fr, de, here) == ("de", False)


@pytest.mark.parametrize("before", [[], [RECENT]])
def test_what_changes_itself_and_others_is_told_by_the_past(before: list[Request]) -> None:
    """A step through a list: `next` was seen to change what `here` shows, so it hangs on the other steps, too."""
    forth, back, here = (get(f"{A}/{name}") for name in ("next", "back", "here"))
    asked = [here, forth, here, forth, forth, back, here]
    said = ["0", "1", "1", "2", "3", "2", "2"]
    over = matcher(*[(r, html(t)) for r, t in zip(asked, said, strict=True)])
    replay = Replay(over)
    for request, text in zip(asked, said, strict=True):
        assert (replay.ask(request), replay.last.ambiguous) == (text, False)
    other = Replay(over)
    for request in (*before, back):
        other.ask(request)
    other.ask(forth)
    assert other.last.ambiguous


def test_after_more_than_is_remembered_nothing_of_it_is_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stillweb.snapshots.evidence.sessions.VISITS", 3)
    assert shown(WALK, RECENT) == [RIGHT]
    assert shown(WALK, ABOUT, ABOUT, ABOUT, RECENT)[-1] == (True, True)


def test_a_part_of_what_changed_with_the_past_hangs_on_it_too() -> None:
    """Where a part was recorded before the change, the whole that was recorded after it answers."""
    whole, part = get(f"{A}/log"), get(f"{A}/log", range="bytes=0-0")
    text = (("Content-Type", "text/plain"),)
    said = [
        Response(200, "OK", text, b"old"),
        Response(206, "", (*text, ("Content-Range", "bytes 0-0/3")), b"o"),
    ]
    over = matcher(
        (whole, said[0]), (part, said[1]), (ONE, html("p1")), (whole, Response(200, "OK", text, b"new"))
    )  # fmt: skip
    replay = Replay(over)
    asked = [(replay.ask(request), replay.last.ambiguous) for request in (whole, part, ONE, part)]
    assert asked == [("old", False), ("o", False), ("p1", False), ("new", False)]


def test_archives_that_do_not_say_whose_requests_were_whose_prove_no_past() -> None:
    server = Shop()
    recorded = [Recorded(request, server.answer(request), session="") for request in WALK]
    assert not any("%" in capture.state for capture in MemoryStore(recorded).captures())


@pytest.mark.parametrize("said", ["1 2 1", "1 2 3"])
def test_what_goes_on_by_itself_may_go_back_by_another_request(said: str) -> None:
    """`next`, which `reset` takes back to its beginning, or does not."""
    forth, back = get(f"{A}/next"), get(f"{A}/reset")
    first, second, third = (html(text) for text in said.split())
    over = matcher((forth, first), (forth, second), (back, html("ok")), (forth, third), (forth, html("4")))
    replay = Replay(over)
    assert (replay.ask(forth), replay.last.ambiguous) == ("1", False)
    replay.ask(back)
    replay.ask(forth)
    assert replay.last.ambiguous
    replay = Replay(over)
    for request, text in ((forth, "1"), (forth, "2"), (back, "ok"), (forth, said[-1]), (forth, "4")):
        assert (replay.ask(request), replay.last.ambiguous) == (text, False)


def recorded_walk(*said: tuple[Request, Response]) -> Callable[..., list[bool]]:
    """Which of the answers to other requests are unsure after this recording."""
    over = matcher(*said)

    def asked(*requests: Request) -> list[bool]:
        replay = Replay(over)
        found = []
        for request in requests:
            replay.ask(request)
            found.append(bool(replay.last.ambiguous))
        return found

    return asked


def test_a_page_that_changed_by_itself_may_change_by_other_requests_too() -> None:
    """A list of what was seen last in each of its pages: nothing tells that one changed because of another."""
    unsure = recorded_walk((TWO, html("")), (ONE, html("2")), (ONE, html("2 1")), (THREE, html("2 1 1")))
    assert unsure(TWO, ONE, ONE, THREE) == [False] * 4
    assert unsure(ONE) == [True]
    assert unsure(TWO, THREE, ONE) == [False, False, True]


def test_what_was_asked_before_anything_was_written_is_no_past_of_a_page_that_changed_by_itself() -> None:
    save, done = post(f"{A}/save", "x=1"), redirect("/recent")
    unsure = recorded_walk(
        (ONE, html("p1")), (RECENT, html("1")), (RECENT, html("2")), (save, done), (RECENT, html("saved"))
    )  # fmt: skip
    assert unsure(save, RECENT) == [False, False]
    assert unsure(ONE, save, RECENT) == [False, False, False]
    assert unsure(save, ONE, RECENT) == [False, False, True]


def test_what_differs_with_the_same_past_does_not_hang_on_it() -> None:
    """A clock, say: two sessions that asked alike saw different times."""
    sessions = [(name, [*said]) for name, said in (("one", "ab"), ("two", "cd"))]
    over = matcher(*[(RECENT, html(text), name) for name, said in sessions for text in said])
    replay = Replay(over, "one")
    replay.ask(ABOUT)
    assert [(replay.ask(RECENT), bool(replay.last.ambiguous)) for _ in "ab"] == [("a", False), ("b", False)]


@pytest.mark.parametrize("word", ["order", "cookie"])
def test_what_may_differ_because_of_its_own_text_or_cookies_does_not_hang_on_others(word: str) -> None:
    one, other = get(f"{A}/l?a=1&b=2"), get(f"{A}/l?b=2&a=1")
    if word == "cookie":
        one, other = get(f"{A}/l", cookie="size=1"), get(f"{A}/l", cookie="size=2")
    unsure = recorded_walk((ABOUT, html("about")), (one, html("1")), (one, html("2")), (other, html("3")))
    assert unsure(one) == [False]


def test_what_is_refused_for_being_asked_too_often_hangs_on_all_that_was_asked() -> None:
    """Also on what was seen once to make no difference."""
    one, two = get(f"{A}/api/1"), get(f"{A}/api/2")
    refused = html("too many", 429)
    walk = [(one, data(1)), (one, data(1)), (two, data(2)), (one, refused), (two, refused)]
    unsure = recorded_walk(*walk)
    assert unsure(*[request for request, _ in walk]) == [False] * len(walk)
    assert unsure(two) == [True]
    assert unsure(one, two, one)[1:] == [True, True]
    assert unsure(one, one, one, one)[2:] == [True, True]


def test_writes_have_their_place_among_what_was_asked() -> None:
    """Though just the same was asked for, and the same written."""
    save, done = post(f"{A}/clear", "x=1"), redirect("/about")
    walk = [RECENT, ONE, RECENT, save, RECENT, ONE, RECENT]
    said = [html(text) for text in ("", "p1", "1", "", "", "p1", "1")]
    said[3] = done
    unsure = recorded_walk(*zip(walk, said, strict=True))
    assert unsure(*walk) == [False] * len(walk)
    assert unsure(RECENT, ONE, RECENT, RECENT, ONE, save, RECENT)[-1]


def test_a_write_that_was_refused_hangs_on_its_condition_and_not_on_what_was_asked_before() -> None:
    first, second = (Request("PUT", f"{A}/doc", (("If-Match", f'"v{n}"'),), b"new") for n in (0, 1))
    over = matcher((first, html("stale", 412)), (ONE, html("p1")), (second, html("saved")))
    replay = Replay(over)
    for request, text in ((ONE, "p1"), (first, "stale"), (second, "saved")):
        assert (replay.ask(request), replay.last.ambiguous) == (text, False)


STEPPED = {
    # goes back by another request; the way forth was seen before
    "1 2 other 1 2 save 3": True,
    "1 2 3 other 1 save 2": True,
    # goes back by itself
    "1 2 1 2 other 1 save 2": False,
    "1 2 1 2 3 other 2 save 3": False,
    "1 2 other 1 2 1 save 2": False,
    # goes on otherwise than by itself
    "1 2 / 1 other 5 save 6": True,
    "1 2 / 1 other 2 save 3": False,
    "1 2 / 1 3 / 1 other 5 save 6": False,
    # stays where it twice went on by itself; once may be a matter of time
    "1 2 / 1 2 / 1 other 1 save 2": True,
    "1 2 / 1 other 1 save 2": False,
}


@pytest.mark.parametrize("walk", STEPPED)
def test_what_changes_by_itself_hangs_on_all_that_was_asked_where_others_were_seen_to_change_it(
    walk: str,
) -> None:
    """Also on what was asked before something was written, of which it is not known that it changes nothing."""
    forth, other, save = get(f"{A}/next"), get(f"{A}/other"), post(f"{A}/save", "x=1")
    named = {"other": (other, html("ok")), "save": (save, redirect("/about"))}
    recorded = [
        (*named.get(word, (forth, html(word))), f"s{number}")
        for number, session in enumerate(walk.split(" / "))
        for word in session.split()
    ]
    replay = Replay(matcher(*recorded), "new")
    replay.ask(save)
    replay.ask(forth)
    assert bool(replay.last.ambiguous) == STEPPED[walk]


def test_what_changes_by_itself_and_changes_another_page_hangs_on_all_that_was_asked() -> None:
    add, here, save = get(f"{A}/add"), get(f"{A}/here"), post(f"{A}/save", "x=1")
    asked = [(add, html("1")), (add, html("2")), (here, html("2")), (add, html("3")), (here, html("3"))]
    unsure = recorded_walk(*asked, (save, redirect("/about")), (add, html("4")))
    assert unsure(save, add) == [False, True]


def test_that_a_page_is_in_the_list_already_does_not_tell_that_it_does_nothing() -> None:
    """What alone came between two equal answers had been asked for before."""
    listed = [(RECENT, html("none")), (ONE, html("1")), (TWO, html("2")), (RECENT, html("2 1"))]
    again = [(TWO, html("2")), (RECENT, html("2 1")), (THREE, html("3")), (RECENT, html("3 2 1"))]
    over = matcher(*listed, *again)
    assert answers(over, RECENT, ONE, TWO, RECENT) == ["none", "1", "2", "2 1"]
    assert answers(over, RECENT, ONE, RECENT) == ["none", "1", "2 1?"]
