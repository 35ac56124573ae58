"""Trace of an attempt: one event a line, as a JSON object. See trace.schema.json and docs/trace.md.

    with TraceWriter(path) as trace:            # writes path + ".part", which a killed process leaves
        trace.header(task=…, attempt=1, …)
        n = trace.write("tool_call", tool=…, …)
        trace.finish()                          # renames it to `path`
    trace = read_trace(path)                    # strict: DamagedInput says file:line: problem

Hashes leave out the member `aside` (times, retries, tape or endpoint), how sure answers were (`UNHASHED`), and `review`
events, which people add afterwards.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from stillweb.harness._parsing import no_number, problem, unique_members
from stillweb.snapshots._os.atomic_write import naming, sync_folder
from stillweb.snapshots.errors import FULL_DISK, DamagedInput, UsageError
from stillweb.snapshots.warc.appending import full_disk, write_whole

SCHEMA = "stillweb-trace"
VERSION = 1
Event = dict[str, Any]
# Members of a call that say how sure its answer is. That depends on what was asked before, and browsers and programs ask
# several things at once.
SURENESS = ("confidence", "doubt", "presumed")
UNHASHED = frozenset(["aside", *SURENESS])


def canonical(value: Any) -> bytes:
    """Return canonical JSON for hashing: sorted keys, no white space, UTF-8 (lone surrogates escaped), no NaN."""
    try:
        text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest(value: Any) -> str:
    """Return the SHA-256 (hex) of a value's canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()


def hashed_part(event: Event) -> Event:
    """Return the event without what may differ from run to run."""
    return {name: member for name, member in event.items() if name not in UNHASHED}


def _line(event: Event) -> bytes:
    try:
        return json.dumps(event, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(event, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _append(file: FileIO, path: Path, line: bytes) -> None:
    """Append a whole line or nothing. Raise MissingCapability on a full disk.

    On a disk that fills up, a write may store only a part of the line and report it by its return value alone.
    """
    start = file.tell()
    try:
        with naming(path):
            while line:
                line = line[file.write(line) :]
    except OSError as error:
        with contextlib.suppress(OSError):
            file.truncate(start)
            file.seek(start)
        if error.errno in FULL_DISK:
            raise full_disk(path, error) from error
        raise


def checked_line(event: Event) -> bytes:
    """Return an event's line. Raise UsageError if it violates the schema or can't be read again."""
    if message := check_event(event):
        raise UsageError(f"no trace can hold this {event['event']}: {message}")
    try:
        read_json(line := _line(event))
        return line
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"no trace can hold this {event['event']}: it is not JSON: {error}") from error


@cache
def _schema() -> dict[str, Any]:
    path = Path(__file__).with_name("trace.schema.json")
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def check_event(event: Any) -> str | None:
    """Return the first violation of the schema by an event, or None."""
    if not isinstance(event, dict):
        return f"must be a JSON object, not {type(event).__name__}"
    kind = event.get("event")
    definition = _schema()["$defs"].get(kind) if isinstance(kind, str) and kind != "places" else None
    if definition is None:
        return f"event: {kind!r} is not a kind of event of version {VERSION}"
    return problem(event, definition, _schema())


class TraceWriter:
    """Writer of a trace: unbuffered, into `<path>.part`, which is renamed when the trace is complete."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.part = path.with_name(path.name + ".part")
        self.events: list[Event] = []  # all but the header, for scoring
        self._file = self.part.open("wb", buffering=0)

    def header(self, **members: Any) -> None:
        """Write the header line. Raise UsageError if it violates the schema."""
        event = {"event": "header", "schema": SCHEMA, "version": VERSION, **members}
        _append(self._file, self.part, checked_line(event))

    def write(self, kind: str, /, **members: Any) -> int:
        """Append an event and return its number.

        Raise UsageError, and write nothing, if the event violates the schema or is not JSON: it may contain data
        from custom tools, models and agents.
        """
        if own := sorted(members.keys() & {"event", "n"}):
            raise UsageError(f"no trace can hold this {kind}: {own[0]} is given by the trace itself")
        event = {"event": kind, "n": len(self.events) + 1, **members}
        _append(self._file, self.part, checked_line(event))
        self.events.append(event)
        return len(self.events)

    def rearrange(self, events: list[Event]) -> None:
        """Rewrite all lines but the header from `events`, in their order and with their own numbers."""
        with self.part.open("rb") as file:
            header = file.readline()
        write_whole(self.part, [header, *map(checked_line, events)])
        self._file.close()
        self._file = self.part.open("ab", buffering=0)
        self.events = events

    def finish(self) -> None:
        """Close the file and rename it to `path`, replacing an older trace of the same attempt."""
        with naming(self.part):
            os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self.part, self.path)
        sync_folder(self.path.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the events of an attempt, or of several.

    `failures` are calls that failed as they did while recording, which are no misses. `presumed` is the number of
    answers that are less than sure, and `doubt` the expected number of wrong ones. `cut_off` counts the agent's answers that the
    limit of tokens ended. `tokens` and `cost` are those of all models, judges included; `cost` is None if one has no price.
    """

    calls: int = 0
    models: int = 0
    misses: int = 0
    failures: int = 0
    presumed: int = 0
    doubt: float = 0.0
    cut_off: int = 0
    tokens: int = 0
    cost: float | None = 0.0


def counts_of(events: Sequence[Event]) -> Counts:
    calls, models = ([event for event in events if event["event"] == kind] for kind in ("tool_call", "model"))
    costs: list[Any] = [event.get("cost") for event in models]
    return Counts(
        calls=len(calls),
        models=len(models),
        misses=sum(map(_is_miss, calls)),
        failures=sum(map(_is_failure, calls)),
        presumed=sum(call.get("presumed", 0) for call in calls),
        doubt=math.fsum(call.get("doubt", 0.0) for call in calls),
        cut_off=sum(map(_is_cut_off, models)),
        tokens=sum(event["usage"]["input"] + event["usage"]["output"] for event in models),
        cost=None if None in costs else math.fsum(costs),
    )


def _is_miss(call: Event) -> bool:
    return bool(call["verdict"] == "miss")


def _is_failure(call: Event) -> bool:
    return str(call["verdict"]).startswith("failed:")


def sum_counts(parts: Sequence[Counts]) -> dict[str, Any]:
    """Return the members of the sum of some counts, whose order changes no digit."""
    every = {name: [getattr(part, name) for part in parts] for name in Counts.__struct_fields__}
    return {
        name: None if None in values else math.fsum(values) if name in ("doubt", "cost") else sum(values)
        for name, values in every.items()
    }


@dataclass(frozen=True, slots=True)
class Trace:
    """Trace that was read: its header and its events in order."""

    path: Path
    header: Event
    events: tuple[Event, ...]

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["event"] == kind]

    def last(self, kind: str) -> Event | None:
        return next((event for event in reversed(self.events) if event["event"] == kind), None)

    @property
    def task_id(self) -> str:
        return str(self.header["task"]["id"])

    @property
    def attempt(self) -> int:
        """Epoch of the task, from 1."""
        return int(self.header["attempt"])

    @property
    def misses(self) -> list[Event]:
        """Tool calls that the snapshot could not answer."""
        return list(filter(_is_miss, self.of("tool_call")))

    @property
    def failures(self) -> list[Event]:
        """Tool calls that failed as they did while recording; these are not misses."""
        return list(filter(_is_failure, self.of("tool_call")))

    @property
    def counts(self) -> Counts:
        return counts_of(self.events)

    @property
    def hash(self) -> str:
        """SHA-256 (hex) of all lines, without `review` events and `aside`."""
        return hash_events([self.header, *self.events])


