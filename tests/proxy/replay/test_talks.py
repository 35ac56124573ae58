"""Web sockets beside HTTP: what a server says after something was written waits for that, and what a client says counts."""

from __future__ import annotations

import base64
import json
import math
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import wsproto
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Message, Request, TextMessage

from stillweb.proxy.replay import websocket_player
from stillweb.proxy.replay.gateway import Gateway
from stillweb.proxy.replay.websocket import SILENCE
from stillweb.proxy.replay.websocket_player import (
    Conversation,
    Player,
    RecordedConversations,
    RecordedMessage,
    Socket,
    found_at,
    without_order,
)
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.evidence import SERVED, SURE
from stillweb.snapshots.evidence.matcher import Matcher
from stillweb.snapshots.request import Headers
from stillweb.snapshots.request import Request as Asked
from stillweb.snapshots.secrets.redact import PREFIX, Redactor
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.support.waiting import HANG, until

HOST = "h.example"
KEYS = ("q7Xf29LmZ4tRb81KcW0vYd6N", "w8rT5yU1oPsB7QcDq9xT2vLm")
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
OWN = ("0b0e2a0c-98a4-4c0f-9d9f-6d0b1a2c3d4e", "1c1f3b1d-a9b5-4d1a-8eae-7e1c2b3d4e5f")
GIVEN = "2d204c2e-bac6-4e2b-9fbf-8f2d3c4e5f60"
OTHER = f"Proxy-Authorization: Basic {base64.b64encode(b'other:').decode()}\r\n"
JSON = (("Content-Type", "application/json"),)


def conversation(*messages: tuple[str, int]) -> Conversation:
    """Words with the event before each; those that begin with > are the client's."""
    said = (RecordedMessage(word.startswith(">"), word.lstrip(">"), event) for word, event in messages)
    return Conversation("http://h/", "s", 1, tuple(said))


def player(*messages: tuple[str, int], written: list[tuple[int, str]]) -> Player:
    return Player(RecordedConversations([conversation(*messages)]), 0, lambda one: written)


def test_what_followed_a_request_waits_for_it() -> None:
    one = player(("[]", 1), ("[tea]", 4), ("[tea, rum]", 8), written=[(3, "tea"), (7, "rum")])
    assert one.open() == ["[]"]
    assert one.note_write("tea") == ["[tea]"]
    assert one.note_write("rum") == ["[tea, rum]"]
    assert not one.ambiguous


def answering(*messages: tuple[bool, str | bytes], by_rule: bool = True) -> Player:
    given = (lambda one: False) if by_rule else None
    talk = Conversation("http://h/", "s", 1, tuple(RecordedMessage(*one) for one in messages))
    return Player(RecordedConversations([talk]), 0, given=given)


def test_words_between_which_the_server_said_nothing_come_in_any_order() -> None:
    one = answering(*[(True, what) for what in ("a", "b", "c")], (False, "abc"), (True, "d"), (False, "e"))
    assert [one.receive(what) for what in ("c", "a", "b", "d")] == [[], [], ["abc"], ["e"]]
    assert (one.ambiguous, one.rules) == (True, "order")


def test_records_of_one_message_come_in_one_also_late() -> None:
    said = [(False, "a\x1e"), (False, "b\x1e"), (True, "c"), (False, "d")]
    messages = tuple(RecordedMessage(*one, continues=one[1] == "b\x1e") for one in said)
    talk = Conversation("http://h/", "s", 1, messages, looks=((0, 0),))
    one = Player(RecordedConversations([talk]), 0)
    assert [one.open(), one.receive("c")] == [[], ["a\x1eb\x1e", "d"]]


def test_a_word_does_not_overtake_what_the_server_said() -> None:
    one = answering((True, "a"), (False, "1"), (True, "b"), (False, "2"))
    assert one.receive("b") is None
    assert (one.was_recorded("b"), one.was_recorded("c")) == (True, False)
    assert [one.receive("a"), one.receive("b")] == [["1"], ["2"]]
    assert one.ambiguous  # the real server had heard "b" before


def test_an_answer_after_a_message_that_was_not_recorded_is_unsure() -> None:
    """The real server counts what it was told, as a basket does, though replay could not answer it."""
    one = answering((True, "take a kettle"), (False, "1 in the basket"))
    assert one.receive("take a pot") is None
    assert one.receive("take a kettle") == ["1 in the basket"]
    assert one.ambiguous


def test_without_rules_the_order_is_as_recorded() -> None:
    one = answering((True, "a"), (True, "b"), (False, "1"), by_rule=False)
    assert one.receive("b") is None


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ('{"w":[{"id":1},{"id":2}]}', '{"w":[{"id":2},{"id":1}]}'),
        ('42["set",{"a":1,"b":2}]', '42["set",{"b":2,"a":1}]'),
        (b"\x0a\x03\x08\x01", None),
        (b"\x0a\x02\x08\x01\x0a\x02\x08\x02", b"\x0a\x02\x08\x02\x0a\x02\x08\x01"),
        (b"\x0a\x04\x08\x01\x10\x05\x12\x02hi", b"\x12\x02hi\x0a\x04\x10\x05\x08\x01"),
    ],
)
def test_repeated_members_come_in_any_order(stored: str | bytes, said: str | bytes | None) -> None:
    if said is None:
        assert without_order(stored) is None
        return
    one = answering((True, stored), (False, "ok"))
    assert one.receive(said) == ["ok"]
    assert one.ambiguous


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ('{"w":[1,2]}', '{"w":[1,3]}'),
        ('42["set",{"a":1}]', '43["set",{"a":1}]'),
        ('{"n":1,"n":1}', '{"n":1}'),
        ('42["set",{"n":1,"n":2}]', '42["set",{"n":2}]'),
        (b"\x12\x02ab", b"\x12\x02ba"),
        ("ab", "ba"),
        (b"\x82\x06Q\x13\x00\x01a\x01", b"\x82\x06\x00\x07\x00\x01b\x01"),
        (b"2\x06\x00\x01aQ\x14x", b"2\x06\x00\x01a\x00\x08y"),
        # a session of before goes on
        (b"\x10\x0e\x00\x04MQTT\x04\x00\x00<\x00\x02ab", b"\x10\x0e\x00\x04MQTT\x04\x00\x00<\x00\x02xy"),
        (b"\x09\x95\x01\x80\xa10\xa1a\x91\x01", b"\x09\x95\x01\x80\xa11\xa1a\x91\x02"),
    ],
)
def test_other_members_are_another_message(stored: str | bytes, said: str | bytes) -> None:
    assert answering((True, stored), (False, "ok")).receive(said) is None


@pytest.mark.parametrize(
    ("stored", "said", "sure"),
    [
        ('{"n":1,"m":2}', '{"m":2,"n":1.0}', False),
        ("[100]", "[1e2]", False),
        ("[1,1.0]", "[1.0,1]", False),
        ('{"n":1,"m":2.0}', '{"n":1.0,"m":2}', False),
        ('{"n":0.1,"m":2}', '{"m":2,"n":0.10}', True),
        ("[9007199254740992]", "[9007199254740993]", None),
        ("[1e400]", "[1e401]", None),
    ],
)
def test_a_number_is_the_same_by_its_value_and_surely_by_its_type(
    stored: str, said: str, sure: bool | None
) -> None:
    one = answering((True, stored), (False, "ok"))
    assert one.receive(said) == (None if sure is None else ["ok"])
    assert one.ambiguous is (not sure)


BEAT, ALIVE = (True, '{"type":"ping"}'), (False, '{"type":"pong"}')


def test_time_decides_how_many_signs_of_life_there_are() -> None:
    """A replay is quicker or slower than its recording: fewer of them, or more, and the rest is as it was."""

    def one() -> Player:
        return answering((True, "a"), (False, "1"), BEAT, ALIVE, (False, "news"), (True, "b"), (False, "2"))

    fewer, more = one(), one()
    assert [fewer.receive(what) for what in ("a", "b")] == [["1"], ["news", "2"]]
    said = [more.receive(what) for what in ("a", '{"type":"ping"}', '{"type":"ping"}', "b")]
    assert said == [["1"], [ALIVE[1], "news"], [ALIVE[1]], ["2"]]
    assert not fewer.ambiguous
    assert not more.ambiguous


