"""With blocks the index finds the same, and what is damaged in it is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stillweb.snapshots._os.random_access import BytesPlace
from stillweb.snapshots.contents.package import write_package
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.index import blocks, cdxj
from stillweb.snapshots.index.blocks import open_blocks, stamp_of, step_for, steps_of
from stillweb.snapshots.index.cdxj import Index, capture_line, to_capture
from stillweb.snapshots.operations.importing import import_files
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.warc.container import INDEX, PACKAGE, STEPS
from tests.snapshots.index.test_cdxj import SAMPLE, keys
from tests.snapshots.making import small_snapshot


@given(keys, st.sampled_from([1, 64, 256, 1024]), st.integers(1, 99), st.sampled_from([1, 64]))
def test_lookups_are_the_same_with_blocks(names: list[str], step: int, most: int, together: int) -> None:
    lines = sorted(
        capture_line(replace(SAMPLE, urlkey=name, offset=n), "0" * 64) for n, name in enumerate(names)
    )
    place = BytesPlace(b"".join(line + b"\n" for line in lines))
    walked = [to_capture(*cdxj.parse_line(line)) for line in lines]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "LEAST", 1)
        patch.setattr(blocks, "STEP", step)
        patch.setattr(blocks, "MOST", most)
        patch.setattr(blocks, "TOGETHER", together)
        patch.setattr(blocks, "FAR", together)
        found = open_blocks(BytesPlace(steps_of(place)), None, place)
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
    place = BytesPlace(b"a 1 {}\nb 2 {}\n")
    data = steps_of(place)
    assert open_blocks(BytesPlace(data), stamp_of(data), place) is not None
    for other in (data[:-1], data.replace(b"a 0", b"b 0"), b"", b"4096\na\nb\n\xff"):
        assert open_blocks(BytesPlace(other), None, place) is None
    assert open_blocks(BytesPlace(data), {}, place) is None
    assert open_blocks(BytesPlace(data), None, BytesPlace(b"a 1 {}\nb 2 {}\nc 3 {}\n")) is None
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
            assert "index.cdxj: is damaged; made anew from the records" in snapshot.notes[0]
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
    assert any("made anew" in note for note in report.notes)
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


class Counting(BytesPlace):
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
    found = open_blocks(BytesPlace(steps_of(place)), None, place)
    place.read_at_once.clear()
    assert list(Index(place, found).lines()) == lines
    assert len(place.read_at_once) < 20
    assert max(place.read_at_once) <= place.size / 9
    assert found is not None
    place.read_at_once.clear()
    assert found.sound()
    assert len(place.read_at_once) == 10
