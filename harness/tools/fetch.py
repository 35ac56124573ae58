"""`fetch` of mcp-server-fetch, answered from frozen texts; it also reads PDFs and the addresses of views."""

from __future__ import annotations

import functools
import re
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from stillweb.harness.tools import jina
from stillweb.harness.tools.contract import Contract, ToolResult, checker, fill_template, load
from stillweb.harness.tools.store import FoundPage, Visit, httpx_text
from stillweb.snapshots.evidence.confidence import Confidence
from stillweb.snapshots.http.encodings import EncodingProblem
from stillweb.snapshots.request import Request
from stillweb.snapshots.text.text import BROKEN, PDF, extract_html
from stillweb.snapshots.view import OF_A_URL, id_in

CONTRACT = "mcp-fetch@0.6.3"
_PYDANTIC = re.compile(r"https://errors\.pydantic\.dev/[0-9.]+/")


@functools.cache
def _model(strict: str | None) -> Any:
    """Return the pydantic model of the arguments, because the real server's errors contain pydantic's messages.

    `strict` is the model's name in server versions that leave all checks to pydantic, else None.
    """
    from pydantic import AnyUrl, Field, create_model

    if strict is not None:
        return create_model(
            strict,
            url=(AnyUrl, Field()),
            max_length=(int, Field(default=5000, ge=1, le=999999, strict=True)),
            start_index=(int, Field(default=0, ge=0, strict=True)),
            raw=(bool, Field(default=False, strict=True)),
        )
    return create_model(
        "Fetch",
        url=(AnyUrl, Field()),
        max_length=(int, Field(default=5000, gt=0, lt=1000000)),
        start_index=(int, Field(default=0, ge=0)),
        raw=(bool, Field(default=False)),
    )