def test_each_heartbeat_is_answered_by_its_own_number() -> None:
    """Phoenix' clients give up a socket on which a heartbeat gets no reply."""

    def beat(number: int, event: str = "heartbeat", said: str = "") -> str:
        return f'[null,"{number}","phoenix","{event}",{{{said}}}]'

    reply = '"status":"ok"'
    one = answering(
        (True, "a"),
        (False, "1"),
        (True, beat(4)),
        (False, beat(4, "phx_reply", reply)),
        (True, "b"),
        (False, "2"),
    )
    said = [one.receive(what) for what in ("a", beat(4), beat(5), beat(6), "b")]
    assert said == [["1"], *([beat(n, "phx_reply", reply)] for n in (4, 5, 6)), ["2"]]
    assert not one.ambiguous


def test_an_empty_object_may_be_a_sign_of_life() -> None:
    """Centrifugo's clients answer its pings so; others may ask with it."""
    one = answering((True, "a"), (False, "1"), (False, "{}"), (True, "{}"), (True, "b"), (False, "2"))
    assert [one.receive(what) for what in ("a", "b")] == [["1", "{}"], ["2"]]
    assert one.ambiguous
    assert answering((True, "a"), (False, "1")).receive("{}") is None


@pytest.mark.parametrize(
    "said",
    [
        *("\n", "3", '{"type":6}\x1e', '{"op":"heartbeat","d":null}', '["phoenix","heartbeat"]'),
        *('{"event":"pusher:ping","data":{}}', b"\xc0\x00", b"\x02\x91\x06"),
    ],
)
def test_signs_of_life_that_were_never_recorded_change_nothing(said: str | bytes) -> None:
    one = answering((True, "a"), (False, "1"), (True, "b"), (False, "2"))
    assert [one.receive(what) for what in ("a", said, "b")] == [["1"], [], ["2"]]
    assert one.word() == ""


def test_time_decides_how_many_receipts_there_are_though_not_for_sure() -> None:
    """NiceGUI's clients tell every few seconds which message they had last."""
    client = "18a73b64-8283-46ff-bc7c-3b1a9e0116f3"

    def receipt(last: int) -> str:
        return f'42["ack",{{"client_id":"{client}","next_message_id":{last}}}]'

    def one() -> Player:
        return answering((True, "a"), (False, "1"), (True, receipt(0)), (True, "b"), (False, "2"))

    fewer, more = one(), one()
    assert [fewer.receive(what) for what in ("a", "b", receipt(1))] == [["1"], ["2"], []]
    said = [more.receive(what) for what in ("a", receipt(0), receipt(1), "b", receipt(2))]
    assert said == [["1"], [], [], ["2"], []]
    assert fewer.ambiguous
    assert more.ambiguous
    other = answering((True, "a"), (False, "1"), (True, '{"type":"ack","id":3}'))  # it names a thing
    assert [other.receive(what) for what in ("a", receipt(0))] == [["1"], None]
    assert other.receive('{"type":"ack","id":4}') is None


def test_words_about_life_are_no_sign_of_it() -> None:
    one = answering((True, "a"), (False, "1"))
    assert one.receive('{"type":"message","text":"ping pong tonight?"}') is None


@pytest.mark.parametrize(
    ("stored", "answer", "said", "told", "sure"),
    [
        ('{"jsonrpc":"2.0","id":7,"method":"m"}', '{"jsonrpc":"2.0","id":7,"result":7}', '{"jsonrpc":"2.0","id":91,"method":"m"}', '{"jsonrpc":"2.0","id":91,"result":7}', True),
        ('{"type":1,"invocationId":"0","target":"m","arguments":[]}\x1e', '{"type":3,"invocationId":"0","result":0}\x1e', '{"type":1,"invocationId":"2","target":"m","arguments":[]}\x1e', '{"type":3,"invocationId":"2","result":0}\x1e', True),
        ('{"topic":"r:1","event":"phx_join","payload":{},"ref":"1"}', '{"topic":"r:1","event":"phx_reply","ref":"1"}', '{"topic":"r:1","event":"phx_join","payload":{},"ref":"3"}', '{"topic":"r:1","event":"phx_reply","ref":"3"}', True),
        ('421["x",{"a":1}]', '431["421"]', '420["x",{"a":1}]', '430["421"]', True),
        ('["3","5","room:1","x",{}]', '["3","5","room:1","phx_reply",{"n":5}]', '["3","4","room:1","x",{}]', '["3","4","room:1","phx_reply",{"n":5}]', True),
        ('451-7["up",{"_placeholder":true,"num":0}]', '437["ok"]', '451-3["up",{"_placeholder":true,"num":0}]', '433["ok"]', True),
        ('427["get"]', '461-7[{"_placeholder":true,"num":0}]', '423["get"]', '461-3[{"_placeholder":true,"num":0}]', True),
        ('{"msg":"method","id":"1","method":"m","params":[]}', '{"msg":"updated","methods":["1"]}', '{"msg":"method","id":"3","method":"m","params":[]}', '{"msg":"updated","methods":["3"]}', True),
        (b"\x09\x95\x01\x80\xa10\xa1a\x91\x01", b"\x08\x95\x03\x80\xa10\x03\xa1r", b"\x0a\x95\x01\x80\xa210\xa1a\x91\x01", b"\x09\x95\x03\x80\xa210\x03\xa1r", True),
        (b"\x82\x06Q\x13\x00\x01a\x01", b"\x90\x03Q\x13\x01", b"\x82\x06\x00\x07\x00\x01a\x01", b"\x90\x03\x00\x07\x01", True),
        (b"2\x06\x00\x01aQ\x14x", b"@\x02Q\x14", b"2\x06\x00\x01a\x00\x08x", b"@\x02\x00\x08", True),
        (b"\x10\x0e\x00\x04MQTT\x04\x02\x00<\x00\x02ab", b" \x02\x00\x00", b"\x10\x0f\x00\x04MQTT\x04\x02\x00<\x00\x03xyz", b" \x02\x00\x00", False),
        (b"\x10\x11\x00\x04MQTT\x05\x02\x00<\x02%\x01\x00\x02ab", b" \x03\x00\x00\x00", b"\x10\x12\x00\x04MQTT\x05\x02\x00<\x02%\x01\x00\x03xyz", b" \x03\x00\x00\x00", False),
        ('42["x",{"r":0.8444218515250481}]', "ok", '42["x",{"r":0.7579544029403025}]', "ok", False),
        ('{"type":"x","ts":1714557600001}', "ok", '{"type":"x","ts":1714557661002}', "ok", False),
    ],
)  # fmt: skip
def test_what_a_client_draws_or_counts_is_its_own(
    stored: str | bytes, answer: str | bytes, said: str | bytes, told: str | bytes, sure: bool
) -> None:
    one = answering((True, stored), (False, answer))
    assert one.receive(said) == [told]
    assert one.ambiguous is not sure
    assert answering((True, stored), (False, answer), by_rule=False).receive(said) is None


def _call(number: int | str, type: str, **more: object) -> str:
    return json.dumps({"type": type, "id": number, **more})


def test_a_client_counts_its_calls_from_another_number() -> None:
    """Home Assistant, the DevTools protocol, GraphQL: a sign of life more, and all later numbers are others."""
    calls = ["get_states", "get_config", "subscribe"]
    said = [(n, what) for n, what in enumerate(calls, 1)]
    recorded = [
        pair
        for n, what in said
        for pair in ((True, _call(n, what)), (False, _call(n, "result", of={"id": n})))
    ]
    one = answering(*recorded, (True, _call(4, "unsubscribe", subscription=3)), (False, _call(4, "result")))
    for n, what in said:
        assert one.receive(_call(n + 6, what)) == [_call(n + 6, "result", of={"id": n})]
    assert one.receive(_call(10, "unsubscribe", subscription=8)) is None  # another subscription
    assert one.receive(_call(10, "unsubscribe", subscription=9)) == [_call(10, "result")]
    assert (one.ambiguous, one.rules) == (True, "counted")


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ('[48,{},{{}},"proc.{}"]', "[50,{},{{}},[7]]"),  # WAMP
        ("SUBSCRIBE\nid:sub-{}\ndestination:/{}\n\n\0", "MESSAGE\nsubscription:sub-{}\n\nA\0"),  # STOMP
        ('["REQ","sub:{}",{{"of":"{}"}}]', '["EOSE","sub:{}"]'),  # Nostr
        ('{{"methodCalls":[["{1}",{{}},"c{0}"]]}}', '{{"methodResponses":[["x",{{}},"c{}"]]}}'),  # JMAP
    ],
)
def test_a_client_counts_wherever_its_protocol_has_the_number(call: str, answer: str) -> None:
    words = ["a", "b", "c"]
    recorded = [
        pair
        for n, what in enumerate(words)
        for pair in ((True, call.format(n, what)), (False, answer.format(n)))
    ]
    one = answering(*recorded)
    for n, what in enumerate(words):
        assert one.receive(call.format(n + 5, what)) == [answer.format(n + 5)]
    assert (one.ambiguous, one.rules) == (True, "counted")


