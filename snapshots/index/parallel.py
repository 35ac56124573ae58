"""Parallel scan of archive files; large files are split into parts at record boundaries.

The result is the same, to the byte, as that of a single process.
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
from stillweb.snapshots._os.processes import can_fork
from stillweb.snapshots._os.random_access import ByteSource, FileSource, hash_place
from stillweb.snapshots.identity.keys import Key
from stillweb.snapshots.index.fast_path import SwiftPairs
from stillweb.snapshots.index.gathering import PendingRevisit, ScanResult, add_scan
from stillweb.snapshots.index.indexing import find
from stillweb.snapshots.index.pairing import RequestRecord, ResponseRecord, UnpairedRecords, settle
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.request import Request
from stillweb.snapshots.warc.scan import PIECE, NotSeekable, boundary_after
from stillweb.snapshots.words import pluralize

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