class FetchTool:
    def __init__(self, contract: Contract | None = None) -> None:
        self.contract = contract or load(CONTRACT)
        self._strict: str | None = self.contract.more.get("arguments", {}).get("model")

    async def call(self, name: str, arguments: dict[str, Any], visit: Visit) -> ToolResult:
        """Fetch a page; every slice of a document is cut from the same frozen text."""
        result = self._call(name, arguments, visit)
        if result.is_error and "error" in self.contract.strings:
            return fill_template(self.contract.say("error", message=result.text), error=True, **result.meta)
        return result

    def _call(self, name: str, arguments: dict[str, Any], visit: Visit) -> ToolResult:
        from pydantic import ValidationError

        contract = self.contract
        # the real server's SDK checks listed tools only, and the server itself ignores the name
        if self._strict is None and name == "fetch" and not plainly_valid(arguments):
            problem = checker(contract.name, "fetch").problem(arguments)
            if problem is not None:
                return fill_template(contract.say("invalid", message=problem), error=True)
        try:
            given = _model(self._strict)(**arguments)
        except ValidationError as error:
            # pydantic's message names its release: write the contract's, whichever is installed
            return fill_template(_PYDANTIC.sub(contract.strings["pydantic"], str(error)), error=True)
        url, start, most = str(given.url), given.start_index, given.max_length
        document = self.document(url, given.raw, visit)
        if isinstance(document, ToolResult):
            return document
        content, prefix, meta = document
        text, end = cut(contract, content, start, most)
        meta["slice"] = [min(start, len(content)), end, len(content)]
        return fill_template(contract.say("contents", prefix=prefix, url=url, content=text), **meta)

    def document(
        self, url: str, raw: bool, visit: Visit, *, for_user: bool = False
    ) -> tuple[str, str, dict[str, Any]] | ToolResult:
        """Return the whole content of an address, its prefix and meta, or the error of the real tool.

        `for_user` is for the MCP prompt, which a person requests: robots.txt is ignored, and the User-Agent says so.
        """
        contract = self.contract
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            # the real tool requests robots.txt first, which fails for the same reason, unless a person asks
            robots = urlunsplit((parts.scheme, parts.netloc, "/robots.txt", "", ""))
            text = contract.say("robots_failed", robots=robots)
            if for_user:
                why = contract.say("other_protocol" if parts.netloc else "no_protocol", scheme=parts.scheme)
                text = contract.say("failed", url=url, error=why)
            return fill_template(text, error=True, verdict="miss", address=url)
        if OF_A_URL.search(url):
            return self._stored(url, raw, visit)
        if visit.live and not for_user and (refused := self._robots(url, visit)):
            return fill_template(refused, error=True, address=url)
        by_user = (("User-Agent", contract.strings["agent_manual"]),) if visit.live and for_user else ()
        found = visit.follow(url, by_user)
        if found.redirects:
            return fill_template(
                contract.say("failed", url=url, error=contract.say("redirects")),
                error=True,
                **found.meta(address=url),
            )
        if found.capture is None:
            return self._read_for(url, visit) or self._missed(url, found, visit, for_user=for_user)
        if found.capture.status >= 400:
            text = contract.say("status", url=url, status=found.capture.status)
            return fill_template(text, error=True, **found.meta(address=url))
        try:
            return self._content(found, raw, visit)
        except EncodingProblem as error:
            text = contract.say("failed", url=url, error=f"DecodingError({str(error)!r})")
            return fill_template(text, error=True, **found.meta(address=url))

    def _content(self, found: FoundPage, raw: bool, visit: Visit) -> tuple[str, str, dict[str, Any]]:
        capture = found.capture
        assert capture is not None
        label = capture.mime.lower()
        if not raw and ("text/html" in label or "application/pdf" in label):
            frozen = visit.store.text_of(capture)
            if frozen is not None and any(
                w.startswith(BROKEN) and "ends early" not in w for w in frozen.warnings
            ):
                httpx_text(visit.read(found))  # raises where the real tool fails
            readable = frozen is not None and frozen.meta.get("readable") is not False
            if frozen is not None and ("text/html" in label or (frozen.media == PDF and readable)):
                # without any text, the real tool distinguishes an empty body from a page that it can't simplify
                told = self._strict is None  # True if this version distinguishes them
                empty = told and not frozen.markdown and not visit.read(found).body
                content = "" if empty else self._frozen(frozen.markdown, frozen.media)
                return content, "", found.meta(address=frozen.address)
        response = visit.read(found)
        text = httpx_text(response)
        content_type = response.header("content-type") or ""
        html = "<html" in text[:100] or "text/html" in content_type or not content_type
        if html and not raw:
            if not text and self._strict is None:
                return "", "", found.meta(address=capture.url)
            frozen = visit.store.text_of(capture) or extract_html(capture.url, text)
            return self._frozen(frozen.markdown, frozen.media), "", found.meta(address=frozen.address)
        return text, self.contract.say("raw", content_type=content_type), found.meta(address=capture.url)

    def _frozen(self, markdown: str, media: str) -> str:
        # a PDF without text is an empty document; an HTML page without text could not be simplified
        return markdown if markdown or media == PDF else self.contract.strings["not_simplified"]

    def _stored(self, url: str, raw: bool, visit: Visit) -> tuple[str, str, dict[str, Any]] | ToolResult:
        """Return a view, or one of several answers of a URL, by its address in search results and traces."""
        store = visit.store
        if id_in(url) is not None:
            seen = store.view_text(url)
            if seen is not None:
                text, address = seen
                meta = {
                    "verdict": "rendered",
                    "captures": [],
                    "address": text.address,
                    "view": address,
                    "url": text.meta.get("url", url),
                }
                if raw:
                    dom = (store.snapshot.resource("dom", address) or b"").decode("utf-8", "replace")
                    return dom, self.contract.say("raw", content_type="text/html;charset=utf-8"), meta
                return self._frozen(text.markdown, text.media), "", meta
        else:
            frozen = store.text_at(url)
            if frozen is not None:
                meta = {
                    "verdict": "exact",
                    "captures": [],
                    "address": url,
                    "url": frozen.meta.get("url", url),
                }
                return self._frozen(frozen.markdown, frozen.media), "", meta
        return self._missed(url, FoundPage(url), visit)

    def _read_for(self, url: str, visit: Visit) -> tuple[str, str, dict[str, Any]] | ToolResult | None:
        """Return the answer of Jina's reader for its real address; None if it is another host or a miss."""
        if visit.live or urlsplit(url).hostname != jina.HOST:
            return None
        response = jina.answer(Request("GET", url, ()), visit)
        verdict = response.header("stillweb-verdict")
        meta: dict[str, Any] = {"verdict": verdict, "captures": [], "address": url, "url": url}
        if verdict is None or verdict.partition(":")[0] in ("miss", "failed"):
            return None
        if response.header("stillweb-ambiguous") is not None:
            meta["ambiguous"] = True
        if (confidence := Confidence.parse(response.header("stillweb-confidence"))) is not None:
            meta |= confidence.members()
        if response.status >= 400:
            return fill_template(
                self.contract.say("status", url=url, status=response.status), error=True, **meta
            )
        content_type = response.header("content-type") or ""
        return httpx_text(response), self.contract.say("raw", content_type=content_type), meta

    def _missed(self, url: str, found: FoundPage, visit: Visit, *, for_user: bool = False) -> ToolResult:
        """Return the error of a miss: an unreachable host, or a refusal by the site's recorded robots.txt."""
        faulted = found.verdict.startswith("fault:")
        refused = None if visit.live or for_user or faulted else self._robots(url, visit)
        error = found.error or self.contract.strings["no_connection"]
        text = refused or self.contract.say("failed", url=url, error=error)
        return fill_template(text, error=True, **found.meta(address=url))

    def _robots(self, url: str, visit: Visit) -> str | None:
        """Return the real tool's error if robots.txt forbids a page; None if the page may be fetched."""
        from protego import Protego  # the real tool's parser of robots.txt

        contract = self.contract
        parts = urlsplit(url)
        robots = f"{parts.scheme}://{parts.netloc}/robots.txt"
        if url == robots and not visit.live:
            return None
        found = visit.follow(robots)
        if found.capture is None or found.redirects:
            failed = visit.live or found.verdict.startswith("failed:")
            return contract.say("robots_failed", robots=robots) if failed else None
        if found.capture.status in (401, 403):
            return contract.say("robots_denied", robots=robots, status=found.capture.status)
        if 400 <= found.capture.status < 500:
            return None
        try:
            rules = httpx_text(visit.read(found))
        except EncodingProblem:  # to the real tool it looks like a failed connection
            return contract.say("robots_failed", robots=robots)
        lines = (line for line in rules.splitlines() if not line.strip().startswith("#"))
        agent = contract.strings["agent"]
        if Protego.parse("\n".join(lines)).can_fetch(url, agent):
            return None
        return contract.say("robots_refused", robots=robots, agent=agent, url=url, text=rules)


_NAMES = frozenset({"url", "max_length", "start_index", "raw"})


def plainly_valid(arguments: dict[str, Any]) -> bool:
    """Return True if arguments surely fit the schema; a fast check that spares most calls the full one."""
    start, most = arguments.get("start_index", 0), arguments.get("max_length", 5000)
    return (
        _NAMES.issuperset(arguments)
        and type(arguments.get("url")) is str
        and arguments["url"] != ""
        and type(start) is int
        and start >= 0
        and type(most) is int
        and 0 < most < 1_000_000
        and type(arguments.get("raw", False)) is bool
    )


def cut(contract: Contract, content: str, start: int, most: int) -> tuple[str, int]:
    """Return a slice of a document with its trailer, and the end of the slice in code points."""
    if start >= len(content):
        return contract.strings["no_more"], len(content)
    piece = content[start : start + most]
    end = start + len(piece)
    if len(piece) == most and end < len(content):
        return piece + contract.say("truncated", next=end), end
    return piece, end
