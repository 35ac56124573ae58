"""The virtual hosts of `stillweb replay`, made by name in each of its processes (`proxy.serving.hosting.MadeHosts`)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from proxy.serving.hosting import VirtualHost

if TYPE_CHECKING:
    from snapshots.capture import Response
    from snapshots.request import Request
    from snapshots.snapshot import Snapshot

HOSTS = ("google.serper.dev", "scrape.serper.dev", "r.jina.ai", "api.tavily.com", "api.exa.ai")


def make_hosts(snapshot: Snapshot, *, accept: str, synthetic_search: bool) -> dict[str, VirtualHost]:
    """Serper and the like, and Jina's reader, at their real addresses: a program with a hard-wired URL works.

    What answers them is loaded when one is asked: a third of the time to start, and most programs ask none.
    """
    lock = threading.Lock()
    made: dict[str, VirtualHost] = {}

    def host(name: str) -> VirtualHost:
        def answer(request: Request, session: str) -> Response:
            with lock:
                if not made:
                    from harness.tools import Toolset, http_hosts

                    made.update(
                        http_hosts(
                            Toolset(
                                snapshot, ("serper-mcp",), accept=accept, synthetic_search=synthetic_search
                            )
                        )
                    )
            return made[name](request, session)

        return answer

    return {name: host(name) for name in HOSTS}
