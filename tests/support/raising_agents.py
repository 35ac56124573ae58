"""Agents that end in ways that no exception of Python's own kind does, each in the way that its task is named after."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from typing import Any

from stillweb.harness.agents.attempt import Attempt
from stillweb.snapshots.errors import StillwebError
from tests.support.shelf_tools import PAGES
from tests.support.waiting import HANG

PAGE = next(iter(PAGES))


class Odd(BaseException):
    """Of a framework of somebody's."""


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
        """Exit as a program's main function does."""
        sys.exit(0)

    async def exits_in_a_thread(self, attempt: Attempt) -> None:
        """Exit in a thread."""
        await asyncio.to_thread(sys.exit, 0)

    async def exits_in_a_task(self, attempt: Attempt) -> None:
        """Exit in a task: no event loop passes SystemExit on to the code that awaits the task."""
        await asyncio.create_task(self.exits(attempt))

    async def calls_at_once(self, attempt: Attempt) -> None:
        """Three calls, each in a task."""
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(attempt.call("fetch", {"url": PAGE}))

    async def has_no_browser(self, attempt: Attempt) -> None:
        """Lack a browser, and hide the error."""
        with contextlib.suppress(Exception):
            await attempt.call("fetch", {"url": "browser"})

    async def has_no_browser_in_a_task(self, attempt: Attempt) -> None:
        """Lack a browser in a task of a group, which raises an exception group."""
        async with asyncio.TaskGroup() as group:
            group.create_task(attempt.call("fetch", {"url": "browser"}))

    async def leaves_a_task(self, attempt: Attempt) -> None:
        """Leave a task that calls tools for as long as it may."""

        async def calling() -> None:
            with contextlib.suppress(StillwebError):
                while True:
                    await attempt.call("fetch", {"url": PAGE})
                    await asyncio.sleep(0)

        task = asyncio.create_task(calling())
        await asyncio.sleep(0)
        assert not task.done()

    async def holds(self, attempt: Attempt) -> None:
        """Sleep in the loop's thread."""
        time.sleep(HANG)

    async def holds_again(self, attempt: Attempt) -> None:
        """Call a tool, then sleep in the loop's thread, whatever interrupts it."""
        await attempt.call("fetch", {"url": PAGE})
        for _ in range(3):
            with contextlib.suppress(BaseException):
                time.sleep(HANG)

    async def holds_in_a_thread(self, attempt: Attempt) -> None:
        """Wait for a thread that sleeps."""
        await asyncio.to_thread(time.sleep, HANG)

    async def is_cancelled(self, attempt: Attempt) -> None:
        """Waits for a task that it has cancelled."""
        task = asyncio.create_task(asyncio.sleep(0))
        task.cancel()
        await task

    async def odd(self, attempt: Attempt) -> None:
        """Raises what is no Exception."""
        raise Odd("of its own")
