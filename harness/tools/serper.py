"""Serper's Google search: the HTTP API, and the MCP wrapper's `google_search` and `scrape`.

A recorded search is answered as recorded, for the same canonical body. Any other search is a miss. If synthetic
search is allowed, it is answered in Serper's format from an index of the frozen texts, with verdict `synthetic`.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any
from urllib.parse import urlsplit

import rfc8785

from stillweb.harness._parsing import no_number
from stillweb.harness.tools.contract import ToolResult, fill_template, load
from stillweb.harness.tools.reader_common import page
from stillweb.harness.tools.store import FoundPage, Visit, httpx_text
from stillweb.snapshots.capture import Response
from stillweb.snapshots.http.encodings import EncodingProblem
from stillweb.snapshots.request import Request
from stillweb.snapshots.text.search import plain_text

CONTRACT = "serper-mcp@1.0.0"
SEARCH_HOST = "google.serper.dev"
SCRAPE_HOST = "scrape.serper.dev"
SEARCH_URL = f"https://{SEARCH_HOST}/search"
NUM = 10  # default number of results on a page
JSON_TYPE = (("Content-Type", "application/json"),)
_encode = json.JSONEncoder(ensure_ascii=False).encode
_HALF = re.compile("[\ud800-\udfff]")
# in the order in which the wrapper writes them into the body
_GIVEN = ("q", "gl", "hl", "location", "num", "tbs", "page", "autocorrect")
_OPERATORS = (
    "site", "filetype", "inurl", "intitle", "related", "cache", "before", "after", "exact", "exclude", "or"
)  # fmt: skip


class SearchLimit(Exception):
    """Error for a query that asks for more than the limits allow."""

    def __init__(self, limit: str, most: int, asked: int) -> None:
        super().__init__(f"limit reached: {limit} {asked} is over the limit of {most}")
        self.limit, self.most, self.asked = limit, most, asked


class Searcher:
    """Answers to Serper requests, for the MCP wrapper and for programs that use HTTP."""

    def __init__(
        self, *, synthetic: bool, most_pages: int | None = None, most_records: int | None = None
    ) -> None:
        self.synthetic = synthetic
        self.most_pages = most_pages
        self.most_records = most_records

    def check(self, body: dict[str, Any]) -> None:
        """Raise SearchLimit if a query asks for a page or a number of results over the limit."""
        page, num = whole(body.get("page"), 1), whole(body.get("num"), NUM)
        if self.most_pages is not None and page > self.most_pages:
            raise SearchLimit("page", self.most_pages, page)
        if self.most_records is not None and num > self.most_records:
            raise SearchLimit("num", self.most_records, num)

    def ask(self, request: Request, visit: Visit) -> tuple[Response | None, FoundPage]:
        """Return the answer to a request to one of Serper's hosts, or None, and the lookup's result."""
        found = visit.look(request)
        if found.capture is not None:
            return visit.read(found), found
        body = parse_object(request.body)
        host = urlsplit(request.url).hostname
        if request.method != "POST" or body is None:
            return None, found
        if host == SCRAPE_HOST:
            return self._scrape(body, visit, found)
        if self.synthetic and urlsplit(request.url).path.rstrip("/") == "/search" and body.get("q"):
            answer = self.synthetic_answer(body, visit)
            found.verdict, found.nearest = "synthetic", []
            return json_response(answer), found
        return None, found

    def synthetic_answer(self, body: dict[str, Any], visit: Visit) -> dict[str, Any]:
        """Return a synthetic answer: `organic` from the search index, without fields that only Google could fill."""
        page, num = max(1, whole(body.get("page"), 1)), min(max(1, whole(body.get("num"), NUM)), 100)
        parameters: dict[str, Any] = {
            k: body[k] for k in ("q", "gl", "hl", "location", "tbs", "autocorrect") if k in body
        }
        parameters |= {"type": "search", "num": num, "page": page, "engine": "google"}
        hits = visit.store.index().search(str(body["q"]), page * num)
        organic = [
            {"title": hit.title, "link": link_of(hit.address), "snippet": hit.snippet, "position": position}
            for position, hit in enumerate(hits[(page - 1) * num :], 1)
        ]
        return {"searchParameters": parameters, "organic": organic, "credits": 1 if num <= 10 else 2}

    def _scrape(
        self, body: dict[str, Any], visit: Visit, missed: FoundPage
    ) -> tuple[Response | None, FoundPage]:
        """Answer an unrecorded scrape of a recorded page from the page's frozen text, with the page's verdict."""
        url = body.get("url")
        if not isinstance(url, str):
            return None, missed
        frozen, found = page(url, visit)
        if frozen is None:
            return None, found if found.capture is not None else missed
        answer: dict[str, Any] = {"text": text_only(frozen.markdown)}
        if body.get("includeMarkdown"):
            answer["markdown"] = frozen.markdown
        answer["metadata"] = {"title": frozen.title} if frozen.title else {}
        answer["credits"] = 2
        return json_response(answer), found


class SerperTool:
    """Tools of the contract serper-mcp@1.0.0."""

    def __init__(self, searcher: Searcher) -> None:
        self.contract = load(CONTRACT)
        self.searcher = searcher

    async def call(self, name: str, arguments: dict[str, Any], visit: Visit) -> ToolResult:
        """Run `google_search` or `scrape`; the result is one text part, JSON indented by two spaces."""
        return self._search(arguments, visit) if name == "google_search" else self._page(arguments, visit)

    def _search(self, arguments: dict[str, Any], visit: Visit) -> ToolResult:
        if not arguments.get("q"):
            return fill_template(self.contract.strings["q_required"], error=True)
        body = wrapper_body(arguments)
        try:
            self.searcher.check(body)
        except SearchLimit as error:
            return fill_template(
                str(error), error=True, limit=error.limit, most=error.most, asked=error.asked
            )
        url = self.contract.more["http"]["search"]
        text, problem, found = self._post(url, body, visit)
        if problem is not None:
            message = self.contract.say("search_failed", q=body["q"], error=problem)
            return fill_template(message, error=True, **found.meta(address=url))
        return fill_template(text, **found.meta(address=url, query=body["q"]))

    def _page(self, arguments: dict[str, Any], visit: Visit) -> ToolResult:
        if not arguments.get("url"):
            return fill_template(
                self.contract.say("scrape_failed", error=self.contract.strings["url_required"]), error=True
            )
        body: dict[str, Any] = {k: arguments[k] for k in ("url", "includeMarkdown") if k in arguments}
        url = self.contract.more["http"]["scrape"] + "/"
        text, problem, found = self._post(url, body, visit)
        if problem is not None:
            message = self.contract.say("scrape_failed", error=problem)
            return fill_template(message, error=True, **found.meta(address=url))
        return fill_template(text, **found.meta(address=str(body["url"])))

    def _post(self, url: str, body: dict[str, Any], visit: Visit) -> tuple[str, str | None, FoundPage]:
        """Return (answer as the wrapper shows it, None, found), or ("", the wrapper's error, found)."""
        say = self.contract.say
        data = json_bytes(body)
        response, found = self.searcher.ask(Request("POST", url, JSON_TYPE, data), visit)
        if response is None:
            return "", say("no_connection", url=url, host=urlsplit(url).hostname), found
        try:
            text = httpx_text(response)
        except EncodingProblem:
            return "", say("not_decoded", url=url), found
        if not 200 <= response.status < 300:
            return "", say("status", status=response.status, reason=response.reason, text=text), found
        try:
            return script_json(_parsed(text)), None, found
        except ValueError:
            return "", say("not_json", url=url, reason=_not_json(text)), found


def wrapper_body(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the body that the wrapper posts: with its defaults, and operators both in `q` and as members."""
    given = {**arguments, "gl": str(arguments.get("gl") or "us"), "hl": str(arguments.get("hl") or "en")}
    query = re.sub(r"\s+", " ", str(given["q"]).strip())
    for name in ("site", "filetype", "inurl", "intitle", "related", "cache", "before", "after"):
        if given.get(name):
            query += f" {name}:{given[name]}"
    if given.get("exact"):
        query += f' "{given["exact"]}"'
    if given.get("exclude"):
        query += "".join(f" -{term.strip()}" for term in str(given["exclude"]).split(","))
    if given.get("or"):
        query += f" ({' OR '.join(term.strip() for term in str(given['or']).split(','))})"
    return {
        k: (query.strip() if k == "q" else given[k])
        for k in (*_GIVEN, *_OPERATORS)
        if given.get(k) is not None
    }


def text_only(markdown: str) -> str:
    """Return the lines of a Markdown text without markup; lines that are empty then are dropped."""
    lines = (plain_text(line) for line in markdown.split("\n"))
    return "\n".join(line for line in lines if line)


def link_of(address: str) -> str:
    """Return the link of a hit: `#text=` is removed from an address, a view's address is kept."""
    return address.partition("#text=")[0]


def whole(value: Any, default: int) -> int:
    """Return an integer given as a number or as digits; `default` for anything else."""
    if isinstance(value, bool) or value is None:
        return default
    if isinstance(value, float):
        return int(value) if value == value and abs(value) < 1e9 else default
    if isinstance(value, int):
        return value
    return (
        int(value)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10
        else default
    )


def parse_object(body: bytes) -> dict[str, Any] | None:
    """Parse a JSON object; return None for any other body."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _parsed(text: str) -> Any:
    """Parse JSON as JavaScript does, where all numbers are doubles. Raise ValueError if it is not JSON."""
    try:
        return json.loads(text, parse_float=_number, parse_int=_number, parse_constant=no_number)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _number(text: str) -> int | float | None:
    value = float(text)
    if not math.isfinite(value):
        return None  # `JSON.stringify` writes null for an infinite number
    return int(value) if value.is_integer() and abs(value) <= 2**53 else value


def _not_json(text: str) -> str:
    """Return V8's error message for a text that is not JSON."""
    try:
        _parsed(text)
    except json.JSONDecodeError as error:
        at = error.pos
        if at < len(text) and not error.msg.startswith("Unterminated"):
            around = f'"{text}"'
            if len(text) > 20:
                before, after = "..." * (at > 10), "..." * (len(text) > at + 10)
                around = f'{before}"{text[max(0, at - 10) : at + 10]}"{after}'
            return f"Unexpected token '{text[at]}', {around} is not valid JSON"
    except ValueError as error:
        return str(error)
    return "Unexpected end of JSON input"


def script_json(value: Any, margin: str = "\n") -> str:
    """Serialize a value as JavaScript's `JSON.stringify(value, null, 2)` does."""
    inner = margin + "  "
    if isinstance(value, dict):
        if not value:
            return "{}"
        members = (
            f"{script_json(str(name))}: {script_json(member, inner)}" for name, member in value.items()
        )
        return "{" + inner + ("," + inner).join(members) + margin + "}"
    if isinstance(value, list | tuple):
        if not value:
            return "[]"
        return "[" + inner + ("," + inner).join(script_json(member, inner) for member in value) + margin + "]"
    if isinstance(value, float):
        return rfc8785.dumps(value).decode()
    return _escaped(_encode(value))


def _escaped(text: str) -> str:
    """Escape lone surrogates in a JSON text, as JavaScript does: UTF-8 can't encode them."""
    return text if text.isascii() else _HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def json_bytes(value: Any) -> bytes:
    """Serialize a value without white space, as `JSON.stringify(value)` does."""
    return _escaped(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def json_response(value: Any, status: int = 200, reason: str = "OK") -> Response:
    body = json_bytes(value)
    fields = (("Content-Type", "application/json; charset=utf-8"), ("Content-Length", str(len(body))))
    return Response(status, reason, fields, body)
