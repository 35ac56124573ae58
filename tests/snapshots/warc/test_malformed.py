"""Archives as other tools leave them: each opens and gives the bytes that warcio reads, or fails clearly."""

import contextlib
import gzip
import io
import json
import time
import zlib
from pathlib import Path

import brotli
import pytest
import zstandard
from warcio.archiveiterator import ArchiveIterator

from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.evidence.matcher import Matcher
from stillweb.snapshots.http.encodings import decode, encode
from stillweb.snapshots.operations.importing import import_files
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.warc.warc import parse_head, starts_record
from tests.snapshots.malformed import (
    HEAD,
    NEXT,
    PAGE,
    arc,
    bodies,
    http,
    opened,
    other,
    packed,
    record,
    revisit,
    zstd,
)


def read_by_warcio(data: bytes) -> dict[str, bytes]:
    """Payloads as warcio reads them, transfer-decoded."""
    found = {}
    for item in ArchiveIterator(io.BytesIO(data), arc2warc=True):
        if item.rec_type == "response":
            item.http_headers.remove_header("content-encoding")
            found[item.rec_headers.get_header("WARC-Target-URI")] = item.content_stream().read()
    return found


def agrees(tmp_path: Path, data: bytes, name: str = "x.warc.gz") -> dict[str, bytes]:
    """The payloads of an archive, seen to be those that warcio reads."""
    with opened(tmp_path, data, name) as snapshot:
        found = bodies(snapshot)
    assert found == read_by_warcio(data)
    return found


@pytest.mark.parametrize("gz", [True, False])
def test_arc_files(tmp_path: Path, gz: bool) -> None:
    found = agrees(tmp_path, arc(gz=gz), "x.arc.gz" if gz else "x.arc")
    assert found == {"http://example.test/": PAGE, "http://example.test/a%20b": b"the next page"}
    with Snapshot.open(tmp_path / ("x.arc.gz" if gz else "x.arc")) as snapshot:
        assert {c.timestamp for c in snapshot.captures()} == {"20200102030405"}
        assert snapshot.notes == []


def test_target_uri_in_angle_brackets(tmp_path: Path) -> None:
    agrees(tmp_path, packed(record(http(), uri=b"<http://example.test/>"), other()))


def test_spaces_in_target_uri(tmp_path: Path) -> None:
    found = agrees(tmp_path, packed(record(http(), uri=b"http://example.test/a b?c d"), other()))
    assert "http://example.test/a%20b?c%20d" in found


@pytest.mark.parametrize("gz", [True, False])
@pytest.mark.parametrize("wrong", [-9, 7, 100_000])
def test_wrong_content_length(tmp_path: Path, gz: bool, wrong: int) -> None:
    block = http()
    records = [record(block, length=len(block) + wrong), other()]
    data = packed(*records) if gz else b"".join(records)
    with opened(tmp_path, data, "x.warc.gz" if gz else "x.warc") as snapshot:
        found = bodies(snapshot)
        assert found == {"http://example.test/": PAGE[:wrong] if wrong < 0 else PAGE, NEXT: b"the next page"}
        assert any("Content-Length" in note for note in snapshot.notes)
        page = next(c for c in snapshot.captures() if c.url != NEXT)
        assert snapshot.read(page).header("content-length") == str(len(found[page.url]))
    if wrong < 0:
        assert found == read_by_warcio(data) or not gz  # warcio loses the record after it in a plain file


def without_length(whole: bytes) -> bytes:
    head, _, block = whole.partition(b"\r\n\r\n")
    return head[: head.rindex(b"\r\nContent-Length")] + b"\r\n\r\n" + block


@pytest.mark.parametrize("gz", [True, False])
@pytest.mark.parametrize("page", [PAGE, PAGE * 5000])
def test_missing_content_length(tmp_path: Path, gz: bool, page: bytes) -> None:
    records = [without_length(record(http(page))), other()]
    data = packed(*records) if gz else b"".join(records)
    with opened(tmp_path, data, "x.warc.gz" if gz else "x.warc") as snapshot:
        found = {capture.url: capture for capture in snapshot.captures()}
        capture = found["http://example.test/"]
        assert snapshot.read(capture).body == page
        assert snapshot.open_body(capture).read() == page  # without what closes the record
        assert snapshot.read(found[NEXT]).body == b"the next page"
        assert any("Content-Length is missing" in note for note in snapshot.notes)


