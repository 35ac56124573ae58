"""The signals that end this program, and who hears them for a while."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

# how a person, another program and a terminal that closes end this one; the last is not everywhere
SIGNALS = {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}


def heard_signals() -> dict[signal.Signals, Any]:
    """Those of `SIGNALS` that a handler in Python hears, and their handlers: `nohup` wants one of them unheard.

    None but for the main thread, the only one that may change that.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {name: now for name in SIGNALS if callable(now := signal.getsignal(name))}


@contextmanager
def hearing(before: Mapping[signal.Signals, Any], handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Meanwhile another handler hears what `heard_signals` gave."""
    for name in before:
        signal.signal(name, handler)
    try:
        yield
    finally:
        for name, former in before.items():
            signal.signal(name, former)
