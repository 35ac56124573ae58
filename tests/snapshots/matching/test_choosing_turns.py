"""Answers that change by themselves, in their order: which of them is next, and for whom. `?` marks what is not sure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.snapshots.identity.rules import builtin
from stillweb.snapshots.matching.ladder import Matcher
from stillweb.snapshots.request import Request
from stillweb.snapshots.states.groups import check_rules
from tests.support.memory_store import (
    MemoryStore,
    Recorded,
    Replay,
    answers,
    get,
    html,
    matcher,
    plain,
    post,
    redirect,
)

A = "http://a.test"
PAGE, OTHER = get(f"{A}/page"), get(f"{A}/other")
Said = tuple[Request, str]


def sessions(*each: Iterable[Said]) -> Matcher:
    """What several recorded sessions asked and were told: pages where they asked for one, else data."""
    return Matcher(
        MemoryStore(
            [
                Recorded(request, (html if request.header("accept") else plain)(text), f"s{number}")
                for number, said in enumerate(each)
                for request, text in said
            ]
        )
    )


def said(*texts: str) -> list[Said]:
    return [(PAGE, text) for text in texts]


def test_the_last_stays_the_answer_wherever_else_the_session_went() -> None:
    over = sessions([(OTHER, "other"), *said("10%", "50%", "done")])
    assert answers(over, PAGE, PAGE, PAGE, OTHER, PAGE) == ["10%", "50%", "done", "other", "done?"]


def ask_model(run: int, question: str = "How long is it?") -> Request:
    """As OpenAI's Agents SDK asks: with another key for each run."""
    body = json.dumps({"input": question, "prompt_cache_key": f"agents-sdk:run:{run:032x}"})
    return post("https://api.openai.test/v1/responses", body, "application/json")


def test_a_model_asked_the_same_again_answers_in_order_whatever_its_cache_is_filed_under() -> None:
    over = sessions([(ask_model(1), "one"), (OTHER, "page"), (ask_model(2), "two"), (ask_model(3), "three")])
    assert answers(over, ask_model(4), OTHER, ask_model(5), ask_model(6)) == ["one", "page", "two", "three"]


def test_a_model_asked_the_same_at_once_draws_other_answers_and_the_rule_stays() -> None:
    """For an evident rule: here the same request, too, would be answered differently."""
    asked = [(ask_model(n), f"drawn {n}", (n, 10 + n)) for n in range(4)]
    asked.append((ask_model(9, "How wide is it?"), "wide", (20, 21)))
    store = MemoryStore([Recorded(r, plain(text), events=events) for r, text, events in asked])
    assert check_rules(store.captures(), store.read_request, store.read, builtin()).refused == ()
    again = [ask_model(10 + n) for n in range(4)]
    assert answers(Matcher(store), *again, ask_model(19, "How wide is it?")) == [
        *(f"drawn {n}" for n in range(4)),
        "wide",
    ]


def told_model(moment: str, question: str = "How long is it?") -> Request:
    body = json.dumps({"model": "m", "instructions": f"Current time: {moment}", "input": question})
    return post("https://api.openai.test/v1/responses", body, "application/json")


def test_a_model_told_the_time_answers_in_order_at_any_other_time() -> None:
    times = [f"2026-11-24T10:0{n}:33Z" for n in range(4)]
    over = sessions([(told_model(times[n]), f"drawn {n}") for n in range(3)])
    assert answers(over, *[told_model(f"2027-01-02T09:0{n}:00Z") for n in range(3)]) == [
        "drawn 0",
        "drawn 1",
        "drawn 2",
    ]
    assert answers(over, told_model(times[1])) == ["drawn 1"]
    assert answers(over, told_model(times[3], "How wide is it?")) == ["miss"]


def test_the_very_request_of_another_state_is_not_the_answer_where_a_rule_leads_to_the_right_one() -> None:
    before, after = (get(f"{A}/list?ts=170000000000{n}") for n in range(2))
    change = post(f"{A}/filter", "kind=toys")
    over = sessions([(before, "all"), (change, "done"), (after, "toys")])
    assert answers(over, after, change, before) == ["all", "done", "toys"]


def test_one_who_follows_a_session_that_never_asked_has_the_last_of_the_others() -> None:
    over = sessions(said("10%", "50%"), [(OTHER, "other")])
    assert answers(over, PAGE, PAGE, OTHER, PAGE) == ["10%", "50%", "other", "50%?"]


def test_a_session_that_saw_the_same_so_far_goes_on_for_one_that_ended() -> None:
    over = sessions(said("10%", "50%"), said("10%", "50%", "90%"))
    assert answers(over, PAGE, PAGE, PAGE) == ["10%", "50%", "90%"]


