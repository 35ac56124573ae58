"""What of an agent could be at work at once: its tasks and threads as lanes, each begun by another, with their calls.

An attempt's calls may overlap, and which of them ends first hangs on the clock. What does not is who began whom: an
asyncio task is a lane that its beginner's lane forks, wherever it is awaited; a thread that brings no context of ours
(of a ThreadPoolExecutor) is one of the attempt's own. harness.agents.order makes the order of a trace of it.

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
        self.overlapped = False  # whether two calls were ever under way at once
        self._under_way = 0
        # lanes without a context of ours: what runs in them -> the lane, and whether it still runs
        self._loose: dict[Any, tuple[Lane, Callable[[], bool]]] = {}

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
        lane.calls.append(call)
        self.overlapped = self.overlapped or self._under_way > 0
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
        what: Any = thread
        runs: Callable[[], bool] = thread.is_alive
        if thread is here and task is not None:
            what, runs = task, lambda: not task.done()
        if what not in self._loose:
            self._loose[what] = self.root.fork(), runs
        return self._loose[what][0]

    def look(self, *, everyone: bool = False) -> None:
        """Sees which threads have ended."""
        for what, (lane, runs) in list(self._loose.items()):
            if everyone or not runs():
                lane.over()
                del self._loose[what]


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
