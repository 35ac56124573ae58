"""Archives are scanned by several processes: files, and large ones in parts from one record boundary to another.

What comes back is the same, to the byte, as from one process.
"""

from __future__ import annotations

import marshal
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Protocol

from stillweb.snapshots import notes
from stillweb.snapshots.archives.boundaries import PIECE, boundary_after
from stillweb.snapshots.archives.scan import NotSeekable
from stillweb.snapshots.identity.keys import Key
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.index.gathering import Part, Site, Waiting, gathered
from stillweb.snapshots.index.indexing import find
from stillweb.snapshots.index.pairing import Answer, Question, Surroundings, settle
from stillweb.snapshots.index.swift_pairs import SwiftPairs
from stillweb.snapshots.machine.forks import can_fork, run_all
from stillweb.snapshots.machine.places import FilePlace, Place, hash_place
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.request import Request
from stillweb.snapshots.states.plain import plain_url

LARGE = 1 << 24  # bytes from which new processes pay for their start
FORKED = 1 << 23  # and forks, of which each copies what it touches of this process
EACH = 4  # parts for each worker, so that all end at the same time
ANY_URL = "https://www.example.com/?page=1"

_NAMES = [f.name for f in fields(Answer)]
_ANSWER = attrgetter(*_NAMES)
_SITE = attrgetter(*[f.name for f in fields(Site) if f.name not in ("asked", "packed")])
_QUESTION = attrgetter(*[f.name for f in fields(Question) if f.name not in ("request", "key")])


class Aside(Protocol):
    """Puts what there is most of in a part where it isn't in memory."""

    def take(self, part: Part) -> None:
        """Takes captures and revisits out of a part, as soon as it is read; the ids of its records are still needed."""

    def forget(self, name: str) -> None:
        """What was taken of a file is void: it is read anew, or not at all."""


