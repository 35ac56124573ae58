"""An outside reader agrees: what we write, warcio, FastWARC and pywb read with the same payload digests."""

import gzip
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import brotli
import pytest
import zstandard
from warcio.exceptions import ArchiveLoadFailed

from stillweb.snapshots import Exchange, Request, Writer, seal
from stillweb.snapshots.contents.failures import TUNNEL, Failure, ProxyResponse
from tests.interop.readers import disagreements, lines_of, unpack, wacz_validate

FAILED = "https://gone.example/page"
HTML = b"<!doctype html><title>T\xc3\xbc</title><p>" + b"words " * 500
ENCODED = {
    "gzip": gzip.compress(HTML, mtime=0),
    "br": brotli.compress(HTML),
    "deflate": zlib.compress(HTML),
    "zstd": zstandard.compress(HTML),
}


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot with one of each kind of exchange that could be read in two ways."""
    site = tmp_path_factory.mktemp("outside") / "site"
    moment = datetime(2025, 3, 1, tzinfo=UTC)
    kinds: list[tuple[Request, int, tuple[tuple[str, str], ...], bytes]] = [
        (Request("GET", "https://a.example/"), 200, (("Content-Type", "text/html"),), HTML),
        (Request("GET", "https://a.example/again"), 200, (("Content-Type", "text/html"),), HTML),
        (Request("GET", "https://a.example/empty"), 204, (), b""),
        (Request("GET", "https://a.example/old"), 302, (("Location", "/"),), b""),
        (Request("GET", "https://a.example/b?q=%C3%BC&q=1"), 404, (("Content-Type", "text/plain"),), b"\x00\xff none"),
        (Request("POST", "https://a.example/api", (("Content-Type", "application/json"),), b'{"a": [1, null, true]}'), 200,
         (("Content-Type", "application/json"),), b"{}"),
        (Request("POST", "https://a.example/api", (("Content-Type", "application/x-www-form-urlencoded"),), b"a=1&b=2"), 200,
         (("Content-Type", "application/json"),), b"[]"),
        (Request("PUT", "https://a.example/api/1", (), b"\x00\x01"), 201, (("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")), b""),
    ]  # fmt: skip
    for name, body in ENCODED.items():
        fields = (("Content-Type", "text/html"), ("Content-Encoding", name))
        kinds.append((Request("GET", f"https://a.example/{name}"), 200, fields, body))
    big = bytes(range(256)) * 40_000
    kinds.append(
        (Request("GET", "https://a.example/big"), 200, (("Content-Type", "application/octet-stream"),), big)
    )
    with Writer.open(site) as writer:
        for number, (request, status, fields, body) in enumerate(kinds):
            begin, end = writer.event("s"), writer.event("s")
            started = moment + timedelta(seconds=number)
            writer.exchange(Exchange(request, status, "", fields, body, started, "s", begin, end))
        for request in (Request("GET", FAILED), Request(TUNNEL, FAILED)):
            given = ProxyResponse(502, "text/html", "<h1>502 Bad Gateway</h1>")
            Failure(request, "refused", "Connection refused", moment, "s", given).write(writer)
    return seal(site).path


def test_every_reader_reads_the_same_payloads(sealed: Path, tmp_path: Path) -> None:
    assert disagreements(sealed, tmp_path) == []


@pytest.mark.slow
def test_the_reference_validator_is_content(sealed: Path) -> None:
    assert wacz_validate(sealed) == ""


def test_what_failed_is_no_capture_for_any_reader(sealed: Path, tmp_path: Path) -> None:
    """Indexers name it by its own URI, so that nobody finds it who asks for the page."""
    lines = [line for line in lines_of(unpack(sealed, tmp_path)) if "gone.example" in line]
    assert [line.partition(" ")[0] for line in lines] == [f"urn:failed:{FAILED}"] * 4


def test_the_comparison_sees_a_changed_payload(sealed: Path, tmp_path: Path) -> None:
    """A check that can't fail would prove nothing: one other byte in a body must be told."""
    import zipfile

    changed = tmp_path / "changed.wacz"
    with zipfile.ZipFile(sealed) as source, zipfile.ZipFile(changed, "w") as target:
        for info in source.infolist():
            data = source.read(info)
            if info.filename.endswith(".warc.gz"):
                members = _members(data)
                place = next(
                    i
                    for i, member in enumerate(members)
                    if b"WARC-Type: response" in member and b"none" in member
                )
                members[place] = members[place].replace(b"\x00\xff none", b"\x00\xfe none")
                data = b"".join(gzip.compress(member, mtime=0) for member in members)
            target.writestr(info, data)
    with pytest.raises(ArchiveLoadFailed, match="block digest failed"):
        disagreements(changed, tmp_path / "x")


def _members(data: bytes) -> list[bytes]:
    found = []
    while data:
        unpacker = zlib.decompressobj(31)
        found.append(unpacker.decompress(data))
        data = unpacker.unused_data
    return found
