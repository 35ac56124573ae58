"""The index finds what is in it and nothing else, whatever the blocks cut through."""

import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stillweb.snapshots._os.random_access import FileSource, MemorySource
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.contents.package import write_package
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.index import blocks, cdxj
from stillweb.snapshots.index.blocks import open_blocks, stamp_of, step_for, steps_of
from stillweb.snapshots.index.cdxj import (
    BrokenLine,
    Index,
    capture_line,
    capture_of,
    entry_line,
    is_capture,
    parse_line,
    to_capture,
)
from stillweb.snapshots.operations.importing import import_files
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.warc.container import INDEX, PACKAGE, STEPS
from tests.snapshots.making import small_snapshot

SAMPLE = Capture(
    "test,example)/",
    "20250102030405678",
    "http://example.test/",
    "GET",
    200,
    "text/html",
    "sha256:00",
    "data-00000.warc.gz",
    7,
    8,
)

OTHER = {
    "kind": "resource", "url": "x", "mime": "image/png", "digest": "sha256:00",
    "filename": "data-00000.warc.gz", "offset": "7", "length": "8", "id": "0" * 64,
}  # fmt: skip

keys = st.lists(
    st.one_of(st.text("ab,)/?=é", min_size=1, max_size=6), st.text("ab", min_size=60, max_size=90)),
    max_size=40,
)


@given(keys, st.integers(16, 200), st.integers(16, 80), st.integers(0, 50))
def test_finds_the_same_as_a_walk_over_all_lines(names: list[str], block: int, probe: int, top: int) -> None:
    lines = sorted(
        capture_line(replace(SAMPLE, urlkey=name, offset=n), "0" * 64) for n, name in enumerate(names)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cdxj, "BLOCK", block)
        patch.setattr(cdxj, "PROBE", probe)
        patch.setattr(cdxj, "TOP", top)
        index = Index(MemorySource(b"".join(line + b"\n" for line in lines)))
        walked = [to_capture(*parse_line(line)) for line in lines]
        assert list(index) == walked
        assert len(index) == len(lines)
        for name in [*names, "a", "b", "zz", "", "é", "ab" * 40]:
            assert index.candidates(name) == [c for c in walked if c.urlkey == name]
            wanted = [c for c in walked if c.urlkey.encode().startswith(name.encode())]
            assert list(index.prefix(name)) == wanted


captures = st.builds(
    Capture,
    urlkey=st.text(st.characters(min_codepoint=0x21, blacklist_categories=["Cs"]), min_size=1, max_size=20),
    timestamp=st.sampled_from(["20250102030405", "20250102030405678"]),
    url=st.text(max_size=30),
    method=st.sampled_from(["GET", "POST", "PATCH"]),
    status=st.integers(100, 599),
    mime=st.text(max_size=10),
    digest=st.text(max_size=10),
    filename=st.text(max_size=10),
    offset=st.integers(0, 1 << 40),
    length=st.integers(0, 1 << 40),
    request_offset=st.sampled_from([0, 5, 1 << 40]),
    request_length=st.integers(0, 1 << 30),
    key=st.text(max_size=5),
    exact=st.text(max_size=5),
    session=st.text(max_size=5),
    begin=st.integers(0, 99),
    end=st.integers(0, 99),
    protocol=st.sampled_from(["http/1.1", "h2"]),
    vary=st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=3).map(tuple),
    original=st.none() | st.tuples(st.text(max_size=5), st.integers(0, 99), st.integers(0, 99)),
    personal=st.booleans(),
)


@given(captures)
def test_a_line_holds_all_of_a_capture(capture: Capture) -> None:
    line = capture_line(capture, "f" * 64)
    assert b"\n" not in line
    assert to_capture(*parse_line(line)) == capture


