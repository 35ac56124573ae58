"""Misses of a replay are recorded as a layer, and then nothing is missing."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stillweb.proxy.replay.ledger import read
from stillweb.snapshots import Snapshot
from tests.proxy.dead import closed_port
from tests.proxy.origin import Answer, Asked, Origin
from tests.support.command_line import stillweb


def answer(asked: Asked) -> Answer:
    if asked.path == "/old":
        return Answer(302, [("Location", "/new")])
    if asked.path == "/gone":
        return Answer(503, body=b"come back later")
    said = f"{asked.method} {asked.path} {asked.body.decode('latin-1')}"
    return Answer(headers=[("Content-Type", "text/plain")], body=said.encode("latin-1"))


@pytest.fixture
def origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Origin]:
    monkeypatch.setenv("STILLWEB_STATE", str(tmp_path / "state"))
    with Origin(answer) as running:
        yield running


PROGRAM = """
import sys, urllib.request, urllib.error
base, *asks = sys.argv[1:]
for ask in asks:
    path, _, body = ask.partition("|")
    request = urllib.request.Request(base + path, body.encode("latin-1") or None)
    request.add_header("Content-Type", "application/octet-stream")
    try:
        print(urllib.request.urlopen(request).read())
    except urllib.error.HTTPError as error:
        print(error.code)
"""


def asking(origin: Origin, *asks: str) -> list[str]:
    return ["--", sys.executable, "-c", PROGRAM, origin.url, *asks]


KNOWN = ["/a", "/b?x=1"]
NEW = ["/c", "/b?x=2", "/old", "/gone", '/post|{"q": "tea", "limit": 20}', "/post|\xff\xfe", "/a|z"]


@pytest.mark.slow
def test_only_the_misses_are_recorded_and_then_there_are_none(origin: Origin, tmp_path: Path) -> None:
    base, ledger = tmp_path / "base", tmp_path / "l.jsonl"
    assert stillweb("record", "-o", base, *asking(origin, *KNOWN)).code == 0
    assert stillweb("seal", base).code == 0
    asks = [*KNOWN, *NEW, *NEW]
    first = stillweb("replay", tmp_path / "base.wacz", "--ledger", ledger, *asking(origin, *asks))
    assert first.out.count("504") == 2 * len(NEW)
    before = len(origin.asked)
    done = stillweb("record", "-o", tmp_path / "more", "--misses", ledger)
    assert done.code == 0, done.err
    assert f"{len(NEW)} of {len(NEW)} missing requests recorded" in done.err
    asked = [(one.method, one.path, one.body) for one in origin.asked[before:]]
    assert len(asked) == len(NEW) + 1  # each once, and where a redirect leads
    assert ("POST", "/post", b"\xff\xfe") in asked
    live = stillweb("record", "-o", tmp_path / "live", *asking(origin, *asks))
    layers = [tmp_path / "base.wacz", tmp_path / "more"]
    # a POST that was recorded once is asked twice: how sure its second answer is, is not the matter here
    words = ("--max-misses", "0", "--min-confidence", "0.3", "--ledger", ledger)
    again = stillweb("replay", *layers, *words, *asking(origin, *asks))
    assert again.code == 0, again.err
    assert again.out == live.out
    assert not any(entry["verdict"] == "miss" for entry in read(ledger))
    with Snapshot.open(tmp_path / "more") as snapshot:
        assert len(list(snapshot.captures())) == len(NEW) + 1


@pytest.mark.slow
def test_what_can_not_be_asked_again_is_told(origin: Origin, closed: int, tmp_path: Path) -> None:
    base, ledger = tmp_path / "base", tmp_path / "l.jsonl"
    assert stillweb("record", "-o", base, *asking(origin, "/a")).code == 0
    asks = ["/ok", "/s?api_key=9d8f7a6s5d4f3a2s1d0f9a8s7d6f5a4s", "/long|" + "x" * 70_000]
    assert stillweb("replay", base, "--ledger", ledger, *asking(origin, *asks)).code == 0
    lines = ledger.read_text().splitlines()
    away = {**json.loads(lines[0]), "url": f"http://127.0.0.1:{closed}/", "key": "0" * 64}
    ledger.write_text("\n".join([*lines, json.dumps(away)]) + "\n")
    done = stillweb("record", "-o", tmp_path / "more", "--private", "--misses", ledger)
    assert done.code == 1
    told = [line for line in done.err.splitlines() if line.startswith("not recorded: ")]
    assert len(told) == len(asks)
    assert "1 of 4 missing requests recorded" in done.err
    assert any("too long" in line for line in told)
    assert any("secret" in line for line in told)
    assert any("onnect" in line and str(closed) in line for line in told)


@pytest.mark.slow
def test_a_private_address_is_asked_only_where_the_snapshot_holds_it(origin: Origin, tmp_path: Path) -> None:
    """An agent could have what it asked for in vain, such as a cloud's metadata, fetched later by its user's hand."""
    base, ledger = tmp_path / "base", tmp_path / "l.jsonl"
    assert stillweb("record", "-o", base, *asking(origin, "/a")).code == 0
    with Origin(answer) as other:
        for one in (origin, other):
            part = tmp_path / "part.jsonl"
            stillweb("replay", base, "--ledger", part, *asking(one, "/b"))
            with ledger.open("a") as book:
                book.write(part.read_text())
        done = stillweb("record", "-o", tmp_path / "more", "--misses", ledger)
        assert (done.code, [one.path for one in origin.asked], other.asked) == (1, ["/a", "/b"], []), done.err
        assert f"not recorded: GET {other.url}/b: 127.0.0.1 is not a public address; --private" in done.err
        refresh = ("refresh", base, "--pause", "0", "--ignore-robots", "--misses", ledger, "-o")
        anew = stillweb(*refresh, tmp_path / "anew")
        assert (anew.code, [one.path for one in origin.asked[2:]], other.asked) == (1, ["/a", "/b"], []), (
            anew.err
        )
        assert stillweb("record", "-o", tmp_path / "all", "--private", "--misses", ledger).code == 0
        assert stillweb(*refresh, tmp_path / "newer", "--private").code == 0
        assert [one.path for one in other.asked] == ["/b", "/b"]


@pytest.fixture
def closed() -> Iterator[int]:
    """A port that nobody listens on."""
    with closed_port() as port:
        yield port


FOLDED = """
import os, socket, sys
from urllib.parse import urlsplit
at = urlsplit(os.environ["HTTP_PROXY"])
with socket.create_connection((at.hostname, at.port)) as wire:
    wire.sendall(f"POST {sys.argv[1]}/f HTTP/1.1\\r\\nHost: a\\r\\nX: 1\\r\\n 2\\r\\nContent-Length: 3\\r\\n\\r\\nabc".encode())
    print(wire.recv(100))
