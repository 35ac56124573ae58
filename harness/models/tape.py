"""The tape: model calls kept in the snapshot's format, so that a run repeats without key or network.

A call is found again by its whole request (method, URL, JSON body in any key order) within its session (task
and attempt), the nth same request getting the nth answer. Nothing else is ever served: a call that is not on
the tape is explained.

Only the last try of a call is kept, and only if it is an answer; of headers only those named in `_KEPT`;
the key is replaced wherever it stands. Sessions are written as `name@generation`: recording a session anew
begins a new generation, and the newest is the one that replays.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote, unquote

from harness.trace import canonical
from snapshots.errors import StillwebError, UsageError
from snapshots.words import counted

Mode = Literal["record", "replay", "auto", "none"]
MODES: tuple[Mode, ...] = ("record", "replay", "auto", "none")
_SOFTWARE = "stillweb tape"
_KEPT = {"content-type", "accept", "openai-model", "openai-version", "openai-beta"}


class TapeMiss(StillwebError):
    """A model call that is not on the tape."""

    exit_code = 1


class ModelError(StillwebError):
    """A model endpoint that did not answer as one."""

    exit_code = 4


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a model endpoint, secrets already replaced."""

    session: str
    method: str
    url: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        """SHA-256 (hex) of method, URL and canonical body."""
        return sha256(canonical([self.method, self.url, parsed(self.body)])).hexdigest()


@dataclass(frozen=True, slots=True)
class Answer:
    """What the endpoint said. `body` is decoded."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def parsed(body: bytes) -> Any:
    """A JSON body's value, or the digest of any other."""
    try:
        return json.loads(body)
    except ValueError:
        return f"sha256:{sha256(body).hexdigest()}"