def test_one_that_saw_something_else_does_not() -> None:
    over = sessions(said("10%", "50%"), said("10%", "60%", "70%"))
    assert answers(over, *[PAGE] * 4) == ["10%", "50%?", "50%?", "50%?"], "nothing tells which it is"
    over = sessions(said("10%", "50%"), said("10%", "60%", "70%"), said("10%", "50%", "90%"))
    assert answers(over, *[PAGE] * 3)[-1].removesuffix("?") == "90%"


def test_one_session_that_asked_at_once_shows_that_nothing_else_made_the_change() -> None:
    """In another one there was something in between, that is not asked for here."""
    over = sessions([(OTHER, "o"), *said("10%", "50%")], [*said("10%"), (OTHER, "o"), *said("50%")])
    assert answers(over, PAGE, PAGE) == ["10%", "50%"]


def test_without_a_cookie_the_order_is_that_of_those_who_had_none() -> None:
    with_one = get(PAGE.url, cookie="size=1")
    over = matcher(
        (PAGE, html("10%")), (PAGE, html("50%")), (with_one, html("90%")), (with_one, html("done")),
    )  # fmt: skip
    assert answers(over, PAGE, PAGE, PAGE) == ["10%", "50%", "50%?"]


def test_a_refused_write_is_refused_as_often_as_it_is_tried() -> None:
    def put(tag: str) -> Request:
        return Request("PUT", PAGE.url, (("If-Match", tag),), b"new")

    over = matcher((put('"v0"'), html("stale", 412)), (put('"v1"'), html("saved")))
    assert answers(over, put('"v0"'), put('"v0"'), put('"v0"')) == ["stale"] * 3


def test_what_another_session_did_there_is_not_what_came_between() -> None:
    """The second answer came after another exchange, which may be why it changed: that of its own session counts."""
    over = sessions(
        [(PAGE, "10%"), (OTHER, "o"), (PAGE, "50%")], [(get(f"{A}/y{n}"), str(n)) for n in range(3)]
    )
    assert answers(over, PAGE, OTHER, PAGE) == ["10%", "o", "50%"]
    assert answers(over, PAGE, get(f"{A}/y1"), PAGE) == ["10%", "1", "50%?"]


def test_what_changed_by_itself_before_may_do_so_after_a_change_too() -> None:
    """With this past it was asked for once; that a message stays, say, nobody saw."""
    change = post(f"{A}/x", "x=1")
    for recorded in ("saved!",), ("saved!", "quiet"):
        said_then = [(PAGE, html(text)) for text in recorded]
        over = matcher((PAGE, html("one")), (PAGE, html("two")), (change, redirect("/page")), *said_then)
        assert answers(over, change, *[PAGE] * 3) == [
            "",
            *recorded,
            *[f"{recorded[-1]}?"] * (3 - len(recorded)),
        ]


def test_what_a_page_brings_in_follows_the_page() -> None:
    """Not what was answered last, which another visit alone had."""
    page, file, alone = get(f"{A}/", accept="text/html"), get(f"{A}/file"), get(f"{A}/alone")
    drawn = [f"file 123e4567-e89b-12d3-a456-42661417400{letter}" for letter in "ab"]
    over = sessions([(page, "page"), (file, drawn[0])], [(page, "page"), (alone, "alone"), (file, drawn[1])])
    assert answers(over, page, alone, file) == ["page", "alone", drawn[0]]


def test_a_session_that_is_followed_by_a_guess_is_followed_unsurely() -> None:
    """Two visitors who were shown different designs; what only one of them asked for tells which it is."""
    one, two = get(f"{A}/one"), get(f"{A}/two")
    over = sessions([*said("a", "a"), (one, "1")], [*said("b", "b"), (two, "2")])
    assert answers(over, PAGE, PAGE, PAGE) == ["a?", "a?", "a?"]
    assert answers(over, two, PAGE, PAGE) == ["2", "b", "b"]


def test_what_several_were_told_does_not_tell_which_of_them_is_followed() -> None:
    over = sessions([(OTHER, "o"), *said("a", "a")], [(OTHER, "o"), (OTHER, "o"), *said("b", "b")])
    assert answers(over, OTHER, PAGE, PAGE)[1:] == ["a", "a"], "just so it was asked"
    one = get(f"{A}/one")
    over = sessions([(OTHER, "o"), *said("a", "a"), (one, "1")], [(OTHER, "o"), *said("b", "b")])
    assert answers(over, OTHER, PAGE, PAGE) == ["o", "a?", "a?"]
    assert answers(over, OTHER, one, PAGE) == ["o", "1", "a"], "only one has asked that"


def test_one_who_is_followed_by_a_guess_is_no_surer_where_the_others_ended() -> None:
    over = sessions(said("a", "a", "a"), said("b"))
    assert answers(over, PAGE, PAGE, PAGE) == ["a?", "a?", "a?"]


def test_what_is_only_suspected_to_matter_begins_no_order_anew() -> None:
    note = post(f"{A}/note", "{}", "application/json")
    over = sessions([(note, "ok"), (PAGE, "10%"), (note, "ok"), (PAGE, "50%"), (PAGE, "90%")])
    assert answers(over, note, PAGE, note, PAGE, PAGE) == ["ok", "10%", "ok", "50%", "90%"]


