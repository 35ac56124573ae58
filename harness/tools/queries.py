"""Whether a snapshot answers a search, however a program asks it."""

from __future__ import annotations

import json
from collections.abc import Callable

from harness.tools.serper import JSON_TYPE, SEARCH_URL, wrapper_body
from harness.tools.toolset import Toolset
from snapshots.request import Request


def query_verdict(toolset: Toolset) -> Callable[[str], str]:
    """A function that gives the verdict of a query as a program posts it, or the wrapper with its defaults."""

    def verdict(query: str) -> str:
        found = "miss"
        for body in ({"q": query}, wrapper_body({"q": query})):
            data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
            request = Request("POST", SEARCH_URL, JSON_TYPE, data)
            # a session for each: one query is no step of another
            _, there = toolset.searcher.ask(request, toolset.store.session("coverage"))
            if there.verdict not in ("miss", "synthetic"):
                return there.verdict
            found = there.verdict if there.verdict == "synthetic" else found
        return found

    return verdict
