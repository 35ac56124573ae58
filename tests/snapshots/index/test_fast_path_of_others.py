"""Pairs as other programs write them are taken too, and give the same as all other records do."""

import gzip
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stillweb.snapshots._os.random_access import FileSource, MemorySource
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.index.build import assemble
from stillweb.snapshots.index.parallel import SwiftPairs, scan_file
from stillweb.snapshots.request import Request
from stillweb.snapshots.warc import warc
from stillweb.snapshots.warc.scan import scan
from stillweb.snapshots.writer import Writer

MOMENT = datetime(2025, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
FIELD = re.compile(rb"([A-Za-z-]+): ([^\r]*)\r\n")


@dataclass
class Record:
    fields: list[tuple[bytes, bytes]]
    block: bytes

    def value(self, name: bytes) -> bytes:
        return next(v for n, v in self.fields if n == name)

    def put(self, name: bytes, value: bytes) -> None:
        assert any(n == name for n, _ in self.fields)
        self.fields = [(n, value if n == name else v) for n, v in self.fields]

    def drop(self, name: bytes) -> None:
        self.fields = [(n, v) for n, v in self.fields if not n.startswith(name)]

    def add(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))

    def sub(self, old: bytes, new: bytes) -> None:
        self.block = self.block.replace(old, new, 1)

    def lower(self) -> None:
        self.fields = [(n.lower(), v) for n, v in self.fields]

    def measure(self, more: int = 0) -> None:
        """Say the length of the block, or another one."""
        self.put(b"Content-Length", b"%d" % (len(self.block) + more))


CONCURRENT, DATE, DIGEST, TYPE = b"WARC-Concurrent-To", b"WARC-Date", b"WARC-Payload-Digest", b"WARC-Type"
URI = b"WARC-Target-URI"
SECOND = b"2025-01-02T03:04:05"

# name -> what it does to a request (r) and its answer (a)
changes: dict[str, Callable[[Record, Record], object]] = {
    "named_by_the_request": lambda r, a: (a.drop(CONCURRENT), r.add(CONCURRENT, a.value(b"WARC-Record-ID"))),
    "naming_each_other": lambda r, a: r.add(CONCURRENT, a.value(b"WARC-Record-ID")),
    "naming_another": lambda r, a: r.add(CONCURRENT, b"<urn:uuid:another>"),
    "naming_none": lambda r, a: a.drop(CONCURRENT),
    "to_the_second": lambda r, a: a.put(DATE, SECOND + b"Z"),
    "to_the_microsecond": lambda r, a: a.put(DATE, SECOND + b".123456Z"),
    "to_the_tenth": lambda r, a: a.put(DATE, SECOND + b".1Z"),
    "in_another_zone": lambda r, a: a.put(DATE, SECOND + b"+01:00"),
    "in_lower_case": lambda r, a: (r.lower(), a.lower()),
    "said_twice": lambda r, a: (
        a.fields.insert(0, (b"warc-protocol", b"H2")),
        a.add(b"WARC-Protocol", b"tls/1.3"),
    ),
    "typed_twice": lambda r, a: a.add(b"warc-type", b"resource"),
    "without_length": lambda r, a: a.drop(b"Content-Length"),
    "by_sha1": lambda r, a: (a.drop(DIGEST), a.add(DIGEST, b"sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ")),
    "without_digest": lambda r, a: a.drop(DIGEST),
    "truncated": lambda r, a: a.add(b"WARC-Truncated", b"length"),
    "in_segments": lambda r, a: a.add(b"WARC-Segment-Number", b"1"),
    "with_a_folded_field": lambda r, a: a.add(b"WARC-Payload", b"x\r\n WARC-Truncated: length"),
    "with_odd_text": lambda r, a: (a.add(b"X-Crawler", "ü, \u00a0".encode()), r.add(b"X-Crawler", b"\xfc ")),
    "with_an_empty_field": lambda r, a: a.add(b"WARC-Truncated", b""),
    "bracketed": lambda r, a: [one.put(URI, b"<%b>" % one.value(URI)) for one in (r, a)],
    "of_another_address": lambda r, a: r.put(URI, b"https://example.test/another"),
    "of_another_type": lambda r, a: a.put(TYPE, b"Response"),
    "a_resource": lambda r, a: a.put(TYPE, b"resource"),
    "refers_to_a_record": lambda r, a: a.add(b"WARC-Refers-To", b"<urn:uuid:first>"),
    "of_old_http": lambda r, a: (
        r.sub(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n"),
        a.sub(b"HTTP/1.1 ", b"HTTP/1.0 "),
    ),
    "of_new_http": lambda r, a: a.sub(b"HTTP/1.1 ", b"HTTP/2 "),
    "without_a_head": lambda r, a: (a.sub(a.block.partition(b"\r\n\r\n")[0] + b"\r\n\r\n", b""), a.measure()),
    "with_the_whole_address": lambda r, a: (r.sub(b"GET /", b"GET https://example.test/"), r.measure()),
    "too_short": lambda r, a: a.measure(-1),
    "too_long": lambda r, a: r.measure(1),
}


def exchange(number: int, body: bytes = b"<p>page</p>", method: str = "GET") -> Exchange:
    request = Request(
        method, f"https://example.test/{number}?a=1", (("User-Agent", "x"), ("Cookie", "sid=1"))
    )
    moment = MOMENT + timedelta(seconds=number)
    headers = (("Content-Type", "text/html"), ("Vary", "Cookie"))
    return Exchange(request, 200, "OK", headers, body, moment, "default", 2 * number + 1, 2 * number + 2)


def recorded(root: Path, exchanges: list[Exchange]) -> list[tuple[Record, Record]]:
    """The requests and answers that our writer leaves, without what is ours in them."""
    with Writer.open(root) as writer:
        for one in exchanges:
            writer.exchange(one)
    place = FileSource(root / "archive" / "data-00000.warc.gz")
    records = []
    for item in list(scan(place))[1:]:
        data = warc.unpack(place.read(item.offset, item.length), place, item.offset)
        head, _, block = data.partition(b"\r\n\r\n")
        records.append(Record(FIELD.findall(head + b"\r\n", 10), block[:-4]))
        records[-1].drop(b"WARC-Stillweb-")
    place.close()
    return list(zip(records[::2], records[1::2], strict=True))


def archive(records: list[Record], version: bytes = b"1.1") -> MemorySource:
    """Records as gzip members of no special kind."""
    out = b""
    for record in records:
        lines = b"".join(b"%b: %b\r\n" % field for field in record.fields)
        out += gzip.compress(b"WARC/%b\r\n%b\r\n%b\r\n\r\n" % (version, lines, record.block), mtime=0)
    return MemorySource(out)


def built(place: MemorySource) -> tuple[list[bytes], list[str]]:
    found = assemble([scan_file(place, "x", lambda _: None, 1)])
    return found.lines, found.notes


def told_by_both(monkeypatch: pytest.MonkeyPatch, place: MemorySource) -> tuple[list[bytes], list[bool]]:
    """The index lines, the same by both ways, and of each two records that were looked at whether they were taken."""
    taken: list[bool] = []
    take = SwiftPairs.take

    def seen(*values: object) -> bool:
        taken.append(take(*values))  # type: ignore[arg-type]
        return taken[-1]

    with monkeypatch.context() as patched:
        patched.setattr(SwiftPairs, "take", lambda *_: False)
        expected = built(place)
    with monkeypatch.context() as patched:
        patched.setattr(SwiftPairs, "take", seen)
        found = built(place)
    assert found == expected
    return found[0], taken


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize("answer_first", [False, True])
@pytest.mark.parametrize(
    "names",
    [
        [],
        ["to_the_second"],
        ["to_the_microsecond"],
        ["to_the_tenth"],
        ["by_sha1"],
        ["in_lower_case"],
        ["said_twice"],
        ["of_old_http"],
        ["with_odd_text"],
        ["named_by_the_request"],
        ["naming_each_other"],
    ],
    ids=lambda names: "+".join(names) or "as_it_is",
)
def test_plain_pairs_are_taken_whoever_comes_first_and_names_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], answer_first: bool, version: bytes
) -> None:
    records = []
    for asked, told in recorded(tmp_path / "s", [exchange(n, b"<p>%d</p>" % n) for n in range(4)]):
        for name in names:
            changes[name](asked, told)
        records += [told, asked] if answer_first else [asked, told]
    lines, taken = told_by_both(monkeypatch, archive(records, version))
    assert len(lines) == 4
    assert taken == [True] * 4


