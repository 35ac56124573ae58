"""Answers of others that are not all there, or no answers at all: none is served as if it were whole."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.evidence.matcher import Matcher
from stillweb.snapshots.http.encodings import decode, encode
from stillweb.snapshots.operations.importing import import_files
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from tests.snapshots.malformed import NEXT, bodies, http, opened, other, packed, record


@pytest.mark.parametrize("blank", [b"", b" "])
def test_a_field_whose_value_begins_on_its_second_line(tmp_path: Path, blank: bytes) -> None:
    """ISO 28500 lets fields be folded anywhere, also behind the colon."""
    folded = record(http(), fields=b"X: y").replace(b"Length: ", b"Length:" + blank + b"\r\n ", 1)
    folded = folded.replace(b"Type: response", b"Type:" + blank + b"\r\n\tresponse", 1)
    with opened(tmp_path, folded + other(), "x.warc") as snapshot:
        assert list(bodies(snapshot)) == ["http://example.test/", "http://example.test/next"]
        assert not snapshot.notes


def test_the_first_segment_of_an_answer_is_not_surely_all_of_it(tmp_path: Path) -> None:
    first = record(http(b"first half, second half")[:-11], fields=b"WARC-Segment-Number: 1")
    rest = record(
        b"second half",
        kind=b"continuation",
        number=2,
        fields=b"WARC-Segment-Number: 2\r\nWARC-Segment-Origin-ID: <urn:uuid:00000000-0000-4000-8000-000000000001>",
    )
    with opened(tmp_path, packed(first, rest, other())) as snapshot:
        matcher = Matcher(snapshot)
        found = [matcher.lookup(Request("GET", url)) for url in ("http://example.test/", NEXT)]
        assert [(lookup.verdict, lookup.ambiguous) for lookup in found] == [("exact", True), ("exact", False)]


def test_an_answer_without_a_status_is_none(tmp_path: Path) -> None:
    """As Browsertrix writes one that its browser was told no status of: its head was served as a page of status 200."""
    none = record(http(b"", b"HTTP/1.1 0 No Content\r\n"), fields=b"WARC-Concurrent-To: <urn:uuid:x>")
    with opened(tmp_path, packed(none, other())) as snapshot:
        assert list(bodies(snapshot)) == ["http://example.test/next"]
        assert [note.partition("offset 0: ")[2] for note in snapshot.notes] == [
            "no final status in 'HTTP/1.1 0 No Content', the first line of this response of http://example.test/"
        ]
    assert [problem.check for problem in verify(tmp_path / "x.warc.gz")] == ["record"]


@pytest.mark.parametrize("length", [30, 5000])
@pytest.mark.parametrize("name", ["x.warc", "x.warc.gz"])
def test_an_answer_that_is_not_as_long_as_its_record_says_is_unsure(
    tmp_path: Path, length: int, name: str
) -> None:
    block = http(b"x" * 1000)
    odd = record(block, length=len(block) - 1000 + length)
    data = packed(odd, other()) if name.endswith(".gz") else odd + other()
    with opened(tmp_path, data, name) as snapshot:
        matcher = Matcher(snapshot)
        found = [matcher.lookup(Request("GET", url)) for url in ("http://example.test/", NEXT)]
        assert [(lookup.verdict, lookup.ambiguous) for lookup in found] == [("exact", True), ("exact", False)]


_PAGE = b"<p>forty-two penguins</p>" * 40


def _chunks(body: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body) + end


def _answer(body: bytes, *fields: str) -> bytes:
    head = "\r\n".join(("HTTP/1.1 200 OK", "Content-Type: text/html", *fields))
    return head.encode() + b"\r\n\r\n" + body


CODINGS = ("gzip", "deflate", "br", "zstd", "gzip, br")
CUT = [
    _answer(_PAGE, f"Content-Length: {len(_PAGE) + 1}"),
    _answer(_chunks(_PAGE, b""), "Transfer-Encoding: chunked"),
    _answer(_chunks(_PAGE)[:30], "Transfer-Encoding: chunked"),
    *(_answer(encode(_PAGE, one)[:-9], f"Content-Encoding: {one}") for one in CODINGS),
    _answer(zlib.compress(_PAGE, wbits=-15)[:-4], "Content-Encoding: deflate"),
    _answer(b"", "Content-Length: 7"),  # or to a HEAD, whose request the archive lacks: no page for a GET
    _answer(b"", "Content-Length: 7", "Content-Encoding: gzip"),
]
WHOLE = [
    _answer(_PAGE, f"Content-Length: {len(_PAGE)}"),
    _answer(_PAGE, f"Content-Length: {len(_PAGE) + 1}", "Content-Encoding: gzip"),  # unpacked by its recorder
    _answer(_PAGE, "Transfer-Encoding: chunked"),
    _answer(_chunks(_PAGE), "Transfer-Encoding: chunked"),
    _answer(_chunks(encode(_PAGE, "br")), "Transfer-Encoding: chunked", "Content-Encoding: br"),
    *(_answer(encode(_PAGE, one), f"Content-Encoding: {one}") for one in CODINGS),
    _answer(_PAGE, "Content-Encoding: exi"),
]


@pytest.mark.parametrize(("block", "cut"), [*((one, True) for one in CUT), *((one, False) for one in WHOLE)])
def test_an_answer_that_was_cut_short_is_unsure(tmp_path: Path, block: bytes, cut: bool) -> None:
    """Its own fields or its coding tell; the import says it and marks it, and so do lookups of the archive itself."""
    with opened(tmp_path, packed(record(block), other())) as snapshot:
        matcher = Matcher(snapshot)
        found = [matcher.lookup(Request("GET", url)) for url in ("http://example.test/", NEXT)]
        assert [lookup.ambiguous for lookup in found] == [cut, False]
    report = import_files([tmp_path / "x.warc.gz"], tmp_path / "own")
    assert ["cut short" in note for note in report.notes] == [True] * cut
    with Snapshot.open(tmp_path / "own") as snapshot:
        assert Matcher(snapshot).lookup(Request("GET", "http://example.test/")).ambiguous is cut


@pytest.mark.parametrize("coding", CODINGS)
def test_half_a_packed_answer_keeps_its_coding(tmp_path: Path, coding: str) -> None:
    """Else a client takes it for a text. Brotli alone has no first bytes of its own."""
    page = b"".join(b"<p>penguin %d</p>" % number for number in range(20_000))
    half = encode(page, coding)[:9000]
    with opened(tmp_path, packed(record(_answer(half, f"Content-Encoding: {coding}")))) as snapshot:
        answer = snapshot.read(next(snapshot.captures()))
    assert (answer.header("content-encoding"), answer.body) == (coding, half)


@pytest.mark.parametrize("told", ["time", "unspecified"])
def test_an_answer_that_its_crawler_calls_truncated_is_named(tmp_path: Path, told: str) -> None:
    (tmp_path / "x.warc.gz").write_bytes(
        packed(record(_answer(_PAGE), fields=b"WARC-Truncated: " + told.encode()))
    )
    (note,) = import_files([tmp_path / "x.warc.gz"], tmp_path / "own").notes
    assert f"WARC-Truncated: {told}" in note


@pytest.mark.parametrize("interim", ["100 Continue", "103 Early Hints"])
def test_an_interim_answer_is_not_served_as_the_page(tmp_path: Path, interim: str) -> None:
    both = f"HTTP/1.1 {interim}\r\n\r\n".encode() + _answer(_PAGE)
    with opened(
        tmp_path, packed(record(both, fields=b"WARC-Concurrent-To: <urn:uuid:x>"), other())
    ) as snapshot:
        assert list(bodies(snapshot)) == [NEXT]
        assert interim in snapshot.notes[0]


@pytest.mark.parametrize("coding", ["gzip", "gzip, chunked"])
def test_a_body_that_a_transfer_coding_packs_is_unpacked_by_clients(tmp_path: Path, coding: str) -> None:
    sent = encode(_PAGE, "gzip")
    block = _answer(_chunks(sent) if "chunked" in coding else sent, f"Transfer-Encoding: {coding}")
    with opened(tmp_path, packed(record(block))) as snapshot:
        (capture,) = snapshot.captures()
        answer = snapshot.read(capture)
    assert [v for n, v in answer.headers if n.lower() == "content-encoding"] == ["gzip"]
    assert decode(answer.body, "gzip") == _PAGE


def test_records_that_answer_no_request_are_counted_and_named(tmp_path: Path) -> None:
    none = [
        record(b"example.test. 1 IN A 192.0.2.1\n", uri=b"dns:example.test", number=2),
        record(b"20 text/gemini\r\n", uri=b"gemini://example.test/", number=3),
        record(b"forty-two penguins", kind=b"conversion", number=4),
        record(b"of a file", kind=b"resource", uri=b"file:///a.txt", number=5),
        record(b"of a tool", kind=b"screenshot", number=6),
        record(b"GET /else HTTP/1.1\r\n\r\n", kind=b"request", uri=b"http://example.test/else", number=7),
        record(b"outlink: /else\r\n", kind=b"metadata", number=8),
    ]
    (tmp_path / "x.warc.gz").write_bytes(packed(record(_answer(_PAGE)), *none))
    report = import_files([tmp_path / "x.warc.gz"], tmp_path / "own")
    assert report.captures == 1
    told = "\n".join(report.notes)
    assert "1 request whose answer" in told
    for what in (
        "response of dns:",
        "response of gemini:",
        "conversion of http:",
        "resource of file:",
        "screenshot of http:",
        "metadata of http:",
    ):
        assert f"1 {what}" in told


@pytest.mark.parametrize("kind", [b"metadata", b"conversion"])
def test_a_file_that_was_derived_of_an_archive_is_named_so(kind: bytes, tmp_path: Path) -> None:
    """Common Crawl's WAT and WET files: they open as archives do, and hold no answer."""
    (tmp_path / "x.warc.wat.gz").write_bytes(packed(record(b'{"Envelope":{}}', kind=kind)))
    with pytest.raises(DamagedInput, match="WAT or WET"):
        import_files([tmp_path / "x.warc.wat.gz"], tmp_path / "own")
