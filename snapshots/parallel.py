"""Archives are scanned by several processes: files, and large ones in parts from one record boundary to another.

What comes back is the same, to the byte, as from one process.
"""

from __future__ import annotations

import marshal
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import fields
from operator import attrgetter
from typing import Any

from snapshots.capture import Capture
from snapshots.errors import MissingCapability
from snapshots.indexing import Findings, find
from snapshots.keys import Key
from snapshots.pairing import CAPTURE_FIELDS, Answer, Question, settle
from snapshots.places import FilePlace, Place
from snapshots.processes import Pool, WorkerDied, WorkerFailed
from snapshots.profile import Profile
from snapshots.request import Request
from snapshots.scan import PIECE, NotSeekable, boundary_after

LARGE = 1 << 24  # bytes from which more processes pay for their start

_CAPTURE = attrgetter(*CAPTURE_FIELDS)
_ANSWER = attrgetter(*[f.name for f in fields(Answer) if f.name not in ("capture", "vary", "request")])
_NAMES = [f.name for f in fields(Answer)]


def scan_files(
    archives: Mapping[str, Place], advance: Callable[[int], None], workers: int | None = None
) -> Iterator[tuple[str, Findings | None]]:
    """What is in each archive, by name; None where its records can't be read by offset (`scan.NotSeekable`)."""
    workers = workers or os.cpu_count() or 1
    total = sum(place.size for place in archives.values())
    if total < LARGE or workers < 2:
        for name in sorted(archives):
            yield name, _alone(archives[name], name, advance)
        return
    size = max(LARGE // 2, total // (2 * workers))  # of a part
    with Pool(workers) as pool:
        started = [(name, _start(pool, archives[name], name, size)) for name in sorted(archives)]
        for name, parts in started:
            yield name, _finish(parts, archives[name], name, advance)


def scan_file(
    place: Place, name: str, advance: Callable[[int], None], workers: int | None = None
) -> Findings:
    """What is in an archive. Raises `scan.NotSeekable`."""
    (_, found), *_ = scan_files({name: place}, advance, workers)
    if found is None:
        raise NotSeekable(name)
    return found


def _alone(place: Place, name: str, advance: Callable[[int], None]) -> Findings | None:
    try:
        return _settled([find(place, name, progress=advance)])
    except NotSeekable:
        return None


Part = tuple[int, Future[bytes]]  # its end, and what will be found


def _start(pool: Pool, place: Place, name: str, size: int) -> list[Part]:
    """Gives the parts of a file to workers; none of what they can't open."""
    if not isinstance(place, FilePlace):
        return []
    starts = [0]
    count = -(-place.size // size)
    for number in range(1, count):
        at = boundary_after(place, max(starts[-1] + PIECE, place.size * number // count))
        if at < place.size:
            starts.append(at)
    ends = [*starts[1:], place.size]
    return [
        (end, pool.submit(work, marshal.dumps([str(place.path), place.base, place.size, name, start, end])))
        for start, end in zip(starts, ends, strict=True)
    ]


def _finish(parts: list[Part], place: Place, name: str, advance: Callable[[int], None]) -> Findings | None:
    found = []
    before = 0
    for end, future in parts:
        try:
            value = marshal.loads(future.result())
        except (WorkerDied, WorkerFailed, MissingCapability):
            return _alone(place, name, advance)  # which says what there is to say
        if value is None:
            return None
        found.append(_from_plain(value))
        advance(end - before)
        before = end
    if not parts or any(part.reached > end for part, (end, _) in zip(found, parts, strict=True)):
        # what looked like a record lies within one (an archive in an archive): only the way from the start is sure
        return _alone(place, name, advance if not parts else lambda _: None)
    return _settled(found)


def _settled(parts: list[Findings]) -> Findings:
    """The parts of a file as one, in the order of its records."""
    whole = Findings()
    for part in parts:
        whole.answers += part.answers
        whole.others += part.others
        whole.notes += part.notes
        whole.profile = part.profile or whole.profile
        whole.settings = part.settings or whole.settings
        whole.cut = part.cut
    whole.answers += settle((part.questions, part.alone) for part in parts)
    whole.answers.sort(key=attrgetter("offset"))
    return whole


def _to_plain(found: Findings) -> list[Any]:
    """Findings as what marshal takes; quicker than pickle by half."""
    return [
        [_plain_answer(a) for a in found.answers],
        found.others,
        [_plain_answer(a) for a in found.alone],
        [_plain_question(q) for q in found.questions],
        found.notes,
        found.profile.to_json() if found.profile else None,
        found.settings,
        found.reached,
        found.cut,
    ]


def _plain_answer(answer: Answer) -> tuple[Any, ...]:
    capture = _CAPTURE(answer.capture) if answer.capture else None
    return (*_ANSWER(answer), answer.vary, capture, _plain_request(answer.request))


def _plain_request(request: Request | None) -> tuple[Any, ...] | None:
    return None if request is None else (request.method, request.url, request.headers, request.body)


def _plain_question(question: Question) -> tuple[Any, ...]:
    values = [getattr(question, f.name) for f in fields(Question)]
    request = question.request
    values[0] = (request.method, request.url, request.headers, request.body)
    values[1] = tuple(question.key)
    return tuple(values)


def _from_plain(value: list[Any]) -> Findings:
    answers, others, alone, questions, notes, profile, settings, reached, cut = value
    return Findings(
        [_answer(a) for a in answers],
        others,
        [_answer(a) for a in alone],
        [Question(Request(*q[0]), Key(*q[1]), *q[2:]) for q in questions],
        notes,
        Profile.from_json(profile) if profile else None,
        settings,
        reached,
        cut,
    )


def _answer(value: tuple[Any, ...]) -> Answer:
    *rest, identity, vary, capture, request = value
    made = Capture(*capture) if capture else None
    return Answer(*[*rest[:12], vary, *rest[12:], made, identity, Request(*request) if request else None])


def work(data: bytes) -> bytes:
    """A part of a file, in a worker process: what to scan, and what was found."""
    path, base, size, name, start, end = marshal.loads(data)
    place = FilePlace(path, base=base, size=size, name=name)
    try:
        value: Any = _to_plain(find(place, name, start, end))
    except NotSeekable:
        value = None
    finally:
        place.close()
    return marshal.dumps(value)
