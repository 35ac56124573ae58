"""Verdicts of web searches on a snapshot, for `stillweb coverage`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stillweb.harness.tools.serper import JSON_TYPE, SEARCH_URL, json_bytes, wrapper_body
from stillweb.harness.tools.toolset import Toolset
from stillweb.snapshots.request import Request


def query_verdict(toolset: Toolset) -> Callable[[str | Mapping[str, Any]], tuple[str, tuple[str, ...]]]:
    """Return a function that gives the verdict of a search, and notes on what may be wrong with its answer.

    A query text is looked up in two forms: as a program posts it to Serper, and as the MCP wrapper posts it with its
    defaults. A mapping holds the arguments of the wrapper's `google_search` and is looked up as the wrapper posts it.
    """

    def verdict(query: str | Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        bodies = [{"q": query}, wrapper_body({"q": query})] if isinstance(query, str) else []
        best: tuple[str, tuple[str, ...]] = ("miss", ())
        for body in bodies or [wrapper_body(dict(query))]:  # type: ignore[arg-type]  # a mapping: texts have bodies
            request = Request("POST", SEARCH_URL, JSON_TYPE, json_bytes(body))
            # each query has a session of its own, so that no query depends on another
            response, there = toolset.searcher.ask(request, toolset.store.session("coverage"))
            if response is None:
                continue
            notes: list[str] = []
            if response.status >= 400:
                notes.append(f"recorded with status {response.status}")
            if there.ambiguous:
                notes.append("the recording does not decide that it is this answer")
            if there.verdict != "synthetic" and not notes:
                return there.verdict, ()
            if best[0] in ("miss", "synthetic"):
                best = there.verdict, tuple(notes)
        return best

    return verdict