def scan_files(
    archives: Mapping[str, Place],
    advance: Callable[[int], None],
    workers: int | None = None,
    hashes: dict[str, tuple[int, str]] | None = None,
    aside: Aside | None = None,
) -> Iterator[tuple[str, list[Part] | None]]:
    """What is in each archive, by name; None where its records can't be read by offset (`scan.NotSeekable`).

    What `aside` takes is no longer in the parts.

    Where there are workers, they fill `hashes`: the size and digest of each file.
    """
    workers = workers or os.cpu_count() or 1
    total = sum(place.size for place in archives.values())
    least = FORKED if can_fork() else LARGE
    if total < least or workers < 2:
        for name in sorted(archives):
            yield name, _alone(archives[name], name, advance, aside)
        return
    size = least // 4  # of a part
    if aside is None:
        size = max(size, total // (EACH * workers))
    parts = {name: _parts(archives[name], name, size) for name in sorted(archives)}
    jobs: list[bytes] = []
    for of_file in parts.values():
        if of_file and hashes is not None:
            jobs.append(marshal.dumps(of_file[0].job[:4]))
        jobs += [marshal.dumps(part.job) for part in of_file]
    if can_fork():  # public suffixes and rules are read once, not by each fork
        site_of(ANY_URL)
        plain_url(ANY_URL)
    with closing(run_all(work, jobs, workers)) as results:
        for name, of_file in parts.items():
            if of_file and hashes is not None and (value := next(results)) is not None:
                hashes[name] = archives[name].size, marshal.loads(value)
            # those of all its parts are taken, whatever is in them
            yield name, _finish(of_file, results, archives[name], name, advance, aside)


def scan_file(
    place: Place,
    name: str,
    advance: Callable[[int], None],
    workers: int | None = None,
    aside: Aside | None = None,
) -> list[Part]:
    """What is in an archive. Raises `scan.NotSeekable`."""
    (_, found), *_ = scan_files({name: place}, advance, workers, aside=aside)
    if found is None:
        raise NotSeekable(name)
    return found


def _alone(place: Place, name: str, advance: Callable[[int], None], aside: Aside | None) -> list[Part] | None:
    if aside is not None:
        aside.forget(name)
    try:
        part = _gather(place, name, progress=advance)
    except NotSeekable:
        return None
    if aside is not None:
        aside.take(part)
    return settled([part], aside)


def _gather(
    place: Place,
    name: str,
    start: int = 0,
    end: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Part:
    part = Part(name)
    found = find(place, name, start, end, progress=progress, swift=SwiftPairs(part).take)
    return gathered(found, part)


@dataclass(slots=True)
class _Piece:
    """A part of a file."""

    end: int
    job: list[Any]


def _parts(place: Place, name: str, size: int) -> list[_Piece]:
    """The parts of a file to be given to workers; none of what they can't open."""
    if not isinstance(place, FilePlace):
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
    place: Place,
    name: str,
    advance: Callable[[int], None],
    aside: Aside | None,
) -> list[Part] | None:
    found: list[Part] = []
    failed, seekable, before = False, True, 0
    for piece in pieces:
        result = next(results)  # those of all its parts are taken, whatever is in them
        failed = failed or result is None
        if failed or not seekable:
            continue
        assert result is not None
        value = marshal.loads(result)
        if value is None:
            seekable = False
            continue
        part = from_plain(value)
        if aside is not None:
            aside.take(part)
        found.append(part)
        advance(piece.end - before)
        before = piece.end
    if failed or not pieces:
        return _alone(place, name, advance, aside)  # which says what there is to say
    if not seekable:
        if aside is not None:
            aside.forget(name)
        return None
    if any(part.reached > piece.end for part, piece in zip(found, pieces, strict=True)):
        # what looked like a record lies within one (an archive in an archive): only the way from the start is sure
        return _alone(place, name, lambda _: None, aside)
    return settled(found, aside)


def settled(parts: list[Part], aside: Aside | None = None) -> list[Part]:
    """The parts of a file, with one more for what found its partner only now."""
    late = Part(parts[0].name)
    around = Surroundings()
    for part in parts:
        around.merge(part.around)
        around.ids.update(part.ids if any(one.alone for one in parts) else ())
    answers = settle(((part.questions, part.alone) for part in parts), around)
    late.take(sorted(answers, key=attrgetter("offset")))
    for part in parts:
        part.questions, part.alone = [], []
    if aside is not None:
        aside.take(late)
        for part in (*parts, late):
            part.ids = []
    return [*parts, late]


def to_plain(part: Part) -> list[Any]:
    """A part as what marshal takes; quicker than pickle by half."""
    return [
        part.name,
        # requests are packed apart: most sites don't need them
        {name: (*_SITE(site), [marshal.dumps(site.asked)]) for name, site in part.sites.items()},
        part.lines,
        part.offsets,
        part.ids,
        part.moments,
        [plain_answer(a) for a in part.revisits],
        [tuple(w) for w in part.waiting],
        part.others,
        [plain_answer(a) for a in part.alone],
        [_plain_question(q) for q in part.questions],
        notes.to_plain(part.notes),
        part.profile.to_json() if part.profile else None,
        part.settings,
        part.reached,
        part.cut,
        (part.around.asked, part.around.ids, part.around.unread),
    ]


def from_plain(value: list[Any]) -> Part:
    """The inverse of `to_plain`."""
    (
        name, sites, lines, offsets, ids, moments, revisits, waiting, others, alone, questions, told, profile, settings,
        reached, cut, around,
    ) = value  # fmt: skip
    return Part(
        name,
        {name: _site(*values) for name, values in sites.items()},
        lines,
        offsets,
        ids,
        moments,
        [answer_of(a) for a in revisits],
        [Waiting(*w) for w in waiting],
        others,
        [answer_of(a) for a in alone],
        [Question(Request(*q[0]), Key(*q[1]), *q[2:]) for q in questions],
        notes.from_plain(told),
        Profile.from_json(profile) if profile else None,
        settings,
        reached,
        cut,
        Surroundings(*around),
    )


def _site(*values: Any) -> Site:
    plain, told, differing, odd, keys, lines, packed = values
    return Site(plain, told, differing, odd, keys, lines, [], packed)


def plain_answer(answer: Answer) -> list[Any]:
    """An answer as what marshal takes."""
    values = list(_ANSWER(answer))
    values[_NAMES.index("key")] = tuple(answer.key)
    return values


def _plain_question(question: Question) -> tuple[Any, ...]:
    request = question.request
    asked = request.method, request.url, request.headers, request.body
    return (asked, tuple(question.key), *_QUESTION(question))


def answer_of(values: list[Any]) -> Answer:
    """The inverse of `plain_answer`."""
    made = Answer(*values)
    made.key = Key(*made.key)
    return made


def work(data: bytes) -> bytes:
    """A part of a file, in a worker process: what to scan, and what was found; of a whole one, its digest."""
    path, base, size, name, *part = marshal.loads(data)
    place = FilePlace(path, base=base, size=size, name=name)
    try:
        value: Any = to_plain(_gather(place, name, *part)) if part else hash_place(place)
    except NotSeekable:
        value = None
    finally:
        place.close()
    return marshal.dumps(value)
