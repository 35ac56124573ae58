"""Kept search indexes: opened by any process, checked each time, the same total order for all who ask."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stillweb.snapshots import searching
from stillweb.snapshots.searching import MANY, STAMP, index_of, is_ready
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.text.search import SearchIndex
from stillweb.snapshots.text.text import FrozenText
from stillweb.snapshots.writer import Writer

COUNT = MANY + 20
ASK = """
import json, sys
from stillweb.snapshots.searching import index_of
from stillweb.snapshots.snapshot import Snapshot
with Snapshot.open(sys.argv[1]) as snapshot:
    index = index_of(snapshot)
    print(json.dumps([[h.address for h in index.search("same words", n)] for n in (1, 9, 100, 1000)]))
"""


def write(path: Path, addresses: list[str], text: str = "the same words here") -> None:
    with Writer.open(path) as writer:
        for address in addresses:
            frozen = FrozenText(address, text, title="A title", extractor="test", version="1")
            record = frozen.to_record()
            writer.conversion(address, text, refers_to=None, extractor="test", version="1", options=record)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("searching") / "site"
    write(made, [f"https://t.test/{n:04}" for n in range(COUNT)])
    return made


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def snapshot(path: Path, cache: Path) -> Iterator[Snapshot]:
    with Snapshot.open(path) as opened:
        yield opened


def kept(cache: Path) -> Path:
    (found,) = cache.glob("*-search")
    return found


def built(snapshot: Snapshot) -> int:
    """How many texts were indexed until the index was there."""
    calls: list[tuple[int, int]] = []
    index = index_of(snapshot, progress=lambda done, total: calls.append((done, total)))
    assert len(index) == COUNT
    assert all(total == COUNT for _, total in calls)
    index.close()
    return len(calls)


def test_an_index_is_built_once(snapshot: Snapshot, cache: Path) -> None:
    assert not is_ready(snapshot)
    assert built(snapshot) == COUNT
    assert is_ready(snapshot)
    assert built(snapshot) == 0
    assert not list(cache.glob(".building-*"))


def test_a_kept_index_answers_as_a_new_one(snapshot: Snapshot, cache: Path) -> None:
    built(snapshot)
    new = SearchIndex(snapshot.texts())
    for query in ("words", '"same words"', "title", "inurl:0007", "absent"):
        for limit in (1, 10, COUNT):
            assert index_of(snapshot).search(query, limit) == new.search(query, limit)


@pytest.mark.slow
def test_ties_come_in_one_order_for_all_processes_and_threads(path: Path, cache: Path) -> None:
    """All three processes ask at once while there is no index yet; one of them builds it."""
    command = [sys.executable, "-c", ASK, str(path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    addresses = [f"https://t.test/{n:04}" for n in range(COUNT)]
    right = [addresses[:n] for n in (1, 9, 100, 1000)]
    assert [json.loads(answer) for answer in answers] == [right] * 3
    with Snapshot.open(path) as snapshot, ThreadPoolExecutor(8) as pool:
        index = index_of(snapshot)
        for found in pool.map(lambda n: (n, index.search("words same", n)), [1, 9, 100, 1000] * 8):
            assert [hit.address for hit in found[1]] == addresses[: found[0]]


@pytest.mark.parametrize("damage", ["changed", "short", "gone", "more", "stamp", "no json"])
def test_a_damaged_index_is_built_anew(snapshot: Snapshot, cache: Path, damage: str) -> None:
    built(snapshot)
    folder = kept(cache)
    victim = max((f for f in folder.iterdir() if f.name != STAMP), key=lambda f: f.stat().st_size)
    data = victim.read_bytes()
    if damage == "changed":
        victim.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    elif damage == "short":
        victim.write_bytes(data[:-1])
    elif damage == "gone":
        victim.unlink()
    elif damage == "more":
        (folder / "more").write_bytes(b"")
    elif damage == "stamp":
        told = json.loads((folder / STAMP).read_text())
        (folder / STAMP).write_text(json.dumps({**told, "stamp": "0" * 32}))
    else:
        (folder / STAMP).write_text("{")
    assert built(snapshot) == COUNT
    assert built(snapshot) == 0


def test_another_snapshot_has_another_index(snapshot: Snapshot, cache: Path, tmp_path: Path) -> None:
    built(snapshot)
    write(tmp_path / "other", [f"https://t.test/{n:04}" for n in range(COUNT)], "other words here")
    with Snapshot.open(tmp_path / "other") as other:
        assert len(index_of(other).search("other", COUNT)) == COUNT
    assert index_of(snapshot).search("other") == []
    assert len(list(cache.glob("*-search"))) == 2


def test_few_texts_are_not_kept(cache: Path, tmp_path: Path) -> None:
    write(tmp_path / "few", ["https://t.test/1"])
    with Snapshot.open(tmp_path / "few") as few:
        assert is_ready(few)
        assert len(index_of(few)) == 1
    assert not cache.exists()


def test_where_nothing_can_be_kept_it_is_built_all_the_same(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "file" / "cache"))
    with Snapshot.open(path) as snapshot:
        assert not is_ready(snapshot)
        assert built(snapshot) == built(snapshot) == COUNT


def test_only_the_newest_are_kept(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "KEEP", 2)
    monkeypatch.setattr(searching, "MANY", 1)
    for n in range(4):
        write(tmp_path / str(n), ["https://t.test/1"], f"text {n}")
        with Snapshot.open(tmp_path / str(n)) as snapshot:
            index_of(snapshot).close()
    assert len(list(cache.glob("*-search"))) == 2


def test_texts_of_layers_are_one_order(tmp_path: Path) -> None:
    """The upper layer's text stands for an address that both have."""
    write(tmp_path / "low", ["https://a.test/", "https://c.test/", "https://d.test/x%20y"], "low")
    write(tmp_path / "high", ["https://b.test/", "https://c.test/", "https://d.test/x!"], "high")
    with Snapshot.open(tmp_path / "low", tmp_path / "high") as snapshot:
        texts = [(text.address, text.markdown) for text in snapshot.texts()]
        assert texts == [
            ("https://a.test/", "low"),
            ("https://b.test/", "high"),
            ("https://c.test/", "high"),
            ("https://d.test/x!", "high"),
            ("https://d.test/x%20y", "low"),
        ]
        assert snapshot.count_texts() == 5
        assert [hit.address for hit in SearchIndex(snapshot.texts()).search("low")] == [
            "https://a.test/",
            "https://d.test/x%20y",
        ]
