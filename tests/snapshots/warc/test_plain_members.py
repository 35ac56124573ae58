"""Members that others wrote, unpacked at once where their end is known: what is found is what reading on finds."""

import gzip
import tracemalloc
import zlib
from contextlib import nullcontext
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.snapshots._os.random_access import MemorySource
from stillweb.snapshots.warc import members, scan

NOISE = b"".join(zlib.crc32(n.to_bytes(4, "big")).to_bytes(4, "big") for n in range(5000))
bodies = st.sampled_from(
    [b"", b"short", b"long " * 9000, NOISE, bytes(members.MAX_WHOLE), gzip.compress(b"x", mtime=0)]
)
between = st.sampled_from(
    [b"", b"", b"", b"\0\0\0", b"\r\n", b"no record", gzip.compress(b"no record either", mtime=0)]
)


def record(body: bytes) -> bytes:
    block = b"HTTP/1.1 200 OK\r\n\r\n" + body
    head = (
        b"WARC/1.1\r\nWARC-Type: response\r\nContent-Type: application/http\r\nContent-Length: %d\r\n\r\n"
        % len(block)
    )
    return head + block + b"\r\n\r\n"


def found(data: bytes, *, swiftly: bool = True) -> list[object]:
    """Return the records that a scan finds, or would find if no member were taken for a small one."""
    with nullcontext() if swiftly else patch.object(scan, "_small", return_value=None):
        items = list(scan.scan(MemorySource(data), bodies=False))
    return [replace(i, start=b"", hashes=None) if isinstance(i, scan.ScannedRecord) else i for i in items]


@pytest.mark.slow
@given(
    st.lists(st.tuples(bodies, st.sampled_from([0, 1, 6]), between), min_size=1, max_size=5),
    st.none() | st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)),
    st.integers(0, 40),
)
def test_records_and_damage_are_found_as_by_reading_on(
    made: list[tuple[bytes, int, bytes]], damage: tuple[int, int] | None, cut: int
) -> None:
    data = bytearray(b"".join(gzip.compress(record(b), level, mtime=0) + after for b, level, after in made))
    if damage is not None:
        data[damage[0] % len(data)] ^= damage[1]
    shown = bytes(data[: len(data) - cut])
    assert found(shown) == found(shown, swiftly=False)


@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 6])
def test_no_damage_passes(level: int) -> None:
    data = record(NOISE[:200])
    packed = gzip.compress(data, level, mtime=0)
    for at in range(len(packed)):
        for bit in (1, 128):
            damaged = bytearray(packed)
            damaged[at] ^= bit
            try:
                sound = (
                    gzip.decompress(damaged) == data
                )  # a packer's system and level, and some bits are padding
            except (OSError, EOFError, zlib.error):
                sound = False
            told = found(packed + damaged + packed)
            assert told == found(packed + damaged + packed, swiftly=False)
            assert (
                any(isinstance(item, scan.ScannedRecord) and item.offset == len(packed) for item in told)
                == sound
            )
    for stop in range(1, len(packed)):
        cut = found(packed[:stop] + packed)
        assert cut == found(packed[:stop] + packed, swiftly=False)
        assert isinstance(cut[0], scan.Damage)


def test_what_stands_between_a_member_and_its_sum_is_told() -> None:
    packed = gzip.compress(record(b"page"), mtime=0)
    for more in (b"?", b"more", packed[-8:], packed[-8:] + b"more"):
        damaged = packed[:-8] + more + packed[-8:] + packed
        told = found(damaged)
        assert told == found(damaged, swiftly=False)
        assert any(isinstance(item, scan.Damage) for item in told)


def test_what_stands_between_a_member_and_its_like_is_told() -> None:
    packed = gzip.compress(record(b"page"), mtime=0)
    for lost in range(10):
        damaged = packed + packed[:lost] + b"?" + packed[lost + 1 :] + packed
        assert found(damaged) == found(damaged, swiftly=False)
        assert len(found(damaged)) == 3


def test_members_of_several_programs_are_found_one_after_the_other() -> None:
    data = record(b"page")
    undated, other = gzip.compress(data, mtime=0), gzip.compress(data, 1, mtime=0)
    dated = gzip.compress(data, mtime=1_600_000_000)
    named = undated[:3] + b"\x08" + undated[4:10] + b"name\0" + undated[10:]
    all_of_them = [undated, dated, undated, other, named, undated, dated, dated, named, other, undated]
    told = found(b"".join(all_of_them))
    assert told == found(b"".join(all_of_them), swiftly=False)
    assert [item.length for item in told if isinstance(item, scan.ScannedRecord)] == list(
        map(len, all_of_them)
    )


@pytest.mark.slow
def test_a_large_member_takes_no_more_memory_than_it_is_worth() -> None:
    large = gzip.compress(record(bytes(64 * members.MAX_WHOLE)), mtime=0)
    tracemalloc.start()
    try:
        (told,) = found(large + gzip.compress(b"")[:3])[:1]
        assert isinstance(told, scan.ScannedRecord)
        assert told.length == len(large)
        assert tracemalloc.get_traced_memory()[1] < 48 * members.MAX_WHOLE
    finally:
        tracemalloc.stop()