def test_a_client_of_stomp_names_what_it_makes() -> None:
    """A subscription, a transaction, a receipt: by any word, which later frames and answers repeat."""

    def talk(sub: str, other: str, receipt: str) -> list[tuple[bool, str | bytes]]:
        return [
            (True, f"SUBSCRIBE\nid:{sub}\ndestination:/a\n\n\0"),
            (False, f"MESSAGE\nsubscription:{sub}\ndestination:/a\n\nA\0"),
            (True, f"SUBSCRIBE\nid:{other}\ndestination:/b\n\n\0"),
            (False, f"MESSAGE\nsubscription:{other}\ndestination:/b\n\nB\0"),
            (True, f"UNSUBSCRIBE\nid:{sub}\nreceipt:{receipt}\n\n\0"),
            (False, f"RECEIPT\nreceipt-id:{receipt}\n\n\0"),
        ]

    own = talk("x", "sub-0", "r-9v2k")
    one = answering(*talk("sub-0", "sub-1", "r-1a"))
    assert [one.receive(own[at][1]) for at in (0, 2)] == [[own[1][1]], [own[3][1]]]
    assert one.receive("UNSUBSCRIBE\nid:sub-0\nreceipt:r-9v2k\n\n\0") is None  # another one
    assert one.receive(own[4][1]) == [own[5][1]]
    assert (one.ambiguous, one.rules) == (True, "counted")
    taken = answering((True, "ACK\nid:1\n\n\0"), (False, "ok"))
    assert taken.receive("ACK\nid:2\n\n\0") is None  # the server named it


UUIDS = (GIVEN, "5102262d-961e-4115-90e4-0ebc268630e1")


@pytest.mark.parametrize(
    ("call", "answer", "ids", "own"),
    [
        ('{{"jsonrpc":"2.0","id":{},"method":"{}"}}', '{{"id":{},"result":"{}"}}', (1, 2), (1, 2)),
        ('42{}["set","{}"]', '43{}["{}"]', (0, 1), (0, 1)),
        ('{{"type":1,"invocationId":"{}","target":"{}","arguments":[]}}\x1e', '{{"type":3,"invocationId":"{}","result":"{}"}}\x1e', (0, 1), (0, 1)),
        ('["{0}","{0}","{1}","phx_join",{{}}]', '["{0}","{0}","{1}","phx_reply",{{}}]', (1, 2), (1, 2)),
        ('{{"id":{},"method":"{}"}}', '{{"id":{},"result":"{}"}}', (1, 2), (1, 2)),
        ("SUBSCRIBE\nid:sub-{}\ndestination:/{}\n\n\0", "MESSAGE\nsubscription:sub-{}\n\n{}\0", (0, 1), (0, 1)),
        ('{{"id":"{}","type":"subscribe","payload":{{"query":"{{{}}}"}}}}', '{{"id":"{}","type":"next","payload":"{}"}}', OWN, UUIDS),
        ('{{"ts":{},"set":"{}"}}', '{{"ok":"{1}"}}', (1714557600001, 1714557600009), (1714557661001, 1714557661002)),
    ],
)  # fmt: skip
def test_calls_in_another_order_are_answered_by_the_numbers_of_their_client(
    call: str, answer: str, ids: tuple[object, object], own: tuple[object, object]
) -> None:
    recorded = [(True, call.format(n, what)) for n, what in zip(ids, "ab", strict=True)]
    recorded += [(False, answer.format(n, what)) for n, what in zip(ids, "ab", strict=True)]
    one = answering(*recorded)
    assert one.receive(call.format(own[0], "b")) == []
    told = one.receive(call.format(own[1], "a"))
    assert told == [answer.format(own[1], "a"), answer.format(own[0], "b")]
    assert one.ambiguous


def test_a_word_that_a_client_draws_and_is_told_again_is_its_own() -> None:
    drawn, mine = "k3v9q0t7m2x8b4n6a", "a8d2f6h1j5l9q3w7b"
    talk = (True, f'["REQ","{drawn}",{{}}]'), (False, f'["EOSE","{drawn}"]')
    one = answering(*talk)
    assert one.receive(f'["REQ","{mine}",{{}}]') == [f'["EOSE","{mine}"]']
    assert (one.ambiguous, one.rules) == (True, "visit-id")
    named = answering((False, f'["LIST","{drawn}"]'), *talk)  # the site gave it: it was chosen
    named.open()
    assert named.receive(f'["REQ","{mine}",{{}}]') is None
    unanswered = answering(talk[0], (False, '["EOSE"]'))
    assert unanswered.receive(f'["REQ","{mine}",{{}}]') is None


def test_numbers_of_things_are_not_counted() -> None:
    shelf = [
        pair
        for n in (1, 2, 3, 4)
        for pair in ((True, _call(n, "get")), (False, _call(n, "thing", name=f"kettle {n}")))
    ]
    assert answering(*shelf).receive(_call(5, "get")) is None
    apart = [pair for n in (1, 3, 7) for pair in ((True, _call(n, f"get {n}")), (False, _call(n, "thing")))]
    assert answering(*apart).receive(_call(2, "get 1")) is None
    two = [pair for n in (1, 2) for pair in ((True, _call(n, f"get {n}")), (False, _call(n, "thing")))]
    assert answering(*two).receive(_call(2, "get 1")) is None


@pytest.mark.parametrize(
    ("call", "answer", "found"),
    [
        ('{"id":"%d","type":"subscribe","payload":{"bird":"%d"}}', '{"id":"%d","payload":"gull %d"}', True),
        ('{"id":%d,"page":%d}', '{"id":%d,"page":%d}', False),
        ('["%d","%d","room:%d","phx_join",{}]', '["%d","%d","room:%d","phx_reply",{"room":%d}]', True),
    ],
)
def test_things_whose_numbers_grow_as_the_count_does_are_not_counted(
    call: str, answer: str, found: bool
) -> None:
    """The third bird asked for first was answered with the first one."""
    turns = [
        ((True, call % ((n,) * call.count("%d"))), (False, answer % ((n,) * answer.count("%d"))))
        for n in (1, 2, 3)
    ]
    one = answering(*(message for turn in turns for message in turn))
    asked = call % (1, *[1] * (call.count("%d") - 2), 3)
    told = answer % (1, *[1] * (call.count("%d") - 2), 3, *[3] * (answer.count("%d") - call.count("%d")))
    assert one.receive(asked) == ([told] if found else None)
    assert one.ambiguous


def test_what_was_written_twice_is_waited_for_twice() -> None:
    one = player(("1", 4), ("2", 8), written=[(3, "x"), (7, "x")])
    assert [one.open(), one.note_write("x"), one.note_write("x")] == [[], ["1"], ["2"]]
    assert not one.ambiguous


def test_what_was_written_before_the_socket_or_before_the_clients_word_is_not_waited_for() -> None:
    one = player(("a", 4), (">go", 8), ("b", 8), ("c", 10), written=[(0, "old"), (7, "x"), (9, "y")])
    assert one.open() == ["a"]
    assert one.receive("go") == ["b"]
    assert one.note_write("y") == ["c"]


def test_what_another_socket_said_after_a_write_is_lacking() -> None:
    two = [conversation(("1", 4)), conversation(("2", 8))]
    one = Player(RecordedConversations(two), 1, lambda one: [(3, "x")] if one is two[0] else [(7, "y")])
    assert (one.note_write("y"), one.owes) == (["2"], False)
    assert (one.note_write("x"), one.owes, one.ambiguous) == ([], True, True)
    assert (one.note_write("z"), one.owes) == ([], False)


def test_what_follows_a_write_is_said_after_it_though_the_client_speaks_before() -> None:
    """Chainlit's page showed the answer to a button that was never pressed."""
    one = player(("a", 4), (">go", 8), ("b", 8), written=[(3, "x")])
    assert one.open() == []
    assert one.receive("go") == ["b"]
    assert one.note_write("x") == ["a"]
    assert one.ambiguous


def test_each_write_in_another_order_is_unsure_not_the_first_alone() -> None:
    doubts: list[str] = []

    def doubted() -> bool:
        doubts.append(write)
        return True

    one = player(("0", 1), ("1", 4), ("2", 8), ("3", 12), written=[(3, "a"), (7, "b"), (11, "c")])
    talk = Socket(one, lambda data: None, lambda: None, lambda expected, said: lambda: None, doubted)
    talk.start()
    for write in ("b", "c", "elsewhere", "a"):
        talk.note_write(write)
    assert doubts == ["b", "c", "a"]


