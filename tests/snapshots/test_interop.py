"""Outside readers agree: warcio, FastWARC and cdxj-style tools read the same payloads and digests from ours."""

import base64
import gzip
import hashlib
import io
import json
import os
import zipfile
from pathlib import Path

import brotli
import pytest
from fastwarc.warc import ArchiveIterator as FastIterator
from fastwarc.warc import WarcRecordType
from warcio.archiveiterator import ArchiveIterator

from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import record, small_snapshot


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every shape of exchange that a recorder hands over."""
    root = tmp_path_factory.mktemp("interop")
    packed = (("Content-Type", "text/html"), ("Content-Encoding", "gzip"), ("Transfer-Encoding", "chunked"))
    with Writer.open(root / "s") as writer:
        record(writer, "https://example.test/", b"<html><p>Hello</html>", protocol="h2")
        record(writer, "https://example.test/again", b"<html><p>Hello</html>")
        record(writer, "https://example.test/gz", gzip.compress(b"<p>packed" * 50, mtime=0), headers=packed)
        record(
            writer,
            "https://example.test/br",
            brotli.compress(b"<p>packed" * 50),
            headers=(("Content-Encoding", "br"),),
        )
        record(writer, "https://example.test/large", io.BytesIO(os.urandom(3 << 20)))
        record(writer, "https://example.test/empty", b"", status=204)
        record(writer, "https://example.test/moved", b"", status=302, headers=(("Location", "/"),))
        record(writer, "https://example.test/cached", b"", status=304, headers=(("ETag", '"x"'),))
        record(writer, "https://example.test/", b"", method="HEAD", headers=(("Content-Length", "21"),))
        record(writer, "https://example.test/post", b'{"n":1}', method="POST", sent=b'{"q":"x"}')
        record(writer, "https://example.test/post", b'{"n":2}', method="POST", sent=b'{"q":"y"}')
        record(
            writer,
            "https://example.test/caf%C3%A9?q=a%20b",
            b"x",
            headers=(("X-Name", "caf\xe9"),),
            reason="",
        )
        writer.resource("text", "https://example.test/", "Grüße".encode())
    return seal(root / "s").path


def archives(sealed: Path) -> list[bytes]:
    with zipfile.ZipFile(sealed) as listing:
        return [listing.read(n) for n in listing.namelist() if n.startswith("archive/")]


def ours(sealed: Path) -> dict[str, str]:
    """SHA-256 of the payload served for each response, by method and URL."""
    with Snapshot.open(sealed) as snapshot:
        return {
            f"{c.method} {c.url} {c.begin}": hashlib.sha256(snapshot.read(c).body).hexdigest()
            for c in snapshot.captures()
        }


@pytest.mark.slow
def test_warcio_verifies_every_digest_and_reads_the_same_payloads(sealed: Path) -> None:
    expected = ours(sealed)
    methods: dict[str, str] = {}
    seen = 0
    for data in archives(sealed):
        for item in ArchiveIterator(io.BytesIO(data), check_digests="raise"):
            uri = item.rec_headers.get_header("WARC-Target-URI")
            begin = (item.rec_headers.get_header("WARC-Stillweb-Events") or "").partition("-")[0]
            if item.rec_type == "request":
                methods[item.rec_headers.get_header("WARC-Record-ID")] = item.http_headers.protocol
            payload = item.raw_stream.read()
            if item.rec_type == "response":
                method = methods[item.rec_headers.get_header("WARC-Concurrent-To")]
                assert hashlib.sha256(payload).hexdigest() == expected[f"{method} {uri} {begin}"]
                seen += 1
            if item.rec_type == "revisit":
                assert (
                    item.rec_headers.get_header("WARC-Payload-Digest")
                    == "sha256:" + expected[f"GET {uri} {begin}"]
                )
                seen += 1
            assert item.digest_checker.passed is not False
    assert seen == len(expected) == 12


def test_fastwarc_verifies_every_digest_and_reads_the_same_payloads(sealed: Path) -> None:
    expected = ours(sealed)
    seen = 0
    for data in archives(sealed):
        for item in FastIterator(io.BytesIO(data), parse_http=False):
            assert item.verify_block_digest()
            item.parse_http()
            if item.record_type in (WarcRecordType.request, WarcRecordType.response):
                assert item.verify_payload_digest()
            if item.record_type == WarcRecordType.response:
                value = hashlib.sha256(item.reader.read()).hexdigest()
                assert value in expected.values()
                seen += 1
    assert seen == 11


def test_offsets_are_those_of_warcio(sealed: Path) -> None:
    with Snapshot.open(sealed) as snapshot:
        places = {(c.offset, c.length) for c in snapshot.captures()}
    found = set()
    for data in archives(sealed):
        iterator = ArchiveIterator(io.BytesIO(data))
        for item in iterator:
            if item.rec_type in ("response", "revisit"):
                found.add((iterator.get_record_offset(), iterator.get_record_length()))
    assert found == places


def test_requests_and_responses_name_each_other_as_indexers_expect(sealed: Path) -> None:
    """cdxj-indexer and pywb pair neighbours of one URI of which the second names the first."""
    before = None
    pairs = 0
    for data in archives(sealed):
        for item in ArchiveIterator(io.BytesIO(data)):
            if item.rec_type in ("response", "revisit"):
                assert before is not None
                assert before.rec_type == "request"
                for name, other in (
                    ("WARC-Target-URI", "WARC-Target-URI"),
                    ("WARC-Concurrent-To", "WARC-Record-ID"),
                ):
                    assert item.rec_headers.get_header(name) == before.rec_headers.get_header(other)
                pairs += 1
            before = item
    assert pairs == 12


def test_the_package_is_as_wacz_says(sealed: Path) -> None:
    """https://specs.webrecorder.net/wacz/1.1.1/, checked on the file itself."""
    with zipfile.ZipFile(sealed) as listing:
        names = listing.namelist()
        package = json.loads(listing.read("datapackage.json"))
        assert (package["profile"], package["wacz_version"]) == ("data-package", "1.1.1")
        assert {r["path"] for r in package["resources"]} == set(names) - {
            "datapackage.json",
            "datapackage-digest.json",
        }
        for resource in package["resources"]:
            data = listing.read(resource["path"])
            assert resource["bytes"] == len(data)
            assert resource["hash"] == "sha256:" + hashlib.sha256(data).hexdigest()
            assert resource["path"].endswith("/" + resource["name"])
        digest = json.loads(listing.read("datapackage-digest.json"))
        assert digest["hash"] == "sha256:" + hashlib.sha256(listing.read("datapackage.json")).hexdigest()
        header, *pages = listing.read("pages/pages.jsonl").decode().splitlines()
        assert json.loads(header)["format"] == "json-pages-1.0"
        assert pages == []
        lines = listing.read("indexes/index.cdxj").decode().splitlines()
        assert lines == sorted(lines, key=str.encode)


