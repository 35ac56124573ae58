"""Fast indexing of the most common pair of records: a plain GET beside its answer.

The heads of records are read by their shape: the ordered names of their fields, alike in most records of a file. A
shape is learned from the first record that has it and becomes one regular expression. The index line is made from the
bytes of both records, without objects for fields, request, answer and pairing. All other records are left to
`stillweb.snapshots.index.indexing`. Tests compare the two.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from stillweb.snapshots.dates import UNDATED, timestamp_of
from stillweb.snapshots.identity.header_fields import has_client_fields
from stillweb.snapshots.identity.keys import is_plain, url_key
from stillweb.snapshots.index.cdxj import encode_json, json_text
from stillweb.snapshots.index.gathering import PendingRevisit, ScanResult
from stillweb.snapshots.index.indexing import media_of
from stillweb.snapshots.index.pairing import Pairing
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.warc import messages
from stillweb.snapshots.warc.members import Unpacked
from stillweb.snapshots.warc.warc import clean_uri, end_of_head, is_regular

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
