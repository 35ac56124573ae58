"""Tools over a small dictionary of pages: `fetch` gives a page, any other URL is a miss."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from stillweb.snapshots.errors import MissingCapability

PAGES = {
    "https://shelf.example/list?year=2012&page=1": "| id | mass |\n|---|---|\n| 7 | 3,900 |\n| 9 | 3700 |\n",
    "https://shelf.example/list?year=2012&page=2": "| id | mass |\n|---|---|\n| 11 | 3650 |\n",
    "https://shelf.example/": "Start here. A list of birds.",
}


@dataclass
class Spec:
    name: str = "fetch"
    description: str = "Gives a page."
    input_schema: dict[str, Any] = field(
        default_factory=lambda: {
            "type": "object",
            "properties": {"url": {"type": "string"}},
            "required": ["url"],
        }
    )
    contract: str = "shelf@1"


@dataclass
class Result:
    content: list[dict[str, Any]]
    is_error: bool
    meta: dict[str, Any]


class ShelfSession:
    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.calls = 0
        self.closed = False

    def list(self) -> list[Spec]:
        return [Spec()]

    async def call(self, name: str, arguments: dict[str, Any]) -> Result:
        self.calls += 1
        await self.shelf.ready(self.calls)
        url = arguments["url"]
        if url == "browser":
            raise MissingCapability("there is no browser")
        text = PAGES.get(url)
        if text is None:
            message = {"type": "text", "text": f"Failed to fetch {url}: not recorded"}
            near = [{"url": "https://shelf.example/", "differs": ["path"]}]
            return Result([message], True, {"verdict": "miss", "address": url, "nearest": near})
        capture = {"file": "shelf.warc.gz", "offset": len(url), "digest": sha256(text.encode()).hexdigest()}
        meta = {
            "verdict": "exact",
            "address": url,
            "captures": [capture],
            "slice": {"start": 0, "length": len(text)},
        }
        return Result([{"type": "text", "text": text}], False, meta)

    async def evaluate(self, expression: str) -> Any:
        return {"document.title": "Birds"}.get(expression)

    async def close(self) -> None:
        self.closed = True


class Shelf:
    """Calls of a session after the first `free` take `wait` seconds; calls of all sessions after the first `rush` take as
    long as the file `hold` exists.
    """

    def __init__(
        self, snapshot: Any = None, wait: float = 0.0, free: int = 0, hold: str = "", rush: int = 0
    ) -> None:
        self.wait, self.free = wait, free
        self.hold, self.rush = hold, rush

    def session(self, name: str) -> ShelfSession:
        return ShelfSession(self)

    async def ready(self, number: int) -> None:
        """When the answer to a session's call number `number`, from 1, is there."""
        if self.wait and number > self.free:
            await asyncio.sleep(self.wait)
        self.rush -= 1
        while self.rush < 0 and self.hold and os.path.exists(self.hold):
            await asyncio.sleep(0.01)


class Restless(Shelf):
    """A shelf whose pages depend on what must not matter: `on` is "seed", "zone", "locale" or "order"."""

    def __init__(self, snapshot: Any = None, wait: float = 0.0, on: str = "seed") -> None:
        super().__init__(snapshot, wait)
        self.on = on
        self.sessions = 0

    def session(self, name: str) -> ShelfSession:
        session = super().session(name)
        self.sessions += 1
        told = {
            "seed": str(hash("stillweb")),
            "zone": os.environ.get("TZ", ""),
            "locale": os.environ.get("LC_ALL", ""),
            "order": str(self.sessions),
        }[self.on]
        calling = session.call

        async def call(tool: str, arguments: dict[str, Any]) -> Result:
            result = await calling(tool, arguments)
            result.content[0]["text"] += told
            return result

        session.call = call  # type: ignore[method-assign]
        return session


class Odd(Shelf):
    """A shelf that says of its answers what no trace can hold: a `verdict` that is not text."""

    def session(self, name: str) -> ShelfSession:
        session = super().session(name)
        calling = session.call

        async def call(name: str, arguments: dict[str, Any]) -> Result:
            result = await calling(name, arguments)
            return Result(result.content, result.is_error, {**result.meta, "verdict": 7})

        session.call = call  # type: ignore[method-assign]
        return session
