"""The ledger: written late but surely, read back or refused, hashed whatever the interleaving."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.proxy.replay import ledger
from stillweb.proxy.replay.ledger import Ledger, hash_entries, misses, settle_broken_tunnels
from stillweb.snapshots.errors import DamagedInput, MissingCapability, UsageError
from tests.support.room import room_for
from tests.support.waiting import HANG, until


def entry(session: str = "a", seq: int = 0, **more: Any) -> dict[str, Any]:
    base = {"session": session, "seq": seq, "method": "GET", "url": "https://a.example/", "verdict": "exact"}
    return {**base, "status": 200, **more}


def test_entries_come_back_as_they_were_written(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l.jsonl") as book:
        book.write(entry(url="https://a.example/é\ud800", verdict="miss"))
        book.write(entry(seq=1, ms=7))
        assert [e["seq"] for e in book.entries()] == [0, 1]
        assert book.misses()[0]["url"] == "https://a.example/é\ud800"
        assert isinstance(book.entries()[0]["ms"], int)
    assert ledger.read(tmp_path / "l.jsonl") == book.entries()
    assert ledger.misses(ledger.read(tmp_path / "l.jsonl")) == book.misses()


def test_a_ledger_without_a_file_can_be_read_too() -> None:
    with Ledger() as book:
        book.write(entry())
        assert book.entries()[0]["session"] == "a"
    assert len(book.entries()) == 1


def test_lines_are_on_disk_soon_and_unasked(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    with Ledger(path) as book:
        for number in range(5):
            book.write(entry(seq=number))
            assert until(lambda n=number: len(path.read_bytes().splitlines()) > n)


def test_an_older_ledger_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    path.write_text("old\n")
    Ledger(path).close()
    assert path.read_bytes() == b""


def test_nothing_is_lost_between_threads(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l.jsonl") as book:

        def work(name: str) -> None:
            for number in range(2000):
                book.write(entry(name, number))

        threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = sorted((e["session"], e["seq"]) for e in ledger.read(tmp_path / "l.jsonl"))
    assert found == [(f"t{n}", m) for n in range(4) for m in range(2000)]


def test_writing_after_closing_still_reaches_the_file() -> None:
    book = Ledger()
    book.close()
    book.write(entry())
    assert len(book.entries()) == 1


def test_sigterm_finds_all_lines_written(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    code = (
        "import sys, time\n"
        "from stillweb.proxy.replay.ledger import Ledger\n"
        "from stillweb.proxy.replay.gateway import flush_at_sigterm\n"
        "book = Ledger(sys.argv[1])\n"
        "flush_at_sigterm(book)\n"
        "print('ready', flush=True)\n"
        "for n in range(10**9):\n"
        "    book.write({'session': 'a', 'seq': n, 'method': 'GET', 'url': 'u', 'verdict': 'exact', 'status': 200})\n"
        "    print(n, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for _ in range(200):
        process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    told = process.stdout.read().split()
    assert process.wait(HANG) == -signal.SIGTERM
    process.stdout.close()
    assert len(ledger.read(path)) >= (int(told[-1]) + 1 if told else 200)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"session":"a","seq":0,"meth', "line 2 is not JSON"),
        (b"[1]", "line 2 is not a JSON object"),
        (b'{"session":"a"}', "line 2 is not a ledger entry: it has no 'seq'"),
        (json.dumps(entry(seq=0) | {"seq": "x"}).encode(), "line 2: 'seq' must be a number"),
        (b"\xff\xfe", "line 2 is not JSON"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes, words: str) -> None:
    path = tmp_path / "l.jsonl"
    path.write_bytes(json.dumps(entry()).encode() + b"\n" + line)
    with pytest.raises(DamagedInput, match=words) as caught:
        ledger.read(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_and_an_unwritable_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        ledger.read(tmp_path / "none")
    with pytest.raises(UsageError, match="can't be written"):
        Ledger(tmp_path / "none" / "l.jsonl")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_is_told_when_closing() -> None:
    book = Ledger("/dev/full")
    book.write(entry())
    with pytest.raises(MissingCapability, match="disk is full"):
        book.close()


def torn(path: Path) -> Ledger:
    """A ledger of three lines, of which a half and one could not be written; its own thread does not write."""
    book = Ledger(path)
    book._awaited = True
    for number in range(3):
        book.write(entry(seq=number, ms=0))
    with room_for(len(json.dumps(entry(ms=0), separators=(",", ":"))) * 3 // 2):
        book.flush()
    assert path.read_bytes().count(b"\n") == 1
    assert not path.read_bytes().endswith(b"\n")
    return book


def test_a_line_that_the_disk_took_half_of_is_finished_once_there_is_room(tmp_path: Path) -> None:
    with torn(tmp_path / "l.jsonl") as book:
        book.write(entry(seq=3))
        assert [e["seq"] for e in book.entries()] == [0, 1, 2, 3]
    assert [e["seq"] for e in ledger.read(tmp_path / "l.jsonl")] == [0, 1, 2, 3]


def test_a_ledger_that_lacks_lines_is_not_read_as_if_it_were_whole(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "l.jsonl")
    with room_for(10):
        book.write(entry(verdict="miss"))
        for reading in (book.entries, book.misses, book.text, book.hash, book.close):
            with pytest.raises(MissingCapability, match="can't be written"):
                reading()
    assert len(book.entries()) == 1


def test_what_waits_for_room_is_bounded_and_what_was_lost_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "KEPT", 1000)
    book = Ledger(tmp_path / "l.jsonl")
    with room_for(10):
        for number in range(200):
            book.write(entry(seq=number))
            book.flush()
    with pytest.raises(MissingCapability, match="can't be written"):
        book.close()
    kept = [e["seq"] for e in ledger.read(tmp_path / "l.jsonl")]
    assert kept == list(range(len(kept)))
    assert 1000 < (tmp_path / "l.jsonl").stat().st_size < 1300


SESSIONS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["u", "v"])), max_size=12)


def numbered(calls: list[tuple[str, str]]) -> list[dict[str, Any]]:
    counts: dict[str, int] = {}
    out = []
    for session, url in calls:
        out.append(entry(session, counts.get(session, 0), url=url, ms=random.randrange(10**6)))
        counts[session] = counts.get(session, 0) + 1
    return out


@given(SESSIONS, st.randoms())
def test_the_hash_does_not_see_how_sessions_were_interleaved(
    calls: list[tuple[str, str]], chance: random.Random
) -> None:
    entries = numbered(calls)
    mixed = list(entries)
    chance.shuffle(mixed)
    assert hash_entries(mixed) == hash_entries(entries)
    assert hash_entries(mixed, ordered=False) == hash_entries(entries, ordered=False)


@given(SESSIONS, SESSIONS)
def test_the_hash_sees_everything_else(one: list[tuple[str, str]], two: list[tuple[str, str]]) -> None:
    def lines(calls: list[tuple[str, str]]) -> dict[str, list[str]]:
        return {s: [u for t, u in calls if t == s] for s, _ in calls}

    same = lines(one) == lines(two)
    assert (hash_entries(numbered(one)) == hash_entries(numbered(two))) is same
    same_set = sorted(one) == sorted(two)
    assert (
        hash_entries(numbered(one), ordered=False) == hash_entries(numbered(two), ordered=False)
    ) is same_set


@pytest.mark.parametrize("member", ["method", "url", "verdict", "status", "session"])
def test_each_member_is_in_the_hash(member: str) -> None:
    changed = entry() | {member: 1 if member == "status" else "other"}
    assert hash_entries([changed]) != hash_entries([entry()])
    assert hash_entries([entry(ms=1)]) == hash_entries([entry(ms=2)])


def test_a_tunnel_that_was_tried_again_matters_no_more() -> None:
    tunnel = {"method": "CONNECT", "verdict": "miss", "irrelevant": False}
    entries = [
        entry("a", 0, **tunnel), entry("b", 0, **tunnel), entry("a", 1, **tunnel), entry("a", 2, verdict="miss"),
        entry("a", 3, again=[0, 2]), entry("b", 1, again=[7]),
    ]  # fmt: skip
    assert [(e["session"], e["seq"], e.get("irrelevant")) for e in misses(entries)] == [
        ("a", 0, True), ("b", 0, False), ("a", 1, False), ("a", 2, None),
    ]  # fmt: skip
    assert [e["seq"] for e in settle_broken_tunnels(entries)] == [e["seq"] for e in entries]
    assert entries[0]["irrelevant"] is False
    renumbered = [*entries[:4], entry("a", 3, again=[1]), *entries[5:]]
    assert hash_entries(renumbered, ordered=False) == hash_entries(entries, ordered=False)
    assert hash_entries(renumbered) != hash_entries(entries)
