"""Concurrency of an agent: its tasks and threads as lanes, with their calls.

Calls of an attempt may overlap, and which ends first depends on the clock. What does not depend on it is
which lane started which: an asyncio task is a lane forked from the lane that created it, wherever it is
awaited. A thread without a context of ours (of a ThreadPoolExecutor) is forked from the attempt's root.
`sort_by_lane` sorts a trace by these lanes.

    with lanes.followed(): …the agent runs…        call = lanes.begin(thread); …; lanes.end(call)
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import takewhile
from typing import Any

from stillweb.harness.agents.retrieval import Standing
from stillweb.harness.trace import Event, canonical, hashed_part

_lane: ContextVar[Lane] = ContextVar("lane")


@dataclass(slots=True, eq=False)
class Call:
    """Model or tool call: when it began, and the number of its event once it is traced."""

    begin: int
    n: int = 0


@dataclass(slots=True, eq=False)
class Lane:
    """Task or thread of an agent. `begin` and `end` are logical times of the attempt (see `Lanes.tick`)."""

    lanes: Lanes
    begin: int
    end: int | None = None
    calls: list[Call] = field(default_factory=list)
    forked: list[Lane] = field(default_factory=list)

    def fork(self) -> Lane:
        self.lanes.look()
        lane = Lane(self.lanes, self.lanes.tick())
        self.forked.append(lane)
        return lane

    def close(self) -> None:
        """Mark the lane as ended."""
        if self.end is None:
            self.end = self.lanes.tick()


class Lanes:
    """Tree of an attempt's lanes, starting at `root`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moment = 0
        self.root = Lane(self, 0)
        self._under_way = 0
        self._overlapped = False  # two calls were under way at once
        self._since = 0  # when the root last made a call itself
        # lanes without a context of ours: task or thread -> its lane, and a function that says if it runs
        self._loose: dict[Any, tuple[Lane, Callable[[], bool]]] = {}

    @property
    def overlapped(self) -> bool:
        """Return True if the calls could have come in another order.

        That is so if two calls were under way at once, or if calling lanes were alive at once.
        """
        return self._overlapped or _at_once(self.root)

    @contextmanager
    def as_root(self) -> Iterator[None]:
        """Run the body as the root lane. Tasks that it creates, and theirs, are forked from it."""
        loop = asyncio.get_running_loop()
        if not isinstance(before := loop.get_task_factory(), _Forking):
            loop.set_task_factory(_Forking(before))
        mark = _lane.set(self.root)
        try:
            yield
        finally:
            _lane.reset(mark)

    def tick(self) -> int:
        """Return the next logical time."""
        with self._lock:
            self._moment += 1
            return self._moment

    def begin(self, thread: threading.Thread) -> Call:
        """Begin a call; `thread` is the one that asked for it."""
        lane = self._lane_of(thread)
        if lane is self.root:
            self.look(everyone=True)  # after a call of the root, a thread of a pool counts as a new lane
        call = Call(self.tick())
        if lane is self.root:
            self._since = call.begin
        lane.calls.append(call)
        self._overlapped = self._overlapped or self._under_way > 0
        self._under_way += 1
        return call

    def end(self, call: Call) -> None:
        self._under_way -= 1

    def _lane_of(self, thread: threading.Thread) -> Lane:
        lane = _lane.get(None)
        if lane is not None and lane.lanes is self:
            return lane
        here, task = threading.current_thread(), asyncio.current_task()
        if thread is here and task is not None:
            if task not in self._loose:
                self._loose[task] = self.root.fork(), lambda: not task.done()
            return self._loose[task][0]
        if thread not in self._loose:
            # its start is unknown, and another thread may have ended before its first call
            lane = Lane(self, self._since)
            self.root.forked.append(lane)
            self._loose[thread] = lane, lambda: True
        return self._loose[thread][0]

    def look(self, *, everyone: bool = False) -> None:
        """Mark finished tasks and threads (with `everyone`, all of them) as ended."""
        for what, (lane, runs) in list(self._loose.items()):
            if everyone or not runs():
                lane.close()
                del self._loose[what]


