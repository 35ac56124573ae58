"""Quick scan of archive files: in parallel, and with a short cut for a plain GET beside its answer.

Large files are split into parts at record boundaries. The result is the same, to the byte, as that of a single process.

The heads of most pairs of records are read by their shape: the ordered names of their fields, alike in most records of a
file. A shape is learned from the first record that has it and becomes one regular expression. The index line is made from
the bytes of both records, without objects for fields, request, answer and pairing. All other records are left to
`stillweb.snapshots.index.indexing`. Tests compare the two.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Protocol

from stillweb.snapshots import notes
from stillweb.snapshots._os.processes import can_fork
from stillweb.snapshots._os.random_access import ByteSource, FileSource, hash_place
from stillweb.snapshots.dates import UNDATED, timestamp_of
from stillweb.snapshots.identity.header_fields import has_client_fields
from stillweb.snapshots.identity.keys import Key, is_plain, url_key
from stillweb.snapshots.index.cdxj import encode_json, json_text
from stillweb.snapshots.index.gathering import PendingRevisit, ScanResult, add_scan
from stillweb.snapshots.index.indexing import find, media_of
from stillweb.snapshots.index.pairing import Pairing, RequestRecord, ResponseRecord, UnpairedRecords, settle
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.warc import messages
from stillweb.snapshots.warc.members import Unpacked
from stillweb.snapshots.warc.scan import PIECE, NotSeekable, boundary_after
from stillweb.snapshots.warc.warc import clean_uri, end_of_head, is_regular
from stillweb.snapshots.words import pluralize

LIMIT = 64  # shapes that are learned
TRIED = 6  # shapes, the latest ones, that are tried before a head's field names are looked up

# Values of the fields in use that are read by shape. They are the same in JSON, without escapes, and have no white space.
_TEXT = rb"[!#-\[\]-~]+"
_NUMBER = rb"(?:0|[1-9][0-9]{0,17})"
_DATE = (
    rb"(?!0000)[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    rb"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?Z"
)
_OF_BOTH = {
    b"warc-record-id": rb"<[!-~]+>",
    b"warc-target-uri": rb"https?://[!$-\[\]-~]+",  # without a fragment
    b"warc-concurrent-to": rb"<[!-~]+>",
    b"content-length": rb"[0-9]{1,9}",
}
_OF_ANSWERS = _OF_BOTH | {
    b"warc-date": _DATE,
    b"warc-payload-digest": _TEXT,
    b"warc-protocol": rb"[A-Za-z0-9/.]+",
    b"warc-stillweb-session": _TEXT,
    b"warc-stillweb-events": _NUMBER + b"-" + _NUMBER,
    b"warc-refers-to-target-uri": rb"[!-~]+",
    b"warc-refers-to-date": _DATE,
}
_OTHER = rb".*"
_KINDS = {b"request": _OF_BOTH, b"response": _OF_ANSWERS, b"revisit": _OF_ANSWERS}
_NEEDED = (b"warc-record-id", b"warc-date", b"warc-target-uri", b"content-length")
_ODD = (b"warc-truncated", b"warc-refers-to", b"warc-segment-number")  # left to the slow reader
_FIELD = re.compile(rb"([A-Za-z0-9-]+): ([^\r\n]+)\r\n")

# Record kind, offset of the block, and the values of the fields in `_KINDS` in that order, b"" for missing fields.
Head = tuple[bytes, int, tuple[bytes, ...]]

REMEMBERED = 1 << 13  # entries in each cache: URLs, heads of requests and media types come again

_REQUEST_LINE = re.compile(rb"GET /[!-~]* HTTP/1\.[01](?=\r\n)")
_UNDATED = UNDATED.encode()
_MARKS = b"-T:.Z"  # bytes of a WARC-Date that a timestamp lacks

Address = tuple[bytes, bytes]  # of a URL: urlkey; canonical and exact key as JSON members


class _Shape:
    """A regular expression for the heads of a kind of record with these field names."""

    def __init__(self, kind: bytes, names: tuple[bytes, ...]) -> None:
        self.kind = kind
        values = _KINDS[kind]
        lines = [rb"WARC/1\.[01]"]
        order: list[bytes] = []
        for name in names:
            low = name.lower()
            text = kind if low == b"warc-type" else _OTHER
            if low in values:
                order.append(low)
                text = b"(" + values[low] + b")"
            lines.append(name + b": " + text)
        self.match: Callable[[bytes], re.Match[bytes] | None]
        # the last group, always empty, is the value of missing fields
        self.match = re.compile(b"\r\n".join(lines) + b"\r\n\r\n()").match
        # the first of repeated fields counts
        self.numbers = [order.index(low) + 1 if low in order else len(order) + 1 for low in values]


class Shapes:
    """Shapes of the heads read so far."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], _Shape | None] = {}
        self._latest: list[_Shape] = []

    def read(self, data: bytes) -> Head | None:
        """Return the head of a request, response or revisit; None if it has no learnable shape."""
        for shape in self._latest:
            if (found := shape.match(data)) is not None:
                return shape.kind, found.end(), found.group(*shape.numbers)
        learned = self._learn(data)
        if learned is None or (found := learned.match(data)) is None:
            return None
        if learned not in self._latest:
            self._latest = [*self._latest[1 - TRIED :], learned]
        return learned.kind, found.end(), found.group(*learned.numbers)

    def _learn(self, data: bytes) -> _Shape | None:
        """Return the shape of a record's head; None if the slow reader must read it."""
        end = end_of_head(data)
        if end is None:
            return None
        fields = _FIELD.findall(data, len(b"WARC/1.1\r\n"), end[0] + 2)
        names = tuple(name for name, _ in fields)
        kind = next((value for name, value in fields if name.lower() == b"warc-type"), b"")
        if (kind, *names) not in self._known:
            if len(self._known) >= LIMIT:
                return None
            low = [name.lower() for name in names]
            plain = kind in _KINDS and all(n in low for n in _NEEDED) and not any(n in low for n in _ODD)
            self._known[(kind, *names)] = _Shape(kind, names) if plain else None
        return self._known[(kind, *names)]


