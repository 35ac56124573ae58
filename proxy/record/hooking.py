"""Hooks of mitmproxy answered at once, while a recorder runs.

mitmproxy starts a task for each hook, four for a plain exchange, since an add-on may have to wait. Ours hardly ever
have to: then the answer is there without a task, in the order in which the tasks would have run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from mitmproxy import ctx
from mitmproxy.proxy import commands, events, mode_servers
from mitmproxy.proxy.context import Context

from stillweb.proxy.record.master import FixedAddons
from stillweb.proxy.record.patching import Wrapped, wrapped


class AtOnce:
    """Stands before a connection's layers: takes their hooks out of what they command, and hands in the answers."""

    def __init__(self, layer: Any, addons: FixedAddons) -> None:
        self.context: Context = layer.context
        self._layer = layer
        self._addons = addons

    def handle_event(self, event: events.Event) -> Iterator[commands.Command]:
        """See mitmproxy's Layer. Hooks that have to be waited for are handed on, to be gone on with in a task."""
        hooks: deque[commands.StartHook] = deque()
        at: events.Event | None = event
        while True:
            if at is not None:
                for command in self._layer.handle_event(at):
                    if isinstance(command, commands.StartHook):
                        hooks.append(command)
                    else:
                        yield command
            if not hooks:
                return
            hook = hooks.popleft()
            at = None
            if not self._addons.answer(hook):
                yield hook
            elif hook.blocking:
                at = events.HookCompleted(hook)


def hooks_at_once() -> AbstractContextManager[None]:
    """Has connections that are made while it is open answer their hooks so, if they are of our master."""
    return wrapped([(mode_servers.RegularInstance, "make_top_layer", _make_top_layer)])


def _make_top_layer(original: Wrapped) -> Wrapped:
    def make_top_layer(self: Any, context: Context) -> Any:
        layer, addons = original(self, context), ctx.master.addons
        return AtOnce(layer, addons) if isinstance(addons, FixedAddons) else layer

    return make_top_layer