def test_a_record_without_length_or_block_is_no_page_made_of_the_next_one(tmp_path: Path) -> None:
    data = without_length(record(b"", end=b"")) + other()
    with opened(tmp_path, data, "x.warc") as snapshot:
        assert bodies(snapshot) == {"http://example.test/": b"", NEXT: b"the next page"}


@pytest.mark.parametrize("gz", [True, False])
@pytest.mark.parametrize("end", [b"", b"\r\n", b"\n\n", b"\r\n\r\n\r\n\r\n"])
def test_missing_and_extra_blank_lines(tmp_path: Path, gz: bool, end: bytes) -> None:
    records = [record(http(), end=end), other()]
    data = packed(*records) if gz else b"".join(records)
    with opened(tmp_path, data, "x.warc.gz" if gz else "x.warc") as snapshot:
        assert bodies(snapshot) == {"http://example.test/": PAGE, NEXT: b"the next page"}


@pytest.mark.parametrize("line", [b"HTTP/1.1 200\r\n", b"HTTP/1.0 200 \r\n", b"HTTP/1.1 404\r\n"])
def test_missing_status_text(tmp_path: Path, line: bytes) -> None:
    data = packed(record(http(head=line + b"Content-Type: text/html\r\n")), other())
    agrees(tmp_path, data)
    with Snapshot.open(tmp_path / "x.warc.gz") as snapshot:
        capture = next(c for c in snapshot.captures() if c.url != NEXT)
        assert snapshot.read(capture).status == capture.status == int(line[9:12])


def test_no_http_headers_at_all(tmp_path: Path) -> None:
    with opened(tmp_path, packed(record(PAGE), other())) as snapshot:
        capture = next(c for c in snapshot.captures() if c.url != NEXT)
        assert (capture.status, snapshot.read(capture).body) == (200, PAGE)


def test_chunked_named_on_a_body_without_chunks(tmp_path: Path) -> None:
    data = packed(record(http(head=HEAD + b"Transfer-Encoding: chunked\r\n", length=False)), other())
    assert agrees(tmp_path, data)["http://example.test/"] == PAGE
    with Snapshot.open(tmp_path / "x.warc.gz") as snapshot:
        answer = snapshot.read(next(c for c in snapshot.captures() if c.url != NEXT))
        assert answer.header("transfer-encoding") is None
        assert answer.header("content-length") == str(len(PAGE))


def test_chunks_kept(tmp_path: Path) -> None:
    chunks = b"5;x=y\r\n" + PAGE[:5] + b"\r\n%x\r\n" % (len(PAGE) - 5) + PAGE[5:] + b"\r\n0\r\n\r\n"
    data = packed(record(http(chunks, HEAD + b"Transfer-Encoding: chunked\r\n", length=False)), other())
    assert agrees(tmp_path, data)["http://example.test/"] == PAGE
    with Snapshot.open(tmp_path / "x.warc.gz") as snapshot:
        capture = next(c for c in snapshot.captures() if c.url != NEXT)
        with snapshot.open_body(capture) as body:
            assert body.read() == PAGE


@pytest.mark.parametrize(
    "chunks",
    [
        b"5\r\nhello\r\nzz\r\nworld\r\n0\r\n\r\n",  # a length that is none
        b"5\r\nhello\r\nff\r\nshort",  # a chunk that ends early
        b"5\r\nhello\r\n",  # no last chunk
        b"5\r\nhello\r\n0\r\n",  # the last chunk without its line break
    ],
)
def test_wrong_chunks(tmp_path: Path, chunks: bytes) -> None:
    agrees(
        tmp_path,
        packed(record(http(chunks, HEAD + b"Transfer-Encoding: chunked\r\n", length=False)), other()),
    )


@pytest.mark.parametrize("encoding", [b"gzip", b"br", b"deflate", b"zstd"])
def test_content_encoding_named_on_a_decoded_body(tmp_path: Path, encoding: bytes) -> None:
    data = packed(record(http(head=HEAD + b"Content-Encoding: " + encoding + b"\r\n")), other())
    with opened(tmp_path, data) as snapshot:
        answer = snapshot.read(next(c for c in snapshot.captures() if c.url != NEXT))
        assert answer.body == PAGE
        assert answer.header("content-encoding") is None


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "zstd"])
def test_content_encoding_that_is_true_stays(tmp_path: Path, encoding: str) -> None:
    import zlib

    import brotli

    pack = {
        "gzip": gzip.compress,
        "br": brotli.compress,
        "deflate": zlib.compress,
        "zstd": zstandard.compress,
    }
    body = pack[encoding](PAGE)
    head = HEAD + f"Content-Encoding: {encoding}\r\n".encode()
    with opened(tmp_path, packed(record(http(body, head)))) as snapshot:
        answer = snapshot.read(next(snapshot.captures()))
        assert (answer.body, answer.header("content-encoding")) == (body, encoding)


