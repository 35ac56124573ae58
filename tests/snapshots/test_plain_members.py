"""Members that others wrote, unpacked at once where their end is known: what is found is what reading on finds."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshots import members, scan
from snapshots.places import BytesPlace

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


def found(data: bytes, whole: bool) -> list[object]:
    items = scan.scan(BytesPlace(data), bodies=whole)
    return [replace(i, start=b"") if isinstance(i, scan.Scanned) else i for i in items]


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
    assert found(shown, whole=False) == found(shown, whole=True)


@pytest.mark.parametrize("level", [0, 6])
def test_no_damage_passes(level: int) -> None:
    data = record(NOISE[:900])
    packed = gzip.compress(data, level, mtime=0)
    assert members.whole_of(b"before" + packed + packed, 6, 6 + len(packed)) == (data, len(packed), len(data))
    for at in range(len(packed)):
        for bit in (1, 128):
            damaged = bytearray(packed)
            damaged[at] ^= bit
            told = members.whole_of(bytes(damaged), 0, len(damaged))
            # a packer's time, system and level stand in the header, and some bits are padding
            assert told in (None, (data, len(packed), len(data)))
    for stop in range(1, len(packed)):
        assert members.whole_of(packed, 0, stop) is None
        assert members.whole_of(packed + packed, 0, len(packed) + stop) is None


def test_what_stands_between_a_member_and_its_like_is_told() -> None:
    packed = gzip.compress(record(b"page"), mtime=0)
    for lost in range(10):
        damaged = packed + packed[:lost] + b"?" + packed[lost + 1 :] + packed
        assert found(damaged, whole=False) == found(damaged, whole=True)
        assert len(found(damaged, whole=False)) == 3


def test_a_member_with_more_in_its_header_or_too_large_is_left() -> None:
    named = gzip.compress(record(b""), mtime=0)
    named = named[:3] + b"\x08" + named[4:10] + b"name\0" + named[10:]
    assert gzip.decompress(named) == record(b"")
    assert members.whole_of(named, 0, len(named)) is None
    large = gzip.compress(bytes(members.MAX_WHOLE + 1), mtime=0)
    assert members.whole_of(large, 0, len(large)) is None
