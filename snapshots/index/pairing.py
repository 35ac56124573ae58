"""Requests and responses brought together, whoever named whom, and what a pair is then known by."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from stillweb.snapshots.dates import parse_timestamp
from stillweb.snapshots.identity.keys import Key, request_key
from stillweb.snapshots.request import Headers, Request

# method, URL, headers and body of a request, and whether its answer surely sets no cookie
Asked = tuple[str, str, Headers, bytes, bool]

SOON = timedelta(seconds=2)  # pywb dates a revisit anew when it writes it
BESIDE = 8  # bytes of line breaks between two records that stand side by side
SMALL_BODY = 1 << 12  # bytes of a request's body up to which it is kept until the states are known

_NO_KEY = Key("", "", "")


@dataclass(slots=True)
class Answer:
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
    fault: str = ""  # why it can't be served, whatever was asked
    # from its request, once they are brought together
    key: Key = _NO_KEY
    identity: str = ""
    request_offset: int = -1
    request_length: int = 0
    asked: Asked | None = None  # without a body that is large; None where there was none
    whole: bool = True  # whether `asked` is all there is to know of it
    lost: bool = False  # whether it had a request that can't be read, and so is no answer to a plain GET

    @property
    def astray(self) -> bool:
        """Whether its request is missing: taken for the answer to a GET it could be that to a POST. Ours always have one."""
        return self.lost or (bool(self.session) and self.request_offset < 0)


@dataclass(slots=True)
class Question:
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
    """The identity of a record: SHA-256 over its parts, each led by its length."""
    data = [p if isinstance(p, bytes) else p.encode(errors="surrogatepass") for p in parts]
    return hashlib.sha256(b"".join(b"%d:%b," % (len(p), p) for p in data)).hexdigest()


def sets_none(head: bytes) -> bool:
    """Whether the head of an answer shows without being taken apart that it sets no cookie."""
    return head[:7] == b"HTTP/1." and head[9:12].isdigit() and b"set-cookie" not in head.lower()


def join(answer: Answer, question: Question | None) -> Answer:
    """Gives an answer the key and identity that come from its request (a plain GET if none is there)."""
    if question is None:
        answer.key, block = request_key(Request("GET", answer.url)), b""
    else:
        request, answer.key, block = question.request, question.key, question.block
        body = request.body
        if len(body) > SMALL_BODY or not question.uri:
            body, answer.whole = b"", False
        # "not modified" has its fields from another record
        told = answer.revisit is None or answer.status != 304
        answer.asked = request.method, request.url, request.headers, body, told and sets_none(answer.head)
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
    answer.head = answer.head[:1]  # all that is still asked is whether there was one
    return answer


class Pairing:
    """Brings requests and responses together by the record ids that they name."""

    def __init__(self) -> None:
        self.pairs: list[Answer] = []
        # by record id, or by place where several have the same: none takes another's place
        self.questions: dict[str, Question] = {}  # not yet answered
        self.alone: dict[str, Answer] = {}  # without request so far
        self._asked: dict[str, Question] = {}  # by the id of the response that a request names
        self.waiting: dict[str, Answer] = {}  # by the id of the request that a response names

    def knows(self, asked: str, told: str) -> bool:
        """Whether a request or an answer of these ids is here, or is named by one that is."""
        return asked in self.questions or asked in self.waiting or told in self.alone or told in self._asked

    def ask(self, question: Question) -> None:
        """Takes a request."""
        answer = self.waiting.pop(question.record_id, None) or self.alone.get(question.concurrent)
        if answer is not None:
            _leave(self.alone, answer)
            self.pairs.append(join(answer, question))
            return
        _enter(self.questions, question)
        if question.concurrent:
            self._asked[question.concurrent] = question

    def answer(self, answer: Answer) -> None:
        """Takes a response."""
        question = self.questions.get(answer.concurrent) or self._asked.get(answer.record_id)
        if question is not None:
            _leave(self.questions, question)
            self._asked.pop(question.concurrent, None)
            self.pairs.append(join(answer, question))
            return
        _enter(self.alone, answer)
        if answer.concurrent:
            self.waiting[answer.concurrent] = answer


Record = TypeVar("Record", Answer, Question)


def _enter(known: dict[str, Record], record: Record) -> None:
    name = record.record_id
    known[f"{name} at {record.offset}" if name in known else name] = record


def _leave(known: dict[str, Record], record: Record) -> None:
    for name in (record.record_id, f"{record.record_id} at {record.offset}"):
        if known.get(name) is record:
            del known[name]


@dataclass(slots=True)
class Surroundings:
    """What is in a file, or a part of it, beside its pairs: it tells whether an answer without request has lost it."""

    asked: bool = False  # whether there are requests
    ids: set[str] = field(default_factory=set)  # of records that it may name and that are no requests
    # from where to where nothing can be made of it
    unread: list[tuple[int, int]] = field(default_factory=list)

    def merge(self, other: Surroundings) -> None:
        """Takes over what is in another part."""
        self.asked = self.asked or other.asked
        self.ids |= other.ids
        self.unread += other.unread

    def tell_lost(self, answers: Iterable[Answer]) -> None:
        """Marks those that name a record that is not there, or that have beside them what can't be read."""
        if not self.asked:
            return
        begins, ends = {start for start, _ in self.unread}, {end for _, end in self.unread}
        for answer in answers:
            if answer.revisit is None and not answer.head.startswith(b"HTTP/"):
                continue
            before, after = answer.offset, answer.offset + answer.length
            answer.lost |= bool(answer.concurrent and answer.concurrent not in self.ids) or any(
                before - gap in ends or after + gap in begins for gap in range(BESIDE + 1)
            )


