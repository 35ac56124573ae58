"""The wire: record into a snapshot, serve from one, drive a browser against either.

Recorder (mitmproxy, in process) · Gateway (replay; has no way out) · MadeHosts (hosts that it answers for) · Ledger · Authority (certificates) ·
client_environment · Fetcher (views by steps) · check. Loaded on first use, so that importing costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proxy.certificates import Authority
    from proxy.checking import check
    from proxy.clients import client_environment
    from proxy.gateway import Gateway
    from proxy.hosting import MadeHosts
    from proxy.ledger import Ledger
    from proxy.recorder import Recorder, record_command
    from proxy.views import Fetcher

_HOME = {
    "Authority": "certificates",
    "check": "checking",
    "client_environment": "clients",
    "Gateway": "gateway",
    "Ledger": "ledger",
    "MadeHosts": "hosting",
    "Recorder": "recorder",
    "record_command": "recorder",
    "Fetcher": "views",
}

__all__ = [
    "Authority",
    "Fetcher",
    "Gateway",
    "Ledger",
    "MadeHosts",
    "Recorder",
    "check",
    "client_environment",
    "record_command",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'proxy' has no attribute {name!r}")
    return getattr(import_module(f"proxy.{_HOME[name]}"), name)