# Endpoints' words for an answer that ends at the limit of tokens.
CUT_OFF = {"length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"}


def _is_cut_off(event: Event) -> bool:
    """Return True if a `model` event is an answer to the agent that the limit of tokens cut off."""
    finish = str((event.get("reply") or {}).get("finish") or "").lower()
    return event.get("purpose") == "agent" and finish in CUT_OFF


def hash_events(events: Iterable[Event]) -> str:
    """Return the SHA-256 (hex) of the events' canonical JSON lines, without `review` events and `aside`."""
    state = hashlib.sha256()
    for event in events:
        if event["event"] != "review":
            state.update(canonical(hashed_part(event)) + b"\n")
    return state.hexdigest()


def read_trace(path: Path) -> Trace:
    """Read a trace strictly. Raise DamagedInput, which names file, line and member."""
    events: list[Event] = []
    for number, event in _lines(path):
        if message := check_event(event):
            raise DamagedInput(f"{path}:{number}: {message}")
        if (event["event"] == "header") != (number == 1):
            raise DamagedInput(f"{path}:{number}: the header must be the first line and no other")
        if number > 1 and event["n"] != number - 1:
            raise DamagedInput(f"{path}:{number}: n: must be {number - 1}, not {event['n']}")
        events.append(event)
    if not events:
        raise DamagedInput(f"{path}:1: the trace is empty")
    trace = Trace(path, events[0], tuple(events[1:]))
    if trace.last("score") is None:
        raise DamagedInput(f"{path}:{len(events)}: the trace ends without a score")
    return trace


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield number, read_json(line)
            except (ValueError, RecursionError) as error:
                raise DamagedInput(f"{path}:{number}: not JSON: {error}") from error


def read_json(text: str | bytes) -> Any:
    """Parse JSON for hashing. Raise RecursionError or ValueError, also for what a hash could not cover.

    That are numbers that no double holds, and a member that stands twice in an object.
    """
    return json.loads(
        text,
        parse_constant=no_number,
        parse_float=_number,
        parse_int=_integer,
        object_pairs_hook=unique_members,
    )


def _number(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else no_number(text)


def _integer(text: str) -> int:
    if not math.isfinite(float(text)):
        raise ValueError(f"a number of {len(text)} digits is too large")
    return int(text)


def append_event(path: Path, kind: str, /, **members: Any) -> int:
    """Append an event (a review) to a finished trace in one write; return its number."""
    event: Event = {"event": kind, "n": len(read_trace(path).events) + 1, **members}
    if message := check_event(event):
        raise DamagedInput(f"{kind}: {message}")
    with path.open("rb+", buffering=0) as file:
        file.seek(-1, os.SEEK_END)
        _append(file, path, (b"" if file.read(1) == b"\n" else b"\n") + _line(event))
    return int(event["n"])


def replace_events(path: Path, events: Iterable[Event]) -> None:
    """Rewrite a trace (header first), atomically."""
    write_whole(path, map(_line, events))