def bunches(lane: Lane) -> list[list[Lane]]:
    """Return the calling lanes that a lane started, grouped so that each group was alive at once."""
    found: list[list[Lane]] = []
    until = -1.0
    for one in sorted(lane.forked, key=lambda one: one.begin):
        if not any(call.n for call in calls_of(one)):
            continue
        if one.begin > until:
            found.append([])
        found[-1].append(one)
        until = max(until, _end(one))
    return found


def calls_of(lane: Lane) -> Iterator[Call]:
    """Yield the calls of a lane and of its descendants."""
    yield from lane.calls
    for one in lane.forked:
        yield from calls_of(one)


def _end(lane: Lane) -> float:
    """Return when a lane and its calling descendants had ended."""
    ends = (_end(one) for one in lane.forked if any(call.n for call in calls_of(one)))
    return max([float("inf") if lane.end is None else lane.end, *ends])


def _at_once(lane: Lane) -> bool:
    """Return True if calling lanes below this one overlapped, with each other or with its own calls."""
    for bunch in bunches(lane):
        begin, end = bunch[0].begin, _end(bunch[0])
        if len(bunch) > 1 or any(begin < call.begin < end for call in lane.calls) or _at_once(bunch[0]):
            return True
    return False


class _Forking:
    """Task factory of a loop: each task created in a lane gets a forked lane."""

    def __init__(self, before: Any) -> None:
        self._before = before

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> Any:
        lane = _lane.get(None)
        if lane is None or more.get("context") is not None:
            return self._make(loop, coroutine, **more)
        context, forked = copy_context(), lane.fork()
        context.run(_lane.set, forked)
        task = self._make(loop, coroutine, **{**more, "context": context})
        task.add_done_callback(lambda _: forked.close())
        return task

    def _make(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> Any:
        if self._before is not None:
            return self._before(loop, coroutine, **more)
        return asyncio.Task(coroutine, loop=loop, **more)


Key = tuple[tuple[Any, ...], ...]
_HEAD = 200  # bytes of a request that sort calls before their digests do


class SentMessages:
    """Messages sent to a model and its answers, call by call."""

    def __init__(self) -> None:
        self._all: list[Any] = []
        self._copied: list[Any] = []

    def copy(self, messages: Sequence[Any]) -> list[Any]:
        """Return a copy of the messages, which an agent may change in place.

        The unchanged start is not copied again.
        """
        known = zip(messages, self._copied, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], known))
        self._copied = [*self._copied[:same], *deepcopy([*messages[same:]])]
        return self._copied

    def added(self, messages: Sequence[Any], items: Sequence[Any]) -> list[Any]:
        """Return a call's messages, without the previous call's and its answer if the call continues them.

        `items` are the answer to this call. Both are kept and must not be changed.
        """
        known = len(self._all) if [*messages[: len(self._all)]] == self._all else 0
        self._all = [*messages, *items]
        return [*messages[known:]]


@dataclass(frozen=True)
class TracedCall:
    """Model or tool call as traced; of a model call also the messages sent and the items to send back.

    `follows` says that its `new` messages are those that the previous call in the trace had not sent.
    """

    event: Event
    messages: Sequence[Any] | None = None
    items: Sequence[Any] = ()
    follows: bool = False

    @cached_property
    def rest(self) -> bytes:
        """Return the bytes that tell it from another call at the same position."""
        event = {name: member for name, member in hashed_part(self.event).items() if name != "n"}
        if self.follows:
            event["request"] = {**event["request"], "new": None}
        return canonical(event)


def sort_by_lane(events: Sequence[Event], root: Lane, traced: Mapping[int, TracedCall]) -> list[Event]:
    """Return the events of an agent's part, sorted by lane; `traced` holds its calls by number.

    States and the new messages of requests are computed for this order. Other events, which have no position,
    come last.
    """
    found: list[Event] = []
    standing, sent = Standing(), SentMessages()
    for n in _walk(root, traced):
        one = traced[n]
        event = {**one.event, "n": len(found) + 1, "aside": {**one.event.get("aside", {}), "order": n}}
        if one.follows:
            event["request"] = {**event["request"], "new": sent.added(one.messages or (), one.items)}
        found.append(event)
        if event["event"] == "tool_call" and (changed := standing.state_after(event)):
            found.append({"event": "state", "n": len(found) + 1, "after": event["n"], **changed})
    others = [event for event in events if event["event"] not in ("model", "tool_call", "state")]
    for event in sorted(others, key=lambda event: canonical({**hashed_part(event), "n": 0})):
        found.append({**event, "n": len(found) + 1})
    return found


