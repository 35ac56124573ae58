"""Virtual hosts of `stillweb replay`: search and reader services at their real addresses."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stillweb.proxy.replay.hosting import VirtualHost, reset_hosts

if TYPE_CHECKING:
    from stillweb.snapshots.capture import Response
    from stillweb.snapshots.request import Request
    from stillweb.snapshots.snapshot import Snapshot

HOSTS = ("google.serper.dev", "scrape.serper.dev", "r.jina.ai", "api.tavily.com", "api.exa.ai")


def make_hosts(snapshot: Snapshot, *, accept: str, synthetic_search: bool) -> dict[str, VirtualHost]:
    """Return host -> handler for HOSTS, so that a program with a hard-coded URL works.

    The handlers are loaded at the first request: loading takes a third of the start-up time, and most programs use
    none of these hosts.
    """
    lock = threading.Lock()
    made: dict[str, VirtualHost] = {}

    def all_of_them() -> dict[str, VirtualHost]:
        with lock:
            if not made:
                from stillweb.harness.tools import Toolset, http_hosts

                contracts = ("serper-mcp",)
                made.update(
                    http_hosts(Toolset(snapshot, contracts, accept=accept, synthetic_search=synthetic_search))
                )
            return made

    return {name: _Late(name, made, all_of_them) for name in HOSTS}


@dataclass(frozen=True, slots=True)
class _Late:
    """Host whose handler is loaded, with those of all others, at the first request."""

    name: str
    made: dict[str, VirtualHost]
    make: Callable[[], dict[str, VirtualHost]]

    def __call__(self, request: Request, session: str) -> Response:
        return self.make()[self.name](request, session)

    def reset(self, session: str) -> None:
        """Forget a session's state, if the handlers are loaded."""
        reset_hosts([self.made[self.name]] if self.made else [], session)
