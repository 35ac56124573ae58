"""Where links led: the same address, asked for with the same cookies and storage, need not be visited twice."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from stillweb.proxy.pages.answered import answered

if TYPE_CHECKING:
    from stillweb.proxy.exploring.graph import Node
    from stillweb.proxy.pages.acting import Driver


class Landings:
    """What is known of links. `held` is, for each view's address, a hash of what the client has there."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self._led: dict[tuple[str, str], Node] = {}

    def tell(self, source: str, href: str, target: Node) -> None:
        """A link on the view at `source` led to `target`."""
        self._led[_same_link(href), self.held.get(source, "")] = target

    def of(self, source: str, href: str | None) -> Node | None:
        """Where a link on the view at `source` leads; None when no other way has shown it."""
        return self._led.get((_same_link(href or ""), self.held.get(source, "")))


def _same_link(href: str) -> str:
    """A link's address with its query in order."""
    parts = urlsplit(href)
    return parts._replace(query="&".join(sorted(parts.query.split("&")))).geturl()


async def held_by(driver: Driver) -> str:
    """A hash of all that the client would send along or remember."""
    kept = await driver.context.storage_state()
    session = await answered(
        driver.page.evaluate("() => { try { return JSON.stringify(sessionStorage) } catch { return '' } }")
    )
    for cookie in kept.get("cookies", ()):
        cookie.pop("expires", None)  # by the machine's clock: another at each visit
    return hashlib.sha256(json.dumps([kept, session], sort_keys=True).encode(errors="replace")).hexdigest()
