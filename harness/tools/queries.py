"""Whether a snapshot answers a search, however a program asks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stillweb.harness.tools.serper import JSON_TYPE, SEARCH_URL, json_bytes, wrapper_body
from stillweb.harness.tools.toolset import Toolset
from stillweb.snapshots.request import Request


def query_verdict(toolset: Toolset) -> Callable[[str | Mapping[str, Any]], tuple[str, tuple[str, ...]]]:
    """A function that gives the verdict of a search, and what may be wrong with its answer.

    A query is asked for as a program posts it, and as the wrapper does with its defaults; arguments of the wrapper's
    `google_search` (`q` and what it takes besides) as the wrapper posts them.
    """

    def verdict(query: str | Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        bodies = [{"q": query}, wrapper_body({"q": query})] if isinstance(query, str) else []
        best: tuple[str, tuple[str, ...]] = ("miss", ())
        for body in bodies or [wrapper_body(dict(query))]:  # type: ignore[arg-type]  # no text: see above
            request = Request("POST", SEARCH_URL, JSON_TYPE, json_bytes(body))
            # a session for each: one query is no step of another
            response, there = toolset.searcher.ask(request, toolset.store.session("coverage"))
            if response is None:
                continue
            notes: list[str] = []
            if response.status >= 400:
                notes.append(f"recorded with status {response.status}")
            if there.ambiguous:
                notes.append("several answers were recorded and the evidence does not decide")
            if there.verdict != "synthetic" and not notes:
                return there.verdict, ()
            if best[0] in ("miss", "synthetic"):
                best = there.verdict, tuple(notes)
        return best

    return verdict
