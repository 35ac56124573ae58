"""Termination signals, and temporary handlers for them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

# sent by Ctrl-C, by `kill` and by a closing terminal
SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def installed_handlers() -> dict[signal.Signals, Any]:
    """Return those of `SIGNALS` that have a Python handler, with the handler.

    Ignored signals are left out (`nohup` ignores SIGHUP). Returns {} outside of the main thread, the only one
    that may change handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {name: now for name in SIGNALS if callable(now := signal.getsignal(name))}


@contextmanager
def handle_signals(
    before: Mapping[signal.Signals, Any], handler: Callable[[int, Any], None]
) -> Iterator[None]:
    """Replace the handlers that `installed_handlers` returned with `handler` inside the block."""
    for name in before:
        signal.signal(name, handler)
    try:
        yield
    finally:
        for name, former in before.items():
            signal.signal(name, former)
