"""Tavily's search and extract APIs. Recorded answers come first; pages are answered from their frozen texts.

An unrecorded search is a miss, unless synthetic search is allowed. Fields that only Tavily could fill (an answer by a
model, images, publishing dates) are left empty; `score` is relative to the best hit. Answers have no time and no
random id.
"""

from __future__ import annotations

import uuid
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
from stillweb.harness.tools.serper import Searcher, json_response, link_of, parse_object, text_only, whole
from stillweb.harness.tools.store import Visit, weaker_verdict
from stillweb.snapshots.capture import Response
from stillweb.snapshots.evidence.confidence import combine
from stillweb.snapshots.request import Request

HOST = "api.tavily.com"
RESULTS = 5  # default number of results
MOST_RESULTS = 20
LONGEST = 400  # most code points of a query


def answer(request: Request, visit: Visit, searcher: Searcher) -> Response:
    """Answer a request to api.tavily.com. Raise SearchLimit, also for a recorded search."""
    path = urlsplit(request.url).path.rstrip("/")
    body = parse_object(request.body) or {}
    if path == "/search":
        searcher.check({"num": _count(body)})
    known, found = recorded_response(request, visit)
    if known is not None:
        return known
    if request.method != "POST" or path not in ("/search", "/extract"):
        return miss_response(request, found)
    if path == "/extract":
        return _extract(request, body, visit)
    query = body.get("query")
    if not isinstance(query, str) or not query.strip():
        return _refused("no_query")
    if len(query) > LONGEST:
        return _refused("long_query")
    if not searcher.synthetic:
        return miss_response(request, found)
    return with_verdict(json_response(_search(request, body, visit)), "synthetic")


def _refused(key: str) -> Response:
    error = {"detail": {"error": load("tavily").strings[key]}}
    return with_verdict(json_response(error, 400, "Bad Request"), "exact")


def _id(request: Request) -> str:
    return str(uuid.UUID(request_number(request)))


def _count(body: dict[str, Any]) -> int:
    return min(max(0, whole(body.get("max_results"), RESULTS)), MOST_RESULTS)


def _search(request: Request, body: dict[str, Any], visit: Visit) -> dict[str, Any]:
    query = f'"{body["query"]}"' if body.get("exact_match") is True else body["query"]
    found = best_hits(
        visit, query, _count(body), names(body.get("include_domains")), names(body.get("exclude_domains"))
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
    return {**value, "request_id": _id(request)}


def _extract(request: Request, body: dict[str, Any], visit: Visit) -> Response:
    """Answer `/extract` from frozen texts; a missing page fails like a page that can't be fetched."""
    urls = names(body.get("urls"))
    if not urls:
        return _refused("no_urls")
    results: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    verdict, doubted, confidence = "exact", False, None
    for url in urls[:MOST_RESULTS]:
        text, found = page(url, visit)
        verdict, doubted = weaker_verdict(verdict, found.verdict), doubted or found.ambiguous
        confidence = combine(confidence, found.confidence)
        if text is None or not text.markdown:
            failed.append({"url": url, "error": load("tavily").strings["failed"]})
            continue
        raw = text_only(text.markdown) if body.get("format") == "text" else text.markdown
        results.append({"url": url, "title": text.title or None, "raw_content": raw, "images": []})
    value = {"results": results, "failed_results": failed, "response_time": 0.0, "request_id": _id(request)}
    return with_verdict(json_response(value), verdict, doubted, confidence)
