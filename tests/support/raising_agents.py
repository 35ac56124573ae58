"""Agents that end in ways that no exception of Python's own kind does, each in the way that its task is named after."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from typing import Any

from stillweb.harness.agents.attempt import Attempt
from stillweb.harness.scoring import Context, Score
from stillweb.harness.task import Task
from stillweb.snapshots.errors import MissingCapability, StillwebError
from tests.support.shelf_tools import PAGES
from tests.support.waiting import HANG, until

PAGE = next(iter(PAGES))


LEFT: list[str] = []  # the sessions whose tasks have ended


class Odd(BaseException):
    """Of a framework of somebody's."""


async def lacking() -> None:
    """What a tool says that has no browser to go with."""
    raise MissingCapability("there is no browser")


class Raising:
    """Answers where it is asked to do nothing else."""

    name = "raising"

    def identity(self) -> dict[str, Any]:
        """JSON for traces and certificates."""
        return {"kind": "own"}

    async def run(self, attempt: Attempt) -> str:
        """Does as the task's name says."""
        await getattr(self, attempt.task.id)(attempt)
        return "7"

    async def answers(self, attempt: Attempt) -> None:
        """Ends at once."""

    async def exits(self, attempt: Attempt) -> None:
        """As a program's main function does."""
        sys.exit(0)

    async def exits_in_a_thread(self, attempt: Attempt) -> None:
        """As a program's main function does, in a thread."""
        await asyncio.to_thread(sys.exit, 0)

    async def exits_in_a_task(self, attempt: Attempt) -> None:
        """Which no loop gives to who waits for the task."""
        await asyncio.create_task(self.exits(attempt))

    async def calls_at_once(self, attempt: Attempt) -> None:
        """Three calls, each in a task."""
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(attempt.call("fetch", {"url": PAGE}))

    async def has_no_browser(self, attempt: Attempt) -> None:
        """And says nothing of it."""
        with contextlib.suppress(Exception):
            await attempt.call("fetch", {"url": "browser"})

    async def has_no_browser_in_a_task(self, attempt: Attempt) -> None:
        """Which is told by a group."""
        async with asyncio.TaskGroup() as group:
            group.create_task(lacking())

    async def leaves_a_task(self, attempt: Attempt) -> None:
        """Which calls tools for as long as it may."""

        async def calling() -> None:
            with contextlib.suppress(StillwebError):
                while True:
                    await attempt.call("fetch", {"url": PAGE})
                    await asyncio.sleep(0)
            LEFT.append(attempt.session)

        task = asyncio.create_task(calling())
        await asyncio.sleep(0)
        assert not task.done()

    async def hears_no_end(self, attempt: Attempt) -> None:
        """Ctrl-C comes, and it takes it for a failure that it may try again after."""
        signal.raise_signal(signal.SIGINT)
        with contextlib.suppress(BaseException):
            await asyncio.sleep(HANG)

    async def makes_an_error_of_the_end(self, attempt: Attempt) -> None:
        """As what waits for a task often does."""
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.sleep(HANG)
        except asyncio.CancelledError:
            raise ValueError("nobody answered") from None

    async def is_cancelled(self, attempt: Attempt) -> None:
        """Waits for a task that it has cancelled."""
        task = asyncio.create_task(asyncio.sleep(0))
        task.cancel()
        await task

    async def odd(self, attempt: Attempt) -> None:
        """Raises what is no Exception."""
        raise Odd("of its own")


def until_left(task: Task, answer: str | None, context: Context) -> Score:
    """A scorer that waits for the task that the agent left."""
    assert until(lambda: f"{task.id}/1" in LEFT)
    return Score({"right": 1.0})
