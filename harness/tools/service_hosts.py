"""Search and reader services at their real addresses, as virtual hosts of the gateway: Serper, Jina's reader, Tavily, Exa.

Recorded answers come first; pages are answered from their frozen texts. An unrecorded search is a miss, unless
synthetic search is allowed. Members that only a service could fill (summaries by a model, authors, images, publishing
dates) are empty or left out. Answers have no time and no random id.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from stillweb.harness.tools.contract import load
from stillweb.harness.tools.jina import HOST as READER_HOST
from stillweb.harness.tools.jina import answer as read
from stillweb.harness.tools.reader_common import (
    best_hits,
    miss_response,
    names,
    page,
    recorded_response,
    request_number,
    with_verdict,
)
from stillweb.harness.tools.serper import (
    SCRAPE_HOST,
    SEARCH_HOST,
    Searcher,
    SearchLimit,
    json_response,
    link_of,
    parse_object,
    text_only,
    whole,
)
from stillweb.harness.tools.store import FoundPage, Visit, weaker_verdict
from stillweb.snapshots.capture import Response
from stillweb.snapshots.evidence.confidence import Confidence, combine
from stillweb.snapshots.request import Request
from stillweb.snapshots.text.search import SNIPPET, plain_text, snippet, tokens
from stillweb.snapshots.text.text import FrozenText

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
        "api.tavily.com": served(lambda request, visit: _tavily(request, visit, toolset.searcher)),
        "api.exa.ai": served(lambda request, visit: _exa(request, visit, toolset.searcher)),
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


def _bad_request(value: dict[str, Any]) -> Response:
    return with_verdict(json_response(value, 400, "Bad Request"), "exact")


def _read_pages(
    urls: Iterable[str], visit: Visit
) -> tuple[list[tuple[str, FrozenText | None, FoundPage]], tuple[str, bool, Confidence | None]]:
    """Return text and lookup of each page, and the weakest verdict, with doubt and confidence, of all."""
    pages = []
    verdict, doubted, confidence = "exact", False, None
    for url in urls:
        text, found = page(url, visit)
        verdict, doubted = weaker_verdict(verdict, found.verdict), doubted or found.ambiguous
        confidence = combine(confidence, found.confidence)
        pages.append((url, text if text is not None and text.markdown else None, found))
    return pages, (verdict, doubted, confidence)


# -- Tavily; `score` is relative to the best hit

_TAVILY_RESULTS = 20  # at most
_LONGEST = 400  # most code points of a query


def _tavily(request: Request, visit: Visit, searcher: Searcher) -> Response:
    """Answer a request to api.tavily.com. Raise SearchLimit, also for a recorded search."""
    path = urlsplit(request.url).path.rstrip("/")
    body = parse_object(request.body) or {}
    if path == "/search":
        searcher.check({"num": _tavily_count(body)})
    known, found = recorded_response(request, visit)
    if known is not None:
        return known
    if request.method != "POST" or path not in ("/search", "/extract"):
        return miss_response(request, found)
    if path == "/extract":
        return _tavily_extract(request, body, visit)
    query = body.get("query")
    if not isinstance(query, str) or not query.strip():
        return _tavily_refused("no_query")
    if len(query) > _LONGEST:
        return _tavily_refused("long_query")
    if not searcher.synthetic:
        return miss_response(request, found)
    return with_verdict(json_response(_tavily_search(request, body, visit)), "synthetic")


def _tavily_refused(key: str) -> Response:
    return _bad_request({"detail": {"error": load("tavily").strings[key]}})


def _tavily_count(body: dict[str, Any]) -> int:
    return min(max(0, whole(body.get("max_results"), 5)), _TAVILY_RESULTS)


def _tavily_search(request: Request, body: dict[str, Any], visit: Visit) -> dict[str, Any]:
    query = f'"{body["query"]}"' if body.get("exact_match") is True else body["query"]
    found = best_hits(
        visit,
        query,
        _tavily_count(body),
        names(body.get("include_domains")),
        names(body.get("exclude_domains")),
    )
    best = max((hit.score for hit in found), default=0.0) or 1.0
    results = []
    for hit in found:
        raw = None
        if body.get("include_raw_content"):
            text = visit.store.text_at(hit.address)
            raw = None if text is None else text.markdown
            if raw is not None and body["include_raw_content"] == "text":
                raw = text_only(raw)
        result: dict[str, Any] = {"url": link_of(hit.address), "title": hit.title, "content": hit.snippet}
        results.append({**result, "score": round(hit.score / best, 5), "raw_content": raw})
    value: dict[str, Any] = {
        "query": body["query"],
        "follow_up_questions": None,
        "answer": None,
        "images": [],
        "results": results,
        "response_time": 0.0,
    }
    if body.get("include_usage") is True:
        value["usage"] = {"credits": 2 if body.get("search_depth") == "advanced" else 1}
    return {**value, "request_id": str(uuid.UUID(request_number(request)))}


def _tavily_extract(request: Request, body: dict[str, Any], visit: Visit) -> Response:
    """Answer `/extract` from frozen texts; a missing page fails like a page that can't be fetched."""
    urls = names(body.get("urls"))
    if not urls:
        return _tavily_refused("no_urls")
    results: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    pages, said = _read_pages(urls[:_TAVILY_RESULTS], visit)
    for url, text, _ in pages:
        if text is None:
            failed.append({"url": url, "error": load("tavily").strings["failed"]})
            continue
        raw = text_only(text.markdown) if body.get("format") == "text" else text.markdown
        results.append({"url": url, "title": text.title or None, "raw_content": raw, "images": []})
    value = {
        "results": results,
        "failed_results": failed,
        "response_time": 0.0,
        "request_id": str(uuid.UUID(request_number(request))),
    }
    return with_verdict(json_response(value), *said)


