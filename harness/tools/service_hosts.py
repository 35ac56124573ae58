"""Virtual hosts of the gateway for search and reader services: Serper, Tavily, Exa, Jina's reader."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from stillweb.harness.tools.exa import HOST as EXA_HOST
from stillweb.harness.tools.exa import answer as exa
from stillweb.harness.tools.jina import HOST as READER_HOST
from stillweb.harness.tools.jina import answer as read
from stillweb.harness.tools.reader_common import miss_response, with_verdict
from stillweb.harness.tools.serper import SCRAPE_HOST, SEARCH_HOST, SearchLimit, json_response, parse_object
from stillweb.harness.tools.store import Visit
from stillweb.harness.tools.tavily import HOST as TAVILY_HOST
from stillweb.harness.tools.tavily import answer as tavily
from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Request

if TYPE_CHECKING:
    from stillweb.harness.tools.toolset import Toolset
    from stillweb.proxy.replay.hosting import VirtualHost


def http_hosts(toolset: Toolset) -> dict[str, VirtualHost]:
    """Return host -> handler `(request, session name) -> response`, for `Gateway(virtual_hosts=…)`.

    Recorded answers come first. Every response has its verdict in `Stillweb-Verdict`.
    """
    visits = _Visits(toolset)

    def serper(request: Request, visit: Visit) -> Response:
        toolset.searcher.check(parse_object(request.body) or {})
        response, found = toolset.searcher.ask(request, visit)
        if response is None:
            return miss_response(request, found)
        return with_verdict(response, found.verdict, found.ambiguous, found.confidence)

    served = partial(_Host, visits)
    return {
        SEARCH_HOST: served(serper),
        SCRAPE_HOST: served(serper),
        READER_HOST: served(read),
        TAVILY_HOST: served(lambda request, visit: tavily(request, visit, toolset.searcher)),
        EXA_HOST: served(lambda request, visit: exa(request, visit, toolset.searcher)),
    }


@dataclass(frozen=True, slots=True)
class _Host:
    visits: _Visits
    answer: Callable[[Request, Visit], Response]

    def __call__(self, request: Request, session: str) -> Response:
        visit = self.visits.get(session)
        try:
            response = self.answer(request, visit)
            if response.header("stillweb-verdict") == "synthetic":
                visit.happened(request, response)
            return response
        except SearchLimit as error:
            value = {"message": str(error), "statusCode": 429}
            return with_verdict(json_response(value, 429, "Too Many Requests"), "synthetic")

    def reset(self, session: str) -> None:
        """Forget a session's state at all services."""
        self.visits.forget(session)


class _Visits:
    """Sessions by name, made at their first request.

    A session is kept until `forget`, as in the gateway: a session that began anew would get other answers.
    """

    def __init__(self, toolset: Toolset) -> None:
        self._toolset = toolset
        self._lock = threading.Lock()
        self._known: dict[str, Visit] = {}

    def get(self, name: str) -> Visit:
        with self._lock:
            visit = self._known.get(name)
            if visit is None:
                # the gateway's own disturb its hosts, too
                visit = self._known[name] = self._toolset.store.session(name, faults=False)
            return visit

    def forget(self, name: str) -> None:
        with self._lock:
            self._known.pop(name, None)