"""


@pytest.mark.slow
def test_what_replay_refused_is_told_as_that(origin: Origin, tmp_path: Path) -> None:
    base, ledger = tmp_path / "base", tmp_path / "l.jsonl"
    assert stillweb("record", "-o", base, *asking(origin, "/a")).code == 0
    program = ["--", sys.executable, "-c", FOLDED, origin.url]
    assert "400" in stillweb("replay", base, "--ledger", ledger, *program).out
    (entry,) = read(ledger)
    assert entry["why"].startswith("refused: ")
    done = stillweb("record", "-o", tmp_path / "more", "--misses", ledger)
    (told,) = [line for line in done.err.splitlines() if line.startswith("not recorded: ")]
    assert told.endswith(f": replay refused it, and would again: {entry['why'].removeprefix('refused: ')}")
    assert done.code == 1


@pytest.mark.slow
def test_a_ledger_that_is_none(tmp_path: Path) -> None:
    wrong = tmp_path / "l.jsonl"
    wrong.write_text('{"session": "default"}\n')
    done = stillweb("record", "-o", tmp_path / "more", "--misses", wrong)
    assert (done.code, len(done.said.splitlines())) == (3, 1)
    assert "l.jsonl: line 1" in done.said
    assert not (tmp_path / "more").exists()
    beside = stillweb("record", "https://a.test/", "-o", tmp_path / "more", "--misses", wrong)
    assert beside.code == 2
    assert "--misses stands alone" in beside.err