class SwiftPairs:
    """Fast reader that adds pairs of records to a part."""

    def __init__(self, part: ScanResult) -> None:
        self.part = part
        self._shapes = Shapes()
        self._file = json_text(part.name).encode(errors="surrogatepass")
        self._addresses: dict[bytes, Address] = {}
        self._heads: dict[bytes, Headers | None] = {}
        self._kinds: dict[str, bytes] = {}

    def take(self, pairing: Pairing, at: int, one: Unpacked, two: Unpacked) -> bool:
        """Return True if record `one` at offset `at` and `two` right after it are a pair, now added to the part."""
        first = self._shapes.read(one[0])
        second = self._shapes.read(two[0]) if first is not None else None
        if first is None or second is None or (first[0] == b"request") == (second[0] == b"request"):
            return False
        if first[0] == b"request":
            return self._take(pairing, first, at, one, second, at + one[1], two)
        return self._take(pairing, second, at + one[1], two, first, at, one)

    def _take(
        self,
        pairing: Pairing,
        asked: Head,
        asked_at: int,
        request_record: Unpacked,
        read_head: Head,
        told_at: int,
        answer_record: Unpacked,
    ) -> bool:
        data, asked_length, asked_unpacked = request_record
        answer, told_length, told_unpacked = answer_record
        _, block, (asked_id, asked_uri, asked_with, asked_size) = asked
        kind, start, values = read_head
        (told_id, uri, told_with, told_size, date, digest, protocol, session, events, of_uri, of_date) = (
            values
        )
        line = _REQUEST_LINE.match(data, block)
        stop = start + int(told_size)
        if told_with:
            named = told_with == asked_id and asked_with in (b"", told_id)
        else:
            named = asked_with == told_id
        if (
            line is None
            or not named
            or uri != asked_uri
            or not digest
            or len(data) != asked_unpacked
            or block + int(asked_size) + 4 != asked_unpacked
            or not data.endswith(b"\r\n\r\n\r\n\r\n")
            or stop + 4 != told_unpacked
            or not answer.startswith(b"HTTP/1.", start)
            or (len(answer) == told_unpacked and not answer.endswith(b"\r\n\r\n"))
            or (kind == b"revisit" and not (session and of_uri and of_date))
        ):
            return False
        at = end_of_head(answer, start)
        headers = self._fields(data[line.end() : -4])
        record_id = told_id.decode()
        if at is None or at[1] > stop or headers is None or pairing.knows(asked_id.decode(), record_id):
            return False
        head = answer[start : at[1]]
        seen = messages.head_facts(head)
        if seen is None or seen[0] < 200 or (kind == b"revisit" and seen[0] == 304):
            return False
        status, media, names, cookies = seen
        urlkey, keys = self._addresses.get(uri) or self._address(uri)
        mime = self._kinds.get(media) or self._kind(media)
        events = events or b"0-0"
        protocol = protocol.lower() or b"http/1.1"
        timestamp = date.translate(None, _MARKS)
        if len(timestamp) not in (14, 17) or timestamp[6:8] > b"28":
            timestamp = timestamp_of(date.decode()).encode()
            if timestamp == _UNDATED:  # no such day, as 30 February: the slow reader writes a note
                return False
        identity = hashlib.sha256(
            b"7:capture,%d:%b,%d:%b,%d:%b,%d:%b,%d:%b,%d:%b,%d:%b,%d:%b,"
            % (
                len(uri), uri, len(date), date, len(digest), digest, len(head), head, len(data) - 4 - block,
                data[block:-4], len(session), session, len(events), events, len(protocol), protocol,
            )
        ).hexdigest()  # as `pairing.join`  # fmt: skip
        after = b"" if protocol == b"http/1.1" else b',"protocol":"%b"' % protocol
        if names:
            vary = encode_json(messages.vary_values(names, headers))
            after += b',"vary":' + vary.encode(errors="surrogatepass")
        if cookies or has_client_fields(headers):
            after += b',"personal":true'
        begin, _, end = events.partition(b"-")
        made = (
            b'%b %b {"url":"%b","mime":%b,"status":"%d","digest":"%b","length":"%d","offset":"%d","filename":%b'
            b',"method":"GET"' % (
                urlkey, timestamp, uri, mime if kind == b"response" else b'"warc/revisit"', status, digest, told_length,
                told_at, self._file,
            )
        )  # fmt: skip
        rest = b',"req":[%d,%d]%b,"session":"%b","events":[%b,%b]%b,"id":"%b"}' % (
            asked_at, asked_length, keys, session, begin, end, after, identity.encode(),
        )  # fmt: skip
        part = self.part
        if kind == b"response":
            made += rest
            part.original(made, told_at, record_id)
            part.listed.append(made)
            return True
        made += b',"type":%b,"orig":' % mime
        moment = f"{timestamp_of(of_date.decode())} {clean_uri(of_uri.decode()).partition('#')[0]}"
        part.waiting.append(PendingRevisit(told_at, digest.decode(), uri.decode(), moment, made, rest))
        return True

    def _fields(self, lines: bytes) -> Headers | None:
        """Return the header fields of a GET without body; None if it isn't plain."""
        if lines in self._heads:
            return self._heads[lines]
        if len(self._heads) >= REMEMBERED:
            self._heads.clear()
        block = b"GET / HTTP/1.1" + lines
        _, headers, at = messages.split(block)
        found = None
        whole = at == len(block) and is_regular(block) and is_plain(Request("GET", "", headers))
        if whole:
            found = headers
        self._heads[lines] = found
        return found

    def _address(self, uri: bytes) -> Address:
        if len(self._addresses) >= REMEMBERED:
            self._addresses.clear()
        url = uri.decode()
        key = url_key(url)
        keys = b',"key":"%b","exact":"%b"' % (key.canonical.encode(), key.exact.encode())
        urlkey = key.urlkey.encode(errors="surrogatepass")
        found = self._addresses[uri] = urlkey, keys
        return found

    def _kind(self, media: str) -> bytes:
        """Return the media type as JSON."""
        if len(self._kinds) >= REMEMBERED:
            self._kinds.clear()
        found = self._kinds[media] = json_text(media_of(media)).encode(errors="surrogatepass")
        return found


