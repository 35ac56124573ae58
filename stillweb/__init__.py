"""Record the web an agent saw once; replay it for ever after: no network, the same bytes, an honest score.

Importing this package loads neither mitmproxy nor Playwright; each name below is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stillweb.proxy import Gateway, Recorder
    from stillweb.proxy.check.check import check
    from stillweb.snapshots import Request, Snapshot, Writer, seal, verify

    open = Snapshot.open

_HOME = {
    "Gateway": "stillweb.proxy",
    "Recorder": "stillweb.proxy",
    "Request": "stillweb.snapshots",
    "Snapshot": "stillweb.snapshots",
    "Writer": "stillweb.snapshots",
    "check": "stillweb.proxy.check.check",
    "seal": "stillweb.snapshots",
    "verify": "stillweb.snapshots",
}

__all__ = [
    "Gateway",
    "Recorder",
    "Request",
    "Snapshot",
    "Writer",
    "__version__",
    "check",
    "open",
    "seal",
    "verify",
]

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> Any:
    value: Any
    if name == "__version__":
        from importlib.metadata import version

        value = version("stillweb")
    elif name == "open":
        value = import_module("stillweb.snapshots").Snapshot.open
    elif name in _HOME:
        try:
            value = getattr(import_module(_HOME[name]), name)
        except ModuleNotFoundError as error:
            from stillweb.snapshots.extras import missing_extra

            raise missing_extra(error) or error from error
    else:
        raise AttributeError(f"module 'stillweb' has no attribute {name!r}")
    globals()[name] = value
    return value
