"""Members that say how long they are: read by everyone, passed over safely, and never believed when damaged."""

import gzip
import io
import struct
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.snapshots._os.random_access import FileSource, MemorySource
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.index.build import build
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.warc import members, scan
from stillweb.snapshots.warc.container import open_directory
from stillweb.snapshots.writer import Writer

HEAD = b"WARC/1.1\r\nWARC-Type: response\r\nContent-Length: 3000\r\n\r\n"
MOMENT = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
GZIP_HEADER = 36  # bytes
parts = st.one_of(st.binary(max_size=300), st.sampled_from([b"", b"x" * 5000, bytes(range(256)) * 20]))


def read(data: bytes, before: bytes = b"", after: bytes = b"") -> tuple[bytes, int, int] | None:
    whole = before + data + after
    return members.heads_of(MemorySource(whole), whole, 0, len(before))


@given(parts, parts, st.one_of(st.none(), st.integers(0, 6000)), parts)
def test_a_member_is_gzip_and_its_heads_begin_what_it_holds(
    head: bytes, block: bytes, lead: int | None, around: bytes
) -> None:
    packed = members.pack(head, block, lead)
    whole = head + block + b"\r\n\r\n"
    assert gzip.decompress(packed) == whole
    found = read(packed, around, around)
    assert found is not None
    data, length, unpacked = found
    assert (length, unpacked) == (len(packed), len(whole))
    if lead is None or len(block) - lead < members.BODY:
        assert data == whole
    else:
        assert data == head + block[:lead]


@given(parts, st.lists(parts))
def test_a_member_written_in_pieces_is_such_a_one(heads: bytes, body: list[bytes]) -> None:
    out = io.BytesIO()
    members.pack_file(out, heads, body)
    packed = out.getvalue()
    whole = heads + b"".join(body) + b"\r\n\r\n"
    assert out.tell() == len(packed)
    assert gzip.decompress(packed) == whole
    assert read(packed) == (heads, len(packed), len(whole))


def test_the_fields_are_where_the_format_says(  # docs/snapshot.md
) -> None:
    packed = members.pack(HEAD, b"a" * 3000, 100)
    assert packed[:4] == b"\x1f\x8b\x08\x04"
    extra = packed[12:GZIP_HEADER]
    assert struct.unpack("<H", packed[10:12]) == (len(extra),)
    name, size, length, unpacked = struct.unpack("<2sHII", extra[:12])
    assert (name, size, length, unpacked) == (b"sl", 8, len(packed), len(HEAD) + 3004)
    name, size, heads, crc = struct.unpack("<2sHII", extra[12:])
    assert (name, size, crc) == (b"SW", 8, zlib.crc32(packed[GZIP_HEADER:]))
    assert zlib.decompressobj(-15).decompress(packed[GZIP_HEADER:heads]) == HEAD + b"a" * 100


@pytest.mark.parametrize("lead", [100, None])
def test_no_damage_passes(lead: int | None) -> None:
    block = bytes(n * n % 251 for n in range(3000))
    packed = members.pack(HEAD, block, lead)
    sound = read(packed)
    assert sound is not None
    for at in range(len(packed)):
        for bit in (1, 128):
            damaged = bytearray(packed)
            damaged[at] ^= bit
            found = read(bytes(damaged))
            if at >= GZIP_HEADER:
                assert found is None
            elif found is not None:  # a field of the header: what is read is so all the same
                data, length, unpacked = found
                assert length == len(packed)
                assert (HEAD + block).startswith(data) or data == HEAD + block + b"\r\n\r\n"
                assert (unpacked == len(data)) == (data == HEAD + block + b"\r\n\r\n")
    for cut in range(len(packed)):
        assert read(packed[:cut]) is None


def test_what_others_wrote_is_not_taken_for_ours() -> None:
    data = HEAD + b"a" * 3004
    assert read(gzip.compress(data)) is None
    raw = zlib.compressobj(wbits=-15)
    packed = raw.compress(data) + raw.flush() + struct.pack("<II", zlib.crc32(data), len(data))
    skip = struct.pack("<H2sHII", 12, b"sl", 8, len(packed) + 24, len(data))  # as wget
    wget = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff" + skip + packed
    assert gzip.decompress(wget) == data
    assert read(wget) is None
    assert read(b"") is None


