"""Jina's reader at its real address, which returns a page as Markdown."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, urlsplit

from stillweb.harness.tools.contract import load
from stillweb.harness.tools.reader_common import miss_response, page, recorded_response, with_verdict
from stillweb.harness.tools.serper import json_response, parse_object
from stillweb.harness.tools.store import Visit
from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Request

HOST = "r.jina.ai"
_SHAPING = re.compile(
    r"x-(?:respond-with|return-format|(?:target|remove)-selector|token-budget|max-tokens|base|no-gfm"
    r"|set-cookie|instruction|json-schema|markdown-chunking|(?:with|retain|keep|md)-.+)"
)
_HARMLESS = frozenset({"url", "engine", "timeout", "noCache", "cacheTolerance", "waitForSelector", "locale"})


def answer(request: Request, visit: Visit) -> Response:
    """Answer `GET https://r.jina.ai/<url>`, or a POST with `url` in a JSON body. Recorded answers come first.

    An unrecorded request for another format than Markdown, or for a part of the page, is a miss.
    """
    known, found = recorded_response(request, visit)
    if known is not None:
        return known
    if not _plainly_asked(request):
        return miss_response(request, found)
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
    verdict, doubted = found.verdict, found.ambiguous
    if text is None:
        if found.capture is None:
            return miss_response(request, found)
        message = contract.say("unreadable", url=url)
        return with_verdict(
            json_response(
                _failure(message, 422, 42206, "AssertionFailureError"), 422, "Unprocessable Entity"
            ),
            verdict,
            doubted,
            found.confidence,
        )
    if as_json:
        data = {"title": text.title, "description": "", "url": url, "content": text.markdown}
        return with_verdict(
            json_response({"code": 200, "status": 20000, "data": data}), verdict, doubted, found.confidence
        )
    pages = contract.say("pages", pages=len(text.pages)) if text.pages is not None else ""
    body = contract.say("page", title=text.title, url=url, more=pages, content=text.markdown).encode(
        "utf-8", "replace"
    )
    fields = (("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body))))
    return with_verdict(Response(200, "OK", fields, body), verdict, doubted, found.confidence)


def _plainly_asked(request: Request) -> bool:
    """Return True if no header field and no member of the body changes the answer's format or content."""
    if any(_SHAPING.fullmatch(name.lower()) for name, value in request.headers if value.lower() != "false"):
        return False
    if "text/event-stream" in (request.header("accept") or ""):
        return False
    body = parse_object(request.body) if request.method == "POST" else {}
    return body is not None and _HARMLESS.issuperset(body)


def target_of(request: Request) -> str | None:
    """Return the URL of the page that a reader request asks for, or None if it names none."""
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
    except ValueError:  # brackets that hold no IPv6 address
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
