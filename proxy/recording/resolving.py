"""An event loop that connects chosen names to other places, while Host, SNI and the archive keep the name.

For tests and the demo: an origin on a loopback port may be recorded as `https://demo.example/`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

try:
    import uvloop

    class FastLoop(uvloop.Loop):
        """uvloop's, for task factories of every Python.

        uvloop 0.23 hands `eager_start=None` to them from Python 3.13 on; asyncio's own eager one, which mitmproxy 12
        sets, takes that argument only since 3.13.3.
        """

        def set_task_factory(self, factory: Any) -> None:
            super().set_task_factory(factory and _told_only(factory))

except ImportError:

    class FastLoop(asyncio.SelectorEventLoop):  # type: ignore[no-redef]
        """asyncio's own."""


Place = tuple[str, int]


def _told_only(factory: Callable[..., Any]) -> Callable[..., Any]:
    """The same task factory, given no argument that says nothing."""

    def make(loop: Any, coro: Any, **options: Any) -> Any:
        return factory(loop, coro, **{name: value for name, value in options.items() if value is not None})

    return make


def new_loop(resolve: Mapping[str, Place] | None = None) -> asyncio.AbstractEventLoop:
    """A new event loop (uvloop where installed).

    `resolve` maps "name" or "name:port" to the address to connect to instead; names without an entry are
    resolved as ever. `create_connection` is the one door through which mitmproxy reaches an origin.
    """
    places = {name.lower(): place for name, place in (resolve or {}).items()}
    if not places:
        return FastLoop()

    class ResolvingLoop(FastLoop):
        async def create_connection(
            self, protocol_factory: Any, host: str | None = None, port: int | None = None, **options: Any
        ) -> Any:
            name = (host or "").lower()
            target = places.get(f"{name}:{port}") or places.get(name)
            if target is not None:
                host, port = target
            return await super().create_connection(protocol_factory, host, port, **options)  # type: ignore[arg-type]  # its stub knows no connection over a given socket

    return ResolvingLoop()


def cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Ends what a loop still has to do, in silence."""
    loop.set_exception_handler(lambda *_: None)  # what is cancelled complains of that, and of nothing else
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=2.0))
