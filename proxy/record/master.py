"""mitmproxy's master with only the add-ons that recording needs, and the overhead of the others taken out.

Measured per request of 40 kB on HTTPS: mitmproxy's own checks of its dataclasses took 8 % of the event loop's
time, calling each hook on each add-on 7 %.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from mitmproxy import hooks, http, options
from mitmproxy.addonmanager import AddonManager
from mitmproxy.addons import disable_h2c, next_layer, proxyserver, tlsconfig
from mitmproxy.master import Master

Listeners = list[Callable[..., Any]]
Begun = tuple[Awaitable[Any], Listeners]  # what is waited for, and who is told after that


class RecordingMaster(Master):
    """A master whose add-ons are fixed once it runs. Must be made on its event loop."""

    def __init__(self, settings: options.Options, loop: Any, failed: Callable[[Exception], None]) -> None:
        super().__init__(settings, event_loop=loop)
        self.addons = FixedAddons(self, failed)
        self.server = proxyserver.Proxyserver()  # type: ignore[no-untyped-call]

    def begin(self, own: Sequence[object]) -> None:
        """Adds the add-ons: mitmproxy's, then our own."""
        self.addons.add(  # type: ignore[no-untyped-call]
            self.server, next_layer.NextLayer(), tlsconfig.TlsConfig(), disable_h2c.DisableH2C(), *own
        )

    def _asyncio_exception_handler(self, loop: Any, context: dict[str, Any]) -> None:
        """As mitmproxy's. A look-up or connection that fails after its client has left was waited for by nobody."""
        future = context.get("future")
        given_up = isinstance(future, asyncio.Future) and not isinstance(future, asyncio.Task)
        if not (given_up and isinstance(context.get("exception"), OSError)):
            super()._asyncio_exception_handler(loop, context)


class FixedAddons(AddonManager):
    """Looks up who listens to a hook once. An exception in an add-on is reported, not just logged."""

    def __init__(self, master: Master, failed: Callable[[Exception], None]) -> None:
        super().__init__(master)  # type: ignore[no-untyped-call]
        self._failed = failed
        self._listeners: dict[str, Listeners] = {}
        self._begun: dict[hooks.Hook, Begun] = {}

    def register(self, addon: Any) -> Any:
        """See AddonManager."""
        self._listeners.clear()
        return super().register(addon)  # type: ignore[no-untyped-call]

    def answer(self, event: hooks.Hook) -> bool:
        """Calls all listeners of a hook in order; False if one has to be waited for: `handle_lifecycle` does the rest."""
        listeners = self._of(event.name)
        if not listeners:
            return True
        left = self._call(listeners, event)
        if left is not None:
            self._begun[event] = left
        return left is None

    async def trigger_event(self, event: hooks.Hook) -> None:
        """Calls all listeners of a hook in order."""
        left = self._begun.pop(event, None) or self._call(self._of(event.name), event)
        while left is not None:
            result, listeners = left
            try:
                await result
            except Exception as e:  # noqa: BLE001 -- reported: it ends the recording
                self._failed(e)
            left = self._call(listeners, event)

    async def handle_lifecycle(self, event: hooks.Hook) -> None:
        """Calls all listeners. Ours have no use for mitmproxy's `update`, which follows each hook of a flow."""
        await self.trigger_event(event)

    def _of(self, name: str) -> Listeners:
        listeners = self._listeners.get(name)
        if listeners is None:
            found = (getattr(addon, name, None) for addon in self.chain)
            listeners = self._listeners[name] = [f for f in found if callable(f)]
        return listeners

    def _call(self, listeners: Listeners, event: hooks.Hook) -> Begun | None:
        """What a listener waits for and the listeners after that one; None when all are done."""
        arguments = event.args()
        for number, listener in enumerate(listeners, 1):
            try:
                result = listener(*arguments)
            except Exception as e:  # noqa: BLE001 -- reported: it ends the recording
                self._failed(e)
                continue
            if result is not None and inspect.isawaitable(result):
                return result, listeners[number:]
        return None


@contextlib.contextmanager
def without_self_checks() -> Iterator[None]:
    """Leaves out the type checks of mitmproxy's messages, as `python -O` does by itself."""
    check = getattr(http.MessageData, "__post_init__", None)
    if check is None:
        yield
        return
    http.MessageData.__post_init__ = _nothing  # type: ignore[method-assign]
    try:
        yield
    finally:
        http.MessageData.__post_init__ = check  # type: ignore[method-assign]


def _nothing(_: object) -> None:
    return None


@contextlib.contextmanager
def complaints_to(heard: Callable[[str], None]) -> Iterator[None]:
    """Hands mitmproxy's logged errors (it logs its own crashes) to a callback, and nothing to the terminal."""
    handler = _Handler(heard)
    logger = logging.getLogger("mitmproxy")
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]


class _Handler(logging.Handler):
    def __init__(self, heard: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._heard = heard

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else None
        self._heard(f"{record.getMessage()}{f' ({cause!r})' if cause else ''}")
