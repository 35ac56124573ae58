"""Ids that a client draws for each message over a web socket: another one is the same message, not surely, and is answered by it."""

import json

import pytest

from stillweb.proxy.replay.websocket_player import (
    Conversation,
    Player,
    RecordedConversations,
    RecordedMessage,
)
from stillweb.snapshots import yielding
from stillweb.snapshots.identity.numbering import ids_in, ids_in_text, match_drawn_ids, renumbered
from stillweb.snapshots.identity.packets import Payload

ONE, TWO = "5C7BEB7B987C4FCFB6CD4593AD757F14", "7FE5641BA8F54DF6903B0218567A4B58"
THREE, FOUR = "0b0e2a0c-98a4-4c0f-9d9f-6d0b1a2c3d4e", "1c1f3b1d-a9b5-4d1a-8eae-7e1c2b3d4e5f"
DIGEST = ("9e107d9d-372b-5682-abd8-1d3542a419d6", "e4d909c2-90d0-5b1c-a068-ffaddf22cbd0")  # version 5


def ask(one: str, what: str = "pull") -> str:
    return json.dumps({"id": one, "ask": what})


def talk(url: str, *messages: tuple[bool, Payload]) -> Conversation:
    return Conversation(url, "s", 1, tuple(RecordedMessage(*one) for one in messages))


def player(*messages: tuple[bool, Payload], given: frozenset[str] = frozenset()) -> Player:
    return Player(
        RecordedConversations([talk("http://h/", *messages)]),
        0,
        given=lambda one: one in given,
    )


def test_a_client_is_answered_with_its_own_ids() -> None:
    one = player(
        (True, ask(ONE)),
        (False, f"reply to {ONE}"),
        (True, ask(THREE, f"as {ONE}")),
        (False, f"{ONE}, {THREE}"),
    )
    assert one.receive(ask(TWO)) == [f"reply to {TWO}"]
    assert one.ambiguous
    assert one.rules == "visit-id"
    assert one.receive(ask(FOUR, f"as {TWO}")) == [f"{TWO}, {FOUR}"]


def test_messages_of_bytes_have_ids_too() -> None:
    one = player((True, b"\xff" + THREE.encode()), (False, b"\x00\xe9" + THREE.encode()))
    assert one.receive(b"\xff" + FOUR.encode()) == [b"\x00\xe9" + FOUR.encode()]


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        (ask(ONE), ask(TWO, "push")),
        (ask(DIGEST[0]), ask(DIGEST[1])),  # a hash of what is asked for
        (ask(THREE), ask(FOUR.replace("-", ""))),
        (f"{ONE} {ONE}", f"{ONE} {TWO}"),
        (f"{ONE} {TWO}", f"{TWO} {TWO}"),
        (ask(ONE), ask(TWO).encode()),
        ("41", "42"),
    ],
)
def test_what_differs_in_more_is_another_message(stored: Payload, said: Payload) -> None:
    one = player((True, stored), (False, "reply"))
    assert one.receive(said) is None


@pytest.mark.parametrize("chosen", [THREE, FOUR])
def test_an_id_that_the_site_gave_was_chosen(chosen: str) -> None:
    told = player((False, f"items: {chosen.upper()}"), (True, ask(THREE)), (False, "three"))
    told.open()
    assert told.receive(ask(FOUR)) is None
    shown = player((True, ask(THREE)), (False, "three"), given=frozenset([chosen]))
    assert shown.receive(ask(FOUR)) is None


def test_an_id_that_another_socket_was_told_was_chosen() -> None:
    shared = set[str]()
    first = Player(
        RecordedConversations([talk("http://h/", (False, THREE), (False, FOUR))]),
        0,
        named=shared,
    )
    first.open()
    asked = talk("http://h/b", (True, ask(THREE)), (False, "three"))
    assert (
        Player(RecordedConversations([asked]), 0, given=lambda one: False, named=shared).receive(ask(FOUR))
        is None
    )


def test_an_id_is_not_taken_for_two() -> None:
    one = player((True, ask(ONE)), (True, ask(THREE)), (False, "three"))
    one.receive(ask(TWO))
    assert one.receive(ask(ONE)) is None  # which was said for nothing yet, but stands for the first
    assert match_drawn_ids(ask(THREE), ask(FOUR)) == {THREE: FOUR}


def test_without_a_rule_ids_count() -> None:
    assert Player(RecordedConversations([talk("http://h/", (True, ask(ONE)))]), 0).receive(ask(TWO)) is None


def test_ids_are_found_in_any_text() -> None:
    assert ids_in_text(f"\\u0022{THREE.upper()}\\u0022 x{ONE}") == {THREE.replace("-", ""), ONE.lower()}
    assert renumbered(f"a{THREE} {THREE}", {THREE: FOUR}) == f"a{THREE} {FOUR}"


@pytest.mark.parametrize("piece", [1, 36, 37, 50, 1000])
def test_ids_are_found_wherever_a_long_message_is_cut(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(yielding, "PIECE", piece)
    said = f"{ONE},{TWO}{THREE}:{THREE} a{FOUR} {FOUR}0 {FOUR} {DIGEST[0]}{ONE}"
    assert ids_in(said) == [ONE, THREE, FOUR]
    assert ids_in(said.encode()) == ids_in(said)
