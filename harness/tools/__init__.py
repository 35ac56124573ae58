"""Tools that agents already call, answered from a snapshot.

Toolset (the tools of some contracts over a snapshot) · ToolSession · ToolSpec · ToolResult · Limits ·
contract_names · read_contract (the contract of a custom tool) · http_hosts (search and reader APIs at their
real addresses, for the gateway). See docs/tools.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stillweb.harness.tools.contract import (
    Contract,
    ToolResult,
    ToolSpec,
    contract_names,
    load,
    read_contract,
)

if TYPE_CHECKING:
    from stillweb.harness.tools.service_hosts import http_hosts
    from stillweb.harness.tools.toolset import MAKERS, Limits, Tool, ToolSession, Toolset

__all__ = [
    "MAKERS", "Contract", "Limits", "Tool", "ToolResult", "ToolSession", "ToolSpec", "Toolset",
    "contract_names", "http_hosts", "load", "read_contract"
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import what reads snapshots when it is first used: agents' processes know contracts alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "service_hosts" if name == "http_hosts" else "toolset"
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