def test_lines_have_the_members_that_other_tools_read() -> None:
    _, _, entry = parse_line(capture_line(replace(SAMPLE, original=("a", 1, 2)), ""))
    assert {k: entry[k] for k in ("url", "mime", "status", "digest", "length", "offset", "filename")} == {
        "url": "http://example.test/",
        "mime": "warc/revisit",
        "status": "200",
        "digest": "sha256:00",
        "length": "8",
        "offset": "7",
        "filename": "data-00000.warc.gz",
    }
    with pytest.raises(ValueError, match="not an object"):
        parse_line(entry_line("a", "2025", {})[:-2] + b"[]")


def test_other_records_are_no_captures() -> None:
    other = entry_line("test,example)/", "20250102030405", OTHER)
    index = Index(MemorySource(other + b"\n"))
    assert index.candidates("test,example)/") == list(index) == []
    assert len(index.entries("test,example)/")) == 1


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # workers of xdist have threads
def test_reading_from_threads_and_after_a_fork(tmp_path: Path) -> None:
    path = tmp_path / "i.cdxj"
    names = [f"test,example)/{n:05d}" for n in range(3000)]
    path.write_bytes(b"".join(capture_line(replace(SAMPLE, urlkey=n), "") + b"\n" for n in names))
    index = Index(FileSource(path))
    wrong: list[str] = []

    def run(seed: int) -> None:
        for step in range(400):
            name = names[(seed * 7919 + step * 104729) % len(names)]
            if [c.urlkey for c in index.candidates(name)] != [name]:
                wrong.append(name)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    child = os.fork()
    if child == 0:
        run(9)
        os._exit(len(wrong))
    assert os.waitpid(child, 0)[1] == 0


@given(captures, st.booleans())
def test_a_line_read_at_once_is_the_line_read_by_its_members(capture: Capture, escaped: bool) -> None:
    line = capture_line(capture, "f" * 64)
    if escaped:
        urlkey, timestamp, block = line.split(b" ", 2)
        line = b" ".join((urlkey, timestamp, json.dumps(json.loads(block)).encode()))
    made = capture_of(line)
    assert made == to_capture(*parse_line(line)) == capture
    assert hash(made) == hash(capture)
    with pytest.raises(AttributeError):
        made.url = "another"  # type: ignore[union-attr, misc]


VALUES = st.sampled_from([None, True, 0, 1.5, 1e999, "", "1", "x", "\ud800", [], [1], [1, 2], ["f", 1, 2], ["f", 1, 2, 3], [["a", "b"]], [["a", 1]], {}, "200 ", "٣"])  # fmt: skip
MEMBERS = st.sampled_from(["url", "mime", "status", "digest", "length", "offset", "filename", "method", "type", "orig", "req", "key", "events", "protocol", "vary", "truncated", "kind", "more"])  # fmt: skip


@given(
    st.dictionaries(MEMBERS, VALUES, max_size=3),
    st.sets(MEMBERS, max_size=2),
    st.sampled_from(["", " ", "x"]),
)
def test_odd_lines_are_read_alike(members: dict[str, object], missing: set[str], after: str) -> None:
    """Whatever stands in a line: the quick way gives what the slow one gives, or leaves it to that."""
    urlkey, timestamp, block = capture_line(SAMPLE, "f" * 64).split(b" ", 2)
    entry = {n: v for n, v in (json.loads(block) | members).items() if n not in missing}
    line = b" ".join((urlkey, timestamp, json.dumps(entry).encode() + after.encode()))

    def slowly() -> Capture | None:
        parsed = parse_line(line)
        return to_capture(*parsed) if is_capture(parsed[2]) else None

    broken = (ValueError, TypeError, LookupError, OverflowError)
    try:
        wanted = slowly()
    except broken:
        with pytest.raises(BrokenLine):
            capture_of(line)
    else:
        assert capture_of(line) == wanted


