"""Answers that a server packs for everybody stay packed; those packed for clients that read it are unpacked for others."""

import base64
import gzip
from pathlib import Path

import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.replay.gateway import Gateway
from tests.proxy.frozen import Site
from tests.proxy.gateways import client

FILE = "http://files.example/source.tar.gz"
PLAIN = b"source " * 1000
PACKED = gzip.compress(PLAIN, mtime=0)
AS_APACHE = (("Content-Type", "application/x-tar"), ("Content-Encoding", "x-gzip"))
HOST = ("Host", "files.example")
READS, READS_NOT, SILENT = ("Accept-Encoding", "gzip, br"), ("Accept-Encoding", "identity"), None


@pytest.mark.parametrize(
    ("recorded", "kept"),
    [
        ([READS], False),
        ([READS_NOT], True),
        ([SILENT], True),
        ([READS, SILENT], True),  # the first of two that say the same is the one that answers
        ([READS, READS], False),
    ],
)
@pytest.mark.parametrize("size", [1, 400])
def test_a_file_that_its_server_sends_packed_to_all(
    tmp_path: Path,
    authority: Authority,
    recorded: list[tuple[str, str] | None],
    kept: bool,
    size: int,
) -> None:
    site, body = Site(tmp_path / "site"), PACKED if size == 1 else gzip.compress(PLAIN * size, 0, mtime=0)
    for own in recorded:
        site.add(FILE, body, headers=AS_APACHE, request_headers=(HOST, *([own] if own else [])))
    with site.open() as snapshot, Gateway(snapshot, authority=authority) as gateway, client(gateway) as asks:
        for _ in range(2):
            for own in (READS_NOT, READS):
                with asks.stream("GET", FILE, headers=[own]) as answer:
                    got = b"".join(answer.iter_raw())
                assert (got == body) is (kept or own is READS)
                assert ("content-encoding" in answer.headers) is (kept or own is READS)
                assert got in (body, PLAIN * size)
    assert {entry["verdict"] for entry in gateway.ledger} == {"exact"}


@pytest.mark.parametrize("size", [1, 100_000])
@pytest.mark.parametrize(("coding", "start"), [("dcb", b"\xffDCB"), ("dcz", b"\x5e\x2a\x4d\x18\x20\0\0\0")])
def test_what_is_packed_with_a_dictionary_is_for_clients_that_have_it(
    tmp_path: Path, authority: Authority, coding: str, start: bytes, size: int
) -> None:
    site, body = Site(tmp_path / "site"), start + b"\x11" * 32 + bytes(range(256)) * size
    has, other = (
        ("Available-Dictionary", f":{base64.b64encode(digest * 32).decode()}:")
        for digest in (b"\x11", b"\x22")
    )
    site.add(FILE, body, headers=[("Content-Encoding", coding)], request_headers=(HOST, has))
    with site.open() as snapshot, Gateway(snapshot, authority=authority) as gateway, client(gateway) as asks:
        for own in ([has], [other], []):
            with asks.stream("GET", FILE, headers=[("Accept-Encoding", coding), *own]) as answer:
                got = b"".join(answer.iter_raw())
            assert (got == body) is (own == [has])
            assert answer.headers["stillweb-verdict"] == ("exact" if own == [has] else "miss")