def settle(
    parts: Iterable[tuple[Iterable[Question], Iterable[Answer]]], around: Surroundings | None = None
) -> list[Answer]:
    """Pairs what is left over in the parts of one file, and gives answers that stay alone a plain request.

    By record id first; then a request right beside an answer for the same URI, or of the same instant. One that names
    a record that is not there (pywb's recorder names the response that a revisit took the place of) has to be of about
    the same time, too, and where it isn't beside it, the only one of that URI and instant. An answer is `lost` where the
    surroundings say that it had another one.
    """
    pairing = Pairing()
    for questions, answers in parts:
        for question in questions:
            pairing.ask(question)
        for answer in answers:
            pairing.answer(answer)
    by_uri: dict[str, list[Question]] = {}
    for question in pairing.questions.values():
        by_uri.setdefault(question.uri, []).append(question)
    alone: list[Answer] = []
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
            # which of them was its own, nothing tells
            answer.lost = any(q.date == answer.date for q in rivals)
    if around is not None:
        around.unread += [(q.offset, q.offset + q.length) for q in pairing.questions.values()]
        around.tell_lost(alone)
    return [*pairing.pairs, *(join(answer, None) for answer in alone)]


def _nearest(answer: Answer, rivals: list[Question], twin: bool) -> Question | None:
    """The request among those for the URI of an answer that must be its own. `twin`: it isn't the only one of its instant."""
    at_once = [q for q in rivals if q.date == answer.date]
    near = [q for q in rivals if _beside(q, answer) and (not q.concurrent or _soon(q.date, answer.date))]
    near = near or [q for q in at_once if not q.concurrent]
    if not near and not twin and len(at_once) == 1:
        near = at_once
    return near[0] if near else None


def _soon(one: str, other: str) -> bool:
    """Whether two dates are no more than a revisit's is after its request's."""
    first, second = parse_timestamp(one), parse_timestamp(other)
    return first is not None and second is not None and abs(first - second) <= SOON


def _beside(question: Question, answer: Answer) -> bool:
    """Whether nothing but line breaks lies between two records."""
    after = answer.offset - question.offset - question.length
    before = question.offset - answer.offset - answer.length
    return 0 <= after <= BESIDE or 0 <= before <= BESIDE
