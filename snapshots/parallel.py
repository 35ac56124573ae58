"""Large archives are scanned by several processes, each from a record boundary to the next one's start.

The workers are started as `python -m snapshots.parallel`, so that nothing is forked out of a process with
threads and no script is run again. What comes back is the same, to the byte, as from one process.
"""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any

from snapshots.capture import Capture
from snapshots.errors import StillwebError
from snapshots.indexing import Findings, find
from snapshots.keys import Key
from snapshots.pairing import Answer, Question, settle
from snapshots.places import FilePlace, Place
from snapshots.profile import Profile
from snapshots.request import Request
from snapshots.scan import PIECE, NotSeekable, boundary_after

LARGE = 1 << 24  # bytes from which more processes pay for their start

_CAPTURE = attrgetter(*[f.name for f in fields(Capture)])
_ANSWER = attrgetter(*[f.name for f in fields(Answer) if f.name not in ("capture", "vary", "request")])
_NAMES = [f.name for f in fields(Answer)]


def scan_file(
    place: Place, name: str, advance: Callable[[int], None], workers: int | None = None
) -> Findings:
    """What is in an archive. Raises `scan.NotSeekable`."""
    workers = workers or os.cpu_count() or 1
    if not isinstance(place, FilePlace) or place.size < LARGE or workers < 2:
        return _settled([find(place, name, progress=advance)])
    starts = [0]
    for number in range(1, workers):
        at = boundary_after(place, max(starts[-1] + PIECE, place.size * number // workers))
        if at < place.size:
            starts.append(at)
    ends = [*starts[1:], place.size]
    running = [_start(place, name, a, b) for a, b in zip(starts[1:], ends[1:], strict=True)]
    try:
        parts = [find(place, name, 0, ends[0], progress=advance)]
        for process, start, end in zip(running, starts[1:], ends[1:], strict=True):
            parts.append(_finish(process, place.name))
            advance(end - start)
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
    if any(part.reached > end for part, end in zip(parts, ends, strict=True)):
        # what looked like a record lies within one (an archive in an archive): only the way from the start is sure
        return _settled([find(place, name)])
    return _settled(parts)


def _settled(parts: list[Findings]) -> Findings:
    """The parts of a file as one, in the order of its records."""
    whole = Findings()
    for part in parts:
        whole.answers += part.answers
        whole.others += part.others
        whole.notes += part.notes
        whole.profile = part.profile or whole.profile
        whole.settings = part.settings or whole.settings
    whole.answers += settle((part.questions, part.alone) for part in parts)
    whole.answers.sort(key=attrgetter("offset"))
    return whole


def _start(place: FilePlace, name: str, start: int, end: int) -> subprocess.Popen[bytes]:
    what = [str(place.path), place.base, place.size, name, start, end]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "snapshots.parallel"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(marshal.dumps(what))
    process.stdin.close()
    return process


def _finish(process: subprocess.Popen[bytes], name: str) -> Findings:
    assert process.stdout is not None
    data = process.stdout.read()
    if process.wait() or not data:
        raise StillwebError(
            f"{name}: a process that indexed a part of it ended with code {process.returncode}"
        )
    value = marshal.loads(data)
    if value is None:
        raise NotSeekable(name)
    return _from_plain(value)


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
    answers, others, alone, questions, notes, profile, settings, reached = value
    return Findings(
        [_answer(a) for a in answers],
        others,
        [_answer(a) for a in alone],
        [Question(Request(*q[0]), Key(*q[1]), *q[2:]) for q in questions],
        notes,
        Profile.from_json(profile) if profile else None,
        settings,
        reached,
    )


def _answer(value: tuple[Any, ...]) -> Answer:
    *rest, identity, vary, capture, request = value
    made = Capture(*capture) if capture else None
    return Answer(*[*rest[:12], vary, *rest[12:], made, identity, Request(*request) if request else None])


def main() -> None:
    """A worker: reads what to scan from standard input, writes what was found to standard output."""
    path, base, size, name, start, end = marshal.loads(sys.stdin.buffer.read())
    place = FilePlace(path, base=base, size=size, name=name)
    try:
        value: Any = _to_plain(find(place, name, start, end))
    except NotSeekable:
        value = None
    sys.stdout.buffer.write(marshal.dumps(value))


if __name__ == "__main__":
    main()