@pytest.mark.parametrize(
    "name", ["naming_another", "naming_none", "in_another_zone", "without_length", "without_digest", "truncated",
             "in_segments", "with_a_folded_field", "with_an_empty_field", "bracketed",
             "of_another_address", "of_another_type", "a_resource", "refers_to_a_record", "of_new_http",
             "without_a_head", "with_the_whole_address", "too_short", "too_long"],
)  # fmt: skip
def test_what_is_not_plainly_a_pair_goes_the_long_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    ((asked, told),) = recorded(tmp_path / "s", [exchange(0)])
    changes[name](asked, told)
    _, taken = told_by_both(monkeypatch, archive([asked, told]))
    assert taken == [False]


def test_records_of_one_id_go_the_long_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (first, second) = recorded(tmp_path / "s", [exchange(0), exchange(1, b"<p>more</p>")])
    second[0].put(b"WARC-Record-ID", first[0].value(b"WARC-Record-ID"))
    second[1].put(b"WARC-Concurrent-To", first[0].value(b"WARC-Record-ID"))
    # the request is there already when the second pair comes
    _, taken = told_by_both(monkeypatch, archive([first[0], *second, first[1]]))
    assert True not in taken


numbers = st.integers(0, 3)
pairs = st.tuples(
    numbers, st.sampled_from(["GET", "GET", "GET", "HEAD", "POST"]), st.sampled_from([b"a", b"b", b""])
)
edits = st.lists(st.tuples(st.integers(0, 7), st.sampled_from(sorted(changes))), max_size=6)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(pairs, min_size=1, max_size=8),
    edits,
    st.randoms(use_true_random=False),
    st.sampled_from(["asked first", "answers first", "mixed"]),
)
def test_the_lines_are_those_of_the_long_way(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    asked: list[tuple[int, str, bytes]],
    made: list[tuple[int, str]],
    chance: object,
    order: str,
) -> None:
    root = tmp_path_factory.mktemp("others") / "s"
    found = recorded(root, [exchange(number, body, method) for number, method, body in asked])
    for at, name in made:
        try:
            changes[name](*found[at % len(found)])
        except (AssertionError, StopIteration):
            continue  # what it would change was taken away by one before
    records = [record for pair in found for record in (pair if order == "asked first" else pair[::-1])]
    if order == "mixed":
        chance.shuffle(records)  # type: ignore[attr-defined]
    told_by_both(monkeypatch, archive(records))
