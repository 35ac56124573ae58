"""Pairing of request and response records by the record ids that they name, and the identity of a pair."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from stillweb.snapshots.dates import parse_timestamp
from stillweb.snapshots.identity.header_fields import has_client_fields
from stillweb.snapshots.identity.keys import Key, request_key
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.warc import warc

SOON = timedelta(seconds=2)  # pywb gives a revisit a new date when it writes it
BESIDE = 8  # bytes of line breaks between two neighbouring records, at most

_NO_KEY = Key("", "", "")


@dataclass(slots=True)
class ResponseRecord:
    """A response, revisit or http resource on its way to a capture."""

    url: str
    date: str
    status: int
    mime: str
    digest: str
    filename: str
    offset: int
    length: int
    session: str
    begin: int
    end: int
    protocol: str
    vary: tuple[str, ...]
    head: bytes  # HTTP head as stored, part of the identity
    record_id: str
    concurrent: str
    revisit: tuple[str, str, str] | None  # record id, URI and date that it refers to
    truncated: str = ""
    personal: bool = False  # set from its own head, then from its request, too
    fault: str = ""  # why it can't be served to any request
    # set from its request, by `join`
    key: Key = _NO_KEY
    identity: str = ""
    request_offset: int = -1
    request_length: int = 0
    method: str = "GET"
    headers: Headers = ()  # of the request
    lost: bool = False  # True if its request can't be read, so that it must not answer a plain GET

    @property
    def lacks_request(self) -> bool:
        """True if its request is missing: as the answer to a GET it might be that to a POST.

        Answers in our own recordings always have a request record.
        """
        return self.lost or (bool(self.session) and self.request_offset < 0)


@dataclass(slots=True)
class RequestRecord:
    """A request record on its way to its answer."""

    request: Request
    key: Key
    block: bytes
    record_id: str
    concurrent: str
    uri: str
    date: str
    offset: int
    length: int


def identity_of(*parts: str | bytes) -> str:
    """Return the identity of a record: SHA-256 over its parts, each preceded by its length."""
    data = [p if isinstance(p, bytes) else p.encode(errors="surrogatepass") for p in parts]
    return hashlib.sha256(b"".join(b"%d:%b," % (len(p), p) for p in data)).hexdigest()


def join(answer: ResponseRecord, question: RequestRecord | None) -> ResponseRecord:
    """Set the answer's key and identity from its request, or a plain GET if `question` is None; return it."""
    if question is None:
        answer.key, block = request_key(Request("GET", answer.url)), b""
    else:
        request, answer.key, block = question.request, question.key, question.block
        answer.personal |= has_client_fields(request.headers)
        answer.method, answer.headers = request.method, request.headers if answer.vary else ()
        answer.request_offset, answer.request_length = question.offset, question.length
    answer.identity = identity_of(
        "capture",
        answer.url,
        answer.date,
        answer.digest,
        answer.head,
        block,
        answer.session,
        f"{answer.begin}-{answer.end}",
        answer.protocol,
    )
    answer.head = answer.head[:1]  # saves memory: from here on only its presence matters
    return answer


class Pairing:
    """Requests and responses, paired by the record ids that they name, in any order of arrival."""

    def __init__(self) -> None:
        self.pairs: list[ResponseRecord] = []
        # by record id, with the offset where several records have the same id, so that none is overwritten
        self.questions: dict[str, RequestRecord] = {}  # requests without an answer so far
        self.alone: dict[str, ResponseRecord] = {}  # answers without a request so far
        self._asked: dict[str, RequestRecord] = {}  # by the id of the response that a request names
        self.waiting: dict[str, ResponseRecord] = {}  # by the id of the request that a response names

    def knows(self, asked: str, told: str) -> bool:
        """Return True if request id `asked` or answer id `told` is of an unpaired record or named by one."""
        return asked in self.questions or asked in self.waiting or told in self.alone or told in self._asked

    def ask(self, question: RequestRecord) -> None:
        """Add a request; pair it if its answer is known."""
        answer = self.waiting.pop(question.record_id, None) or self.alone.get(question.concurrent)
        if answer is not None:
            _leave(self.alone, answer)
            self.pairs.append(join(answer, question))
            return
        _enter(self.questions, question)
        if question.concurrent:
            self._asked[question.concurrent] = question

    def answer(self, answer: ResponseRecord) -> None:
        """Add a response; pair it if its request is known."""
        question = self.questions.get(answer.concurrent) or self._asked.get(answer.record_id)
        if question is not None:
            _leave(self.questions, question)
            self._asked.pop(question.concurrent, None)
            self.pairs.append(join(answer, question))
            return
        _enter(self.alone, answer)
        if answer.concurrent:
            self.waiting[answer.concurrent] = answer


