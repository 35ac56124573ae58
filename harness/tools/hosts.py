"""Search and reader services at their real addresses, for the replay gateway: Serper, Tavily, Exa, Jina's reader."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from harness.tools.exa import HOST as EXA_HOST
from harness.tools.exa import answer as exa
from harness.tools.finding import missed, with_verdict
from harness.tools.jina import HOST as READER_HOST
from harness.tools.jina import answer as read
from harness.tools.serper import (
    SCRAPE_HOST,
    SEARCH_HOST,
    Searcher,
    SearchLimit,
    json_response,
    parse_object,
)
from harness.tools.store import Visit
from harness.tools.tavily import HOST as TAVILY_HOST
from harness.tools.tavily import answer as tavily
from snapshots.capture import Response
from snapshots.request import Request

if TYPE_CHECKING:
    from harness.tools.toolset import Toolset

MOST_SESSIONS = 4096

VirtualHost = Callable[[Request, str], Response]


def http_hosts(toolset: Toolset) -> dict[str, VirtualHost]:
    """Host -> what answers it: `(request, session name) -> response`, for `Gateway(virtual_hosts=…)`.

    Recorded answers come first. Every response says its verdict in `Stillweb-Verdict`.
    """
    visits = _Visits(toolset)

    def limited(message: str) -> Response:
        value = {"message": message, "statusCode": 429}
        return with_verdict(json_response(value, 429, "Too Many Requests"), "synthetic")

    def serper(request: Request, session: str) -> Response:
        body = parse_object(request.body) or {}
        try:
            toolset.searcher.check(body)
        except SearchLimit as error:
            return limited(str(error))
        response, found = toolset.searcher.ask(request, visits.get(session))
        return with_verdict(response, found.verdict) if response is not None else missed(request, found)

    def reader(request: Request, session: str) -> Response:
        return read(request, visits.get(session))

    def other(answer: Callable[[Request, Visit, Searcher], Response]) -> VirtualHost:
        def host(request: Request, session: str) -> Response:
            try:
                return answer(request, visits.get(session), toolset.searcher)
            except SearchLimit as error:
                return limited(str(error))

        return host

    return {
        SEARCH_HOST: serper,
        SCRAPE_HOST: serper,
        READER_HOST: reader,
        TAVILY_HOST: other(tavily),
        EXA_HOST: other(exa),
    }


class _Visits:
    """The sessions of programs, made at their first request."""

    def __init__(self, toolset: Toolset) -> None:
        self._toolset = toolset
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Visit] = OrderedDict()

    def get(self, name: str) -> Visit:
        with self._lock:
            visit = self._known.get(name)
            if visit is None:
                visit = self._known[name] = self._toolset.store.session(name)
                if len(self._known) > MOST_SESSIONS:
                    self._known.popitem(last=False)
            self._known.move_to_end(name)
            return visit
