"""The page that an attempt ended on, for scorers that evaluate an expression in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from stillweb.snapshots.errors import UsageError

_TOOL = "browser_evaluate"


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def final_page(tools: Any, loop: asyncio.AbstractEventLoop) -> Callable[[str], Any] | None:
    """Return a function that evaluates a JavaScript expression in the final page and returns its JSON value.

    Call that function in another thread than the loop's. It raises UsageError for an expression without a
    value. Return None if the session has no page.
    """
    own = getattr(tools, "evaluate", None)
    if own is None and not any(spec.name == _TOOL for spec in tools.list()):
        return None

    async def by_tool(expression: str) -> Any:
        result = await tools.call(_TOOL, {"function": f"() => ({expression})"})
        text = "\n".join(part.get("text", "") for part in result.content if part.get("type") == "text")
        section = text.partition("### Result\n")[2].partition("\n### ")[0].strip()
        if result.is_error or not section:
            raise UsageError(f"the final page can't evaluate {expression!r}: {text[:300]}")
        try:
            return json.loads(section, parse_constant=_no_number)
        except ValueError:
            raise UsageError(f"{expression!r} gave no JSON value: {section[:300]}") from None

    evaluate = own or by_tool

    def page(expression: str) -> Any:
        return asyncio.run_coroutine_threadsafe(evaluate(expression), loop).result()

    return page