Record = TypeVar("Record", ResponseRecord, RequestRecord)


def _enter(known: dict[str, Record], record: Record) -> None:
    name = record.record_id
    known[f"{name} at {record.offset}" if name in known else name] = record


def _leave(known: dict[str, Record], record: Record) -> None:
    for name in (record.record_id, f"{record.record_id} at {record.offset}"):
        if known.get(name) is record:
            del known[name]


@dataclass(slots=True)
class UnpairedRecords:
    """Facts about a file, or a part of it, that show whether an answer without a request has lost it."""

    asked: bool = False  # True if there are requests
    ids: set[str] = field(default_factory=set)  # record ids that an answer may name and that are no requests
    # start and end of unreadable ranges
    unread: list[tuple[int, int]] = field(default_factory=list)

    def merge(self, other: UnpairedRecords) -> None:
        """Add the surroundings in another part of the file."""
        self.asked = self.asked or other.asked
        self.ids |= other.ids
        self.unread += other.unread

    def tell_lost(self, answers: Iterable[ResponseRecord]) -> None:
        """Set `lost` on answers that name a missing record or lie next to an unreadable range."""
        if not self.asked:
            return
        begins, ends = {start for start, _ in self.unread}, {end for _, end in self.unread}
        for answer in answers:
            if answer.revisit is None and not warc.has_head("", answer.head):
                continue
            before, after = answer.offset, answer.offset + answer.length
            answer.lost |= bool(answer.concurrent and answer.concurrent not in self.ids) or any(
                before - gap in ends or after + gap in begins for gap in range(BESIDE + 1)
            )


def settle(
    parts: Iterable[tuple[Iterable[RequestRecord], Iterable[ResponseRecord]]],
    around: UnpairedRecords | None = None,
) -> list[ResponseRecord]:
    """Pair the leftover records in the parts of one file; give each answer that stays alone a plain GET.

    Records are paired by record id first. Then an answer gets a request for its URI that lies right beside it or has
    the same date. A request that names a missing record (pywb's recorder names the response that a revisit replaced)
    must also be within `SOON` of the answer; where it isn't beside it, it must be the only request of that URI and
    date. An answer is `lost` where `around` shows that it had another request.
    """
    pairing = Pairing()
    for questions, answers in parts:
        for question in questions:
            pairing.ask(question)
        for answer in answers:
            pairing.answer(answer)
    by_uri: dict[str, list[RequestRecord]] = {}
    for question in pairing.questions.values():
        by_uri.setdefault(question.uri, []).append(question)
    alone: list[ResponseRecord] = []
    unnamed = [answer for answer in pairing.alone.values() if not answer.concurrent]
    twins = Counter((answer.url, answer.date) for answer in unnamed)
    for answer in pairing.alone.values():
        rivals = [] if answer.concurrent else by_uri.get(answer.url, [])
        own = _nearest(answer, rivals, twins[answer.url, answer.date] > 1)
        if own is not None:
            rivals.remove(own)
            _leave(pairing.questions, own)
            pairing.pairs.append(join(answer, own))
        else:
            alone.append(answer)
            # several requests of that date: its own can't be told from the others
            answer.lost = any(q.date == answer.date for q in rivals)
    if around is not None:
        around.unread += [(q.offset, q.offset + q.length) for q in pairing.questions.values()]
        around.tell_lost(alone)
    return [*pairing.pairs, *(join(answer, None) for answer in alone)]


def _nearest(answer: ResponseRecord, rivals: list[RequestRecord], twin: bool) -> RequestRecord | None:
    """Return the one of `rivals`, requests for the answer's URI, that must be its own; None if there is none.

    `twin` is True if other answers have the same URI and date.
    """
    at_once = [q for q in rivals if q.date == answer.date]
    near = [q for q in rivals if _beside(q, answer) and (not q.concurrent or _soon(q.date, answer.date))]
    near = near or [q for q in at_once if not q.concurrent]
    if not near and not twin and len(at_once) == 1:
        near = at_once
    return near[0] if near else None


def _soon(one: str, other: str) -> bool:
    """Return True if two dates are at most `SOON` apart."""
    first, second = parse_timestamp(one), parse_timestamp(other)
    return first is not None and second is not None and abs(first - second) <= SOON


def _beside(question: RequestRecord, answer: ResponseRecord) -> bool:
    """Return True if at most `BESIDE` bytes lie between two records."""
    after = answer.offset - question.offset - question.length
    before = question.offset - answer.offset - answer.length
    return 0 <= after <= BESIDE or 0 <= before <= BESIDE
