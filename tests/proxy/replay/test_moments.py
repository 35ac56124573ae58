"""Moments at which a client says that it says something: another one is the same message, and a chosen time is not."""

import json
import time
from pathlib import Path

import pytest

from stillweb.proxy.replay.gateway import Gateway
from stillweb.proxy.replay.websocket_player import (
    Conversation,
    Player,
    RecordedConversations,
    RecordedMessage,
)
from stillweb.snapshots.identity.moments import with_moments
from stillweb.snapshots.identity.packets import Payload
from tests.proxy.frozen import START, Site
from tests.proxy.gateways import client

HOST = "http://h.example"
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
        ("2025-11-24T15:59:59Z", "2026-11-18T11:06:39Z"),
        ("20251124T155959Z", "20261118T110639Z"),
        ("20251124155959125", "20261118110639731"),
        ("1763999999", "1794999999"),
        ("1763999999.125", "1794999999.7"),
        ("1763999999125", "1794999999731"),
        ("1763999999125000", "1794999999731000"),
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
        (STORED, "now"),
        (f"{STORED} {STORED}", SAID),
        ("20251124155909125", "20261118110639731"),
        ("20251124155959", "20261118110639731"),
        ("1763999899", "1794999999"),
        ("1763999999", "1794999999731"),
    ],
)
def test_a_time_that_was_chosen_counts(stored: str, said: str) -> None:
    assert with_moments(at(stored), at(said), THEN, NOW) == at(said)


def test_text_is_no_bytes() -> None:
    assert with_moments(STORED, SAID.encode(), THEN, NOW) == SAID.encode()


def player(*messages: tuple[bool, Payload], moment: float | None = THEN) -> Player:
    told = Conversation("http://h/", "s", 1, tuple(RecordedMessage(*one, moment=moment) for one in messages))
    return Player(RecordedConversations([told]), 0, given=lambda one: False, now=lambda: NOW)


def test_a_client_that_names_its_moment_is_answered() -> None:
    one = player((True, at(STORED)), (False, "done"))
    assert one.receive(at(SAID)) == ["done"]
    assert (one.ambiguous, one.rules) == (True, "timestamp")


def test_ids_are_drawn_beside_moments() -> None:
    mine, theirs = "0b0e2a0c-98a4-4c0f-9d9f-6d0b1a2c3d4e", "1c1f3b1d-a9b5-4d1a-8eae-7e1c2b3d4e5f"
    one = player((True, at(STORED, theirs)), (False, f"done {theirs}"))
    assert one.receive(at(SAID, mine)) == [f"done {mine}"]
    assert one.rules == "timestamp+visit-id"


@pytest.mark.parametrize("moment", [THEN, None])
def test_other_words_at_another_moment_are_not_answered(moment: float | None) -> None:
    told = player((True, at(STORED)), (False, "done"), moment=moment)
    assert told.receive(at(SAID, "stop" if moment else "run")) is None


def test_a_request_that_names_its_moment_is_answered_whatever_the_name(tmp_path: Path) -> None:
    site, now = Site(tmp_path / "s"), int(time.time())
    then = int(START.timestamp()) + 1
    site.add(f"{HOST}/list?id=7&zz={then}", b"the list")
    site.add(f"{HOST}/old?zz={then - 86400}", b"the list of yesterday")
    site.add(f"{HOST}/ask", b"told", method="POST", request_body=b"at %d" % then)
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        assert c.get(f"{HOST}/list?id=7&zz={now}").content == b"the list"
        assert c.post(f"{HOST}/ask", content=b"at %d" % now).content == b"told"
        assert [(e["verdict"], e["ambiguous"]) for e in gateway.ledger.entries()] == [
            ("rule:timestamp", True)
        ] * 2
        for path in (f"list?id=8&zz={now}", f"list?id=7&zz={now - 86400}", f"old?zz={now}"):
            assert c.get(f"{HOST}/{path}").status_code == 504


def test_polls_that_name_their_moments_are_answered_one_after_the_other(tmp_path: Path) -> None:
    site, now = Site(tmp_path / "s"), int(time.time())
    for n in (1, 2, 3):
        site.add(f"{HOST}/poll?zz={int(START.timestamp()) + 2 * n}", b"%d" % n)
    with site.open() as snapshot, Gateway(snapshot) as gateway, client(gateway, "p") as c:
        told = [c.get(f"{HOST}/poll?zz={now + n}").content for n in range(4)]
        assert told == [b"1", b"2", b"3", b"3"]
