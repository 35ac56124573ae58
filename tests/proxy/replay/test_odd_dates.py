"""An archive with a date that no calendar has answers its requests, and no bug inside hides a recorded path."""

from pathlib import Path

import pytest

from stillweb.proxy.replay.answering import Answerer
from stillweb.proxy.replay.ledger import Ledger
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot

DATES = [
    "2025-01-04T14:13:60Z", "2025-01-04T14:13:62Z", "2025-01-04T24:00:00Z", "2025-02-30T10:00:00Z", "0000-01-01T00:00:00Z",
    "２０２５-01-04T10:13:20Z", "9999-12-31T23:59:59Z", "2025-13-04T14:13:20Z", "",
]  # fmt: skip


def record(number: int, moment: str, date: str, body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body)
    fields = (
        f"WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:0000000{number}-0000-4000-8000-000000000000>\r\n"
        f"WARC-Target-URI: http://a.test/b?_={moment}\r\nWARC-Date: {date}\r\n"
        f"Content-Type: application/http;msgtype=response\r\nContent-Length: {len(head + body)}\r\n\r\n"
    )
    return fields.encode() + head + body + b"\r\n\r\n"


@pytest.mark.parametrize("date", DATES)
def test_an_odd_date_hides_nothing(tmp_path: Path, date: str) -> None:
    path = tmp_path / "odd.warc"
    path.write_bytes(
        record(1, "1736000000001", "2025-01-04T14:13:20Z", b"bb") + record(2, "1736000042001", date, b"cc")
    )
    with Snapshot.open(path) as snapshot, Ledger() as ledger:
        answerer = Answerer(snapshot, ledger)
        for moment in ("1736000000001", "1736000777001"):
            answerer.answer(Request("GET", f"http://a.test/b?_={moment}"), answerer.state("s"))
        first, second = ledger.entries()
        answerer.close()
    assert answerer.failures == []
    assert first["status"] == 200
    assert second["status"] in (200, 502, 504)
