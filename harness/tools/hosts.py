"""Search and reader services at their real addresses, for the replay gateway: Serper, Tavily, Exa, Jina's reader."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from harness.tools.contract import load
from harness.tools.exa import HOST as EXA_HOST
from harness.tools.exa import answer as exa
from harness.tools.finding import missed, page, recorded, with_verdict
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

READER_HOST = "r.jina.ai"
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


def read(request: Request, visit: Visit) -> Response:
    """Jina's reader: `GET https://r.jina.ai/<url>`, or a POST with `url` in a JSON body. Recorded answers first."""
    known, found = recorded(request, visit)
    if known is not None:
        return known
    contract = load("jina-reader")
    url = target_of(request)
    as_json = "json" in (request.header("accept") or "")
    if url is None:
        return with_verdict(
            json_response(
                _failure(contract.strings["invalid"], 400, 40001, "ParamValidationError"), 400, "Bad Request"
            ),
            "exact",
        )
    text, found = page(url, visit)
    verdict = found.verdict
    if text is None:
        if found.capture is None:
            return missed(request, found)
        message = contract.say("unreadable", url=url)
        return with_verdict(
            json_response(
                _failure(message, 422, 42206, "AssertionFailureError"), 422, "Unprocessable Entity"
            ),
            verdict,
        )
    if as_json:
        data = {"title": text.title, "description": "", "url": url, "content": text.markdown}
        return with_verdict(json_response({"code": 200, "status": 20000, "data": data}), verdict)
    pages = contract.say("pages", pages=len(text.pages)) if text.pages is not None else ""
    body = contract.say("page", title=text.title, url=url, more=pages, content=text.markdown).encode(
        "utf-8", "replace"
    )
    fields = (("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body))))
    return with_verdict(Response(200, "OK", fields, body), verdict)


def target_of(request: Request) -> str | None:
    """The page that a reader request asks for; None when it names none."""
    if request.method == "POST":
        url = (parse_object(request.body) or {}).get("url")
    else:
        rest = request.url.split("/", 3)[3] if request.url.count("/") > 2 else ""
        url = unquote(rest) if "://" not in rest and "%3A" in rest.upper() else rest
        if url and "://" not in url:
            url = "https://" + url
    if not isinstance(url, str):
        return None
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets that hold no address
        return None
    return url if parts.scheme in ("http", "https") and parts.hostname else None


def _failure(message: str, code: int, status: int, name: str) -> dict[str, Any]:
    return {
        "data": None,
        "code": code,
        "name": name,
        "status": status,
        "message": message,
        "readableMessage": f"{name}: {message}",
    }
