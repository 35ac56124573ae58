"""Archives that are damaged after they were indexed: what is read is what was recorded, or it is said to be damaged."""

import base64
import gzip
import hashlib
import io
import os
import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import zstandard
from msgspec.structs import replace
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from stillweb.snapshots._os.random_access import MemorySource
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.decompression import PART
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.warc import warc
from stillweb.snapshots.warc.reading import open_block
from stillweb.snapshots.warc.warc import Proof
from stillweb.snapshots.writer import Writer
from tests.snapshots.malformed import PAGE, http, record


def blocks(stored: bytes) -> list[bytes]:
    """A record's block as it is read at once and as a stream; without what is said to be damaged."""
    place = MemorySource(stored)
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
    block = http(random.Random(1).randbytes(1 << 10) * (3 * PART >> 10))
    stored = gzip.compress(record(block), level, mtime=0)
    assert blocks(stored) == [block, block]
    for at in (len(stored) // 2, len(stored) - 6, len(stored) - 1):
        damaged = bytearray(stored)
        damaged[at] ^= 4
        assert blocks(bytes(damaged)) == []
    assert blocks(stored[:-1]) == []


def twins(folder: Path) -> Path:
    """Captures of bodies of one size, some of which have records of one length."""
    with Writer.open(folder / "twins") as writer:
        for number in range(40):
            body = random.Random(number).randbytes(900)
            record_of(writer, f"https://site.example/{number:02}", body, number)
    return folder / "twins"


def of_one_length(places: list[tuple[int, int]]) -> tuple[int, int]:
    """The numbers of the first two places (offset, length) of one length."""
    first: dict[int, int] = {}
    return next(
        (known, n) for n, (_, length) in enumerate(places) if (known := first.setdefault(length, n)) != n
    )


def swap(archive: Path, one: tuple[int, int], two: tuple[int, int]) -> None:
    """Two records of one length change places in a file."""
    data = bytearray(archive.read_bytes())
    (at, length), (to, _) = one, two
    data[at : at + length], data[to : to + length] = data[to : to + length], data[at : at + length]
    archive.write_bytes(data)


def record_of(writer: Writer, url: str, body: bytes, number: int) -> None:
    when = datetime(2026, 1, 1, 0, 0, number, tzinfo=UTC)
    writer.exchange(
        Exchange(Request("GET", url), 200, "OK", (), body, when, "s", 2 * number + 1, 2 * number + 2)
    )


def test_another_record_in_its_place_is_never_given_out(tmp_path: Path) -> None:
    path = twins(tmp_path)
    archive = path / "archive" / "data-00000.warc.gz"
    with Snapshot.open(path) as snapshot:
        captures = list(snapshot.captures())
        answers = [(c.offset, c.length) for c in captures]
        one, two = of_one_length(answers)
        swap(archive, answers[one], answers[two])
        for capture in (captures[one], captures[two]):
            for read in (snapshot.read, snapshot.head, lambda c: snapshot.open_body(c).read()):
                with pytest.raises(DamagedInput, match=r"data-00000\.warc\.gz: another record .* offset \d+"):
                    read(capture)
        requests = [(c.request_offset, c.request_length) for c in captures]
        one, two = of_one_length(requests)
        swap(archive, requests[one], requests[two])
        for capture in (captures[one], captures[two]):
            with pytest.raises(DamagedInput, match=r"data-00000\.warc\.gz: another record .* offset \d+"):
                snapshot.read_request(capture)


def test_a_record_of_another_kind_in_its_place_is_never_given_out(tmp_path: Path) -> None:
    with Snapshot.open(twins(tmp_path)) as snapshot:
        capture, *_ = snapshot.captures()
        turned = replace(
            capture,
            offset=capture.request_offset,
            length=capture.request_length,
            request_offset=capture.offset,
            request_length=capture.length,
        )
        for read in (snapshot.read, snapshot.open_body, snapshot.read_request):
            with pytest.raises(DamagedInput, match="another record"):
                read(turned)


def test_another_payload_than_a_revisit_refers_to_is_never_given_out(tmp_path: Path) -> None:
    path = twins(tmp_path)
    with Snapshot.open(path) as snapshot:
        places = [(c.offset, c.length) for c in snapshot.captures()]
        numbers = of_one_length(places)
    with Writer.open(path) as writer:
        body = random.Random(numbers[0]).randbytes(900)
        record_of(writer, "https://site.example/again", body, 50)
    with Snapshot.open(path) as snapshot:
        (revisit,) = [c for c in snapshot.captures() if c.original]
        assert snapshot.read(revisit).body == body
        swap(path / "archive" / "data-00000.warc.gz", *(places[n] for n in numbers))
        for read in (snapshot.read, lambda c: snapshot.open_body(c).read()):
            with pytest.raises(DamagedInput, match="another record than was indexed"):
                read(revisit)


def test_another_text_or_view_in_its_place_is_never_given_out(tmp_path: Path) -> None:
    path = tmp_path / "site"
    addresses = [f"https://site.example/a#view={n:02}" for n in range(40)]
    when = datetime(2026, 1, 1, tzinfo=UTC)
    with Writer.open(path) as writer:
        for address in addresses:
            writer.resource("aria", address, random.Random(address).randbytes(900), timestamp=when)
    with Snapshot.open(path) as snapshot:
        entries = [snapshot._layers[0].index.entries(f"urn:aria:{a}")[0][2] for a in addresses]
        places = [(int(e["offset"]), int(e["length"])) for e in entries]
        numbers = of_one_length(places)
        swap(path / "archive" / "data-00000.warc.gz", *(places[n] for n in numbers))
        for number in numbers:
            with pytest.raises(DamagedInput, match="another record than was indexed"):
                snapshot.resource("aria", addresses[number])


def test_an_answer_whose_request_is_damaged_answers_no_get(tmp_path: Path) -> None:
    path = tmp_path / "site"
    when = datetime(2026, 1, 1, tzinfo=UTC)
    url = "https://site.example/api"
    with Writer.open(path) as writer:
        for number, asked in enumerate((Request("POST", url, (), b"x=1"), Request("GET", f"{url}/same"))):
            writer.exchange(
                Exchange(asked, 200, "OK", (), b"posted" * 99, when, "s", 2 * number, 2 * number + 1)
            )
    with Snapshot.open(path) as snapshot:
        (posted,) = [c for c in snapshot.captures() if c.method == "POST"]
    archive = path / "archive" / posted.filename
    data = bytearray(archive.read_bytes())
    data[posted.request_offset + posted.request_length // 2] ^= 1
    (tmp_path / "x.warc.gz").write_bytes(data)
    with Snapshot.open(tmp_path / "x.warc.gz") as snapshot:
        (same,) = snapshot.captures()
        assert same.original
        assert snapshot.read(same).body == b"posted" * 99
        assert snapshot.matcher().lookup(Request("GET", url), snapshot.matcher().session()).verdict == "miss"
        assert any(f"the request of this response of {url} is missing" in note for note in snapshot.notes)


def test_what_was_said_once_is_said_once_where_a_file_is_there_twice(tmp_path: Path) -> None:
    path, url = tmp_path / "site", "https://site.example/socket"
    with Writer.open(path) as writer:
        writer.metadata(url, {"url": url, "messages": [{"from": "server", "text": "hello"}]})
    archive = path / "archive" / "data-00000.warc.gz"
    (path / "archive" / "copy.warc.gz").write_bytes(archive.read_bytes())
    with Snapshot.open(path) as snapshot:
        assert len(list(snapshot.conversations())) == 1


def test_an_index_that_is_damaged_once_it_was_looked_at_does_not_matter(tmp_path: Path) -> None:
    path = twins(tmp_path)
    with Snapshot.open(path) as snapshot:
        before = list(snapshot.captures())
        (path / "indexes" / "index.cdxj").write_bytes(b"")
        assert list(snapshot.captures()) == before


def test_a_large_index_that_is_cut_under_its_reader_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stillweb.snapshots.index.index_cache.CHECKED", 0)
    monkeypatch.setattr("stillweb.snapshots.index.blocks.LEAST", 1)
    path = twins(tmp_path)
    with Snapshot.open(path) as snapshot:
        os.truncate(path / "indexes" / "index.cdxj", 100)
        with pytest.raises(DamagedInput, match=r"index\.cdxj"):
            list(snapshot.captures())


def test_padding_after_a_member_is_no_damage() -> None:
    block = http()
    assert blocks(gzip.compress(record(block), mtime=0) + bytes(20)) == [block, block]


def test_a_sealed_snapshot_that_was_damaged_serves_nothing_else(tmp_path: Path) -> None:
    body = random.Random(2).randbytes(1 << 10) * (3 * PART >> 10)
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


URL = "http://example.test/page"
BODY = b"<p>A sum of 1,000 and of much more beside it.</p>" * 40


def written() -> bytes:
    out = io.BytesIO()
    writer = WARCWriter(out, gzip=False)
    head = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.1")
    writer.write_record(
        writer.create_warc_record(URL, "response", payload=io.BytesIO(BODY), http_headers=head)
    )
    return out.getvalue()


def plain(data: bytes) -> tuple[str, bytes]:
    return "x.warc", data


def framed(data: bytes) -> tuple[str, bytes]:
    return "x.warc.zst", zstandard.ZstdCompressor(write_checksum=False).compress(data)


@pytest.mark.parametrize("form", [plain, framed])
@pytest.mark.parametrize("damaged", [False, True])
def test_a_block_with_another_digest_is_damage(
    tmp_path: Path, form: Callable[[bytes], tuple[str, bytes]], damaged: bool
) -> None:
    data = written().replace(b"1,000", b"9,000", 1) if damaged else written()
    name, stored = form(data)
    (tmp_path / name).write_bytes(stored)
    with Snapshot.open(tmp_path / name) as snapshot:
        [capture] = snapshot.captures()
        if not damaged:
            assert snapshot.read(capture).body == BODY
            assert snapshot.open_body(capture).read() == BODY
            return
        with pytest.raises(DamagedInput, match=rf"{name}: the record at offset 0 is damaged.*block digest"):
            snapshot.read(capture)
        with pytest.raises(DamagedInput, match="block digest"):
            snapshot.open_body(capture).read()


@pytest.mark.parametrize("algorithm", ["sha1", "sha256", "SHA-512", "md5"])
@pytest.mark.parametrize("encode", [bytes.hex, lambda raw: base64.b32encode(raw).decode()])
def test_digests_as_programs_write_them(algorithm: str, encode: Callable[[bytes], str]) -> None:
    value = hashlib.new(algorithm.lower().replace("-", ""), b"two pieces").digest()
    proof = Proof(f"{algorithm}:{encode(value)}")
    proof.feed(b"two ")
    assert not proof.holds()
    proof.feed(b"pieces")
    assert proof.holds()


@pytest.mark.parametrize("declared", [None, "", "crc:1234", "sha1", "sha1: "])
def test_where_no_digest_is_told_nothing_is_held_against_it(declared: str | None) -> None:
    proof = Proof(declared)
    proof.feed(b"anything")
    assert proof.holds()


@pytest.mark.parametrize("form", [plain, framed])
def test_a_block_that_lost_a_part_is_damage(
    tmp_path: Path, form: Callable[[bytes], tuple[str, bytes]]
) -> None:
    name, stored = form(written().replace(b"1,000", b"", 1))
    (tmp_path / name).write_bytes(stored)
    with Snapshot.open(tmp_path / name) as snapshot:
        for capture in snapshot.captures():
            with pytest.raises(DamagedInput, match=rf"{name}: the record at offset 0"):
                snapshot.read(capture)


def test_a_damaged_frame_hides_no_other_though_it_holds_heads_as_they_are(tmp_path: Path) -> None:
    chance = random.Random(3)
    packer = zstandard.ZstdCompressor(write_checksum=False)
    frames = [
        packer.compress(record(http(chance.randbytes(200_000)), uri=b"http://example.test/%d" % n, number=n))
        for n in range(3)
    ]
    assert b"WARC/1.0\r\n" in frames[0]
    path = tmp_path / "x.warc.zst"
    path.write_bytes(frames[0][:100_000] + frames[0][100_100:] + frames[1] + frames[2])
    with Snapshot.open(path) as snapshot:
        assert [c.url for c in snapshot.captures()] == ["http://example.test/1", "http://example.test/2"]
        assert snapshot.notes == ["x.warc.zst: offset 0: damaged compressed data"]


@pytest.mark.parametrize("name", ["x.warc", "x.warc.gz", "x.warc.zst"])
def test_a_damaged_first_record_hides_no_other(tmp_path: Path, name: str) -> None:
    pack = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}.get(Path(name).suffix, bytes)
    records = [pack(record(http(), uri=b"http://example.test/%d" % n, number=n)) for n in range(2)]
    (tmp_path / name).write_bytes(bytes(20) + records[0][20:] + records[1])
    with Snapshot.open(tmp_path / name) as snapshot:
        assert [c.url for c in snapshot.captures()] == ["http://example.test/1"]
        assert len(snapshot.notes) == 1


def test_a_damaged_record_whose_site_has_states_hides_no_other(tmp_path: Path) -> None:
    digest = b"WARC-Block-Digest: sha256:" + b"0" * 64
    asked = b"POST /add HTTP/1.1\r\nHost: example.test\r\nCookie: a=1\r\n\r\nx=1"
    data = record(http(), number=1) + record(
        asked, kind=b"request", uri=b"http://example.test/add", number=2, fields=digest
    )
    data += record(http(b"added"), uri=b"http://example.test/add", number=3, fields=digest)
    (tmp_path / "x.warc").write_bytes(data)
    with Snapshot.open(tmp_path / "x.warc") as snapshot:
        page, added = sorted(snapshot.captures(), key=lambda c: c.offset)
        assert snapshot.read(page).body == PAGE
        with pytest.raises(DamagedInput, match=r"x\.warc: the record at offset \d+ is damaged"):
            snapshot.read(added)
