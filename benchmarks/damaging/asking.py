"""All that can be asked of a snapshot, and what is wrong with an answer."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.damaging.recorded import ACCEPTS, STATEFUL, in_order
from stillweb.proxy.replay.answering import Answerer
from stillweb.proxy.replay.ledger import Ledger
from stillweb.proxy.replay.replies import Reply
from stillweb.snapshots._os.random_access import FileSource
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.view import RESOURCES
from stillweb.snapshots.warc.container import SUFFIXES

Ranges = tuple[tuple[str, int, int], ...]  # of a file: where it begins and ends


@dataclass(frozen=True, slots=True)
class Question:
    """One thing to ask. `request` of the gateway, else `kind` and `address` of the snapshot."""

    name: str
    request: Request | None = None
    session: str = ""
    kind: str = ""
    address: str = ""
    stands_on: Ranges = ()


@dataclass(frozen=True, slots=True)
class Told:
    """What came: `how` is "answer", "unsure", "miss", "damaged" or "failed"; `what` tells answers apart."""

    how: str
    what: str = ""
    why: str = ""


@dataclass(slots=True)
class Known:
    """What an undamaged snapshot was asked and told."""

    questions: list[Question] = field(default_factory=list)
    told: dict[str, Told] = field(default_factory=dict)
    of_site: dict[str, set[str]] = field(default_factory=dict)  # all that was recorded of each stateful site


def learn(path: Path) -> Known:
    """Asks all there is."""
    known = Known()
    with Snapshot.open(path) as snapshot:
        known.questions = list(_questions(snapshot))
        known.told = ask(snapshot, known.questions)
    for question in known.questions:
        if question.session in STATEFUL:
            known.of_site.setdefault(question.session, set()).add(known.told[question.name].what)
    return known


def _questions(snapshot: Snapshot) -> Iterator[Question]:
    for number, capture in enumerate(sorted(snapshot.captures(), key=in_order)):
        asked = snapshot.read_request(capture)
        host = capture.url.split("/")[2]
        session = host if host in STATEFUL else f"own {number}"
        on = _places(snapshot, capture)
        yield Question(f"{number} {asked.method} {asked.url}", asked, session, stands_on=on)
        if snapshot.head(capture).header("content-encoding"):
            bare = tuple((n, v) for n, v in asked.headers if n.lower() != "accept-encoding")
            plain = Request(asked.method, asked.url, bare, asked.body)
            yield Question(f"{number} plain {asked.url}", plain, f"{session} plain", stands_on=on)
    for capture in list(snapshot.captures()):
        if capture.method != "GET":
            never = Request("GET", capture.url, ACCEPTS)
            yield Question(
                f"never {capture.url}", never, f"never {capture.url}", stands_on=_places(snapshot, capture)
            )
    for view in snapshot.views():
        for kind in RESOURCES:
            yield Question(f"{kind} of {view.address}", kind=kind, address=view.address)
    for text in snapshot.texts():
        yield Question(f"text of {text.address}", kind="frozen", address=text.address)
    yield Question("views", kind="views")
    yield Question("talks", kind="talks")


def _places(snapshot: Snapshot, capture: Capture) -> Ranges:
    """The bytes of files that an answer stands on."""
    found = [(capture.filename, capture.offset, capture.length)]
    if capture.request_offset >= 0:
        found.append((capture.filename, capture.request_offset, capture.request_length))
    if capture.original:
        found.append(capture.original)
    ranges = []
    for name, offset, length in found:
        place = snapshot._archives.files[name]
        if isinstance(place, FileSource):
            ranges.append((str(place.path), place.base + offset, place.base + offset + length))
    return tuple(ranges)


def ask(snapshot: Snapshot, questions: list[Question], answerer: Answerer | None = None) -> dict[str, Told]:
    """What each is told, each session's in order."""
    answerer = answerer or Answerer(snapshot, Ledger())
    told = {}
    for question in questions:
        try:
            if question.request is not None:
                line = answerer.state(question.session)
                told[question.name] = _read(answerer, answerer.answer(question.request, line))
            else:
                told[question.name] = _look(snapshot, question)
        except DamagedInput as error:
            told[question.name] = Told("damaged", why=str(error))
    return told


def _read(answerer: Answerer, reply: Reply) -> Told:
    ours = {n: v for n, v in reply.fields if n.startswith("Stillweb-")}
    body = reply.body
    if reply.status == 500 and answerer.failures:
        return Told("failed", why=answerer.failures[-1])
    if ours["Stillweb-Verdict"] == "miss":
        text = body.decode(errors="replace")
        return Told("damaged" if reply.status == 502 else "miss", why=text.strip())
    if reply.pieces is not None:
        value = hashlib.sha256()
        size = 0
        for piece in reply.pieces():
            value.update(piece)
            size += len(piece)
        if reply.length is not None and size != reply.length:
            return Told("failed", why=f"{size} bytes came of {reply.length}")
    else:
        value = hashlib.sha256(body)
    fields = [(n, v) for n, v in reply.fields if n != "Stillweb-Capture" and n != "Stillweb-Ambiguous"]
    what = f"{reply.status} {fields} {value.hexdigest()}"
    return Told("unsure" if "Stillweb-Ambiguous" in ours else "answer", what)


def _look(snapshot: Snapshot, question: Question) -> Told:
    found: Any
    if question.kind == "views":
        found = [repr(view) for view in snapshot.views()]
    elif question.kind == "talks":
        found = json.dumps(list(snapshot.conversations()), sort_keys=True)
    elif question.kind == "frozen":
        found = repr(snapshot.text(question.address))
    else:
        found = snapshot.resource(question.kind, question.address)
    if found in (None, "None", [], "[]"):
        return Told("miss")
    return Told("answer", hashlib.sha256(repr(found).encode(errors="surrogatepass")).hexdigest())


def wrongs(known: Known, told: Mapping[str, Told], must: set[str], tellable: set[str]) -> Counter[str]:
    """What is wrong with what was told, by kind of fault and question.

    `must`: those that nothing happened to. `tellable`: those that a flipped bit can be told of.
    """
    found: Counter[str] = Counter()
    for question in known.questions:
        name, before = question.name, known.told[question.name]
        now = told[name]
        if now.how == "failed":
            found[f"failed: {name}: {now.why}"] += 1
        elif now.how == "answer" and now.what != before.what:
            if now.what in known.of_site.get(question.session, ()):
                found[f"(other answer of the site: {name})"] += 1
            elif name in tellable:
                found[f"served wrong: {name}: {now.what[:120]}"] += 1
        elif now.how == "damaged" and not _names_place(now.why):
            found[f"no place is named: {name}: {now.why}"] += 1
        elif before.how == "answer" and now.how in ("miss", "damaged") and name in must:
            found[f"lost: {name}: {now.how} {now.why}"] += 1
        elif before.how == "answer" and now.how == "unsure" and name in must:
            found[f"unsure now: {name}"] += 1
    return found


def _names_place(text: str) -> bool:
    if "index.cdxj" in text:
        return True
    return "offset" in text and any(suffix in text for suffix in SUFFIXES)
