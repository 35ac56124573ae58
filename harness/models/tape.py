"""The tape: model calls kept in the snapshot's format, so that a run repeats without key or network.

A call is identified by its whole request (method, URL, JSON body in any key order) within its session (task
and attempt). The nth identical request gets the nth answer. Nothing else is served: for a call that is not on
the tape, the error names the nearest one. For concurrent calls the tape holds when each was made and when its
answer came (`begin` and `end` of its capture), and replay gives answers in that order
(stillweb.harness.models.tape_order).

Only the last try of a call is kept, and only if it is an answer; of its headers only those that
`kept_headers` allows; the key is replaced everywhere. A call without an answer, abandoned by its agent or
failed at the endpoint, is kept as UNANSWERED, so that a repetition gets no answer either; `auto` asks again.
Sessions are written as `name@generation`: recording a session anew begins a new generation, and the newest is
replayed.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote, unquote

from stillweb.harness.models.tape_order import Turn, Turns
from stillweb.harness.trace import canonical
from stillweb.snapshots.dates import EPOCH, parse_timestamp
from stillweb.snapshots.errors import StillwebError, UsageError
from stillweb.snapshots.words import pluralize, whole_number

Mode = Literal["record", "replay", "auto", "none"]
MODES: tuple[Mode, ...] = ("record", "replay", "auto", "none")
SOFTWARE = "stillweb tape"
# media type of the record that stands for a missing answer
UNANSWERED = "application/vnd.stillweb.unanswered+json"
_MORE = 60.0  # seconds that replay waits at a missing answer, plus three times the original wait
GIVEN_UP, FAILED = 499, 599  # statuses of such a record: the agent gave up; the endpoint failed


class TapeMiss(StillwebError):
    """Error for a model call that is not on the tape."""

    exit_code = 1


class ModelError(StillwebError):
    """Error for a model endpoint that gave no usable answer."""

    exit_code = 4


@dataclass(slots=True, eq=False)
class _Taped:
    """Recorded call. `where` is its capture; `status` is that of the answer or of its placeholder."""

    key: str
    capture: Any
    turn: Turn
    status: int
    answered: bool


@dataclass(slots=True, eq=False)
class Ticket:
    """Call under way: `taped` is its recorded answer; without one, it is kept under the number `begin`."""

    call: Call
    begin: int = 0
    taped: _Taped | None = None
    since: float = field(default_factory=time.monotonic)
    open: bool = True


@dataclass(slots=True, eq=False)
class CallInProgress:
    """Call of an attempt, from its check against the limits until the agent has its answer.

    `begin` is its number on the tape; 0 leaves that to the tape. `answer` came as number `end`; one that the agent never
    took is not kept, but counts as given up, as the agent's trace does not have it either.
    """

    tape: Tape | None = None
    begin: int = 0
    ticket: Ticket | None = None
    answer: EndpointResponse | None = None
    end: int = 0

    def note_answer(self, ticket: Ticket, answer: EndpointResponse | None) -> None:
        """Note the answer that is on its way to the agent; None for one that is not to be kept."""
        self.ticket, self.answer = ticket, answer
        if self.tape is not None and answer is not None:
            self.end = self.tape.tick(ticket.call.session)

    @contextmanager
    def as_current(self) -> Iterator[None]:
        """Make the model call of the body this one."""
        mark = _taking.set(self)
        try:
            yield
        finally:
            _taking.reset(mark)

    def take(self) -> None:
        """Keep the answer: the agent has it."""
        if self.tape is not None and self.ticket is not None:
            if self.answer is not None:
                self.tape.keep(self.ticket, self.answer, self.end)
            self.tape.done(self.ticket)

    def drop(self) -> None:
        """Keep the call as given up: the agent has not waited for the answer."""
        if self.tape is not None and self.ticket is not None:
            self.tape.keep_unanswered(self.ticket, GIVEN_UP)
            self.tape.done(self.ticket)


_taking: ContextVar[CallInProgress | None] = ContextVar("taking", default=None)


def call_in_progress() -> CallInProgress | None:
    """Return the attempt's call under way, or None for a call of nobody's attempt."""
    return _taking.get()


@dataclass(slots=True)
class _Session:
    """One generation of a session: its recorded calls in order, and how often each was asked for."""

    calls: list[_Taped] = field(default_factory=list)
    by_key: dict[str, list[_Taped]] = field(default_factory=lambda: defaultdict(list))
    asks: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    clock: int = 0  # the last event number
    turns: Turns = field(default_factory=Turns)
    under_way: set[Ticket] = field(default_factory=set)

    def add(self, taped: _Taped) -> None:
        """Add a recorded call, replacing an earlier recording of the same request and number."""
        self.clock = max(self.clock, taped.turn.end)
        same = self.by_key[taped.key]
        if same and same[-1].turn.begin == taped.turn.begin:
            self.calls.remove(same.pop())
        same.append(taped)
        self.calls.append(taped)

    def begin(self) -> None:
        """Prepare the replay order, after all recorded calls were added."""
        self.turns = Turns(taped.turn for taped in self.calls)

    def next(self, key: str) -> _Taped | None:
        """Return the recorded call for the next request with this key, or None."""
        nth, same = self.asks[key], self.by_key.get(key, ())
        self.asks[key] += 1
        return same[nth] if nth < len(same) else None

    def tick(self) -> int:
        self.clock += 1
        return self.clock


class Tape:
    """Thread-safe tape of model calls."""

    def __init__(
        self,
        path: Path | None,
        mode: Mode,
        part: Path | None = None,
        *,
        anywhere: bool = False,
        taken_over: int = 0,
    ) -> None:
        """Open a tape (a directory or a .wacz file). In `replay` mode it must exist.

        New calls go into `part` if given, which `gather` merges later: one directory has one writer.
        `anywhere` is for repetitions: calls are found whatever address the endpoint has now or had when they
        were recorded. `taken_over` is the number of calls that a fork's agent took over from another run: they
        are never asked for.
        """
        if mode not in MODES:
            raise UsageError(f"--tape: {mode!r} is none of {', '.join(MODES)}")
        self.path, self.mode, self.part, self._anywhere = path, mode, part, anywhere
        self._taken_over = taken_over
        self._lock = threading.RLock()
        self._sessions: dict[str, _Session] = {}
        self._generation: dict[str, int] = {}
        self._begun: set[str] = set()
        self._snapshot: Any = None
        self._writer: Any = None
        self._closed = False
        if mode == "none":
            return
        if path is None:
            raise UsageError(f"--tape {mode}: needs a path")
        if path.exists():
            self._load(path)
        elif mode == "replay":
            raise UsageError(f"{path}: there is no tape to replay; record one with --tape record")

    def _load(self, path: Path) -> None:
        from stillweb.snapshots.snapshot import Snapshot

        self._snapshot = Snapshot.open(str(path))
        captures = [c for c in self._snapshot.captures() if "@" in c.session]
        captures.sort(key=lambda c: (c.session, c.begin, c.end, c.filename, c.offset))
        for capture in captures:
            quoted, _, number = capture.session.rpartition("@")
            generation = whole_number(number)
            if generation is None:
                continue  # a session of another snapshot, not of a tape
            name = unquote(quoted)
            if generation > self._generation.get(name, 0):
                self._generation[name] = generation
                self._sessions[name] = _Session()
            if generation == self._generation[name]:
                request = self._snapshot.read_request(capture)
                call = Call(name, request.method, _masked(request.url), request.body)
                self._sessions[name].add(_taped(self._key(call), capture))
        for session in self._sessions.values():
            session.begin()

    @property
    def generations(self) -> Mapping[str, int]:
        """Session -> number of its generations."""
        return self._generation

    def _key(self, call: Call) -> str:
        return call.key_anywhere if self._anywhere else call.key

    def begin(self, name: str) -> CallInProgress:
        """Return a call of an attempt that begins now, before all that its agent hears from here on."""
        with self._lock:
            sealed = self.path is not None and self.path.suffix == ".wacz"
            if self.mode not in ("record", "auto") or sealed:
                return CallInProgress(self)
            if self.mode == "record" or name not in self._sessions:
                self._begin_generation(name)
            return CallInProgress(self, self._sessions[name].tick())

    def make(self, call: Call, begin: int = 0) -> Ticket:
        """Begin a call, under the number `begin` if it has one; ask for its answer next.

        Raise TapeMiss in `replay` mode, naming the message and the character that differ.
        """
        if self.mode == "none":
            return Ticket(call)
        with self._lock:
            session = None if self.mode == "record" else self._sessions.get(call.session)
            taped = session.next(self._key(call)) if session else None
            if taped is not None and session is not None and (taped.answered or self.mode == "replay"):
                ticket = Ticket(call, taped=taped)
                session.turns.note_made(taped.turn)
            elif self.mode == "replay" or self._is_taken_over(call.session, session):
                raise TapeMiss(self._explain(call, session))
            else:
                self._begin_generation(call.session, fresh=session is None)
                session = self._sessions[call.session]
                if taped is not None:
                    session.turns.leave_out(taped.turn)
                ticket = Ticket(call, taped.turn.begin if taped else begin or session.tick())
            session.under_way.add(ticket)
            return ticket

    async def answer(self, ticket: Ticket) -> EndpointResponse | None:
        """Wait for the recorded answer's turn and return it, or None if the endpoint must be asked.

        Raise ModelError if the endpoint failed, TapeMiss if the agent gave up this call in the first run and
        now waits for it.
        """
        taped = ticket.taped
        if taped is None:
            return None
        turns = self._sessions[ticket.call.session].turns
        if taped.answered or taped.status == FAILED:
            await turns.wait_for(taped.turn)
        with self._lock:
            answer = self._read(taped.capture)
        if taped.answered:
            return answer
        placeholder = json.loads(answer.body)
        if taped.status == FAILED:
            raise ModelError(placeholder["error"])
        await turns.hold(_MORE + 3 * placeholder["seconds"])
        raise TapeMiss(
            f"{self.path}: model call of {ticket.call.session!r} was given up after {placeholder['seconds']:.0f} seconds, "
            "and is waited for now"
        )

    def _is_taken_over(self, name: str, session: _Session | None) -> bool:
        """Return True for one of the calls that a fork repeats: asked for, it would be another model's step."""
        asked = sum(session.asks.values()) if session else 1
        return asked <= self._taken_over and not name.endswith("/judge")

    def copy_calls(self, name: str, most: int, path: Path, new_name: str) -> None:
        """Write the first `most` answered calls of a session to a new tape, as the session `new_name`.

        Raise UsageError if the tape has fewer, or if they were made at once, so that no first ones are known.
        """
        session = self._sessions.get(name) or _Session()
        calls = sorted((one for one in session.calls if one.answered), key=lambda one: one.turn.begin)[:most]
        if len(calls) < most:
            raise UsageError(
                f"{self.path}: only {pluralize(len(calls), 'call')} of {name!r} on the tape, not {most}"
            )
        if any(one.turn.end > other.turn.begin for one, other in pairwise(calls)):
            raise UsageError(
                f"{self.path}: {name!r} made concurrent calls, so its first {most} are not known"
            )
        with Tape(path, "record") as copy:
            copy._begin_generation(new_name)
            for one in calls:
                request = self._snapshot.read_request(one.capture)
                call = Call(new_name, request.method, _masked(request.url), request.body, request.headers)
                copy._write(call, self._read(one.capture), one.turn.begin, one.turn.end)

    def _begin_generation(self, name: str, *, fresh: bool = True) -> None:
        if self.path is not None and self.path.suffix == ".wacz":  # before a call is paid for
            raise UsageError(f"{self.path}: a sealed tape can't be extended; use --tape replay")
        if name in self._begun:
            return
        self._begun.add(name)
        if fresh or name not in self._sessions:
            self._generation[name] = self._generation.get(name, 0) + 1
            self._sessions[name] = _Session()

    def ask_again(self, name: str, *, everything: bool = False) -> None:
        """In `auto` mode, begin a new generation of a session so that refused calls (4xx) are asked again.

        All other answers are kept, or none with `everything`, for answers that could not be read.
        """
        with self._lock:
            old = self._sessions.get(name)
            if self.mode != "auto" or old is None:
                return
            if not everything and all(taped.status < 400 for taped in old.calls):
                return
            self._begun.discard(name)
            self._begin_generation(name)
            session = self._sessions[name]
            for taped in old.calls:
                if taped.status < 400 and not everything:
                    request = self._snapshot.read_request(taped.capture)
                    url = _masked(request.url)
                    call = Call(name, request.method, url, request.body, request.headers)
                    self._write(call, self._read(taped.capture), taped.turn.begin, taped.turn.end)
                    turn = Turn(taped.turn.begin, taped.turn.end, due=True)
                    session.add(_Taped(taped.key, taped.capture, turn, taped.status, answered=True))
            session.begin()

    def tick(self, name: str) -> int:
        """Return the number of what happens now in a session that records."""
        with self._lock:
            session = self._sessions.get(name)
            return session.tick() if session and self.mode in ("record", "auto") else 0

    def keep(self, ticket: Ticket, answer: EndpointResponse, end: int = 0) -> None:
        """Write a call and its answer to disk; the answer came as number `end`, or comes now.

        Ignore an answer that comes after its session's end.
        """
        with self._lock:
            if ticket.open and not self._closed and self.mode in ("record", "auto"):
                ticket.open = False
                end = end or self._sessions[ticket.call.session].tick()
                self._write(ticket.call, answer, ticket.begin, end)

    def keep_unanswered(self, ticket: Ticket, status: int, error: str = "") -> None:
        """Write that a call had no answer: GIVEN_UP, or FAILED with the error message."""
        if ticket.taped is None:
            placeholder = {"seconds": round(time.monotonic() - ticket.since, 3), "error": error}
            self.keep(
                ticket,
                EndpointResponse(status, (("content-type", UNANSWERED),), json.dumps(placeholder).encode()),
            )

    def done(self, ticket: Ticket) -> None:
        """Mark the call as ended: its caller waits no longer."""
        with self._lock:
            ticket.open = False
            if session := self._sessions.get(ticket.call.session):
                session.under_way.discard(ticket)
                if ticket.taped is not None:
                    session.turns.note_taken(ticket.taped.turn)

    def end(self, name: str) -> None:
        """End a session: its calls under way are kept as unanswered."""
        with self._lock:
            session = self._sessions.get(name)
            for ticket in sorted(session.under_way, key=lambda ticket: ticket.begin) if session else ():
                self.keep_unanswered(ticket, GIVEN_UP)
        self.stop(name, None)

    def stop(self, name: str, error: BaseException | None) -> None:
        """Raise `error` in callers that wait for recorded answers of a session; without one, cancel them."""
        if session := self._sessions.get(name):
            session.turns.stop(error)

    async def wait_until_idle(self, name: str) -> None:
        """Wait until all recorded calls of a session are made and answered, or nothing moves.

        Raises the error passed to `stop`.
        """
        if session := self._sessions.get(name):
            await session.turns.wait_until_idle()

    def _write(self, call: Call, answer: EndpointResponse, begin: int, end: int) -> None:
        from stillweb.snapshots.capture import Exchange
        from stillweb.snapshots.request import Request

        name = f"{quote(call.session, safe='/')}@{self._generation[call.session]}"
        request = Request(call.method, call.url, call.headers, call.body)
        self._open_writer().exchange(
            Exchange(
                request,
                answer.status,
                "",
                answer.headers,
                answer.body,
                datetime.now(UTC),
                session=name,
                begin=begin,
                end=end,
            )
        )

    def _open_writer(self) -> Any:
        if self._writer is None:
            from stillweb.snapshots.writer import Writer

            assert self.path is not None
            self._writer = Writer.open(self.part or self.path, software=SOFTWARE, keep_text=False)
        return self._writer

    def _read(self, where: Any) -> EndpointResponse:
        response = self._snapshot.read(where)
        return EndpointResponse(response.status, response.headers, response.body)

    def _explain(self, call: Call, session: _Session | None) -> str:
        place = f"{self.path}: model call of {call.session!r} is not on the tape"
        if session is None or not session.calls:
            return f"{place}: nothing was recorded for this task and attempt"
        if self._key(call) in session.by_key:
            times = pluralize(len(session.by_key[self._key(call)]), "time")
            return f"{place}: the same request was recorded {times} and is now made once more"
        now = parse_body(call.body)
        best: tuple[int, int, str] | None = None
        for number, taped in enumerate(session.calls, 1):
            request = self._snapshot.read_request(taped.capture)
            url = _masked(request.url)
            if url != call.url and not self._anywhere:
                found = (-1, number, f"its URL is {url}, now {call.url}")
            else:
                same, text = difference(parse_body(request.body), now)
                found = (same, number, text)
            if best is None or found[0] > best[0]:
                best = found
        assert best is not None
        return f"{place}: it is nearest to call {best[1]} of {len(session.calls)}, but {best[2]}"

    def close(self) -> None:
        """Stop writing. Kept calls are on disk already."""
        self._closed = True
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _masked(url: str) -> str:
    from stillweb.snapshots.secrets.redact import mask_value  # 25 ms that no attempt's process needs

    masked: str = mask_value(url)
    return masked


