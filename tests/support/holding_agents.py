"""Agents that do not end when their time is over, each in the way that its task is named after."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from typing import Any

from tests.support.waiting import HANG

ANSWER = "7|3900\n9|3700"


class Holding:
    """Holds the event loop, or takes no cancellation for an end."""

    name = "holding"

    def identity(self) -> dict[str, Any]:
        """JSON for traces and certificates."""
        return {"kind": "own"}

    async def run(self, attempt: Any) -> str:
        """Answers rightly, but too late."""
        await getattr(self, attempt.task.id)()
        return ANSWER

    async def in_time(self) -> None:
        """Ends at once."""

    async def late(self) -> None:
        """Ends before anybody breaks it off."""
        time.sleep(1.1)

    async def sleeping(self) -> None:
        """Waits in the loop's thread."""
        time.sleep(HANG)

    async def computing(self) -> None:
        """Computes in the loop's thread."""
        end = time.monotonic() + HANG
        while time.monotonic() < end:
            pass

    async def waiting(self) -> None:
        """Waits for a program in the loop's thread."""
        subprocess.run(["sleep", str(HANG)], check=True)

    async def in_a_task(self) -> None:
        """A task that it began waits."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.sleeping())

    async def stubborn(self) -> None:
        """Begins again whatever breaks it off."""
        for _ in range(3):
            with contextlib.suppress(BaseException):
                time.sleep(HANG)

    async def deaf(self) -> None:
        """Begins again when it is cancelled."""
        for _ in range(3):
            with contextlib.suppress(BaseException):
                await asyncio.sleep(HANG)