def test_heads_that_unpack_to_too_much_are_left_to_who_reads_in_pieces() -> None:
    assert read(members.pack(bytes(members.MAX_HEADS), bytes(5000), 0)) is None


def page(number: int, body: bytes) -> Exchange:
    request = Request("GET", f"https://example.test/{number}", (("User-Agent", "x"),))
    headers = (("Content-Type", "text/html"),)
    return Exchange(request, 200, "OK", headers, body, MOMENT, "default", 2 * number + 1, 2 * number + 2)


def recorded(root: Path) -> Path:
    """Small and large bodies, one larger than what is read at once, a body that is sent, and what is not an exchange."""
    noise = b"".join(
        zlib.crc32(bytes([n % 256, n // 256 % 256, n >> 16])).to_bytes(4, "big") for n in range(400_000)
    )
    with Writer.open(root) as writer:
        for number, body in enumerate(
            (b"", b"<p>short</p>", b"long " * 9000, noise[:300_000], noise, b"last" * 999)
        ):
            writer.exchange(page(number, body))
        posted = Request("POST", "https://example.test/form", (), noise[:5000])
        writer.exchange(Exchange(posted, 200, "OK", (), noise[:7000], MOMENT, "default", 21, 22))
        writer.resource("text", "https://example.test/view", b"words " * 900, timestamp=MOMENT)
        writer.metadata("urn:x:y", {"a": "b" * 3000})
    return root / "archive" / "data-00000.warc.gz"


def test_records_are_the_same_without_their_bodies(tmp_path: Path) -> None:
    place = FileSource(recorded(tmp_path / "s"))
    full = list(scan.scan(place))
    brief = list(scan.scan(place, bodies=False))
    passed = 0
    for one, two in zip(full, brief, strict=True):
        assert isinstance(one, scan.ScannedRecord)
        assert isinstance(two, scan.ScannedRecord)
        for name in ("offset", "length", "kind", "fields", "size", "payload_at", "note"):
            assert getattr(one, name) == getattr(two, name)
        if one.kind in ("request", "warcinfo"):
            assert one.start == two.start
        assert one.start[: one.payload_at] == two.start[: two.payload_at]
        passed += len(two.start) < len(one.start)
    assert passed == 7  # five of the pages, the text of the view, the metadata
    place.close()


def indexed(root: Path) -> tuple[list[bytes], list[str]]:
    container = open_directory(root)
    built = build(container)
    container.close()
    return built.lines, built.notes


def test_an_index_is_the_same_when_everything_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(tmp_path / "s")
    swift = indexed(tmp_path / "s")
    monkeypatch.setattr(scan, "heads_of", lambda *_: None)
    assert indexed(tmp_path / "s") == swift


Damage = Callable[[bytearray, int, int], None]


def flip(data: bytearray, offset: int, length: int) -> None:
    data[offset + length // 2] ^= 4


def cut(data: bytearray, offset: int, length: int) -> None:
    del data[offset + length // 2 : offset + length // 2 + 1]


def forget(data: bytearray, offset: int, length: int) -> None:
    data[offset + length - 9 : offset + length] = bytes(9)


@pytest.mark.parametrize("damage", [flip, cut, forget])
def test_indexing_tells_of_damage_within_a_body_that_it_does_not_unpack(
    tmp_path: Path, damage: Damage
) -> None:
    path = recorded(tmp_path / "s")
    with Snapshot.open(tmp_path / "s") as snapshot:
        hits = [c for c in snapshot.captures() if c.url in [f"https://example.test/{n}" for n in (2, 3, 4)]]
    whole = path.read_bytes()
    before, _ = indexed(tmp_path / "s")
    for hit in hits:
        data = bytearray(whole)
        damage(data, hit.offset, hit.length)
        path.write_bytes(data)
        lines, notes = indexed(tmp_path / "s")
        assert any(f"offset {hit.offset}: " in note for note in notes), notes
        assert len(lines) == len(before) - 1
    assert len(hits) == 3
