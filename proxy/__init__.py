"""The wire: record into a snapshot, replay from one, drive a browser against either.

From the top down, each folder imports only those below it:
explore/     find the states of a page automatically
check/       replay every view and compare it with the recording
pages/       Fetcher: views by steps, in a browser with frozen time
recording/   Recorder: mitmproxy in this process, from its flows to the archive
serving/     Gateway: replay without any outgoing connection; Ledger
wire/        code shared by recording and serving; Authority: certificates

clients.py (client_environment: a command's traffic through our proxy), isolation.py (no packet gets out)

Names are loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stillweb.proxy.clients import client_environment
    from stillweb.proxy.pages.views import Fetcher
    from stillweb.proxy.recording.recorder import Recorder, record_command
    from stillweb.proxy.serving.gateway import Gateway
    from stillweb.proxy.serving.ledger import Ledger
    from stillweb.proxy.wire.certificates import Authority

_HOME = {
    "Authority": "wire.certificates",
    "client_environment": "clients",
    "Gateway": "serving.gateway",
    "Ledger": "serving.ledger",
    "Recorder": "recording.recorder",
    "record_command": "recording.recorder",
    "Fetcher": "pages.views",
}

__all__ = [
    "Authority",
    "Fetcher",
    "Gateway",
    "Ledger",
    "Recorder",
    "client_environment",
    "record_command",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'stillweb.proxy' has no attribute {name!r}")
    return getattr(import_module(f"stillweb.proxy.{_HOME[name]}"), name)
