"""Archives that are damaged after they were indexed: what is read is what was recorded, or it is said to be damaged."""

from __future__ import annotations

import gzip
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from snapshots.archives import warc
from snapshots.archives.reading import open_block
from snapshots.capture import Exchange
from snapshots.errors import DamagedInput
from snapshots.machine.places import BytesPlace
from snapshots.request import Request
from snapshots.snapshot import Snapshot
from snapshots.wacz import seal
from snapshots.writer import Writer
from tests.snapshots.malformed import http, record


def blocks(stored: bytes) -> list[bytes]:
    """A record's block as it is read at once and as a stream; without what is said to be damaged."""
    place = BytesPlace(stored)
    found = []
    for read in (
        lambda: warc.read_record(place, 0, len(stored)).block,
        lambda: b"".join(open_block(place, 0, len(stored))[1]),
    ):
        try:
            found.append(read())
        except DamagedInput as error:
            found.append(b"")
            assert "offset 0" in str(error)  # noqa: PT017
    return [block for block in found if block]


@pytest.mark.parametrize("level", [0, 1, 6])
def test_no_bit_of_a_member_can_be_another_one(level: int) -> None:
    block = http(b"".join(b"<tr><td>%d<td>%d" % (n, n * n % 997) for n in range(60)))
    stored = gzip.compress(record(block), level, mtime=0)
    assert blocks(stored) == [block, block]
    for at in range(10, len(stored)):  # behind the gzip head, most of which says nothing of what is in it
        for bit in range(8):
            damaged = bytearray(stored)
            damaged[at] ^= 1 << bit
            assert set(blocks(bytes(damaged))) <= {block}


@pytest.mark.parametrize("level", [0, 6])
def test_damage_in_a_member_that_comes_in_parts_is_noticed(level: int) -> None:
    block = http(random.Random(1).randbytes(1 << 10) * (3 * warc.MAX_PART >> 10))
    stored = gzip.compress(record(block), level, mtime=0)
    assert blocks(stored) == [block, block]
    for at in (len(stored) // 2, len(stored) - 6, len(stored) - 1):
        damaged = bytearray(stored)
        damaged[at] ^= 4
        assert blocks(bytes(damaged)) == []
    assert blocks(stored[:-1]) == []


def test_padding_after_a_member_is_no_damage() -> None:
    block = http()
    assert blocks(gzip.compress(record(block), mtime=0) + bytes(20)) == [block, block]


def test_a_sealed_snapshot_that_was_damaged_serves_nothing_else(tmp_path: Path) -> None:
    body = random.Random(2).randbytes(1 << 10) * (3 * warc.MAX_PART >> 10)
    with Writer.open(tmp_path / "site") as writer:
        when = datetime(2026, 1, 1, tzinfo=UTC)
        writer.exchange(Exchange(Request("GET", "https://site.example/"), 200, "OK", (), body, when))
    seal(tmp_path / "site")
    path = tmp_path / "site.wacz"
    data = bytearray(path.read_bytes())
    with Snapshot.open(path) as snapshot:
        [capture] = snapshot.captures()
    begin = data.index(b"\x1f\x8b") + capture.offset
    data[begin + capture.length // 2] ^= 1
    path.write_bytes(data)
    with Snapshot.open(path) as snapshot:
        [capture] = snapshot.captures()
        with pytest.raises(DamagedInput, match=r"data-00000\.warc\.gz: the record at offset \d+ is damaged"):
            snapshot.read(capture)
        with pytest.raises(DamagedInput, match="is damaged"):
            snapshot.open_body(capture).read()