def kept_headers(headers: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The header fields that may lie on a tape."""
    return tuple((name, value) for name, value in headers if name.lower() in _KEPT)


@dataclass(slots=True)
class _Session:
    """One generation of a session: (key, capture or answer) in recorded order, and what was served."""

    calls: list[tuple[str, Any]] = field(default_factory=list)
    by_key: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    served: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    asked: int = 0

    def add(self, key: str, where: Any) -> None:
        self.by_key[key].append(len(self.calls))
        self.calls.append((key, where))


class Tape:
    """Safe for threads. `open` reads what is there; recording appends to it."""

    def __init__(self, path: Path | None, mode: Mode, part: Path | None = None) -> None:
        self.path, self.mode, self.part = path, mode, part
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session] = {}
        self._generation: dict[str, int] = {}
        self._begun: set[str] = set()
        self._snapshot: Any = None
        self._writer: Any = None

    @classmethod
    def open(cls, path: Path | None, mode: Mode, part: Path | None = None) -> Tape:
        """Opens a tape (a directory or a .wacz file). In `replay` it must be there.

        What is new goes into `part` where one is given, which `gather` adds to the tape: one directory has one writer.
        """
        if mode not in MODES:
            raise UsageError(f"--tape: {mode!r} is none of {', '.join(MODES)}")
        tape = cls(path, mode, part)
        if mode == "none":
            return tape
        if path is None:
            raise UsageError(f"--tape {mode}: needs a path")
        if path.exists():
            tape._load(path)
        elif mode == "replay":
            raise UsageError(f"{path}: there is no tape to replay; record one with --tape record")
        return tape

    def _load(self, path: Path) -> None:
        from snapshots.snapshot import Snapshot

        self._snapshot = Snapshot.open(str(path))
        captures = [c for c in self._snapshot.captures() if "@" in c.session]
        captures.sort(key=lambda c: (c.session, c.begin, c.filename, c.offset))
        for capture in captures:
            quoted, _, number = capture.session.rpartition("@")
            if not number.isdecimal():
                continue  # a session of another snapshot, not of a tape
            name, generation = unquote(quoted), int(number)
            if generation > self._generation.get(name, 0):
                self._generation[name] = generation
                self._sessions[name] = _Session()
            if generation == self._generation[name]:
                request = self._snapshot.read_request(capture)
                call = Call(name, request.method, request.url, request.body)
                self._sessions[name].add(call.key, capture)

    def find(self, call: Call) -> Answer | None:
        """The recorded answer to a call, or None where the endpoint must be asked.

        TapeMiss in `replay` mode, saying which message differs and at which character.
        """
        if self.mode == "none":
            return None
        with self._lock:
            if self.mode == "record":
                self._begin(call.session)
                return None
            session = self._sessions.get(call.session)
            if session is not None:
                session.asked += 1
                places = session.by_key.get(call.key, [])
                nth = session.served[call.key]
                if nth < len(places):
                    session.served[call.key] += 1
                    return self._read(session.calls[places[nth]][1])
            if self.mode == "replay":
                raise TapeMiss(self._explain(call, session))
            self._begin(call.session, fresh=session is None)
            return None

    def _begin(self, name: str, *, fresh: bool = True) -> None:
        if self.path is not None and self.path.suffix == ".wacz":  # before anything is paid
            raise UsageError(f"{self.path}: a sealed tape can't be added to; use --tape replay")
        if name in self._begun:
            return
        self._begun.add(name)
        if fresh or name not in self._sessions:
            self._generation[name] = self._generation.get(name, 0) + 1
            self._sessions[name] = _Session()

    def ask_again(self, name: str, *, everything: bool = False) -> None:
        """In `auto`, what a session was refused (a 4xx) is asked again: a new generation begins, which keeps the rest.

        `everything`: nothing is kept, for answers that nobody could read.
        """
        old = self._sessions.get(name)
        if self.mode != "auto" or old is None:
            return
        answers = [(where, self._read(where)) for _, where in old.calls]
        if everything:
            answers = []
        elif all(answer.status < 400 for _, answer in answers):
            return
        self._begun.discard(name)
        self._begin(name)
        for where, answer in answers:
            if answer.status < 400:
                request = self._snapshot.read_request(where)
                self.keep(Call(name, request.method, request.url, request.body, request.headers), answer)
        self._sessions[name].served.clear()

    def keep(self, call: Call, answer: Answer) -> None:
        """Writes a call and its answer; on disk when this returns."""
        if self.mode not in ("record", "auto"):
            return
        from snapshots.capture import Exchange
        from snapshots.request import Request

        with self._lock:
            writer = self._open_writer()
            session = self._sessions[call.session]
            name = f"{quote(call.session, safe='/')}@{self._generation[call.session]}"
            exchange = Exchange(
                Request(call.method, call.url, call.headers, call.body),
                answer.status,
                "",
                answer.headers,
                answer.body,
                datetime.now(UTC),
                session=name,
                begin=writer.event(name),
                end=writer.event(name),
            )
            writer.exchange(exchange)
            session.add(call.key, answer)
            session.served[call.key] += 1

    def _open_writer(self) -> Any:
        if self._writer is None:
            from snapshots.writer import Writer

            assert self.path is not None
            self._writer = Writer.open(self.part or self.path, software=_SOFTWARE, keep_text=False)
        return self._writer

    def _read(self, where: Any) -> Answer:
        if isinstance(where, Answer):
            return where
        response = self._snapshot.read(where)
        return Answer(response.status, response.headers, response.body)

    def _explain(self, call: Call, session: _Session | None) -> str:
        place = f"{self.path}: model call of {call.session!r} is not on the tape"
        if session is None or not session.calls:
            return f"{place}: nothing was recorded for this task and attempt"
        if call.key in session.by_key:
            times = counted(len(session.by_key[call.key]), "time")
            return f"{place}: the same request was recorded {times} and is made once more"
        now = parsed(call.body)
        best: tuple[int, int, str] | None = None
        for number, (_, where) in enumerate(session.calls, 1):
            request = None if isinstance(where, Answer) else self._snapshot.read_request(where)
            if request is None:
                continue
            if request.url != call.url:
                found = (-1, number, f"its URL is {request.url}, now {call.url}")
            else:
                same, text = difference(parsed(request.body), now)
                found = (same, number, text)
            if best is None or found[0] > best[0]:
                best = found
        if best is None:
            return place
        return f"{place}: it is nearest to call {best[1]} of {len(session.calls)}, but {best[2]}"

    def close(self) -> None:
        """Ends writing; what was kept is on disk already."""
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


def make_empty(path: Path) -> None:
    """A tape that holds no call, so that none is answered."""
    from snapshots.writer import Writer

    Writer.open(path, software=_SOFTWARE, keep_text=False).close()


def part_of(path: Path, name: str) -> Path:
    """Where a worker of that name records what belongs to the tape at `path`."""
    return path.with_name(f"{path.name}.parts") / name


def gather(path: Path) -> int:
    """Takes the parts of a tape into it, and away; returns how many. A killed worker's part counts too; one that is still
    being written is left for the next time.
    """
    folder = part_of(path, "x").parent
    parts = sorted(folder.iterdir()) if folder.exists() else []
    if not parts:
        return 0
    from snapshots.capture import Exchange
    from snapshots.snapshot import Snapshot
    from snapshots.writer import Writer

    taken = 0
    with Writer.open(path, software=_SOFTWARE, keep_text=False) as writer, Snapshot.open(str(path)) as tape:
        there = _by_session(tape)  # a gathering that was killed has taken some already
        for part in parts:
            try:
                held = Writer.open(part, software=_SOFTWARE, keep_text=False)  # nobody else writes it now
            except UsageError:
                continue
            with held, Snapshot.open(str(part)) as snapshot:
                for name, captures in sorted(_by_session(snapshot).items()):
                    done = [_content(c) for c in there.get(name, ())]
                    same = done == [_content(c) for c in captures[: len(done)]]
                    for capture in captures[len(done) if same else 0 :]:
                        request, response = snapshot.read_request(capture), snapshot.read(capture)
                        moment = datetime.strptime(capture.timestamp[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
                        begin, end = writer.event(name), writer.event(name)
                        writer.exchange(
                            Exchange(
                                request,
                                response.status,
                                "",
                                response.headers,
                                response.body,
                                moment,
                                name,
                                begin,
                                end,
                            )
                        )
            shutil.rmtree(part)
            taken += 1
    if taken == len(parts):
        folder.rmdir()
    return taken


def _by_session(snapshot: Any) -> dict[str, list[Any]]:
    """The captures of each session in recorded order."""
    found: dict[str, list[Any]] = defaultdict(list)
    for capture in sorted(snapshot.captures(), key=lambda c: c.begin):
        found[capture.session].append(capture)
    return found


def _content(capture: Any) -> tuple[Any, ...]:
    return capture.timestamp[:14], capture.url, capture.exact, capture.status, capture.digest


def difference(taped: Any, now: Any, path: str = "") -> tuple[int, str]:
    """How far two JSON values agree (characters of equal leaves before the first difference), and that difference.

    The text names the member and, in a string, the character.
    """
    if type(taped) is not type(now):  # 0 and 0.0, too, which are not written alike
        return 0, f"{path or 'the body'} is {_short(taped)} on the tape, now {_short(now)}"
    if isinstance(taped, dict):
        same = 0
        for name in [*taped, *(n for n in now if n not in taped)]:
            inner = f"{path}.{name}" if path else name
            if name not in now:
                return same, f"{inner} is {_short(taped[name])} on the tape, now it is not there"
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
        return same, f"{path} has {len(taped)} entries on the tape, now {len(now)}"
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