def test_digest_encodings_that_readers_verify() -> None:
    """Why digests are hex SHA-256: base64 and unpadded base32 fail in FastWARC, padded base32 is known to none else."""
    body = b"hello"
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    raw = hashlib.sha256(body).digest()
    forms = {
        raw.hex(): True,
        base64.b64encode(raw).decode(): False,
        base64.b32encode(raw).decode().rstrip("="): False,
    }
    for text, verified in forms.items():
        data = (
            f"WARC/1.1\r\nWARC-Type: response\r\nWARC-Target-URI: http://example.test/\r\n"
            f"WARC-Date: 2025-01-01T00:00:00Z\r\nWARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000001>\r\n"
            f"WARC-Payload-Digest: sha256:{text}\r\nContent-Type: application/http;msgtype=response\r\n"
            f"Content-Length: {len(head + body)}\r\n\r\n"
        ).encode()
        item = next(iter(FastIterator(io.BytesIO(data + head + body + b"\r\n\r\n"))))
        assert item.verify_payload_digest() == verified


def test_no_other_record_passes_for_a_page_in_the_index(tmp_path: Path) -> None:
    """wabac.js (ReplayWeb.page) goes by the `url` and time of a line: what comes later takes the place of what came before."""
    small_snapshot(tmp_path / "s")
    with zipfile.ZipFile(seal(tmp_path / "s").path) as listing:
        lines = listing.read("indexes/index.cdxj").decode().splitlines()
    entries = [json.loads(line.split(" ", 2)[2]) for line in lines]
    kinds = {entry["kind"]: entry for entry in entries if "kind" in entry}
    assert set(kinds) == {"conversion", "metadata", "resource"}
    assert all(entry["url"].startswith("urn:") == ("kind" in entry) for entry in entries)
    assert kinds["conversion"]["target"].startswith("http://example.test/")
    assert "target" not in kinds["resource"]
