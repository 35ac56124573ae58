"""Cancel MCP requests (`notifications/cancelled`) in place of the SDK.

The SDK ends the whole connection if the notification comes while the answer is being written, which is the usual
moment for a tool that answers at once. So the SDK never receives the notification. A running handler is cancelled
here; a request that was already answered keeps its answer.
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
CANCELLED = "Request cancelled"  # the SDK's message, with code 0

# running requests of the connection that a task belongs to
_at_work: ContextVar[dict[RequestId, anyio.CancelScope]] = ContextVar("_at_work")


async def sifted(run: Callable[..., Awaitable[None]], read: Any, *rest: Any, **more: Any) -> None:
    """Run the SDK's loop of a connection on the messages of `read`, without the cancel notifications."""
    import anyio

    _at_work.set({})
    into, out = anyio.create_memory_object_stream[Any](0)

    async def sift() -> None:
        # a client's DELETE closes this stream: its running requests end with it
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
    """Return the result of `work`. Raise McpError, with the SDK's message, if the client cancels the request first."""
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
    """Return the id of the request that a message cancels, or None."""
    from mcp.types import JSONRPCNotification

    message = getattr(getattr(item, "message", None), "root", None)
    if not isinstance(message, JSONRPCNotification) or message.method != "notifications/cancelled":
        return None
    given = (message.params or {}).get("requestId")
    return given if isinstance(given, str | int) else None