def test_content_encoding_moved_aside(tmp_path: Path) -> None:
    decoded = record(http(head=HEAD + b"x-orig-content-encoding: br\r\n"))
    packed_still = record(
        http(gzip.compress(PAGE), HEAD + b"X-Orig-Content-Encoding: gzip\r\n"), uri=NEXT.encode(), number=2
    )
    with opened(tmp_path, packed(decoded, packed_still)) as snapshot:
        answers = {c.url: snapshot.read(c) for c in snapshot.captures()}
        plain = answers["http://example.test/"]
        assert (plain.header("content-encoding"), plain.header("x-orig-content-encoding")) == (None, None)
        assert answers[NEXT].header("content-encoding") == "gzip"


@pytest.mark.parametrize("start", [b"/**\n", b"/*!\n", b"<!--", b"{\n"])
@pytest.mark.parametrize("coding", [b"br", b"zstd", b"deflate"])
@pytest.mark.parametrize("size", [1_000, 70_000])
def test_a_text_that_only_claims_a_coding_goes_out_as_it_is(
    tmp_path: Path, start: bytes, coding: bytes, size: int
) -> None:
    body = start + b"var a = 1;\n" * (size // 11)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/javascript\r\nx-orig-content-encoding: " + coding + b"\r\n"
    with opened(tmp_path, packed(record(http(body, head)))) as snapshot:
        answer = snapshot.read(next(snapshot.captures()))
        assert (answer.body, answer.header("content-encoding")) == (body, None)


def test_wrong_and_repeated_content_length_header(tmp_path: Path) -> None:
    head = HEAD + b"Content-Length: 7\r\nContent-Length: 9\r\n"
    with opened(tmp_path, packed(record(http(head=head, length=False)))) as snapshot:
        answer = snapshot.read(next(snapshot.captures()))
        assert [v for n, v in answer.headers if n == "Content-Length"] == [str(len(PAGE))]


def test_one_gzip_around_the_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    data = gzip.compress(record(http()) + other())
    with opened(tmp_path, data) as snapshot:
        assert bodies(snapshot) == {"http://example.test/": PAGE, NEXT: b"the next page"}
    assert [p.message for p in verify(tmp_path / "x.warc.gz")] == [
        "its records are not packed one by one; it is used from an unpacked copy, and `stillweb import` makes a sound one"
    ]


def test_records_over_several_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    first = record(http())
    for at in (40, first.index(b"HTTP/1.1"), len(first) - 20):
        data = packed(first[:at], first[at:], other())
        with opened(tmp_path, data) as snapshot:
            assert bodies(snapshot) == {"http://example.test/": PAGE, NEXT: b"the next page"}, at


def test_padding_between_members(tmp_path: Path) -> None:
    for padding in (b"\0" * 100, b"\r\n\r\n", gzip.compress(b"")):
        data = packed(record(http())) + padding + packed(other()) + padding
        with opened(tmp_path, data) as snapshot:
            assert bodies(snapshot) == {"http://example.test/": PAGE, NEXT: b"the next page"}


def test_rubbish_between_records(tmp_path: Path) -> None:
    data = packed(record(http())) + b"rubbish \x1f\x8b\x08 that is long enough" + packed(other())
    with opened(tmp_path, data) as snapshot:
        assert bodies(snapshot) == {"http://example.test/": PAGE, NEXT: b"the next page"}
        assert len(snapshot.notes) == 1
    damaged = bytearray(
        packed(record(http()), record(http(), number=2, uri=b"http://example.test/2"), other())
    )
    damaged[len(packed(record(http()))) + 60] ^= 0xFF
    with opened(tmp_path, bytes(damaged), "y.warc.gz") as snapshot:
        assert bodies(snapshot) == {"http://example.test/": PAGE, NEXT: b"the next page"}
        assert len(snapshot.notes) == 1


@pytest.mark.parametrize("form", ["gz", "plain", "zstd"])
def test_truncated_last_record(tmp_path: Path, form: str) -> None:
    make = {"gz": packed, "plain": lambda *r: b"".join(r), "zstd": zstd}[form]
    first, whole = make(record(http())), make(record(http()), other())
    ends = len(whole) - (4 if form == "plain" else 0)  # the closing line breaks may be missing
    for cut in range(len(first), ends):
        with opened(tmp_path, whole[:cut], f"{cut}.warc") as snapshot:
            assert list(bodies(snapshot)) == ["http://example.test/"], cut
            if cut > len(first) + 2:
                assert any("cut short" in note or "no record" in note for note in snapshot.notes), cut


@pytest.mark.parametrize("reason", [b"length", b"time", b"disconnect"])
def test_a_body_that_its_recorder_cut_is_never_sure_to_be_the_answer(tmp_path: Path, reason: bytes) -> None:
    cut = record(http(), fields=b"WARC-Truncated: " + reason)
    again = revisit(fields=b"WARC-Refers-To: <urn:uuid:00000000-0000-4000-8000-000000000001>")
    whole = record(http(), uri=b"http://example.test/whole", number=2)
    with opened(tmp_path, packed(cut, again, whole)) as snapshot:
        for url, unsure in (("", True), ("next", True), ("whole", False)):
            for _ in range(2):
                lookup = snapshot.matcher().lookup(Request("GET", f"http://example.test/{url}"))
                assert (lookup.verdict, lookup.ambiguous) == ("exact", unsure)
                refused = snapshot.matcher().lookup(lookup.request, accept="rule+unambiguous")
                assert (refused.verdict == "miss") is unsure


def test_bad_line_ends(tmp_path: Path) -> None:
    unix = record(http().replace(b"\r\n", b"\n"), line=b"\n", version=b"WARC/0.18", end=b"\n\n")
    with opened(tmp_path, packed(unix, other())) as snapshot:
        assert bodies(snapshot) == {"http://example.test/": PAGE, NEXT: b"the next page"}
    double = record(http(), line=b"\r\r\n")
    with opened(tmp_path, packed(double, other()), "y.warc.gz") as snapshot:
        assert bodies(snapshot) == {"http://example.test/": PAGE, NEXT: b"the next page"}


def test_repeated_headers_and_non_ascii_bytes(tmp_path: Path) -> None:
    head = HEAD + b"Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Name: caf\xe9 \xff\r\nX-Fold: one\r\n two\r\n"
    with opened(tmp_path, packed(record(http(head=head)))) as snapshot:
        answer = snapshot.read(next(snapshot.captures()))
        assert [v for n, v in answer.headers if n == "Set-Cookie"] == ["a=1", "b=2"]
        assert answer.header("x-name") == "caf\xe9 \xff"
        assert answer.header("x-fold") == "one two"
    with opened(
        tmp_path, packed(record(http(), uri=b"http://example.test/caf\xe9")), "y.warc.gz"
    ) as snapshot:
        assert next(snapshot.captures()).url == "http://example.test/caf\xe9"


@pytest.mark.parametrize("dictionary", [None, b"raw", b"packed"])
def test_zstandard(tmp_path: Path, dictionary: bytes | None) -> None:
    samples = [record(http(b"page %d of many, much alike" % n)) for n in range(400)]
    trained = zstandard.train_dictionary(2048, samples).as_bytes() if dictionary else None
    data = zstd(record(http()), other(), dictionary=trained)
    if trained and dictionary == b"packed":
        small = zstandard.compress(trained)
        rest = data[8 + len(trained) :]
        data = b"\x5d\x2a\x4d\x18" + len(small).to_bytes(4, "little") + small + rest
    with opened(tmp_path, data, "x.warc.zst") as snapshot:
        assert bodies(snapshot) == {"http://example.test/": PAGE, NEXT: b"the next page"}
        assert snapshot.notes == []


@pytest.mark.parametrize(
    "damage", ["torn", "short", "packed and cut", "packed and huge", "longer than the file"]
)
def test_a_damaged_zstandard_dictionary_is_named(tmp_path: Path, damage: str) -> None:
    samples = [record(http(b"page %d of many, much alike" % n)) for n in range(400)]
    trained = zstandard.train_dictionary(2048, samples).as_bytes()
    frames = zstd(record(http()), dictionary=trained)[8 + len(trained) :]
    dictionary = {
        "torn": trained[:20] + b"\xff" * 100 + trained[120:],
        "short": b"abc",
        "packed and cut": zstandard.compress(trained)[:-9],
        "packed and huge": zstandard.compress(b"\0" * 100_000_000),
        "longer than the file": trained,
    }[damage]
    size = 0x7FFFFFFF if damage == "longer than the file" else len(dictionary)
    data = b"\x5d\x2a\x4d\x18" + size.to_bytes(4, "little") + dictionary + frames
    with pytest.raises(DamagedInput, match="the Zstandard dictionary at offset 8 is damaged"):
        opened(tmp_path, data, "x.warc.zst")


def test_a_skippable_frame_longer_than_the_file_hides_no_record(tmp_path: Path) -> None:
    data = zstd(other()) + b"\x50\x2a\x4d\x18\xff\xff\xff\x7f" + zstd(record(http()))
    with opened(tmp_path, data, "x.warc.zst") as snapshot:
        assert bodies(snapshot) == {"http://example.test/": PAGE, NEXT: b"the next page"}
        assert [note for note in snapshot.notes if "a skippable frame is cut short" in note]


@pytest.mark.parametrize("order", ["request first", "response first", "by neighbourhood"])
def test_requests_are_found_however_they_are_named(tmp_path: Path, order: str) -> None:
    block = b"POST / HTTP/1.1\r\nHost: example.test\r\nContent-Type: text/plain\r\n\r\nsent"
    link = b"WARC-Concurrent-To: <urn:uuid:00000000-0000-4000-8000-%012d>"
    if order == "request first":
        records = [record(block, kind=b"request", number=2), record(http(), fields=link % 2)]
    elif order == "response first":
        records = [record(http()), record(block, kind=b"request", number=2, fields=link % 1)]
    else:
        records = [record(http()), record(block, kind=b"request", number=2)]
    with opened(tmp_path, packed(*records, other())) as snapshot:
        capture = next(c for c in snapshot.captures() if c.url != NEXT)
        assert capture.method == "POST"
        assert snapshot.read_request(capture).body == b"sent"


def test_http_resources_answer_too(tmp_path: Path) -> None:
    fields = b"WARC-IP-Address: 10.0.0.1"
    data = packed(
        record(b"hello", kind=b"resource", fields=fields),
        record(b"dns", kind=b"resource", uri=b"dns:example.test", number=2),
    )
    with opened(tmp_path, data) as snapshot:
        assert bodies(snapshot) == {"http://example.test/": b"hello"}
        assert snapshot.read(next(snapshot.captures())).header("content-type") == "text/plain"


@pytest.mark.parametrize(
    "data", [b"WARC/1.0\r\n", b"WARC/1.0 but no record", b"\x1f\x8b\x08", b"\x1f\x8b\x08" + b"\0" * 500]
)
def test_what_only_looks_like_an_archive(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.warc.gz"
    path.write_bytes(data)
    with contextlib.suppress(DamagedInput), Snapshot.open(path) as snapshot:
        assert list(snapshot.captures()) == []
        assert snapshot.notes
    assert verify(path) != []


def test_a_browser_that_calls_home_is_recorded_like_anyone(tmp_path: Path) -> None:
    uri = b"https://update.example.test/service/update2/json?cup2key=14:x"
    data = packed(record(http()), record(http(json.dumps({"x": 1}).encode()), uri=uri, number=2))
    with opened(tmp_path, data) as snapshot:
        assert len(list(snapshot.captures())) == 2


@pytest.mark.parametrize(
    ("coding", "body", "kept"),
    [
        ("deflate", b'{"a":1}', []),  # unpacked by who archived it; bare deflate may begin so
        ("deflate", zlib.compress(PAGE)[2:-4], ["deflate"]),
        ("gzip\r\nContent-Encoding: br", brotli.compress(gzip.compress(PAGE, mtime=0)), ["gzip, br"]),
        ("gzip\r\nContent-Encoding: br", PAGE, []),
    ],
)
def test_content_encodings_are_those_of_the_bytes(
    tmp_path: Path, coding: str, body: bytes, kept: list[str]
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: " + coding.encode() + b"\r\n"
    with opened(tmp_path, packed(record(http(body, head)))) as snapshot:
        (capture,) = snapshot.captures()
        answer = snapshot.read(capture)
        assert [value for name, value in answer.headers if name == "Content-Encoding"] == kept
        assert answer.body == body


@pytest.mark.parametrize("events", ["²-3", "1-²", "-1-2", "1"])
def test_events_that_are_no_numbers(tmp_path: Path, events: str) -> None:
    fields = f"WARC-Stillweb-Events: {events}\r\n".encode()
    with opened(tmp_path, packed(record(http(), fields=fields))) as snapshot:
        assert [(c.begin, c.end) for c in snapshot.captures()] == [(0, 0)]


def test_a_scheme_in_capitals_is_a_scheme(tmp_path: Path) -> None:
    with opened(tmp_path, packed(record(http(), uri=b"HTTP://Example.test/A"))) as snapshot:
        verdict = snapshot.matcher().lookup(Request("GET", "http://example.test/A")).verdict
        assert (len(list(snapshot.captures())), verdict) == (1, "canonical")


LINE = b"http://example.test/a b 192.0.2.1 20200102030405 text/html 12"


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b" \t\r\n"])
def test_a_record_line(end: bytes) -> None:
    found = parse_head(b"before\n" + LINE + end + b"block", 7)
    assert found is not None
    fields, start = found
    assert (fields["warc-target-uri"], fields["content-length"]) == ("http://example.test/a b", "12")
    assert start == 7 + len(LINE + end)


def test_a_record_line_of_arc_2() -> None:
    line = b"http://example.test/a b 192.0.2.1 20200102030405 text/html 200 fac069150613fe55 - 12345678 x.arc 12\n"
    found = parse_head(line)
    assert found is not None
    told = [found[0][name] for name in ("warc-target-uri", "warc-date", "content-length")]
    assert told == ["http://example.test/a b", "2020-01-02T03:04:05Z", "12"]


@pytest.mark.parametrize(
    "line",
    [
        LINE,
        LINE + b"\r\r\n",
        LINE + b" x\n",
        b"\r" + LINE + b"\n",
        b"no name 20200102030405 12\n",
        b"http://example.test/ 20200102030405 \n",
        b"http://example.test/ 2020010 12\n",
    ],
)
def test_no_record_line(line: bytes) -> None:
    assert not starts_record(line)


def test_what_is_no_archive_is_told_without_thinking_for_hours(tmp_path: Path) -> None:
    path = tmp_path / "one.line"
    path.write_bytes(b"a: 12345678 " * 200_000)
    begun = time.process_time()
    with pytest.raises(DamagedInput, match="is not a WACZ"):
        Snapshot.open(path)
    assert time.process_time() - begun < 2


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


@pytest.mark.parametrize(
    ("line", "status"),
    [("ICY 200 OK", 200), ("http/1.1 404 Not Found", 404), ("HTTP/2 200", 200)]
    + [(one, None) for one in ("HTTP/1.1 2000 OK", "HTTP/1.1 404Not Found", "HTTP/1,1 404", "HTTP 404", "RTSP/1.0 200 OK", "\nHTTP/1.1 404", "HTTP/1.0")],
)  # fmt: skip
def test_the_head_of_an_answer_is_never_a_page(tmp_path: Path, line: str, status: int | None) -> None:
    """An odd first line is that of a head all the same: what follows it is no page of status 200."""
    odd = record(http(head=f"{line}\r\nContent-Type: text/html\r\n".encode()))
    with opened(tmp_path, packed(odd, other())) as snapshot:
        answers = [snapshot.read(one) for one in snapshot.captures() if one.url != NEXT]
        assert [(one.status, one.body) for one in answers] == ([(status, PAGE)] if status else [])
        assert ["no final status" in note for note in snapshot.notes] == [True] * (status is None)


def test_an_answer_whose_head_is_missing_is_unsure(tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    with opened(tmp_path, packed(record(PAGE), other())) as snapshot:
        lookup = Matcher(snapshot).lookup(Request("GET", "http://example.test/"))
        assert (lookup.verdict, lookup.ambiguous) == ("exact", True)
    page = record(PAGE).replace(b"application/http; msgtype=response", b"text/html")
    with opened(tmp_path / "page", packed(page, other())) as snapshot:
        assert not Matcher(snapshot).lookup(Request("GET", "http://example.test/")).ambiguous


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
    """The answer's fields or its coding tell; import notes and marks it, and lookups of the archive itself do so, too."""
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
    """Without its coding a client takes the answer for a text. Brotli alone has no first bytes of its own."""
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
