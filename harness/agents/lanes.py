"""What of an agent could be at work at once: its tasks and threads as lanes, each begun by another, with their calls.

An attempt's calls may overlap, and which of them ends first hangs on the clock. What does not is who began whom: an
asyncio task is a lane that its beginner's lane forks, wherever it is awaited; a thread that brings no context of ours
(of a ThreadPoolExecutor) is one of the attempt's own. stillweb.harness.agents.order makes the order of a trace of it.

    with lanes.followed(): …the agent runs…        call = lanes.begin(); …; lanes.end(call)
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any

_lane: ContextVar[Lane] = ContextVar("lane")


@dataclass(slots=True, eq=False)
class Call:
    """A model or tool call: when it began, and the number of its event once it is traced."""

    begin: int
    n: int = 0


@dataclass(slots=True, eq=False)
class Lane:
    """A task or thread of an agent. `begin` and `end` are moments of the attempt, counted in steps of its lanes."""

    lanes: Lanes
    begin: int
    end: int | None = None
    calls: list[Call] = field(default_factory=list)
    forked: list[Lane] = field(default_factory=list)

    def fork(self) -> Lane:
        """A lane that this one begins."""
        self.lanes.look()
        lane = Lane(self.lanes, self.lanes.tick())
        self.forked.append(lane)
        return lane

    def over(self) -> None:
        """It has ended."""
        if self.end is None:
            self.end = self.lanes.tick()


class Lanes:
    """The lanes of one attempt, from its first, `root`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moment = 0
        self.root = Lane(self, 0)
        self._under_way = 0
        self._overlapped = False  # whether two calls were ever under way at once
        self._since = 0  # when the root last called something itself
        # lanes without a context of ours: what runs in them -> the lane, and whether it still runs
        self._loose: dict[Any, tuple[Lane, Callable[[], bool]]] = {}

    @property
    def overlapped(self) -> bool:
        """Whether calls could have come in another order: of lanes that were alive at once, whether or not two calls were
        ever under way at once.
        """
        return self._overlapped or _at_once(self.root)

    @contextmanager
    def followed(self) -> Iterator[None]:
        """What runs inside is the root; the tasks that it begins, and those that these begin, are forked from it."""
        loop = asyncio.get_running_loop()
        if not isinstance(before := loop.get_task_factory(), _Forking):
            loop.set_task_factory(_Forking(before))
        mark = _lane.set(self.root)
        try:
            yield
        finally:
            _lane.reset(mark)

    def tick(self) -> int:
        """The next moment."""
        with self._lock:
            self._moment += 1
            return self._moment

    def begin(self, thread: threading.Thread) -> Call:
        """A call begins; `thread` is the one that asked for it."""
        lane = self._lane_of(thread)
        if lane is self.root:
            self.look(everyone=True)  # a pool of threads that lives on begins anew after it
        call = Call(self.tick())
        if lane is self.root:
            self._since = call.begin
        lane.calls.append(call)
        self._overlapped = self._overlapped or self._under_way > 0
        self._under_way += 1
        return call

    def end(self, call: Call) -> None:
        """It has ended, however."""
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
            # nobody knows when it was begun, and another one may have ended before its first call
            lane = Lane(self, self._since)
            self.root.forked.append(lane)
            self._loose[thread] = lane, lambda: True
        return self._loose[thread][0]

    def look(self, *, everyone: bool = False) -> None:
        """Sees what has ended."""
        for what, (lane, runs) in list(self._loose.items()):
            if everyone or not runs():
                lane.over()
                del self._loose[what]


def bunches(lane: Lane) -> list[list[Lane]]:
    """What a lane began, as far as it called something: together what was alive at once."""
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
    """The calls of a lane and of all that it began."""
    yield from lane.calls
    for one in lane.forked:
        yield from calls_of(one)


def _end(lane: Lane) -> float:
    """When it and all that it began had ended, as far as that called something."""
    ends = (_end(one) for one in lane.forked if any(call.n for call in calls_of(one)))
    return max([float("inf") if lane.end is None else lane.end, *ends])


def _at_once(lane: Lane) -> bool:
    """Whether lanes that it began were alive at once, or one of them while it called something itself."""
    for bunch in bunches(lane):
        begin, end = bunch[0].begin, _end(bunch[0])
        if len(bunch) > 1 or any(begin < call.begin < end for call in lane.calls) or _at_once(bunch[0]):
            return True
    return False


class _Forking:
    """A loop's task factory: a task that is begun in a lane is a new one."""

    def __init__(self, before: Any) -> None:
        self._before = before

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> Any:
        lane = _lane.get(None)
        if lane is None or more.get("context") is not None:
            return self._make(loop, coroutine, **more)
        context, forked = copy_context(), lane.fork()
        context.run(_lane.set, forked)
        task = self._make(loop, coroutine, **{**more, "context": context})
        task.add_done_callback(lambda _: forked.over())
        return task

    def _make(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> Any:
        if self._before is not None:
            return self._before(loop, coroutine, **more)
        return asyncio.Task(coroutine, loop=loop, **more)