def test_another_request_than_the_recorded_one_is_unsure() -> None:
    for made in (None, "rum"):  # recorded nowhere, or after something else
        one = player(("[]", 1), ("[tea]", 4), ("[tea, rum]", 8), written=[(3, "tea"), (7, "rum")])
        assert (one.open(), one.note_write(made)) == (["[]"], [])
        assert one.ambiguous


def test_what_no_word_followed_is_sure() -> None:
    one = player(("[]", 1), ("[tea]", 4), written=[(3, "tea"), (7, "log")])
    one.open()
    assert one.note_write("log") == []
    assert not one.ambiguous


def test_nothing_that_waits_is_doubted_by_what_nobody_recorded() -> None:
    one = player(("[]", 1), written=[])
    assert (one.open(), one.note_write(None), one.ambiguous) == (["[]"], [], False)


def test_more_than_was_recorded_is_not_answered() -> None:
    one = player((">go", 1), ("gone", 1), written=[])
    assert (one.open(), one.receive("go")) == ([], ["gone"])
    assert (one.next_expected(), one.receive("go")) == (None, None)


@pytest.mark.parametrize("second", ["the same", "another"])
def test_what_recorded_sockets_did_not_all_say_is_unsure(second: str) -> None:
    told = second == "another"
    known = [conversation((word, 1), (">go", 2)) for word in ("the same", second)]
    first = Player(RecordedConversations(known), 0)
    assert (first.open(), first.ambiguous) == (["the same"], told)
    # what time brought after the view that was seen
    late = [
        replace(conversation(("hello", 1), (word, 2), (">go", 3)), looks=((0, 1),))
        for word in ("the same", second)
    ]
    later = Player(RecordedConversations(late), 0)
    assert (later.open(), later.ambiguous) == (["hello"], False)
    assert (later.receive("go"), later.ambiguous) == (["the same"], told)


@contextmanager
def replayed(
    path: Path, *, accept: str = "rule", least: float = SERVED
) -> Iterator[tuple[Gateway, socket.socket, wsproto.WSConnection]]:
    """A gateway over a list that was added to over a socket and by POST, and a client of that socket."""
    with Writer.open(path) as writer:

        def exchange(method: str, body: bytes, answer: bytes) -> None:
            asked = Asked(method, f"http://{HOST}/items", JSON if body else (), body)
            begin = writer.event("s")
            end = writer.event("s")
            writer.exchange(Exchange(asked, 200, "OK", JSON, answer, MOMENT, "s", begin, end))

        begin = writer.event("s")
        exchange("GET", b"", b"[]")
        exchange("GET", b"", b'["tea"]')
        exchange("POST", b'{"add":"rum"}', json.dumps(GIVEN).encode())
        said: list[dict[str, Any]] = [
            {"from": "server", "text": "[]"},
            {"from": "client", "text": '{"add":"tea"}'},
            {"from": "server", "text": '["tea"]'},
            {"from": "server", "text": '["tea","rum"]'},
            {"from": "client", "text": f"ask {OWN[0]}"},
            {"from": "server", "text": f"to {OWN[0]}: yes"},
        ]
        content = {
            "url": f"http://{HOST}/ws",
            "session": "s",
            "begin": begin,
            "messages": said,
            "events": [1, 3, 3, 7, 7, 7],
        }
        writer.metadata(f"http://{HOST}/ws", content)
    with opened(path, accept=accept, least=least) as served:
        yield served


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ("json, key.{}", None),
        ("json, openai-insecure-api-key.{}", "openai-insecure-api-key.{}"),
        ("json, {}", "{}"),
        ("json", None),
    ],
)
def test_a_subprotocol_that_holds_a_key_is_chosen_again(offered: str, chosen: str | None) -> None:
    """A browser ends a socket whose server chooses none of its subprotocols."""
    recorded = (chosen or "openai-insecure-api-key.{}").format("q7Xf29LmZ4tRb81KcW0vYd6N")
    ((_, stored),) = Redactor(b"k" * 32).headers((("Sec-WebSocket-Protocol", recorded),))
    key = "w8rT5yU1oPsB7QcDq9xT2vLm"
    asked = Asked("GET", "http://h/", (("Sec-WebSocket-Protocol", offered.format(key)),))
    head = websocket_player.handshake(asked, stored).decode()
    assert PREFIX not in head
    field = f"Sec-WebSocket-Protocol: {chosen.format(key)}\r\n" if chosen else ""
    assert head.endswith(f"=\r\n{field}\r\n")


@pytest.mark.parametrize(
    ("recorded", "offered", "verdict"),
    [
        (("a", None), "a", "exact"),
        (("a", None), "b, a", "varies:sec-websocket-protocol"),
        (("a", None), "c", "miss"),
        (("a", None), "", "miss"),
        (("a", "a, b"), "a, b", "exact"),
        (("a", "a, b"), "a", "exact"),
        (("a", "a, b"), "b, a", "miss"),  # some servers take the first, others the one that they like best
        (("a", "a, b"), "a, c", "miss"),
        (("b", "a, b, c"), "b, a", "exact"),  # neither kind takes a
        (("b", "a, b, c"), "c, b", "miss"),
        (("", "a"), "", "exact"),
        (("", "a"), "b", "miss"),
    ],
)
def test_a_socket_is_another_one_where_another_subprotocol_may_be_chosen(
    tmp_path: Path, recorded: tuple[str, str | None], offered: str, verdict: str
) -> None:
    headers = None if recorded[1] is None else (("Sec-WebSocket-Protocol", recorded[1]),)
    path = recorded_bytes(tmp_path / "s", recorded[0], ("server", "hello"), headers=headers)
    fields = {"Sec-WebSocket-Protocol": offered} if offered else {}
    status, entries = shaken(path, "/ws", fields)
    assert (status, [entry["verdict"] for entry in entries]) == (
        b"504" if verdict == "miss" else b"101",
        [verdict],
    )


def test_each_offer_of_subprotocols_has_its_own_socket(tmp_path: Path) -> None:
    for chosen, other in ("ab", "ba"):
        headers = (("Sec-WebSocket-Protocol", f"{chosen}, {other}"),)
        said = ("server", f"in {chosen}")
        path = recorded_bytes(tmp_path / "s", chosen, said, headers=headers, session=chosen)
    with Snapshot.open(path) as snapshot, Gateway(snapshot) as gateway:
        for first, second in ("ba", "ab"):
            with spoken(gateway, HOST, "/ws", (first, second)) as (peer, client):
                assert hear(peer, client) == f"in {first}"


@pytest.mark.parametrize(
    ("recorded", "asked", "verdict"),
    [
        ({"Cookie": "theme=dark"}, {"Cookie": "theme=dark"}, "exact"),
        ({"Cookie": "theme=dark"}, {"Cookie": "theme=light"}, "varies:cookie"),
        ({"Cookie": "theme=dark"}, {}, "varies:cookie"),
        ({}, {"Cookie": "_ga=GA1.1.7"}, "exact"),  # a tracker's
        ({"Accept-Language": "de"}, {"Accept-Language": "en"}, "varies:accept-language"),
        ({"User-Agent": "a"}, {"User-Agent": "b"}, "exact"),
        ({"Authorization": f"Bearer {KEYS[0]}"}, {"Authorization": f"Bearer {KEYS[1]}"}, "exact"),
    ],
)
def test_a_socket_of_another_cookie_or_language_is_not_sure(
    tmp_path: Path, recorded: dict[str, str], asked: dict[str, str], verdict: str
) -> None:
    path = recorded_bytes(tmp_path / "s", "", ("server", "hello"), headers=tuple(recorded.items()))
    status, entries = shaken(path, "/ws", asked)
    assert (status, entries[0]["verdict"]) == (b"101", verdict)
    assert entries[0].get("ambiguous", False) == (verdict != "exact")


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("Cookie", [f"sid={key}" for key in KEYS]),
        ("Authorization", [f"Bearer {key}" for key in KEYS]),
        ("Accept-Language", ["de", "en"]),
    ],
)
def test_each_client_has_its_own_socket(tmp_path: Path, field: str, values: list[str]) -> None:
    fields = [(field, value) for value in values]
    for name, one in zip("ab", fields, strict=True):
        path = recorded_bytes(tmp_path / "s", "", ("server", f"hello {name}"), headers=(one,), session=name)
    with Snapshot.open(path) as snapshot, Gateway(snapshot) as gateway:
        for name, one in (("b", fields[1]), ("a", fields[0])):
            with spoken(gateway, HOST, "/ws", headers=(one,)) as (peer, client):
                assert hear(peer, client) == f"hello {name}"


