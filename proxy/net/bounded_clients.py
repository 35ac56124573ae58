"""HTTP clients of our own that ask through a recorder. Each answer is bounded: some servers never end one.

The recorder keeps the part that came of an answer that was broken off.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx

LONGEST = 300.0  # s in which an answer must end; a client's own timeout bounds its silence
MOST = 256 << 20  # bytes of an answer that is kept in memory


class BoundedClient(httpx.Client):
    """An httpx.Client behind a proxy. Its answers raise httpx.ReadTimeout and ReadError above LONGEST and MOST."""

    def __init__(self, proxy: str, verify: ssl.SSLContext, **settings: Any) -> None:
        super().__init__(transport=_Transport(httpx.HTTPTransport(verify, proxy=proxy), MOST), **settings)


class AsyncBoundedClient(httpx.AsyncClient):
    """An httpx.AsyncClient behind a proxy, bounded like `BoundedClient`. `most` None bounds only the time."""

    def __init__(
        self, proxy: str | None, verify: ssl.SSLContext | bool, most: int | None = MOST, **settings: Any
    ) -> None:
        inner = httpx.AsyncHTTPTransport(verify, proxy=proxy)
        super().__init__(transport=_Transport(inner, most), **settings)


class _Answer(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The bytes of an answer, bounded. `inner` is of the kind of client that reads it."""

    def __init__(self, inner: Any, request: httpx.Request, most: int | None) -> None:
        self._inner, self._request, self._most = inner, request, most
        self._size, self._end = 0, time.monotonic() + LONGEST

    def _took(self, piece: bytes) -> bytes:
        self._size += len(piece)
        if time.monotonic() > self._end:
            raise httpx.ReadTimeout(f"the answer did not end within {LONGEST:g} s", request=self._request)
        if self._most is not None and self._size > self._most:
            raise httpx.ReadError(f"the answer is longer than {self._most} bytes", request=self._request)
        return piece

    def __iter__(self) -> Iterator[bytes]:
        yield from map(self._took, self._inner)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._inner:
            yield self._took(piece)

    def close(self) -> None:
        self._inner.close()

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Transport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """A transport whose answers are bounded. `inner` is of the kind of client that uses it."""

    def __init__(self, inner: Any, most: int | None) -> None:
        self._inner, self._most = inner, most

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer: httpx.Response = self._inner.handle_request(request)
        answer.stream = _Answer(answer.stream, request, self._most)
        return answer

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer: httpx.Response = await self._inner.handle_async_request(request)
        answer.stream = _Answer(answer.stream, request, self._most)
        return answer

    def close(self) -> None:
        self._inner.close()

    async def aclose(self) -> None:
        await self._inner.aclose()
