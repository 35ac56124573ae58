"""Changes to mitmproxy that recording needs.

`_patch` holds the table of all changes. Each is a subclass that overrides a few methods of one class of mitmproxy:
`dispatch` has what makes these subclasses, and answers hooks; `http1`, `http2` and `websocket` have the protocols,
`lifetime` has how exchanges and connections end.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

import mitmproxy

if TYPE_CHECKING:
    from mitmproxy.addons import disable_h2c, next_layer, proxyserver, tlsconfig

__all__ = ["disable_h2c", "next_layer", "proxyserver", "tlsconfig"]


def _import_addons() -> None:
    """Import the add-ons that recording uses, and not all, as their package does by itself.

    The others need Flask, ldap3 and passlib: half the time that importing mitmproxy takes. While they are imported an
    empty package stands in for theirs; whoever imports `mitmproxy.addons` later gets the whole.
    """
    package = "mitmproxy.addons"
    if stand_in := sys.modules.get(package) is None:
        sys.modules[package] = ModuleType(package)
        sys.modules[package].__path__ = [f"{place}/addons" for place in mitmproxy.__path__]
    try:
        import_module("mitmproxy.master")  # imports an add-on, too
        globals().update((name, import_module(f"{package}.{name}")) for name in __all__)
    finally:
        if stand_in:
            del sys.modules[package]


_import_addons()
