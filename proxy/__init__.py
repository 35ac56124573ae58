"""The wire: record into a snapshot, replay from one, drive a browser against either.

From the top down, each folder imports only those below it:
explore/     find the states of a page automatically
check/       replay every view and compare it with the recording
browser/     Fetcher: views by steps, in a browser with frozen time
record/      Recorder: mitmproxy in this process, from its flows to the archive
replay/      Gateway: replay without any outgoing connection; Ledger
net/         addresses, ca (Authority) and what recording and replay share

clients.py (client_environment: a command's traffic through our proxy), isolation.py (no packet gets out)

Names are loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as type checkers read it; see stillweb/__init__.py

if TYPE_CHECKING:
    from typing import Any

    from stillweb.proxy.browser.capture_view import Fetcher
    from stillweb.proxy.net.ca import Authority
    from stillweb.proxy.net.client_env import client_environment
    from stillweb.proxy.record.recorder import Recorder, record_command
    from stillweb.proxy.replay.gateway import Gateway
    from stillweb.proxy.replay.ledger import Ledger

_HOME = {
    "Authority": "net.ca",
    "client_environment": "net.client_env",
    "Gateway": "replay.gateway",
    "Ledger": "replay.ledger",
    "Recorder": "record.recorder",
    "record_command": "record.recorder",
    "Fetcher": "browser.capture_view",
}

__all__ = ["Authority", "Fetcher", "Gateway", "Ledger", "Recorder", "client_environment", "record_command"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'stillweb.proxy' has no attribute {name!r}")
    return getattr(import_module(f"stillweb.proxy.{_HOME[name]}"), name)