def _walk(lane: Lane, traced: Mapping[int, TracedCall]) -> Iterator[int]:
    places: list[tuple[int, Call | list[Lane]]] = [(call.begin, call) for call in lane.calls if call.n]
    places += [(bunch[0].begin, bunch) for bunch in bunches(lane)]
    for _, what in sorted(places, key=lambda place: place[0]):
        if isinstance(what, Call):
            yield what.n
        elif len(what) == 1:
            yield from _walk(what[0], traced)
        else:
            numbers = [call.n for one in what for call in calls_of(one) if call.n]
            yield from _by_content(numbers, traced)


def _by_content(numbers: Iterable[int], traced: Mapping[int, TracedCall]) -> list[int]:
    bunch = {n: traced[n] for n in numbers}
    models = _model_keys(bunch)
    calls = [(models[n], _texts(one.messages or ())) for n, one in bunch.items() if n in models]
    keys = dict(models)
    for n, one in bunch.items():
        if one.event["event"] == "tool_call":
            keys[n] = _tool_key(one, traced, models, calls)
    return sorted(bunch, key=lambda n: keys[n])


def _model_keys(bunch: Mapping[int, TracedCall]) -> dict[int, Key]:
    """Return the sort keys of model calls: the key of the call that they continue, then their own content."""
    keys: dict[int, Key] = {}
    by_content: dict[bytes, Key] = {}  # conversation including an answer -> the call that gave the answer
    models = [(n, one) for n, one in bunch.items() if one.event["event"] == "model"]
    # longer conversations continue shorter ones
    for n, one in sorted(models, key=lambda model: len(model[1].messages or ())):
        states = _states(one.messages or ())
        known = max((i for i, state in enumerate(states) if state in by_content), default=0)
        new = canonical([*(one.messages or one.event["request"]["new"])][known:])
        own = (1, new[:_HEAD], one.event["request"]["digest"], one.rest)
        keys[n] = (*(by_content.get(states[known], ())), own)
        if one.messages is not None and one.items:
            state = _states([*one.messages, *one.items])[-1]
            by_content[state] = min(keys[n], by_content.get(state, keys[n]))
    return keys


def _states(messages: Sequence[Any]) -> list[bytes]:
    """Return digests of a conversation after each of its messages, starting with the empty one."""
    states = [b""]
    for message in messages:
        states.append(sha256(states[-1] + canonical(message)).digest())
    return states


def _tool_key(
    one: TracedCall,
    traced: Mapping[int, TracedCall],
    models: Mapping[int, Key],
    calls: Sequence[tuple[Key, list[str]]],
) -> Key:
    event = one.event
    name, arguments, gave = event["tool"], canonical(event["arguments"]), event["output"]["text"]
    asked = [
        (models.get(n, ()), index)
        for n, model in traced.items()
        if model.event["event"] == "model"
        for index, call in enumerate(model.event["reply"]["tool_calls"])
        if call["name"] == name
        and (event.get("id") in (None, call["id"]))
        and _arguments(call["arguments"]) == arguments
    ]
    if asked:
        above, index = min(asked)
        return (*above, (0, index, name, arguments, one.rest))
    repeating = [key for key, texts in calls if gave.strip() and any(gave in text for text in texts)]
    if repeating:
        first = min(repeating)
        kind, head, digest, _ = first[-1]
        return (*first[:-1], (kind, head, digest, b"", name, arguments, one.rest))
    return ((0, 0, name, arguments, one.rest),)


def _texts(value: Any) -> list[str]:
    """Return all texts in a JSON value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        value = value.values()
    return [text for one in value for text in _texts(one)] if isinstance(value, Iterable) else []


def _arguments(text: str) -> bytes:
    try:
        return canonical(json.loads(text or "{}"))
    except (ValueError, RecursionError):
        return canonical(text)