def test_a_clients_second_socket_is_the_second_of_those_that_had_its_cookies(tmp_path: Path) -> None:
    for name, theme in (("a", "dark"), ("b", "light"), ("c", "light")):
        said, fields = ("server", f"hello {name}"), (("Cookie", f"theme={theme}"),)
        path = recorded_bytes(tmp_path / "s", "", said, headers=fields, session=name)
    with Snapshot.open(path) as snapshot, Gateway(snapshot) as gateway:
        for name, theme in (("a", "dark"), ("b", "light"), ("c", "light")):
            with spoken(gateway, HOST, "/ws", headers=(("Cookie", f"theme={theme}"),)) as (peer, client):
                assert hear(peer, client) == f"hello {name}"


def test_no_secret_at_all_is_not_another_secret(tmp_path: Path) -> None:
    token = Redactor(b"k" * 32).pseudonym("q7Xf29LmZ4tRb81KcW0vYd6N")
    with Writer.open(tmp_path / "s") as writer:
        url = f"http://{HOST}/ws?token={token}"
        said = [{"from": "server", "text": "hello ada"}]
        writer.metadata(url, {"url": url, "session": "s", "begin": writer.event("s"), "messages": said})
    for asked, status in (("w8rT5yU1oPsB7QcDq9xT2vLm", b"101"), ("", b"504")):
        assert shaken(tmp_path / "s", f"/ws?token={asked}", {})[0] == status


def test_an_answer_to_another_secret_is_no_surer_than_its_socket(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        for secret, name in (("q7Xf29LmZ4tRb81KcW0vYd6N", "ada"), ("w8rT5yU1oPsB7QcDq9xT2vLm", "bob")):
            url = f"http://{HOST}/ws?token={Redactor(b'k' * 32).pseudonym(secret)}"
            said = [{"from": "server", "text": f"hello {name}"}]
            writer.metadata(url, {"url": url, "session": "s", "begin": writer.event("s"), "messages": said})
    with Snapshot.open(tmp_path / "s") as snapshot, Gateway(snapshot) as gateway:
        with spoken(gateway, HOST, "/ws?token=Zk3Lx9Qw2Er5Ty8Ui1Op4As7") as (peer, client):
            assert hear(peer, client) in ("hello ada", "hello bob")
        assert [entry["confidence"] <= 0.7 for entry in gateway.ledger.entries()] == [True, True]


def shaken(path: Path, target: str, fields: dict[str, str]) -> tuple[bytes, list[dict[str, Any]]]:
    """The status of the answer to a socket's handshake, and the ledger's entries."""
    sent = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"} | fields
    lines = [f"GET {target} HTTP/1.1", f"Host: {HOST}", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="]
    head = "\r\n".join((*lines, *(f"{n}: {v}" for n, v in sent.items()), "", ""))
    with (
        Snapshot.open(path) as snapshot,
        Gateway(snapshot) as gateway,
        socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG) as peer,
    ):
        peer.sendall(f"CONNECT {HOST}:80 HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        assert b" 200 " in peer.recv(4096)
        peer.sendall(head.encode())
        return peer.recv(4096).split()[1], list(gateway.ledger.entries())


@contextmanager
def opened(
    path: Path, *, accept: str = "rule", least: float = SERVED, protocols: tuple[str, ...] = ()
) -> Iterator[tuple[Gateway, socket.socket, wsproto.WSConnection]]:
    """A gateway over a snapshot, and a client of its socket."""
    with (
        Snapshot.open(path) as snapshot,
        Gateway(snapshot, accept=accept, min_confidence=least) as gateway,
        spoken(gateway, HOST, "/ws", protocols) as (peer, client),
    ):
        yield gateway, peer, client


@contextmanager
def spoken(
    gateway: Gateway, host: str, target: str, protocols: tuple[str, ...] = (), headers: Headers = ()
) -> Iterator[tuple[socket.socket, wsproto.WSConnection]]:
    """A client of a socket that is open."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG) as peer:
        peer.sendall(f"CONNECT {host}:80 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert b" 200 " in peer.recv(4096)
        client = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        fields = [(name.encode(), value.encode()) for name, value in headers]
        request = Request(host=host, target=target, subprotocols=list(protocols), extra_headers=fields)
        peer.sendall(client.send(request))
        while not any(isinstance(event, AcceptConnection) for event in client.events()):
            client.receive_data(peer.recv(4096))
        yield peer, client


def hear(peer: socket.socket, client: wsproto.WSConnection) -> str:
    """The next message, or how the socket is closed."""
    while True:
        for event in client.events():
            if isinstance(event, Message):
                return str(event.data)
            if isinstance(event, CloseConnection):
                return f"{event.code} {event.reason}"
        client.receive_data(peer.recv(4096))


def ask(gateway: Gateway, method: str, body: str = "", fields: str = "") -> str:
    """The body of an answer."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG) as peer:
        more = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        head = f"{method} http://{HOST}/items HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n{fields}{more}\r\n"
        peer.sendall((head + body).encode())
        data = b""
        while part := peer.recv(4096):
            data += part
        return data.partition(b"\r\n\r\n")[2].decode()


def test_a_list_that_is_added_to_by_socket_and_by_post_is_as_it_was(tmp_path: Path) -> None:
    with replayed(tmp_path / "s") as (gateway, peer, client):
        assert hear(peer, client) == "[]"
        assert ask(gateway, "GET") == "[]"
        assert ask(gateway, "GET") == "[]"  # nothing was said yet
        peer.sendall(client.send(TextMessage('{"add":"tea"}')))
        assert hear(peer, client) == '["tea"]'
        assert ask(gateway, "GET") == '["tea"]'
        assert ask(gateway, "POST", '{"add":"rum"}') == json.dumps(GIVEN)
        assert hear(peer, client) == '["tea","rum"]'
        assert not [e for e in gateway.ledger.entries() if e["verdict"] == "miss"]


def test_another_order_is_said_to_be_unsure(tmp_path: Path) -> None:
    with replayed(tmp_path / "s") as (gateway, peer, client):
        assert hear(peer, client) == "[]"
        ask(gateway, "POST", '{"add":"rum"}')
        entries = list(gateway.ledger.entries())
        assert [e["ambiguous"] for e in entries if e["url"].endswith("/ws")] == [False, True]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_push_that_waits_for_another_write_is_a_miss_unless_that_comes_at_once(
    tmp_path: Path, at_once: bool
) -> None:
    """A page is shown without what the real server would have told it by now: marimo's, after each change."""
    said = [
        {"from": "server", "text": "[]"},
        {"from": "server", "text": "tea"},
        {"from": "server", "text": "rum"},
    ]
    with Writer.open(tmp_path / "s") as writer:
        begin = writer.event("s")
        for what in (b'"tea"', b'"rum"'):
            asked = Asked("POST", f"http://{HOST}/items", JSON, what)
            exchange = Exchange(
                asked, 200, "OK", JSON, b"true", MOMENT, "s", writer.event("s"), writer.event("s")
            )
            writer.exchange(exchange)
        content = {
            "url": f"http://{HOST}/ws",
            "session": "s",
            "begin": begin,
            "messages": said,
            "events": [1, 3, 5],
        }
        writer.metadata(f"http://{HOST}/ws", content)
    with opened(tmp_path / "s") as (gateway, peer, client):
        assert hear(peer, client) == "[]"
        ask(gateway, "POST", '"rum"')
        if at_once:
            ask(gateway, "POST", '"tea"')
            assert [hear(peer, client), hear(peer, client)] == ["tea", "rum"]
            time.sleep(2 * SILENCE)

        def misses() -> int:
            return sum(e["verdict"] == "miss" and e["url"].endswith("/ws") for e in gateway.ledger.entries())

        assert until(lambda: misses() == (0 if at_once else 1))


def add_all(gateway: Gateway, peer: socket.socket, client: wsproto.WSConnection) -> None:
    """All that was said before the last question."""
    hear(peer, client)
    peer.sendall(client.send(TextMessage('{"add":"tea"}')))
    hear(peer, client)
    ask(gateway, "POST", '{"add":"rum"}')
    assert hear(peer, client) == '["tea","rum"]'


def test_a_message_with_an_id_of_the_clients_own_is_unsure(tmp_path: Path) -> None:
    with replayed(tmp_path / "s") as (gateway, peer, client):
        add_all(gateway, peer, client)
        peer.sendall(client.send(TextMessage(f"ask {OWN[1]}")))
        assert hear(peer, client) == f"to {OWN[1]}: yes"
        assert [(e["verdict"], e["ambiguous"]) for e in gateway.ledger.entries()][-1] == (
            "rule:visit-id",
            True,
        )


@pytest.mark.slow
@pytest.mark.parametrize(("leaves", "long"), [(False, False), (True, False), (False, True)])
def test_a_large_message_is_judged_beside_the_event_loop_in_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaves: bool, long: bool
) -> None:
    """A message of 1 MB held all other requests for 2 s, one of 8,000 digits for 4 s, and the first doubt of 1,000 turns for 0.8 s."""
    judged, judge, begun, left = [], Player.receive, threading.Event(), threading.Event()

    def watched(self: Player, said: str | bytes) -> list[str | bytes] | None:
        judged.append((len(said), "prepare" in threading.current_thread().name))
        if len(said) > 1000:
            begun.set()
            assert left.wait(HANG)
        return judge(self, said)

    monkeypatch.setattr(Player, "receive", watched)
    monkeypatch.setattr("stillweb.proxy.replay.websocket_player.LONG", 1 if long else 100)
    large, form = "1" * 100_000, json.dumps({"add": "tea", **dict.fromkeys(map(str, range(20_000)), 1)})
    with replayed(tmp_path / "s") as (gateway, peer, client):
        hear(peer, client)
        for said in (large, form, '{"add":"tea"}'):
            peer.sendall(client.send(TextMessage(said)))
        assert begun.wait(HANG)
        with ThreadPoolExecutor() as pool:  # another session is answered at once, the own one in its turn
            own = pool.submit(ask, gateway, "GET")
            assert ask(gateway, "GET", fields=OTHER) == "[]"
            assert not own.done()
            if leaves:
                peer.close()
            left.set()
            assert " messages said over web sockets" in own.result()  # both were judged before
        if not leaves:
            assert hear(peer, client) == '["tea"]'
        assert until(lambda: len(judged) == 3)
        assert judged == [(len(large), True), (len(form), True), (13, long)]
        misses = [e["url"] for e in gateway.ledger.entries() if e["verdict"] == "miss"]
        assert misses == [f"http://{HOST}/{name}" for name in ("ws", "ws", "items")]


def test_a_flood_of_small_messages_keeps_no_other_session_waiting(tmp_path: Path) -> None:
    with replayed(tmp_path / "s") as (gateway, peer, client):
        hear(peer, client)
        assert ask(gateway, "GET", fields=OTHER) == "[]"
        peer.sendall(client.send(TextMessage("x")) * 10_000)
        assert ask(gateway, "GET", fields=OTHER) == "[]"
        assert gateway.stats.misses < 3_000


@pytest.mark.parametrize(("size", "parts"), [(600, 2), (1, 8)])
def test_a_message_without_an_end_ends_its_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, parts: int
) -> None:
    monkeypatch.setattr(websocket_player, "MAX_BODY", 1000)
    with replayed(tmp_path / "s") as (_, peer, client):
        hear(peer, client)
        for _ in range(parts):
            peer.sendall(client.send(TextMessage("x" * size, message_finished=False)))
        assert hear(peer, client).startswith("1009 ")


