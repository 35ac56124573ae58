"""The virtual hosts of `stillweb replay`, made by name in each of its processes (`proxy.hosting.MadeHosts`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.tools.hosts import VirtualHost, http_hosts
from harness.tools.toolset import Toolset

if TYPE_CHECKING:
    from snapshots.snapshot import Snapshot


def make_hosts(snapshot: Snapshot, *, accept: str, synthetic_search: bool) -> dict[str, VirtualHost]:
    """Serper and the like, and Jina's reader, at their real addresses: a program with a hard-wired URL works."""
    return http_hosts(Toolset(snapshot, ("serper-mcp",), accept=accept, synthetic_search=synthetic_search))