def _taped(key: str, capture: Any) -> _Taped:
    answered = capture.mime != UNANSWERED
    due = answered or capture.status == FAILED
    return _Taped(key, capture, Turn(capture.begin, capture.end, due), capture.status, answered)


_KEPT = {"content-type", "accept", "openai-model", "openai-version", "openai-beta"}


@dataclass(frozen=True, slots=True)
class Call:
    """Request to a model endpoint, with secrets already replaced."""

    session: str
    method: str
    url: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        """SHA-256 (hex) of method, URL and canonical body."""
        return sha256(canonical([self.method, self.url, parse_body(self.body)])).hexdigest()

    @property
    def key_anywhere(self) -> str:
        """Key that is the same for all endpoints: of the URL only the name of the API is hashed."""
        api = self.url.partition("?")[0].rpartition("/")[2]
        return sha256(canonical([self.method, api, parse_body(self.body)])).hexdigest()


@dataclass(frozen=True, slots=True)
class EndpointResponse:
    """Response of an endpoint; `body` is decoded."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def parse_body(body: bytes) -> Any:
    """Return the value of a JSON body, or the digest of any other body."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return f"sha256:{sha256(body).hexdigest()}"


def kept_headers(headers: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in headers if name.lower() in _KEPT)


def difference(taped: Any, now: Any, path: str = "") -> tuple[int, str]:
    """Return how far two JSON values agree, in characters of equal leaves, and their first difference in words.

    The text names the member and, in a string, the character.
    """
    if type(taped) is not type(now):  # e.g. 0 and 0.0, which are serialized differently
        return 0, f"{path or 'the body'} is {_short(taped)} on the tape, now {_short(now)}"
    if isinstance(taped, dict):
        same = 0
        for name in [*taped, *(n for n in now if n not in taped)]:
            inner = f"{path}.{name}" if path else name
            if name not in now:
                return same, f"{inner} is {_short(taped[name])} on the tape, and is missing now"
            if name not in taped:
                return same, f"{inner} is not on the tape, now {_short(now[name])}"
            if canonical(taped[name]) != canonical(now[name]):
                more, text = difference(taped[name], now[name], inner)
                return same + more, text
            same += len(str(taped[name]))
        return same, ""
    if isinstance(taped, list):
        same = 0
        for i, (old, new) in enumerate(zip(taped, now, strict=False)):
            if canonical(old) != canonical(new):
                more, text = difference(old, new, f"{path}[{i}]")
                return same + more, text
            same += len(str(old))
        return same, f"{path} has {pluralize(len(taped), 'entry')} on the tape, now {len(now)}"
    if isinstance(taped, str):
        at = next(
            (i for i, (a, b) in enumerate(zip(taped, now, strict=False)) if a != b), min(len(taped), len(now))
        )
        begin = max(0, at - 20)
        old, new = taped[begin : at + 30], now[begin : at + 30]
        return at, f"{path} differs at character {at}: {old!r} on the tape, now {new!r}"
    return 0, f"{path} is {_short(taped)} on the tape, now {_short(now)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"


