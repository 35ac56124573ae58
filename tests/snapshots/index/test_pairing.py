"""Requests and answers that name each other as some writers have it: by the id of what was replaced, by ids used twice."""

from pathlib import Path

import pytest

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer, reindex
from tests.snapshots.making import exchange
from tests.snapshots.malformed import http, packed, record, revisit

ASKED = "http://example.test/"
NEXT = "http://example.test/next"
GET = b"GET / HTTP/1.1\r\nHost: example.test\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: example.test\r\nContent-Length: 3\r\n\r\na=1"
LATER = b"2020-01-02T03:04:06Z"
MUCH_LATER = b"2020-01-02T03:05:06Z"


def named(number: int) -> bytes:
    return b"WARC-Concurrent-To: <urn:uuid:00000000-0000-4000-8000-%012d>" % number


def question(number: int, block: bytes = GET, fields: bytes = b"", date: bytes | None = None) -> bytes:
    when = {} if date is None else {"date": date}
    return record(block, kind=b"request", uri=ASKED.encode(), number=number, fields=fields, **when)


def told(number: int, uri: str = ASKED, fields: bytes = b"") -> bytes:
    return record(http(b"told %d" % number), uri=uri.encode(), number=number, fields=fields)


def captures(tmp_path: Path, *records: bytes) -> tuple[list[Capture], list[str]]:
    path = tmp_path / "x.warc.gz"
    path.write_bytes(packed(*records))
    with Snapshot.open(path) as snapshot:
        return list(snapshot.captures()), [str(note) for note in snapshot.notes]


def missing(notes: list[str]) -> bool:
    return any("the request of this response" in note for note in notes)


@pytest.mark.parametrize("date", [None, LATER])
def test_a_request_that_names_what_a_revisit_took_the_place_of(tmp_path: Path, date: bytes | None) -> None:
    """As pywb's recorder writes it: the response that was named is not in the file, and the revisit is dated anew."""
    same = b"WARC-Refers-To-Target-URI: %b\r\nWARC-Refers-To-Date: 2020-01-02T03:04:05Z" % ASKED.encode()
    repeated = revisit(uri=ASKED.encode(), fields=same, number=3)
    found, notes = captures(
        tmp_path, told(1), question(2, fields=named(1)), repeated, question(4, POST, named(9), date)
    )
    assert [(c.method, c.request_offset > 0) for c in found] == [("GET", True), ("POST", True)]
    assert not missing(notes)


@pytest.mark.parametrize("target", [b"urn:x", b"urn:metadata:http://a.test/", b"data:,x"])
def test_a_request_of_no_web_address_is_no_capture(tmp_path: Path, target: bytes) -> None:
    archive = tmp_path / "open" / "archive"
    archive.mkdir(parents=True)
    asked = record(GET, kind=b"request", uri=target, number=2, fields=named(1))
    (archive / "x.warc.gz").write_bytes(packed(told(1, fields=named(2)), asked))
    assert reindex(tmp_path / "open") == 0
    found, notes = captures(tmp_path, told(1, fields=named(2)), asked)
    assert found == []
    assert missing(notes)


def test_a_host_that_is_called_as_names_of_records_begin(tmp_path: Path) -> None:
    address = "http://urn:8080/page"
    with Writer.open(tmp_path / "open") as writer:
        writer.exchange(exchange(address, b"told"))
    with Writer.open(tmp_path / "open"), Snapshot.open(tmp_path / "open") as snapshot:
        assert [c.url for c in snapshot.captures()] == [address]
        assert snapshot.lookup(address).verdict == "exact"


def test_a_request_beside_that_names_another_and_is_of_another_time_is_not_its_own(tmp_path: Path) -> None:
    found, notes = captures(tmp_path, told(1), question(2, POST, named(9), MUCH_LATER))
    assert found == []
    assert missing(notes)


def test_a_request_of_the_same_instant_that_names_what_is_not_there(tmp_path: Path) -> None:
    """As WARCreate writes it, with a metadata record between the two."""
    between = record(b"x: y\r\n", kind=b"metadata", uri=ASKED.encode(), number=2)
    found, notes = captures(tmp_path, question(1, POST, named(9)), between, told(3))
    assert [(c.method, c.request_offset >= 0) for c in found] == [("POST", True)]
    assert not missing(notes)


@pytest.mark.parametrize("more", [question(4, GET, named(9)), told(4)], ids=["two requests", "two answers"])
def test_of_several_of_the_same_instant_none_is_guessed(tmp_path: Path, more: bytes) -> None:
    between = record(b"x: y\r\n", kind=b"metadata", uri=ASKED.encode(), number=2)
    found, notes = captures(tmp_path, question(1, POST, named(9)), between, told(3), between, more)
    assert found == []
    assert missing(notes)


def test_answers_with_one_id_are_all_there(tmp_path: Path) -> None:
    found, _ = captures(tmp_path, told(1), told(1, NEXT), told(1, NEXT + "/more"))
    assert [c.url for c in found] == [ASKED, NEXT, NEXT + "/more"]


def test_requests_with_one_id_keep_their_answers(tmp_path: Path) -> None:
    """No answer may pass for a plain GET's because another request took the place of the answer's own."""
    between = record(b"x: y\r\n", kind=b"metadata", uri=ASKED.encode(), number=2)
    found, _ = captures(
        tmp_path, told(5), question(1, POST), between, question(1, GET, date=LATER), record(
            http(b"told 6"), uri=ASKED.encode(), number=6, date=LATER
        ),
    )  # fmt: skip
    with Snapshot.open(tmp_path / "x.warc.gz") as snapshot:
        bodies = {c.method: snapshot.read(c).body for c in found}
    assert bodies == {"POST": b"told 5", "GET": b"told 6"}
