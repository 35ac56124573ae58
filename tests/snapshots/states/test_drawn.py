"""A model draws its answers anew: calls that hold all that was said so far neither change each other's answers nor keep an order."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest

from stillweb.snapshots.request import Request
from tests.support.memory_store import Recorded, Replay, html, matcher, plain, post

A = "http://a.test"


def call(said: str, path: str = "/v1/chat/completions", **more: Any) -> Request:
    told = {"model": "m", "messages": [{"role": "user", "content": said}]} | more
    return post(f"{A}{path}", json.dumps(told).encode(), "application/json")


def asked(over: list[Recorded], order: list[Request]) -> list[tuple[str, bool]]:
    replay = Replay(matcher(*over))
    return [(replay.ask(one), replay.last.ambiguous) for one in order]


SAMPLED = [
    ("is it wet?", "yes"),
    ("is it cold?", "no"),
    ("is it wet?", "no"),
    ("grade: yes", "C"),
    ("is it wet?", "maybe"),
]


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/messages", "/api/chat", "/v1beta/models/m:generateContent"]
)
def test_samples_and_judgements_are_answered_in_any_order_between_them(path: str) -> None:
    over = [Recorded(call(said, path), plain(answer)) for said, answer in SAMPLED]
    for order in permutations(range(5)):
        answers: dict[str, list[str]] = {
            "is it wet?": ["yes", "no", "maybe"],
            "is it cold?": ["no"],
            "grade: yes": ["C"],
        }
        questions = [SAMPLED[number][0] for number in order]
        expected = [(answers[said].pop(0), False) for said in questions]
        assert asked(over, [call(said, path) for said in questions]) == expected


def test_samples_that_were_under_way_at_once_are_sure_and_each_is_given_once() -> None:
    spans = [(1, 9), (2, 8), (3, 7), (4, 10), (5, 6)]
    over = [
        Recorded(call(said), plain(answer), events=span)
        for (said, answer), span in zip(SAMPLED, spans, strict=True)
    ]
    assert asked(over, [call("is it wet?")] * 3) == [("yes", False), ("no", False), ("maybe", False)]


def test_one_sample_more_than_recorded_is_not_sure() -> None:
    over = [Recorded(call("is it wet?"), plain(answer)) for answer in ("yes", "no")]
    assert asked(over, [call("is it wet?")] * 3)[1:] == [("no", False), ("no", True)]


def test_a_call_that_was_refused_for_haste_and_repeated_is_so_again_whatever_else_was_asked() -> None:
    haste = html("slow down", 429)
    over = [
        Recorded(call("is it cold?"), plain("no")),
        Recorded(call("is it wet?"), haste),
        Recorded(call("is it wet?"), plain("yes")),
    ]
    assert asked(over, [call("is it wet?"), call("is it wet?"), call("is it cold?")]) == [
        ("slow down", False),
        ("yes", False),
        ("no", False),
    ]


@pytest.mark.parametrize(
    "more",
    [
        {"conversation": "c1"},
        {"previous_response_id": "r1"},
        {"chat_id": 7},
        {"session_id": "s"},
        {"threadId": "t"},
    ],
)
def test_what_a_server_keeps_of_a_conversation_is_a_state_as_ever(more: dict[str, Any]) -> None:
    def say(said: str) -> Request:
        return call(said, **more)

    over = [
        Recorded(say("I am Ann"), plain("hello")),
        Recorded(say("who am I?"), plain("Ann")),
        Recorded(say("I am Bob"), plain("hello")),
        Recorded(say("who am I?"), plain("Bob")),
    ]
    answer, unsure = asked(over, [say("I am Bob"), say("who am I?")])[1]
    assert answer != "Ann" or unsure


def test_an_application_that_knows_its_client_by_a_cookie_keeps_a_state_as_ever() -> None:
    def say(said: str) -> Request:
        one = call(said)
        return Request(
            one.method, one.url, (*one.headers, ("Cookie", "sessionid=8f3c9a1be27d4405")), one.body
        )

    over = [
        Recorded(say("I am Ann"), plain("hello")),
        Recorded(say("who am I?"), plain("Ann")),
        Recorded(say("I am Bob"), plain("hello")),
        Recorded(say("who am I?"), plain("Bob")),
    ]
    answer, unsure = asked(over, [say("I am Bob"), say("who am I?")])[1]
    assert answer != "Ann" or unsure


def test_a_key_that_was_refused_and_then_let_in_is_no_sample() -> None:
    refused = html("no credit", 403)
    buy = post(f"{A}/credit", "sum=5")
    over = [
        Recorded(call("is it wet?"), refused),
        Recorded(
            buy,
            plain(
                "thanks for your order of credit",
            ),
        ),
        Recorded(call("is it wet?"), plain("yes")),
    ]
    answer, unsure = asked(over, [buy, call("is it wet?")])[1]
    assert answer == "yes" or unsure


def test_what_was_written_between_may_be_why_a_model_answers_otherwise() -> None:
    file = post(f"{A}/v1/files/upload", "text=42")
    over = [
        Recorded(call("what is it?"), plain("I can't tell")),
        Recorded(call("what is it?"), plain("who knows")),
        Recorded(file, plain("kept")),
        Recorded(call("what is it?"), plain("42")),
        Recorded(call("what is it?"), plain("it is 42")),
    ]
    known = asked(over, [call("what is it?"), file, call("what is it?"), call("what is it?")])
    assert [answer for answer, _ in known] == ["I can't tell", "kept", "42", "it is 42"]
    for few in (over[1:4], over):
        answer, unsure = asked(few, [file, call("what is it?")])[1]
        assert answer == "42" or unsure
