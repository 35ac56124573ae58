"""Records that are taken by the shape of their heads give the same as all other records do."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stillweb.snapshots._os.random_access import FileSource, MemorySource
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.index import parallel
from stillweb.snapshots.index.build import assemble
from stillweb.snapshots.index.gathering import ScanResult
from stillweb.snapshots.index.pairing import Pairing
from stillweb.snapshots.index.parallel import LIMIT, Shapes, SwiftPairs, scan_file
from stillweb.snapshots.request import Request
from stillweb.snapshots.warc import warc
from stillweb.snapshots.warc.scan import scan
from stillweb.snapshots.writer import Writer

MOMENT = datetime(2025, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
URLS = [
    "https://example.test/",
    "https://example.test/a?b=2&a=1",
    "https://www.Example.test/%7Eme/../x",
    'https://example.test/"quoted"',
    "https://example.test/back\\slash",
    "https://example.test/spaced out",
    "https://example.test/ümlaut",
    "http://10.0.0.1:8080/?q=abcdefghij",
    "https://example.co.uk/page.html",
]
ASKED = [
    ("User-Agent", "x"),
    ("Cookie", "theme=dark; sid=0123456789abcdef"),
    ("X-HTTP-Method-Override", "PUT"),
    ("Accept-Language", "de"),
    ("X-Requested-With", "XMLHttpRequest"),
    ("Authorization", "Bearer abc"),
]
TOLD = [
    ("Content-Type", "text/html; charset=utf-8"),
    ("Content-Type", "image/png"),
    ("Content-Type", 'odd/"type'),
    ("Vary", "Accept-Encoding, Accept-Language"),
    ("Vary", "Cookie"),
    ("Location", "/x"),
    ("ETag", "ü"),
    ("set-Cookie", "theme=dark"),
]
exchanges = st.builds(
    Exchange,
    request=st.builds(
        Request,
        st.sampled_from(["GET", "GET", "GET", "HEAD", "POST"]),
        st.sampled_from(URLS),
        st.lists(st.sampled_from(ASKED), max_size=3).map(tuple),
        st.sampled_from([b"", b"", b"", b"sent", b"\r\n\r\n"]),
    ),
    status=st.sampled_from([200, 200, 200, 302, 304, 404]),
    reason=st.sampled_from(["OK", ""]),
    headers=st.lists(st.sampled_from(TOLD), max_size=3).map(tuple),
    body=st.sampled_from([b"", b"<p>one</p>", b"<p>two</p>", b"long " * 99_999, b"\r\n\r\n"]),
    started=st.integers(0, 3).map(lambda n: MOMENT + timedelta(seconds=n)),
    session=st.sampled_from(["default", "default", 'a "name"', "a name"]),
    begin=st.just(1),
    end=st.just(2),
    protocol=st.sampled_from(["http/1.1", "h2"]),
    ip=st.sampled_from(["", "127.0.0.1", "::1"]),
    extra=st.sampled_from([{}, {}, {"WARC-Truncated": "length"}]),
)


def built(path: Path) -> tuple[list[bytes], list[str]]:
    place = FileSource(path)
    found = assemble([scan_file(place, "x", lambda _: None, 1)])
    return found.lines, found.notes


def without(monkeypatch: pytest.MonkeyPatch, path: Path) -> tuple[list[bytes], list[str]]:
    with monkeypatch.context() as patched:
        patched.setattr(SwiftPairs, "take", lambda *_: False)
        return built(path)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(exchanges, min_size=1, max_size=8))
def test_the_lines_are_those_of_the_long_way(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, recorded: list[Exchange]
) -> None:
    root = tmp_path_factory.mktemp("swift") / "s"
    with Writer.open(root) as writer:
        for exchange in recorded:
            writer.exchange(exchange)
    path = root / "archive" / "data-00000.warc.gz"
    lines, notes = built(path)
    assert (lines, notes) == without(monkeypatch, path)
    assert len(lines) == len(recorded)


def simple(number: int = 0, body: bytes = b"<p>page</p>") -> Exchange:
    request = Request("GET", f"https://example.test/{number}", (("User-Agent", "x"),))
    headers = (("Content-Type", "text/html"),)
    return Exchange(request, 200, "OK", headers, body, MOMENT, "default", 2 * number + 1, 2 * number + 2)


def pair(tmp_path: Path, exchange: Exchange) -> list[bytes]:
    """The two unpacked records of an exchange."""
    with Writer.open(tmp_path / "s") as writer:
        writer.exchange(exchange)
    data = (tmp_path / "s" / "archive" / "data-00000.warc.gz").read_bytes()
    place = MemorySource(data)
    found = list(scan(place))
    return [warc.unpack(data[i.offset : i.offset + i.length], place, i.offset) for i in found[1:]]


def test_a_plain_pair_is_taken_and_a_revisit_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bool] = []
    take = SwiftPairs.take

    def seen(*values: object) -> bool:
        found.append(take(*values))  # type: ignore[arg-type]
        return found[-1]

    with Writer.open(tmp_path / "s") as writer:
        for number in range(4):
            writer.exchange(simple(number, b"<p>%d</p>" % (number // 2)))
    monkeypatch.setattr(parallel.SwiftPairs, "take", seen)
    lines, _ = built(tmp_path / "s" / "archive" / "data-00000.warc.gz")
    assert found == [False, *[True] * 4]  # the first record is about the file
    assert sum(b"warc/revisit" in line for line in lines) == 2


def changed(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        assert old in data
        return data.replace(old, new)

    return change


def longer(data: bytes) -> bytes:
    return re.sub(
        rb"Content-Length: ([0-9]+)\r\n\r\n",
        lambda m: b"Content-Length: %d\r\n\r\n" % (int(m[1]) + 1),
        data,
        count=1,
    )


@pytest.mark.parametrize(
    ("which", "change"),
    [
        (1, changed(b"Events: 1-2", b"Events: 01-2")),
        (0, changed(b"User-Agent: x", b" folded: x")),
        (0, changed(b"User-Agent: x\r\n", b"User-Agent: x\n")),
        (0, changed(b"HTTP/1.1\r\n", b"HTTP/1.1 \r\n")),
        (0, changed(b"GET /0", b"POST /0")),
        (0, changed(b"WARC-Target-URI: https", b"WARC-Concurrent-To: <x>\r\nWARC-Target-URI: https")),
        (0, changed(b"test/0\r\n", b"test/0#part\r\n")),
        (0, longer),
        (0, lambda data: data + b"\r\n"),
        (1, changed(b"WARC-Target-URI: https", b"WARC-Target-URI: http")),
        (1, changed(b"Concurrent-To: <urn:uuid:", b"Concurrent-To: <urn:uuid:0")),
        (1, changed(b"Type: response\r\n", b"Type: revisit\r\n")),
        (1, changed(b"Type: response\r\n", b"Type: resource\r\n")),
        (1, changed(b"Events: 1-2", b"Events: 1-2\r\nWARC-Truncated: length")),
        (1, changed(b"HTTP/1.1 200 OK", b"HTTP/1.1 no number")),
        (1, changed(b"HTTP/1.1 200 OK", b"Content: x")),
        (1, lambda data: data.replace(b"\r\n\r\n<p>page</p>", b"<p>page</p>1234")),
        (1, longer),
        (1, lambda data: data[:-2] + b"x\n"),
    ],
)  # fmt: skip
def test_what_is_not_plainly_such_a_pair_goes_the_long_way(
    tmp_path: Path, which: int, change: Callable[[bytes], bytes]
) -> None:
    records = pair(tmp_path, simple())
    assert taken(records)
    records[which] = change(records[which])
    assert not taken(records)


def test_a_revisit_that_says_that_nothing_changed_goes_the_long_way(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        writer.exchange(simple(0))
        writer.exchange(simple(1))
    data = (tmp_path / "s" / "archive" / "data-00000.warc.gz").read_bytes()
    place = MemorySource(data)
    records = [warc.unpack(data[i.offset :], place, i.offset) for i in list(scan(place))[3:]]
    assert b"WARC-Type: revisit" in records[1]
    assert taken(records)
    records[1] = changed(b"HTTP/1.1 200 ", b"HTTP/1.1 304 ")(records[1])
    assert not taken(records)


def taken(records: list[bytes], pairing: Pairing | None = None) -> bool:
    one, two = ((data, 100, len(data)) for data in records)
    return SwiftPairs(ScanResult("x")).take(pairing or Pairing(), 0, one, two)


def test_a_pair_whose_ids_are_known_already_goes_the_long_way(tmp_path: Path) -> None:
    records = pair(tmp_path, simple())
    asked_id, told_id = (re.search(rb"WARC-Record-ID: (\S+)", data)[1].decode() for data in records)  # type: ignore[index]
    for known, record_id in (
        ("questions", asked_id),
        ("waiting", asked_id),
        ("alone", told_id),
        ("_asked", told_id),
    ):
        pairing = Pairing()
        getattr(pairing, known)[record_id] = None
        assert not taken(records, pairing)


BOTH = ("warc-record-id", "warc-target-uri", "warc-concurrent-to", "content-length")
ANSWERS = (
    *BOTH,
    "warc-date",
    "warc-payload-digest",
    "warc-protocol",
    "warc-stillweb-session",
    "warc-stillweb-events",
    "warc-refers-to-target-uri",
    "warc-refers-to-date",
)
PLAIN = [
    ("WARC-Type", "response"),
    ("WARC-Record-ID", "<urn:uuid:1>"),
    ("WARC-Date", "2025-01-02T03:04:05Z"),
    ("WARC-Target-URI", "https://example.test/"),
    ("Content-Type", "application/http; msgtype=response"),
    ("Content-Length", "4"),
]
fields = st.lists(
    st.one_of(
        st.sampled_from(PLAIN),
        st.tuples(
            st.sampled_from([name for name, _ in PLAIN] + ["WARC-Truncated", "warc-protocol", "WARC-Concurrent-To", "X"]),
            st.sampled_from(["request", "revisit", "response", "<urn:uuid:2>", "7", "2025-01-02T03:04:05.6Z", "http://a/", "a b",
                             "", " x", "x ", "ü", "h2", "http://a/#b", "x\r\n y"]),
        ),
    ),
    max_size=4,
)  # fmt: skip


def record(given_fields: list[tuple[str, str]], end: str = "\r\n") -> bytes:
    return ("WARC/1.1\r\n" + "".join(f"{n}: {v}{end}" for n, v in given_fields) + "\r\nbody\r\n\r\n").encode()


@given(
    st.lists(st.permutations(PLAIN), min_size=1, max_size=3), fields, st.sampled_from(["\r\n", "\r\n", "\n"])
)
def test_what_is_read_is_what_the_long_way_reads(
    orders: list[list[tuple[str, str]]], more: list[tuple[str, str]], end: str
) -> None:
    shapes = Shapes()
    for order in orders:
        for data in (record(order), record([*order, *more], end), record([*more, *order], end)):
            found = shapes.read(data)
            if found is None:
                continue
            head = warc.parse_head(data)
            assert head is not None
            told, block = head
            kind, at, values = found
            assert (kind.decode(), at) == (told["warc-type"], block)
            names = BOTH if kind == b"request" else ANSWERS
            assert values == tuple(told.get(name, "").encode() for name in names)
            assert not {"warc-truncated", "warc-refers-to"} & told.keys()


def test_plain_heads_are_read_in_any_order_of_fields() -> None:
    shapes = Shapes()
    for fields_ in (PLAIN, PLAIN[::-1], [*PLAIN, ("WARC-Protocol", "h2")], PLAIN):
        assert shapes.read(record(fields_)) is not None


def test_no_more_shapes_are_learned_than_there_is_room_for() -> None:
    shapes = Shapes()
    for number in range(LIMIT + 1):
        found = shapes.read(record([*PLAIN, *[("X", "x")] * number]))
        assert (found is None) == (number == LIMIT)
    assert shapes.read(record(PLAIN)) is not None