def recorded_bytes(
    path: Path,
    protocol: str,
    *said: tuple[str, str | bytes],
    headers: Headers | None = None,
    session: str = "s",
) -> Path:
    """A snapshot of a socket on which messages of bytes were said."""
    messages = [
        {"from": who, "text": what}
        if isinstance(what, str)
        else {"from": who, "base64": base64.b64encode(what).decode()}
        for who, what in said
    ]
    with Writer.open(path) as writer:
        content = {"url": f"http://{HOST}/ws", "session": session, "begin": writer.event(session), "messages": messages, "protocol": protocol}  # fmt: skip
        if headers is not None:
            content["headers"] = [*map(list, headers)]
        writer.metadata(f"http://{HOST}/ws", content)
    return path


def hear_bytes(peer: socket.socket, client: wsproto.WSConnection, size: int) -> bytes:
    """The next messages, of a size together."""
    heard = b""
    while len(heard) < size:
        said = [event.data for event in client.events() if isinstance(event, Message)]
        heard += b"".join(one.encode() if isinstance(one, str) else bytes(one) for one in said)
        if len(heard) < size:
            client.receive_data(peer.recv(4096))
    return heard


def test_packets_of_mqtt_end_within_messages_or_come_several_in_one(tmp_path: Path) -> None:
    """mqtt.js sends a packet in pieces under Node and whole in a browser; its identifiers begin at random."""
    path = recorded_bytes(
        tmp_path / "s",
        "mqtt",
        *(("client", b"\x82"), ("client", b"\x06Q\x13\x00"), ("client", b"\x01a\x01")),
        *(("server", b"\x90\x03Q"), ("server", b"\x13\x01")),
        *(("client", b"2"), ("client", b"\x06\x00\x01aQ\x14x"), ("server", b"@\x02Q\x14")),
    )
    with opened(path, protocols=("mqtt",)) as (gateway, peer, client):
        subscribe, publish = b"\x82\x06\x00\x07\x00\x01a\x01", b"2\x06\x00\x01a\x00\x08x"
        for part in (subscribe[:3], subscribe[3:] + publish[:4], publish[4:]):
            peer.sendall(client.send(BytesMessage(part)))
        assert hear_bytes(peer, client, 9) == b"\x90\x03\x00\x07\x01@\x02\x00\x08"
        assert {e["verdict"] for e in gateway.ledger.entries()} == {"exact"}


def test_only_who_knows_its_password_is_a_recorded_client_of_mqtt() -> None:
    def connect(client: bytes, password: bytes, named: bytes = b"") -> bytes:
        body = b"\x00\x04MQTT\x04\xc2\x00<\x00%c%s\x00\x03ada" % (len(client), client)
        return b"\x10%c%s\x00%c%s" % (len(body) + 2 + len(password), body, len(password), named or password)

    name = Redactor(b"key of a recording").pseudonym("Quince-7").encode()
    for password, answered in ((b"Quince-7", [b" \x02\x00\x00"]), (b"Quince-8", None), (b"other", None)):
        one = answering((True, connect(b"a1", b"Quince-7", name)), (False, b" \x02\x00\x00"))
        assert one.receive(connect(b"b23", password)) == answered


def test_acknowledgements_of_mqtt_come_as_time_has_it() -> None:
    taken = b"@\x02\x00\x01"
    one = answering((True, b"a"), (False, b"1"), (True, taken), (True, b"b"), (False, b"2"))
    assert [one.receive(what) for what in (b"a", b"b", taken)] == [[b"1"], [b"2"], []]
    assert one.ambiguous


@pytest.mark.parametrize("protocol", ["json", "messagepack"])
def test_calls_of_signalr_in_one_message_come_in_another_order(tmp_path: Path, protocol: str) -> None:
    def call(number: int, what: bytes) -> bytes:
        if protocol == "json":
            return b'{"type":1,"invocationId":"%d","target":"%s","arguments":[1]}\x1e' % (number, what)
        return b"\x09\x95\x01\x80\xa1%d\xa1%s\x91\x01" % (number, what)

    def answer(number: int, what: bytes) -> bytes:
        if protocol == "json":
            return b'{"type":3,"invocationId":"%d","result":"%s"}\x1e' % (number, what)
        return b"\x08\x95\x03\x80\xa1%d\x03\xa1%s" % (number, what)

    def message(said: bytes) -> str | bytes:
        return said.decode() if protocol == "json" else said

    hello = f'{{"protocol":"{protocol}","version":1}}\x1e'
    path = recorded_bytes(
        tmp_path / "s",
        "",
        *(("client", hello), ("server", "{}\x1e"), ("client", message(call(0, b"a") + call(1, b"b")))),
        ("server", message(answer(0, b"A") + answer(1, b"B"))),
    )
    with opened(path) as (gateway, peer, client):
        peer.sendall(client.send(TextMessage(hello)))
        assert hear(peer, client) == "{}\x1e"
        said = message(call(4, b"b") + call(5, b"a"))
        peer.sendall(client.send(TextMessage(said) if isinstance(said, str) else BytesMessage(said)))
        told = answer(5, b"A") + answer(4, b"B")
        assert hear_bytes(peer, client, len(told)) == told
        assert [e["verdict"] for e in gateway.ledger.entries()][-1].startswith("rule:order")