@pytest.mark.parametrize("broken", [b"\xff", b"x", b"}", b" "])
def test_a_damaged_line_is_told_with_its_file(broken: bytes) -> None:
    whole = capture_line(SAMPLE, "0" * 64)
    at = whole.index(b'"mime"')
    line = whole[:at] + broken + whole[at + 1 :]
    index = Index(MemorySource(line + b"\n", "index.cdxj"))
    key = SAMPLE.urlkey
    for read in (lambda: index.candidates(key), lambda: index.entries(key), lambda: list(index),
                 lambda: list(index.prefix(key))):  # fmt: skip
        with pytest.raises(DamagedInput, match=r"^index\.cdxj: damaged index line"):
            read()


@given(keys, st.sampled_from([1, 64, 256, 1024]), st.integers(1, 99), st.sampled_from([1, 64]))
def test_lookups_are_the_same_with_blocks(names: list[str], step: int, most: int, together: int) -> None:
    lines = sorted(
        capture_line(replace(SAMPLE, urlkey=name, offset=n), "0" * 64) for n, name in enumerate(names)
    )
    place = MemorySource(b"".join(line + b"\n" for line in lines))
    walked = [to_capture(*cdxj.parse_line(line)) for line in lines]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "LEAST", 1)
        patch.setattr(blocks, "STEP", step)
        patch.setattr(blocks, "MOST", most)
        patch.setattr(blocks, "TOGETHER", together)
        patch.setattr(blocks, "FAR", together)
        found = open_blocks(MemorySource(steps_of(place)), None, place)
        assert (found is None) == (not names)
        index = Index(place, found)
        assert list(index) == walked
        for name in [*names, "a", "b", "zz", "", "é", "ab" * 40]:
            assert index.candidates(name) == [c for c in walked if c.urlkey == name]
            wanted = [c for c in walked if c.urlkey.encode().startswith(name.encode())]
            assert list(index.prefix(name)) == wanted


def test_blocks_are_as_many_as_memory_allows() -> None:
    assert step_for(blocks.LEAST - 1) == 0
    assert step_for(blocks.LEAST) == blocks.STEP
    for size in (1 << 24, 1 << 33, 1 << 40):
        assert size / step_for(size) <= blocks.MOST


