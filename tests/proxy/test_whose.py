"""A server that looks at who asks, in a field of its own or a cookie, without a word in Vary: recorded, and replayed beside it."""

import hashlib
from pathlib import Path

import httpx
import pytest

from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.gateways import client
from tests.proxy.origin import Answer, Asked, Origin
from tests.support.waiting import HANG

KEY, OTHER = "9f8e7d6c5b4a39281706f5e4d3c2b1a0", "0a1b2c3d4e5f60718293a4b5c6d7e8f9"
Fields = dict[str, str]


def whose(asked: Asked) -> Answer:
    told = [asked.header(name) or "" for name in ("X-Api-Key", "X-Tenant", "Cookie")]
    body = hashlib.sha256("\n".join(told).encode()).hexdigest()[:12].encode()
    return Answer(headers=[("Content-Type", "text/plain")], body=body)


@pytest.mark.parametrize("name", ["X-Api-Key", "Cookie"])
def test_the_recorded_secret_is_sure_and_any_other_is_not(tmp_path: Path, name: str) -> None:
    mine, other = ({name: f"session={v}" if name == "Cookie" else v} for v in (KEY, OTHER))
    asked: list[tuple[Fields, bool]] = [(mine, True), (other, False), ({}, False), (mine, True)]
    found = _replayed(tmp_path, [mine], [fields for fields, _ in asked])
    assert [(right, sure) for right, sure in found] == [(sure, sure) for _, sure in asked]


def test_what_was_recorded_for_anybody_is_not_surely_that_of_somebody(tmp_path: Path) -> None:
    asked: list[Fields] = [{}, {"X-Api-Key": KEY}, {"X-Tenant": "acme"}, {"Cookie": f"session={KEY}"}, {}]
    found = _replayed(tmp_path, [{}], asked)
    assert found == [(fields == {}, fields == {}) for fields in asked]


def test_where_several_were_recorded_each_gets_its_own(tmp_path: Path) -> None:
    recorded: list[Fields] = [{"X-Api-Key": KEY}, {}, {"X-Api-Key": OTHER}]
    found = _replayed(tmp_path, recorded, [*recorded, {"X-Api-Key": KEY[1:] + "0"}])
    assert [right for right, _ in found] == [True, True, True, False]
    assert not found[-1][1]


def _replayed(folder: Path, recorded: list[Fields], asked: list[Fields]) -> list[tuple[bool, bool]]:
    """Of each answer of the replay: whether it is that of the server, and whether it is called sure."""
    with Origin(whose) as origin, Writer.open(folder / "site") as writer:
        url = f"{origin.url}/data"
        with (
            Recorder(writer) as recorder,
            httpx.Client(proxy=recorder.proxy_url("one"), trust_env=False, timeout=HANG) as through,
        ):
            for fields in recorded:
                through.get(url, headers=fields)
        with Snapshot.open(folder / "site") as snapshot, Gateway(snapshot) as gateway:
            found = []
            for fields in asked:
                with client(gateway) as replay, httpx.Client(trust_env=False, timeout=HANG) as live:
                    answer = replay.get(url, headers=fields)
                    right = answer.text == live.get(url, headers=fields).text
                    sure = "stillweb-ambiguous" not in answer.headers and answer.status_code == 200
                    found.append((right, sure))
    return found
