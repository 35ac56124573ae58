"""Requests that a client takes back (`notifications/cancelled`), without the SDK's own way of doing it.

The SDK ends the whole connection where the notification comes while the answer is being written, which is when it comes
to a tool that answers at once. So it never hears of one: a handler's work is ended here, and what has its answer keeps it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import anyio
    from mcp.types import RequestId

T = TypeVar("T")
CANCELLED = "Request cancelled"  # as the SDK says it, with code 0

# of the connection that a task belongs to
_at_work: ContextVar[dict[RequestId, anyio.CancelScope]] = ContextVar("_at_work")


async def sifted(run: Callable[..., Awaitable[None]], read: Any, *rest: Any, **more: Any) -> None:
    """Runs the SDK's loop of a connection, with what `read` gives but the notifications that are acted on here."""
    import anyio

    _at_work.set({})
    into, out = anyio.create_memory_object_stream[Any](0)

    async def sift() -> None:
        # a client that ends its session (DELETE) has its stream closed under us: what it asked for is ended likewise
        with contextlib.suppress(anyio.ClosedResourceError):
            async with into, read:
                async for item in read:
                    taken_back = _taken_back(item)
                    if taken_back is None:
                        await into.send(item)
                    elif scope := _at_work.get().get(taken_back):
                        scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sift)
        await run(out, *rest, **more)
        tasks.cancel_scope.cancel()


async def until_taken_back(request: RequestId, work: Callable[[], Awaitable[T]]) -> T:
    """The work's result. Raises McpError, with the SDK's words, where the client takes the request back first."""
    import anyio
    from mcp.shared.exceptions import McpError
    from mcp.types import ErrorData

    scopes = _at_work.get()
    with anyio.CancelScope() as scopes[request]:
        try:
            return await work()
        finally:
            del scopes[request]
    raise McpError(ErrorData(code=0, message=CANCELLED))


def _taken_back(item: Any) -> RequestId | None:
    """The request that a message takes back; None for every other message."""
    from mcp.types import JSONRPCNotification

    message = getattr(getattr(item, "message", None), "root", None)
    if not isinstance(message, JSONRPCNotification) or message.method != "notifications/cancelled":
        return None
    given = (message.params or {}).get("requestId")
    return given if isinstance(given, str | int) else None