LARGE = 1 << 24  # bytes from which spawned processes are worth their start
FORKED = 1 << 23  # the same for forks, which copy the pages that they touch
EACH = 4  # parts for each worker, so that all workers end at about the same time

_NAMES = [f.name for f in fields(ResponseRecord)]
_ANSWER = attrgetter(*_NAMES)
_QUESTION = attrgetter(*[f.name for f in fields(RequestRecord) if f.name not in ("request", "key")])


class SpillSink(Protocol):
    """Store for the largest lists of a part, outside of memory."""

    def take(self, part: ScanResult) -> None:
        """Move captures and revisits out of a part just scanned; leave its record ids, which `pair_across_parts` needs."""

    def forget(self, name: str) -> None:
        """Drop all that was taken of the file `name`: it will be scanned again, or not at all."""


def scan_files(
    archives: Mapping[str, ByteSource],
    advance: Callable[[int], None],
    workers: int | None = None,
    hashes: dict[str, tuple[int, str]] | None = None,
    spill: SpillSink | None = None,
) -> Iterator[tuple[str, list[ScanResult] | None]]:
    """Scan the archives; yield name and parts, with None for parts of a file that is `scan.NotSeekable`.

    Captures that `spill` takes are no longer in the parts. If there are workers, `hashes` is filled with the size and
    digest of each local file.
    """
    workers = workers or os.cpu_count() or 1
    total = sum(place.size for place in archives.values())
    least = FORKED if can_fork() else LARGE
    if total < least or workers < 2:
        for name in sorted(archives):
            yield name, _alone(archives[name], name, advance, spill)
        return
    from stillweb.snapshots._os.processes import run_all  # 15 ms that a small snapshot does not need

    size = least // 4  # bytes of a part
    if spill is None:
        size = max(size, total // (EACH * workers))
    parts = {name: _parts(archives[name], name, size) for name in sorted(archives)}
    jobs: list[bytes] = []
    for of_file in parts.values():
        if of_file and hashes is not None:
            jobs.append(marshal.dumps(of_file[0].job[:4]))
        jobs += [marshal.dumps(part.job) for part in of_file]
    with closing(run_all(work, jobs, workers)) as results:
        for name, of_file in parts.items():
            if of_file and hashes is not None and (value := next(results)) is not None:
                hashes[name] = archives[name].size, marshal.loads(value)
            # `_finish` consumes the results of all pieces of the file, whatever they are
            yield name, _finish(of_file, results, archives[name], name, advance, spill)


def scan_file(
    place: ByteSource,
    name: str,
    advance: Callable[[int], None],
    workers: int | None = None,
    spill: SpillSink | None = None,
) -> list[ScanResult]:
    """Scan one archive; return its parts. Raises `scan.NotSeekable`."""
    (_, found), *_ = scan_files({name: place}, advance, workers, spill=spill)
    if found is None:
        raise NotSeekable(name)
    return found


def _alone(
    place: ByteSource, name: str, advance: Callable[[int], None], spill: SpillSink | None
) -> list[ScanResult] | None:
    if spill is not None:
        spill.forget(name)
    try:
        part = _gather(place, name, progress=advance)
    except NotSeekable:
        return None
    if spill is not None:
        spill.take(part)
    return pair_across_parts([part], spill)


def _gather(
    place: ByteSource,
    name: str,
    start: int = 0,
    end: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> ScanResult:
    part = ScanResult(name)
    found = find(place, name, start, end, progress=progress, swift=SwiftPairs(part).take)
    return add_scan(found, part)


@dataclass(slots=True)
class _Piece:
    """A range of a file for one worker: its end, and the job as `work` takes it."""

    end: int
    job: list[Any]


def _parts(place: ByteSource, name: str, size: int) -> list[_Piece]:
    """Split a file into pieces for workers; return none for a place that they can't open."""
    if not isinstance(place, FileSource):
        return []
    starts = [0]
    count = -(-place.size // size)
    for number in range(1, count):
        at = boundary_after(place, max(starts[-1] + PIECE, place.size * number // count))
        if at is not None:
            starts.append(at)
    ends = [*starts[1:], place.size]
    return [
        _Piece(end, [str(place.path), place.base, place.size, name, start, end])
        for start, end in zip(starts, ends, strict=True)
    ]


def _finish(
    pieces: list[_Piece],
    results: Iterator[bytes | None],
    place: ByteSource,
    name: str,
    advance: Callable[[int], None],
    spill: SpillSink | None,
) -> list[ScanResult] | None:
    found: list[ScanResult] = []
    failed, seekable, before = False, True, 0
    for piece in pieces:
        result = next(results)  # consumed after a failure, too: the next file's results follow
        failed = failed or result is None
        if failed or not seekable:
            continue
        assert result is not None
        value = marshal.loads(result)
        if value is None:
            seekable = False
            continue
        part = from_plain(value)
        if spill is not None:
            spill.take(part)
        found.append(part)
        advance(piece.end - before)
        before = piece.end
    if failed or not pieces:
        return _alone(place, name, advance, spill)  # raises the worker's error here, if it comes again
    if not seekable:
        if spill is not None:
            spill.forget(name)
        return None
    if any(part.reached > piece.end for part, piece in zip(found, pieces, strict=True)):
        # a boundary lay within a record (an archive in an archive): only a scan from the start is sure
        return _alone(place, name, lambda _: None, spill)
    return pair_across_parts(found, spill)


def pair_across_parts(parts: list[ScanResult], spill: SpillSink | None = None) -> list[ScanResult]:
    """Pair the records left alone in the parts of a file; return the parts and one more with these pairs."""
    late = ScanResult(parts[0].name)
    around = UnpairedRecords()
    for part in parts:
        around.merge(part.unpaired)
        around.ids.update(part.ids if any(one.unasked for one in parts) else ())
    answers = settle(((part.questions, part.unasked) for part in parts), around)
    paired = sum(answer.request_offset >= 0 for answer in answers)
    lacking = sum(len(part.questions) for part in parts) - paired
    if lacking and all(part.settings is None for part in parts):  # in ours, a killed recorder had begun it
        late.notes.append(
            f"{late.name}: left out: {pluralize(lacking, 'request')} whose answer it does not hold"
        )
    late.take(sorted(answers, key=attrgetter("offset")))
    for part in parts:
        part.questions, part.unasked = [], []
    if spill is not None:
        spill.take(late)
        for part in (*parts, late):
            part.ids = []
    return [*parts, late]


def to_plain(part: ScanResult) -> list[Any]:
    """Return a part as values that marshal takes, in half the time of pickle."""
    return [
        part.name,
        part.listed,
        part.lines,
        part.offsets,
        part.ids,
        [plain_answer(a) for a in part.revisits],
        [tuple(w) for w in part.waiting],
        part.others,
        [plain_answer(a) for a in part.unasked],
        [_plain_question(q) for q in part.questions],
        notes.to_plain(part.notes),
        part.profile.to_json() if part.profile else None,
        part.settings,
        part.reached,
        part.cut,
        (part.unpaired.asked, part.unpaired.ids, part.unpaired.unread),
    ]


def from_plain(value: list[Any]) -> ScanResult:
    """Return the part that `to_plain` was given."""
    (
        name, listed, lines, offsets, ids, revisits, waiting, others, alone, questions, value_read, profile, settings,
        reached, cut, around,
    ) = value  # fmt: skip
    return ScanResult(
        name,
        listed,
        lines,
        offsets,
        ids,
        [answer_of(a) for a in revisits],
        [PendingRevisit(*w) for w in waiting],
        others,
        [answer_of(a) for a in alone],
        [RequestRecord(Request(*q[0]), Key(*q[1]), *q[2:]) for q in questions],
        notes.from_plain(value_read),
        Profile.from_json(profile) if profile else None,
        settings,
        reached,
        cut,
        UnpairedRecords(*around),
    )


def plain_answer(answer: ResponseRecord) -> list[Any]:
    """Return an answer as values that marshal takes."""
    values = list(_ANSWER(answer))
    values[_NAMES.index("key")] = tuple(answer.key)
    return values


def _plain_question(question: RequestRecord) -> tuple[Any, ...]:
    request = question.request
    asked = request.method, request.url, request.headers, request.body
    return (asked, tuple(question.key), *_QUESTION(question))


def answer_of(values: list[Any]) -> ResponseRecord:
    """Return the answer that `plain_answer` was given."""
    made = ResponseRecord(*values)
    made.key = Key(*made.key)
    return made


def work(data: bytes) -> bytes:
    """Scan a piece of a file in a worker process, or hash the file if the job has no range.

    Job and result are marshalled; the result is None where the file is `NotSeekable`.
    """
    path, base, size, name, *part = marshal.loads(data)
    place = FileSource(path, base=base, size=size, name=name)
    try:
        value: Any = to_plain(_gather(place, name, *part)) if part else hash_place(place)
    except NotSeekable:
        value = None
    finally:
        place.close()
    return marshal.dumps(value)