def test_blocks_of_another_index_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "LEAST", 1)
    place = MemorySource(b"a 1 {}\nb 2 {}\n")
    data = steps_of(place)
    assert open_blocks(MemorySource(data), stamp_of(data), place) is not None
    for other in (data[:-1], data.replace(b"a 0", b"b 0"), b"", b"4096\na\nb\n\xff"):
        assert open_blocks(MemorySource(other), None, place) is None
    assert open_blocks(MemorySource(data), {}, place) is None
    assert open_blocks(MemorySource(data), None, MemorySource(b"a 1 {}\nb 2 {}\nc 3 {}\n")) is None
    assert open_blocks(None, None, place) is None


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every index is a large one."""
    monkeypatch.setattr(blocks, "LEAST", 1)
    monkeypatch.setattr(blocks, "STEP", 512)
    monkeypatch.setattr("stillweb.snapshots.index.index_cache.CHECKED", 0)


def test_a_large_snapshot_has_blocks_and_a_small_one_none(tmp_path: Path) -> None:
    root = small_snapshot(tmp_path / "a.snapshot")
    assert not (root / STEPS).exists()
    with Snapshot.open(root) as snapshot:
        found = {c.urlkey: snapshot.candidates(c.urlkey) for c in snapshot.captures()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "LEAST", 1)
        patch.setattr(blocks, "STEP", 512)
        write_package(root, profile=None, settings={}, software="x")
        assert STEPS in (root / PACKAGE).read_text()
        assert (root / STEPS).read_bytes().startswith(b"512 ")
        with Snapshot.open(root) as snapshot:
            assert {key: snapshot.candidates(key) for key in found} == found
            assert snapshot.candidates("test,none)/") == ()
    write_package(root, profile=None, settings={}, software="x")
    assert not (root / STEPS).exists()
    assert STEPS not in (root / PACKAGE).read_text()


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


@pytest.mark.usefixtures("large")
def test_no_flipped_bit_of_a_large_index_changes_what_is_found(tmp_path: Path) -> None:
    root = small_snapshot(tmp_path / "a.snapshot")
    with Snapshot.open(root) as snapshot:
        found = {c.urlkey: snapshot.candidates(c.urlkey) for c in snapshot.captures()}
    size = (root / INDEX).stat().st_size
    said = set()
    for at in range(0, size, 97):
        flip(root / INDEX, at)
        with Snapshot.open(root) as snapshot:
            for key, captures in found.items():
                try:
                    now = snapshot.candidates(key)
                except DamagedInput as error:
                    said.add(str(error))
                else:
                    assert now == captures
            with pytest.raises(DamagedInput, match="damaged block"):
                list(snapshot.captures())
        with Snapshot.open(root, checked=True) as snapshot:
            assert {key: snapshot.candidates(key) for key in found} == found
            assert "index.cdxj: is damaged; rebuilt from the records" in snapshot.notes[0]
        flip(root / INDEX, at)
    assert said
    assert all("index.cdxj: offset" in text for text in said)


@pytest.mark.usefixtures("large")
def test_what_has_a_damaged_index_can_be_imported(tmp_path: Path) -> None:
    root = small_snapshot(tmp_path / "site")
    seal(root)
    with Snapshot.open(root) as snapshot:
        before = [c.exact for c in snapshot.captures()]
    path = tmp_path / "site.wacz"
    flip(path, path.read_bytes().index(b'"mime":'))
    report = import_files([path], tmp_path / "again")
    assert any("rebuilt" in note for note in report.notes)
    with Snapshot.open(tmp_path / "again") as snapshot:
        assert [c.exact for c in snapshot.captures()] == before


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("harm", ["flipped", "gone", "of an older version"])
def test_without_its_blocks_a_large_index_is_looked_at_whole(tmp_path: Path, harm: str) -> None:
    root = small_snapshot(tmp_path / "a.snapshot")
    with Snapshot.open(root) as snapshot:
        found = list(snapshot.captures())
    if harm == "flipped":
        flip(root / STEPS, 30)
    elif harm == "gone":
        (root / STEPS).unlink()
    else:
        (root / STEPS).write_bytes(b"512\nsome\n\xff\n")
    assert any(problem.file == STEPS for problem in verify(root))
    for _ in range(2):
        with Snapshot.open(root) as snapshot:
            assert list(snapshot.captures()) == found
            assert not snapshot.notes
    flip(root / INDEX, 40)
    with Snapshot.open(root) as snapshot, pytest.raises(DamagedInput, match="damaged block"):
        list(snapshot.captures())
    (tmp_path / "other").mkdir()
    root.rename(tmp_path / "other" / "a.snapshot")  # of which nothing is known yet
    with Snapshot.open(tmp_path / "other" / "a.snapshot") as snapshot:
        assert list(snapshot.captures()) == found
        assert any("is damaged" in note for note in snapshot.notes)


class Counting(MemorySource):
    """Tells how much was read at once."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.read_at_once: list[int] = []

    def read(self, offset: int, length: int) -> bytes:
        self.read_at_once.append(length)
        return super().read(offset, length)


def test_who_reads_on_far_away_asks_seldom_and_never_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "LEAST", 1)
    monkeypatch.setattr(blocks, "STEP", 1)
    lines = [b"%05d 1 {}" % n for n in range(10_000)]
    place = Counting(b"".join(line + b"\n" for line in lines))
    found = open_blocks(MemorySource(steps_of(place)), None, place)
    place.read_at_once.clear()
    assert list(Index(place, found).lines()) == lines
    assert len(place.read_at_once) < 20
    assert max(place.read_at_once) <= place.size / 9
    assert found is not None
    place.read_at_once.clear()
    assert found.sound()
    assert len(place.read_at_once) == 10
