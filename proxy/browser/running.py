"""Running of browser work: pages at once, and an event loop whose cleanup is never cut off by a signal."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from stillweb.snapshots._os.signals import handle_signals, installed_handlers
from stillweb.snapshots.errors import StillwebError

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

MOST_PAGES = 16  # at once: sites and models have limits, too
PAGE_BYTES = 400_000_000  # of memory for a page with its share of the browser and of ours
SLICE = 0.5  # s; a signal that comes as this thread begins to wait is only handled when the wait ends
PATIENCE = 3  # signals that only hasten; the next one ends the loop wherever it is


def pages_at_once() -> int:
    """Return how many pages or attempts this machine carries at once.

    Two for each core: half of a page's time is waiting.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # the cores that this process may use, on Linux
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(MOST_PAGES, 2 * cores, memory // PAGE_BYTES))


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine like `asyncio.run`, but let each Ctrl-C, SIGTERM or SIGHUP cancel `main`.

    This also holds for a second and a third signal. `asyncio.run` leaves the loop at the second Ctrl-C and
    cancels all tasks at once, Playwright's among them, so that nothing can close the browser any more. Here a
    further signal only cuts short what is awaited at that moment. Afterwards the signal's former handler is
    called, which raises KeyboardInterrupt or does what the program wants.

    Where another loop runs in this thread (a notebook's), `main` runs in a thread of its own, and that loop waits.
    """
    tasks: list[asyncio.Task[T]] = []
    handlers: list[Callable[[], None]] = []
    with _cancelling(tasks, handlers):
        try:
            if asyncio._get_running_loop() is None:
                result = _run_here(main, tasks)
            else:
                with ThreadPoolExecutor(1) as pool:
                    running = pool.submit(_run_here, main, tasks)
                    while not wait([running], SLICE).done:
                        pass
                    result = running.result()
        except asyncio.CancelledError:
            if handlers:
                handlers[0]()
            raise
        except Exception as error:
            # a signal to the whole group ends the browser too, and tasks that wait for it fail before
            # they are cancelled
            if handlers and not isinstance(error, (StillwebError, OSError)):
                handlers[0]()
            raise
        if handlers:
            handlers[0]()
        return result


def _run_here(main: Coroutine[Any, Any, T], tasks: list[asyncio.Task[T]]) -> T:
    """Run a coroutine on a loop of this thread; its task is appended to `tasks`, for others to cancel."""
    with asyncio.Runner() as runner:
        tasks.append(runner.get_loop().create_task(main))
        return runner.run(_outcome(tasks[0]))


async def _outcome(task: asyncio.Task[T]) -> T:
    return await task


@contextmanager
def _cancelling(tasks: list[asyncio.Task[T]], handlers: list[Callable[[], None]]) -> Iterator[None]:
    """Let signals with a Python handler cancel the tasks while the context is open.

    The calls of their former handlers are appended to `handlers`.
    """
    before = installed_handlers()

    def hear(number: int, frame: Any) -> None:
        handlers.append(lambda: before[signal.Signals(number)](number, None))
        # tasks cut off now complain in asyncio's log, some after the loop's end, and nobody can do anything
        # about it
        logging.getLogger("asyncio").disabled = True
        if len(handlers) > PATIENCE:
            handlers[-1]()
        for task in tasks:
            with suppress(RuntimeError):  # its loop has just ended
                task.get_loop().call_soon_threadsafe(task.cancel)

    with handle_signals(before, hear):
        yield
