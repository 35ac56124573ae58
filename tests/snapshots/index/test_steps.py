"""Steps only say where to look: right, wrong or missing, the index finds the same with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshots.archives.container import PACKAGE, STEPS
from snapshots.contents.package import write_package
from snapshots.index import cdxj, steps
from snapshots.index.cdxj import Index, capture_line, to_capture
from snapshots.index.steps import open_steps, step_for, steps_of
from snapshots.machine.places import BytesPlace
from snapshots.snapshot import Snapshot
from tests.snapshots.index.test_cdxj import SAMPLE, keys
from tests.snapshots.making import small_snapshot


@given(keys, st.sampled_from([64, 256, 1024]), st.integers(1, 99), st.integers(16, 200), st.randoms())
def test_lookups_are_the_same_with_steps(names: list[str], step: int, most: int, block: int, chance) -> None:  # type: ignore[no-untyped-def]
    lines = sorted(
        capture_line(replace(SAMPLE, urlkey=name, offset=n), "0" * 64) for n, name in enumerate(names)
    )
    place = BytesPlace(b"".join(line + b"\n" for line in lines))
    walked = [to_capture(*cdxj.parse_line(line)) for line in lines]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "LEAST", 1)
        patch.setattr(steps, "STEP", step)
        patch.setattr(steps, "MOST", most)
        patch.setattr(cdxj, "BLOCK", step // 4 if block < 100 else step)
        patch.setattr(cdxj, "PROBE", block)
        right = steps_of(place.size, Index(place).key_at)
        head, *rest = right.split(b"\n")
        wrong = rest[:-1]
        chance.shuffle(wrong)
        shifted = [b"\xff", *rest[:-2]]
        files = [None, right, *(b"\n".join([head, *other, b""]) for other in (wrong, shifted, rest[:-2]))]
        files += [b"", b"x\n", right.replace(head, b"7", 1)]
        for file in files:
            index = Index(place, None if file is None else BytesPlace(file))
            for name in [*names, "a", "b", "zz", "", "é", "ab" * 40]:
                assert index.candidates(name) == [c for c in walked if c.urlkey == name]


def test_steps_are_as_many_as_memory_allows() -> None:
    assert step_for(steps.LEAST - 1) == 0
    assert step_for(steps.LEAST) == steps.STEP
    for size in (1 << 24, 1 << 33, 1 << 40):
        assert size / step_for(size) <= steps.MOST


def test_steps_for_another_index_are_not_used() -> None:
    size = 3 * steps.LEAST
    data = steps_of(size, lambda at: b"%09d" % at)
    found = open_steps(BytesPlace(data), size)
    assert found is not None
    assert found.around(b"%09d" % (5 * found.step)) == 4 * found.step
    assert found.around(b"%09dx" % (5 * found.step)) == 5 * found.step
    assert found.around(b"") == 0
    assert open_steps(BytesPlace(data), size + steps.STEP) is None
    assert open_steps(BytesPlace(data[:-9]), size) is None
    assert open_steps(None, size) is None


def test_a_large_snapshot_has_steps_and_a_small_one_none(tmp_path: Path) -> None:
    root = small_snapshot(tmp_path / "a.snapshot")
    assert not (root / STEPS).exists()
    with Snapshot.open(root) as snapshot:
        found = {c.urlkey: snapshot.candidates(c.urlkey) for c in snapshot.captures()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "LEAST", 1)
        patch.setattr(steps, "STEP", 512)
        write_package(root, profile=None, settings={}, software="x")
        assert STEPS in (root / PACKAGE).read_text()
        assert (root / STEPS).read_bytes().startswith(b"512\n")
        with Snapshot.open(root) as snapshot:
            assert {key: snapshot.candidates(key) for key in found} == found
            assert snapshot.candidates("test,none)/") == ()
    write_package(root, profile=None, settings={}, software="x")
    assert not (root / STEPS).exists()
    assert STEPS not in (root / PACKAGE).read_text()
