"""Agent that is a function: `agent(attempt)`, plain or async, returns the answer as text, or None.

An async function awaits the attempt's tools (`await attempt.call(…)`) and models (`await attempt.ask(…)`). A plain
function runs in a thread, in which both wait for their answers.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine
from hashlib import sha256
from pathlib import Path
from typing import Any

from stillweb.harness.agents.attempt import Attempt

COPIED = "copied"  # option of an agent that names the file of a copied function


def is_agent_function(found: Any) -> bool:
    """Return True for a function whose only parameter without a default is called `attempt`."""
    if isinstance(found, type) or not (inspect.isfunction(found) or inspect.ismethod(found)):
        return False
    needed = [
        one.name
        for one in inspect.signature(found).parameters.values()
        if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    return needed == ["attempt"]


def import_name(function: Callable[..., Any]) -> str | None:
    """Return `module:function` if another process can import the function by it, else None."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or module == "__main__" or not name.isidentifier() or not is_agent_function(function):
        return None
    known = sys.modules.get(module)
    if getattr(known, name, None) is not function or not getattr(known, "__file__", None):
        return None
    return f"{module}:{name}"


class FunctionAgent:
    """Agent that calls a function once per attempt, in the process that holds it.

    `trusted` says why that is Stillweb's own process, which holds the reference answers, or is "".
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.trusted = ""
        self.name = getattr(function, "__name__", None) or type(function).__name__

    def identity(self) -> dict[str, Any]:
        """Return the function's name and the SHA-256 (hex) of the file that defines it."""
        module = sys.modules.get(getattr(self.function, "__module__", None) or "")
        file = Path(getattr(module, "__file__", None) or "")
        files = {file.name: sha256(file.read_bytes()).hexdigest()} if file.is_file() else {}
        return {"kind": "function", "name": self.name, "files": files}

    async def run(self, attempt: Attempt) -> Any:
        if inspect.iscoroutinefunction(self.function):
            return await self.function(attempt)
        waiting = _WaitingAttempt(attempt, asyncio.get_running_loop())
        answer = await asyncio.to_thread(self.function, waiting)
        return await answer if inspect.isawaitable(answer) else answer


class _WaitingAttempt:
    """An attempt as plain functions see it: `call` and `ask` return the answer, and where a loop runs its awaitable."""

    def __init__(self, attempt: Attempt, loop: asyncio.AbstractEventLoop) -> None:
        self._attempt, self._loop = attempt, loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._attempt, name)

    def call(self, *given: Any, **more: Any) -> Any:
        return self._answer(self._attempt.call(*given, **more))

    def ask(self, *given: Any, **more: Any) -> Any:
        return self._answer(self._attempt.ask(*given, **more))

    def _answer(self, coming: Coroutine[Any, Any, Any]) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(coming, self._loop).result()
        return coming