def test_calls_of_trame_have_numbers_and_frames_of_their_own(tmp_path: Path) -> None:
    def said(drawn: bytes, number: int, name: bytes, value: bytes) -> bytes:
        call = b"rpc:c1:%d" % number
        body = b"\x83\xa6wslink\xa31.0\xa2id%c%s\xa4%s\xa1%s" % (0xA0 + len(call), call, name, value)
        return drawn + bytes(4) + len(body).to_bytes(4, "little") + body

    path = recorded_bytes(
        tmp_path / "s",
        "",
        *(("client", said(b"abcd", 8, b"args", b"a")), ("server", said(b"sent", 8, b"told", b"A"))),
        *(("client", said(b"efgh", 9, b"args", b"b")), ("server", said(b"sent", 9, b"told", b"B"))),
    )
    with opened(path) as (gateway, peer, client):
        for number, what in ((9, b"a"), (10, b"b")):
            peer.sendall(client.send(BytesMessage(said(b"zz%2d" % number, number, b"args", what))))
            told = said(b"sent", number, b"told", what.upper())
            assert hear_bytes(peer, client, len(told)) == told
        assert {e["verdict"] for e in gateway.ledger.entries()} == {"exact"}


def test_commands_of_centrifugo_in_one_message_come_in_another_order(tmp_path: Path) -> None:
    def line(number: int, what: str) -> str:
        return json.dumps({"id": number, what: {}})

    path = recorded_bytes(
        tmp_path / "s",
        "",
        *(("client", line(1, "connect")), ("server", line(1, "connect"))),
        ("client", "\n".join((line(2, "history"), line(3, "presence")))),
        ("server", "\n".join((line(2, "history"), line(3, "presence")))),
    )
    with opened(path) as (_, peer, client):
        peer.sendall(client.send(TextMessage(line(1, "connect"))))
        assert hear(peer, client) == line(1, "connect")
        peer.sendall(client.send(TextMessage("\n".join((line(2, "presence"), line(3, "history"))))))
        assert hear(peer, client) == "\n".join((line(3, "history"), line(2, "presence")))


def test_each_answer_after_a_message_that_was_not_recorded_is_said_to_be_unsure(tmp_path: Path) -> None:
    """A page that is shown long after it must not be taken for sure."""
    with replayed(tmp_path / "s", least=0.2) as (gateway, peer, client):
        hear(peer, client)
        peer.sendall(client.send(TextMessage('{"add":"milk"}')))
        peer.sendall(client.send(TextMessage('{"add":"tea"}')))
        assert hear(peer, client) == '["tea"]'
        peer.sendall(client.send(TextMessage(f"ask {OWN[0]}")))
        assert hear(peer, client) == f"to {OWN[0]}: yes"  # the rum was never asked for
        told = [(e["verdict"], e["ambiguous"]) for e in gateway.ledger.entries() if e["url"].endswith("/ws")]
        assert told == [("exact", False), ("miss", False), ("exact", True), ("exact", True)]


def test_a_sign_of_life_is_sent_however_unsure_the_answer_after_it_is(tmp_path: Path) -> None:
    """A page that counts the signs goes wrong without them."""
    recorded_bytes(
        tmp_path / "s",
        "",
        *(("server", "page"), ("client", "connected"), ("server", "3")),
        *(("client", "see"), ("client", "gas"), ("server", "gas kettles")),
    )
    path = recorded_bytes(
        tmp_path / "s",
        "",
        *(
            ("client", "connected"),
            ("server", "page"),
            ("client", "see"),
            ("client", "wood"),
            ("server", "none"),
        ),
    )
    with opened(path) as (gateway, peer, client):
        assert hear(peer, client) == "page"
        peer.sendall(client.send(TextMessage("connected")))
        assert hear(peer, client) == "3"
        assert not gateway.ledger.misses()


def test_grounds_count_what_was_said_over_sockets(tmp_path: Path) -> None:
    with replayed(tmp_path / "s"), Snapshot.open(tmp_path / "s") as snapshot:
        matcher = Matcher(snapshot)
        session = matcher.session()
        session.says(HOST, "?")
        told = matcher.lookup(Asked("GET", f"http://{HOST}/items"), session, min_confidence=0.0).grounds
        assert told is not None
        assert "1 message said over web sockets" in " ".join(told())


def test_such_an_answer_is_a_miss_where_only_sure_ones_are_served(tmp_path: Path) -> None:
    with replayed(tmp_path / "s", least=SURE) as (gateway, peer, client):
        hear(peer, client)
        peer.sendall(client.send(TextMessage('{"add":"milk"}')))
        peer.sendall(client.send(TextMessage('{"add":"tea"}')))
        assert until(lambda: len(gateway.ledger.misses()) == 2)
        assert [one["nearest"] and one["nearest"][0]["differs"] for one in gateway.ledger.misses()] == [
            ["body member add: asked 'milk', recorded 'tea'"],
            [],
        ]


@pytest.mark.parametrize(
    ("said", "chance", "ground"),
    [
        ("abcd", 1.0, ""),
        ("bacd", 0.9, "recorded once"),
        ("a!bcd", 0.6, "the recording does not show whether message matters (0.52)"),
    ],
)
def test_a_doubt_says_how_likely_the_answer_is_by_the_model(said: str, chance: float, ground: str) -> None:
    one = answering(
        (True, "a"), (True, "b"), (False, "1"), (True, "c"), (False, "2"), (True, "d"), (False, "3")
    )
    for what in said:
        one.receive(what)
    found, grounds = one.confidence()
    assert (math.floor(found * 100) / 100, grounds[-1:]) == (chance, [ground] if ground else [])


def test_what_is_answered_otherwise_each_time_is_unlikely_after_a_message_that_was_not_recorded() -> None:
    """A counter goes on from what it was told; a question that was always answered alike does not."""
    turns = [((True, "more"), (False, f"count {number}"), (True, "who"), (False, "I")) for number in range(4)]
    one = answering(*(message for turn in turns for message in turn))
    assert one.receive("less") is None
    chances = {}
    for what in ("more", "who"):
        one.receive(what)
        chances[what] = one.confidence()[0]
    assert chances["more"] < SERVED < chances["who"]


def test_what_is_answered_otherwise_each_time_is_so_after_messages_in_another_order() -> None:
    turns = [((True, "a"), (True, "b"), (True, "show"), (False, f"count {number}")) for number in range(3)]
    one = answering(*(message for turn in turns for message in turn))
    for what in ("b", "a", "show"):
        one.receive(what)
    assert one.confidence()[0] > SERVED


def test_a_question_in_another_order_is_answered_where_what_came_before_did_not_matter() -> None:
    """A question that was answered alike before and after others is answered in any order; what counts is not."""
    asked = [("who", "I"), ("price", "5")]
    turns = [*asked, *asked, ("add", "1 thing"), *asked, ("add", "2 things"), *asked]
    one = answering(*(message for said, told in turns for message in ((True, said), (False, told))))
    served = {}
    for said in ("price", "add", "who", "price"):
        told = one.receive(said)
        served[said] = told if one.confidence()[0] > SERVED else None
    assert served == {"price": ["5"], "add": None, "who": ["I"]}
    assert one.rules == "order"


def test_of_a_turn_of_several_messages_the_last_brings_what_was_said_to_it_elsewhere() -> None:
    """Three turns begin with one head, and come in another order than recorded; the turn that is left out is not waited for."""
    turns = [((True, "head"), (True, kind), (False, f"{kind} kettles")) for kind in ("gas", "tea", "camping")]
    one = answering(*(message for turn in turns for message in turn))
    for kind in ("camping", "gas"):
        assert one.receive("head") == []
        assert one.receive(kind) == [f"{kind} kettles"]
    assert one.ambiguous


@pytest.mark.parametrize("least", [0.3, SERVED])
def test_an_answer_less_likely_than_asked_is_a_miss_and_one_that_is_served_is_counted(
    tmp_path: Path, least: float
) -> None:
    with replayed(tmp_path / "s", least=least) as (gateway, peer, client):
        hear(peer, client)
        peer.sendall(client.send(TextMessage('{"add":"milk"}')))
        peer.sendall(client.send(TextMessage('{"add":"tea"}')))
        if least < SERVED:
            assert hear(peer, client) == '["tea"]'
            *_, last = gateway.ledger.entries()
            assert (last["verdict"], last["confidence"]) == ("exact", 0.37)
            assert gateway.stats.presumed == 1
        else:
            assert until(lambda: len(gateway.ledger.misses()) == 2)
            assert "0.37" in gateway.ledger.misses()[1]["why"]