def test_what_was_asked_for_before_its_order_can_begin_is_no_turn_of_it() -> None:
    job = post(f"{A}/jobs", '{"kind": 1}', "application/json")
    walk: list[Said] = [(job, "made"), *said("running", "halfway", "done")]
    over = sessions(walk, walk)
    assert answers(over, PAGE, PAGE, job, PAGE) == ["running?", "running?", "made", "running"]


def also(number: int) -> Request:
    return get(f"{A}/also/{number}")


@given(
    st.lists(st.integers(0, 2), max_size=4),
    st.lists(st.integers(-1, 7), max_size=12),
    st.sampled_from(["s", ""]),
)
def test_a_poll_is_sure_where_as_much_was_asked_around_it_as_when_it_was_recorded(
    gaps: list[int], asked: list[int], session: str
) -> None:
    """`gaps`: what else was asked after each answer; -1 asks for the next one. Archives of others name no session."""
    gaps = [0, *gaps]  # it goes on by itself
    names = iter(range(100))
    between = [[next(names) for _ in range(gap)] for gap in gaps]
    recorded: list[Said] = [(PAGE, "0")]
    for place, gap in enumerate(between, 1):
        recorded += [*((also(number), "also") for number in gap), (PAGE, str(place))]
    recorded += [(also(number), "also") for number in range(sum(gaps), 8)]
    over = matcher(*[Recorded(request, plain(text), session) for request, text in recorded])
    expected, seen, place = [], set[int](), 0
    for number in asked:
        if number >= 0:
            expected.append("also")
            seen.add(number)
            continue
        held = place == len(gaps) + 1
        before = between[place - 1] if 0 < place <= len(gaps) else []
        after = between[place] if place < len(gaps) else []
        sure = not held and (not before or seen & {*before}) and not seen & {*after}
        place -= held
        expected.append(f"{place}{'' if sure else '?'}")
        place += 1
    assert answers(over, *[PAGE if number < 0 else also(number) for number in asked]) == expected


def poll(*sessions: str) -> Matcher:
    """A poll as several sessions saw it: a digit is its answer, `o` something else that was asked."""
    return matcher(
        *[
            Recorded(*((OTHER, plain("o")) if one == "o" else (PAGE, plain(one))), f"s{number}")
            for number, said in enumerate(sessions)
            for one in said
        ]
    )


@pytest.mark.parametrize(
    ("recorded", "unsure"),
    [
        (["12o3"], True),
        (["12o3", "12o3"], False),  # it goes on alike in both
        (["12o3", "1234", "1235"], False),  # it was seen to go on so without
        (["12o3", "129"], True),  # it was seen to go on otherwise
    ],
)
def test_what_was_said_after_something_else_is_sure_without_it_where_the_same_was_said_so(
    recorded: list[str], unsure: bool
) -> None:
    replay = Replay(poll(*recorded), "s0")
    assert [replay.ask(PAGE) for _ in range(3)] == ["1", "2", "3"]
    assert replay.last.ambiguous is unsure


def test_several_that_were_told_the_same_with_another_status_were_told_different_things() -> None:
    """A job that one found accepted, and another one not at all."""
    over = matcher(
        *[
            Recorded(PAGE, replace(plain(""), status=status), session)
            for session, each in (("s0", (202, 200)), ("s1", (404, 200)))
            for status in each
        ]
    )
    assert answers(over, PAGE) == ["?"]


def test_what_only_another_session_asked_is_nothing_that_came_between() -> None:
    other = also(1)
    recorded = [(PAGE, "1", "s0"), (PAGE, "2", "s0"), (OTHER, "o", "s0"), (PAGE, "3", "s0")]
    recorded += [
        (also(0), "x", "s1"),
        (also(0), "x", "s1"),
        (other, "x", "s1"),
    ]  # the third of its session, too
    over = matcher(*[Recorded(request, plain(text), session) for request, text, session in recorded])
    assert answers(over, PAGE, PAGE, other, PAGE) == ["1", "2", "x", "3?"]


def test_what_was_recorded_before_the_page_in_view_alone_answers_it_too() -> None:
    page = get(f"{A}/", accept="text/html")
    over = matcher((OTHER, plain("o")), (OTHER, plain("o")), (page, html("page")))
    assert answers(over, page, OTHER) == ["page", "o"]


def test_who_was_followed_by_a_guess_is_forgotten_once_another_one_surely_is() -> None:
    both, second = also(0), also(1)
    over = sessions([(both, "b"), *said("1", "2")], [(both, "b"), (second, "s"), *said("5", "6")])
    assert answers(over, both, PAGE) == ["b", "1?"]
    assert answers(over, both, second, PAGE) == ["b", "s", "5"]
