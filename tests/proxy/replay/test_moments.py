"""Moments at which a client says that it says something: another one is the same message, and a chosen time is not."""

from __future__ import annotations

import json

import pytest

from stillweb.proxy.replay.websocket_player import Conversation, Player, Said, with_moments

THEN, NOW = 1_764_000_000.0, 1_795_000_000.0  # 2025-11-24T16:00:00 and 2026-11-18T11:06:40
STORED, SAID = "2025-11-24T15:59:59.125Z", "2026-11-18T11:06:39.731Z"


def at(moment: str, what: str = "run") -> str:
    return json.dumps({"date": moment, "do": what})


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        (STORED, SAID),
        (STORED, "2025-11-24T16:20:00.001Z"),  # a client that has the clock of the recording
        (STORED.replace("Z", "000+00:00"), SAID.replace("Z", "000+00:00")),
    ],
)
def test_a_message_names_another_moment(stored: str, said: str) -> None:
    assert with_moments(at(stored), at(said), THEN, NOW) == at(stored)
    assert (
        with_moments(b"\xff" + stored.encode(), b"\xff" + said.encode(), THEN, NOW)
        == b"\xff" + stored.encode()
    )


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ("2025-11-24T15:59:09.125Z", SAID),  # too long before it was said
        ("2025-11-24T16:00:05.125Z", SAID),  # and after
        (STORED, "2026-11-18T09:06:39.731Z"),  # neither the present nor the time of the recording
        (STORED, "2026-02-31T11:06:39.731Z"),
        (STORED, SAID.replace("Z", "000Z")),
        ("2025-11-24T15:59:59Z", "2026-11-18T11:06:39Z"),
        (STORED, "now"),
        (f"{STORED} {STORED}", SAID),
    ],
)
def test_a_time_that_was_chosen_counts(stored: str, said: str) -> None:
    assert with_moments(at(stored), at(said), THEN, NOW) == at(said)


def test_text_is_no_bytes() -> None:
    assert with_moments(STORED, SAID.encode(), THEN, NOW) == SAID.encode()


def player(*messages: tuple[bool, Said], times: tuple[float, ...] = (THEN, THEN)) -> Player:
    told = Conversation("http://h/", "s", 1, messages, times=times)
    return Player([told], 0, given=lambda one: False, now=lambda: NOW)


def test_a_client_that_names_its_moment_is_answered() -> None:
    one = player((True, at(STORED)), (False, "done"))
    assert one.client("http://h/", at(SAID)) == ["done"]
    assert (one.ambiguous, one.rules) == (True, "timestamp")


def test_ids_are_drawn_beside_moments() -> None:
    mine, theirs = "0b0e2a0c-98a4-4c0f-9d9f-6d0b1a2c3d4e", "1c1f3b1d-a9b5-4d1a-8eae-7e1c2b3d4e5f"
    one = player((True, at(STORED, theirs)), (False, f"done {theirs}"))
    assert one.client("http://h/", at(SAID, mine)) == [f"done {mine}"]
    assert one.rules == "timestamp+visit-id"


@pytest.mark.parametrize("times", [(THEN, THEN), ()])
def test_other_words_at_another_moment_are_not_answered(times: tuple[float, ...]) -> None:
    told = player((True, at(STORED)), (False, "done"), times=times)
    assert told.client("http://h/", at(SAID, "stop" if times else "run")) is None