def make_empty(path: Path) -> None:
    """Make a tape without any call, so that no call is answered."""
    from stillweb.snapshots.writer import Writer

    Writer.open(path, software=SOFTWARE, keep_text=False).close()


def part_of(path: Path, name: str) -> Path:
    """Return the path where the worker `name` records its part of the tape at `path`."""
    return path.with_name(f"{path.name}.parts") / name


def gather(path: Path) -> int:
    """Merge the parts of a tape into it, remove them, and return how many were merged.

    A killed worker's part is merged, too. A part that is still being written is left for the next time.
    """
    folder = part_of(path, "x").parent
    parts = sorted(folder.iterdir()) if folder.exists() else []
    if not parts:
        return 0
    from stillweb.snapshots.capture import Exchange
    from stillweb.snapshots.snapshot import Snapshot
    from stillweb.snapshots.writer import Writer

    taken = 0
    with Writer.open(path, software=SOFTWARE, keep_text=False) as writer, Snapshot.open(str(path)) as tape:
        there = _by_session(tape)  # an interrupted merge has already taken some
        for part in parts:
            try:
                # raises while another process writes the part
                held = Writer.open(part, software=SOFTWARE, keep_text=False)
            except UsageError:
                continue
            with held, Snapshot.open(str(part)) as snapshot:
                for name, captures in sorted(_by_session(snapshot).items()):
                    done = [_content(c) for c in there.get(name, ())]
                    same = done == [_content(c) for c in captures[: len(done)]]
                    for capture in captures[len(done) if same else 0 :]:
                        request, response = snapshot.read_request(capture), snapshot.read(capture)
                        moment = parse_timestamp(capture.timestamp[:14]) or EPOCH
                        writer.exchange(
                            Exchange(
                                request,
                                response.status,
                                "",
                                response.headers,
                                response.body,
                                moment,
                                name,
                                capture.begin,
                                capture.end,
                            )
                        )
            shutil.rmtree(part)
            taken += 1
    if taken == len(parts):
        folder.rmdir()
    return taken


def _by_session(snapshot: Any) -> dict[str, list[Any]]:
    """Return the captures of each session in recorded order."""
    found: dict[str, list[Any]] = defaultdict(list)
    for capture in sorted(snapshot.captures(), key=lambda c: c.begin):
        found[capture.session].append(capture)
    return found


def _content(capture: Any) -> tuple[Any, ...]:
    return capture.timestamp[:14], capture.url, capture.exact, capture.status, capture.digest