@pytest.mark.parametrize(("one", "accept"), [(GIVEN, "rule"), (OWN[1], "varies")])
def test_a_message_with_an_id_that_the_site_gave_is_a_miss(tmp_path: Path, one: str, accept: str) -> None:
    with replayed(tmp_path / "s", accept=accept) as (gateway, peer, client):
        add_all(gateway, peer, client)
        peer.sendall(client.send(TextMessage(f"ask {one}")))
        assert until(lambda: [e["verdict"] for e in gateway.ledger.entries()][-1] == "miss")


def test_a_session_that_was_a_secret_in_a_header_only_is_found_under_another_name(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        for digit in "12":
            url = f"http://{HOST}/ws?session_id=stillweb-secret-{digit * 24}&room=1"
            content = {"url": url, "session": "s", "begin": writer.event("s"), "messages": [], "events": []}
            writer.metadata(url, content)
    with Snapshot.open(tmp_path / "s") as snapshot:
        found = found_at(snapshot, f"http://{HOST}/ws?session_id=s_i8zn7z&room=1")
        assert (len(found.conversations), found.sure) == (2, False)
        assert not found_at(snapshot, f"http://{HOST}/ws?session_id=s_i8zn7z&room=2").conversations


def test_a_session_of_sockjs_is_drawn_for_each_socket(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        for path in ("sock/482/k3v9q0t7/websocket", "news/482/k3v9q0t7/websocket"):
            url = f"http://{HOST}/{path}"
            content = {"url": url, "session": "s", "begin": writer.event("s"), "messages": [], "events": []}
            writer.metadata(url, content)
    with Snapshot.open(tmp_path / "s") as snapshot:
        found = found_at(snapshot, f"http://{HOST}/sock/017/m2x8b4n6/websocket")
        assert ([one.url for one in found.conversations], found.sure) == ([f"http://{HOST}/sock/482/k3v9q0t7/websocket"], False)  # fmt: skip
        assert not found_at(snapshot, f"http://{HOST}/sock/017/m2x8b4n6/other").conversations


@pytest.mark.parametrize(
    ("shown", "asked", "count"),
    [
        ("", f"{OWN[1]}/channels?view={OWN[1]}&room=1", 1),  # as Solara names the kernel of each page
        (OWN[0], f"{OWN[1]}/channels?view={OWN[1]}&room=1", 0),  # an answer had named the recorded one
        ("", f"{GIVEN}/channels?view={GIVEN}&room=1", 0),
        ("", f"{OWN[1]}/channels?view={OWN[1]}&room=2", 0),
        ("", f"{OWN[1]}/other?view={OWN[1]}&room=1", 0),
    ],
)
def test_an_id_in_the_path_of_a_socket_may_be_drawn_by_its_page(
    tmp_path: Path, shown: str, asked: str, count: int
) -> None:
    start = f"http://{HOST}/kernels"
    with Writer.open(tmp_path / "s") as writer:
        page = Asked("GET", f"http://{HOST}/")
        at, end = writer.event("s"), writer.event("s")
        writer.exchange(Exchange(page, 200, "OK", JSON, f'["{shown}"]'.encode(), MOMENT, "s", at, end))
        url = f"{start}/{OWN[0]}/channels?view={OWN[0]}&room=1"
        content = {"url": url, "session": "s", "begin": writer.event("s"), "messages": [], "events": []}
        writer.metadata(url, content)
    with Snapshot.open(tmp_path / "s") as snapshot:
        named_before = Matcher(snapshot).drawing.named_before
        found = found_at(snapshot, f"{start}/{asked}", lambda value: value == GIVEN, named_before)
        assert (len(found.conversations), found.sure, found.rule) == (
            (1, False, "visit-id") if count else (0, True, "redacted")
        )


@pytest.mark.parametrize(("other", "sure"), [("hello {}", True), ("welcome {}", False)])
def test_a_client_may_do_what_the_second_visitor_did_with_the_ids_of_the_first(
    other: str, sure: bool
) -> None:
    """Each page of Solara is told other names of its widgets."""

    def visit(begin: int, greeting: str, one: str, did: str) -> Conversation:
        said = ((False, greeting.format(one)), (True, f"{did} {one}"), (False, f"{one}: {did}"))
        return Conversation("http://h/", "s", begin, tuple(RecordedMessage(*one) for one in said))

    recorded = [visit(1, "hello {}", OWN[0], "tea"), visit(2, other, OWN[1], "rum")]
    one = Player(RecordedConversations(recorded), 0, given=lambda value: False)
    assert one.open() == [f"hello {OWN[0]}"]
    assert one.ambiguous is not sure
    assert one.receive(f"rum {OWN[0]}") == ([f"{OWN[0]}: rum"] if sure else None)


def test_a_message_may_differ_in_ids_moments_and_clocks_at_once() -> None:
    """Events of a page that ipywidgets sends on differ so."""

    def click(number: str, moment: str, clock: float) -> str:
        event = {"type": "click", "isTrusted": True, "timeStamp": clock}
        return json.dumps({"id": number, "date": moment, "data": event})

    then = "2026-01-01T00:00:00.123Z"
    messages = ((True, click(OWN[0], then, 7203)), (False, f"done {OWN[0]}, asked at {then}"))
    said = tuple(RecordedMessage(*one, moment=MOMENT.timestamp()) for one in messages)
    talk = Conversation("http://h/", "s", 1, said)
    one = Player(
        RecordedConversations([talk]),
        0,
        given=lambda value: False,
        now=lambda: MOMENT.timestamp() + 60 * 86_400,
    )
    later = (MOMENT + timedelta(days=60)).strftime("%Y-%m-%dT%H:%M:%S.456Z")
    told = one.receive(click(OWN[1], later, 11657.09999999404))
    assert told == [f"done {OWN[1]}, asked at {later}"]
    assert (one.ambiguous, one.rules) == (True, "timestamp+visit-id+clock")


def test_a_socket_is_found_without_what_rules_leave_of_its_address(tmp_path: Path) -> None:
    recorded, asked = (f"http://{HOST}/sock?room=1&_={number}" for number in (1700000000000, 1700000099999))
    with Writer.open(tmp_path / "s") as writer:
        content = {"url": recorded, "session": "s", "begin": writer.event("s"), "messages": [], "events": []}
        writer.metadata(recorded, content)
    with Snapshot.open(tmp_path / "s") as snapshot:
        found = found_at(snapshot, asked)
        assert ([one.url for one in found.conversations], found.rule) == ([recorded], "cache-buster")
        assert not found_at(snapshot, asked.replace("room=1", "room=2")).conversations


@pytest.mark.parametrize(
    ("query", "field", "sure"),
    [
        ("session_id", "X-Session-Id", [True, True, False]),
        ("sid", "X-Session", [True, True, False]),
        ("api_key", "X-Api-Key", [False, False, False]),
    ],
)
def test_each_session_that_a_page_draws_is_the_recorded_one_of_its_turn(
    tmp_path: Path, query: str, field: str, sure: list[bool]
) -> None:
    """Somebody's key is no such session, and a third page was never recorded."""
    with Writer.open(tmp_path / "s") as writer:
        for number in (2, 1):  # the first address isn't the first in the index
            own = f"stillweb-secret-{str(number) * 24}"
            begin = writer.event("s")
            headers = (*JSON, (field, own))
            asked = Asked("POST", f"http://{HOST}/items", headers, b'{"add":"tea"}')
            at = writer.event("s")
            writer.exchange(Exchange(asked, 200, "OK", JSON, b"true", MOMENT, "s", at, writer.event("s")))
            url = f"http://{HOST}/ws?{query}={own}"
            said = [{"from": "server", "text": f"{text} {number}"} for text in ("hello", "tea")]
            content = {
                "url": url,
                "session": "s",
                "begin": begin,
                "messages": said,
                "events": [begin, at + 1],
            }
            writer.metadata(url, content)
    with Snapshot.open(tmp_path / "s") as snapshot, Gateway(snapshot) as gateway:
        for number, value in enumerate(("s_i8zn7z", "s_q04xk2", "s_77bqav")):
            with socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG) as peer:
                peer.sendall(f"CONNECT {HOST}:80 HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
                assert b" 200 " in peer.recv(4096)
                client = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
                peer.sendall(client.send(Request(host=HOST, target=f"/ws?{query}={value}")))
                turn = (2, 1, 1)[number]
                assert hear(peer, client) == f"hello {turn}"
                assert ask(gateway, "POST", '{"add":"tea"}', f"{field}: {value}\r\n") == "true"
                assert hear(peer, client) == f"tea {turn}"
        entries = [e for e in gateway.ledger.entries() if e["method"] == "POST"]
        assert [not e["ambiguous"] for e in entries] == sure