# -- Exa

_EXA_RESULTS = 100  # at most


def _exa(request: Request, visit: Visit, searcher: Searcher) -> Response:
    """Answer a request to api.exa.ai. Raise SearchLimit, also for a recorded search."""
    path = urlsplit(request.url).path.rstrip("/")
    body = parse_object(request.body) or {}
    count = min(max(1, whole(body.get("numResults"), 10)), _EXA_RESULTS)
    if path == "/search":
        searcher.check({"num": count})
    known, found = recorded_response(request, visit)
    if known is not None:
        return known
    if request.method != "POST" or path not in ("/search", "/contents"):
        return miss_response(request, found)
    if path == "/contents":
        return _exa_contents(request, body, visit)
    query = body.get("query")
    if not isinstance(query, str) or not query.strip():
        return _exa_refused(request)
    if not searcher.synthetic or body.get("stream"):
        return miss_response(request, found)
    wanted = body.get("contents")
    wanted = wanted if isinstance(wanted, dict) else {}
    results = []
    for hit in best_hits(
        visit, query, count, names(body.get("includeDomains")), names(body.get("excludeDomains"))
    ):
        link = link_of(hit.address)
        text = visit.store.text_at(hit.address) if wanted else None
        results.append({"id": link, "title": hit.title, "url": link, **_exa_members(text, wanted, query)})
    value = {"requestId": request_number(request), "resolvedSearchType": "neural", "results": results}
    return with_verdict(json_response({**value, "costDollars": {"total": 0}}), "synthetic")


def _exa_refused(request: Request) -> Response:
    words = load("exa").strings
    error = {"requestId": request_number(request), "error": words["invalid"], "tag": words["invalid_tag"]}
    return _bad_request(error)


def _exa_members(text: FrozenText | None, wanted: dict[str, Any], query: str) -> dict[str, Any]:
    """Return the members `text` and `highlights`, if the request asks for them."""
    if text is None:
        return {}
    found: dict[str, Any] = {}
    if (how := wanted.get("text")) or how == {}:
        most = whole(how.get("maxCharacters"), len(text.markdown)) if isinstance(how, dict) else None
        found["text"] = text.markdown[:most]
    if (how := wanted.get("highlights")) or how == {}:
        asked = how.get("query") if isinstance(how, dict) else None
        most = whole(how.get("maxCharacters"), SNIPPET) if isinstance(how, dict) else SNIPPET
        words = tokens(asked if isinstance(asked, str) and asked else query)
        found["highlights"] = [snippet(plain_text(text.markdown), words, max(1, min(most, SNIPPET)))]
        found["highlightScores"] = [1.0]
    return found


def _exa_contents(request: Request, body: dict[str, Any], visit: Visit) -> Response:
    """Answer `/contents` from frozen texts; a missing page has the status of a page that could not be crawled."""
    urls = names(body.get("urls")) or names(body.get("ids"))
    if not urls:
        return _exa_refused(request)
    words = load("exa").strings
    results: list[dict[str, Any]] = []
    statuses: list[dict[str, Any]] = []
    pages, said = _read_pages(urls[:_EXA_RESULTS], visit)
    for url, text, found in pages:
        if text is not None:
            told = _exa_members(text, body, "")
            results.append({"id": url, "title": text.title or None, "url": url, **told})
            statuses.append({"id": url, "status": "success"})
            continue
        status = found.capture.status if found.capture is not None else 0
        tag, code = ("unknown_tag", 500)
        if status in (404, 410):
            tag, code = ("not_found_tag", 404)
        elif status in (401, 403):
            tag, code = ("forbidden_tag", 403)
        error = {"tag": words[tag], "httpStatusCode": code}
        statuses.append({"id": url, "status": "error", "error": error})
    value = {"requestId": request_number(request), "results": results, "statuses": statuses}
    return with_verdict(json_response({**value, "costDollars": {"total": 0}}), *said)
