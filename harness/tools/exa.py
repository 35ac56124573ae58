"""Exa's search and contents APIs. Recorded answers come first; pages are answered from their frozen texts.

An unrecorded search is a miss, unless synthetic search is allowed. Fields that only Exa could fill (summaries by a
model, authors, publishing dates) are left out. Answers have no time and no random id.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from stillweb.harness.tools.contract import load
from stillweb.harness.tools.reader_common import (
    best_hits,
    miss_response,
    names,
    page,
    recorded_response,
    request_number,
    with_verdict,
)
from stillweb.harness.tools.serper import Searcher, json_response, link_of, parse_object, whole
from stillweb.harness.tools.store import Visit, weaker_verdict
from stillweb.snapshots.capture import Response
from stillweb.snapshots.evidence.confidence import combine
from stillweb.snapshots.request import Request
from stillweb.snapshots.text.search import SNIPPET, plain_text, snippet, tokens
from stillweb.snapshots.text.text import FrozenText

HOST = "api.exa.ai"
RESULTS = 10  # default number of results
MOST_RESULTS = 100


def answer(request: Request, visit: Visit, searcher: Searcher) -> Response:
    """Answer a request to api.exa.ai. Raise SearchLimit, also for a recorded search."""
    path = urlsplit(request.url).path.rstrip("/")
    body = parse_object(request.body) or {}
    count = min(max(1, whole(body.get("numResults"), RESULTS)), MOST_RESULTS)
    if path == "/search":
        searcher.check({"num": count})
    known, found = recorded_response(request, visit)
    if known is not None:
        return known
    if request.method != "POST" or path not in ("/search", "/contents"):
        return miss_response(request, found)
    if path == "/contents":
        return _contents(request, body, visit)
    query = body.get("query")
    if not isinstance(query, str) or not query.strip():
        return _refused(request)
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
        results.append({"id": link, "title": hit.title, "url": link, **_asked_for(text, wanted, query)})
    value = {"requestId": request_number(request), "resolvedSearchType": "neural", "results": results}
    return with_verdict(json_response({**value, "costDollars": {"total": 0}}), "synthetic")


def _refused(request: Request) -> Response:
    words = load("exa").strings
    error = {"requestId": request_number(request), "error": words["invalid"], "tag": words["invalid_tag"]}
    return with_verdict(json_response(error, 400, "Bad Request"), "exact")


def _asked_for(text: FrozenText | None, wanted: dict[str, Any], query: str) -> dict[str, Any]:
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


def _contents(request: Request, body: dict[str, Any], visit: Visit) -> Response:
    """Answer `/contents` from frozen texts; a missing page has the status of a page that could not be crawled."""
    urls = names(body.get("urls")) or names(body.get("ids"))
    if not urls:
        return _refused(request)
    words = load("exa").strings
    results: list[dict[str, Any]] = []
    statuses: list[dict[str, Any]] = []
    verdict, doubted, confidence = "exact", False, None
    for url in urls[:MOST_RESULTS]:
        text, found = page(url, visit)
        verdict, doubted = weaker_verdict(verdict, found.verdict), doubted or found.ambiguous
        confidence = combine(confidence, found.confidence)
        if text is not None and text.markdown:
            told = _asked_for(text, body, "")
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
    return with_verdict(json_response({**value, "costDollars": {"total": 0}}), verdict, doubted, confidence)
