"""A pool of browser contexts made in advance, one for the next attempt.

An attempt gets a context at once, and the next one is made while it works. A spare has sent no request: its
page is empty, and time and chance begin with the first document that it loads. It has a session name of its
own in its proxy's credentials, which the gateway assigns to the attempt's session.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from playwright.async_api import Error as PlaywrightError

from stillweb.snapshots.errors import StillwebError
from stillweb.snapshots.profile import Profile

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext

    from stillweb.proxy.browser.browser import BrowserHost

LATER = 0.5  # s until the next is made: the attempt that has just got one is about to use the machine
_numbers = itertools.count(1)


class Renames(Protocol):
    """The part of a gateway that is used here."""

    @property
    def ca_path(self) -> Path:
        """The CA that the browser is to trust."""

    def proxy_url(self, session: str = ...) -> str:
        """Return the proxy address of a session."""

    def rename(self, name: str, session: str) -> None:
        """Assign requests under a name to a session from now on."""


class Spares:
    """At most one spare context, with a page, for each gateway and profile.

    Belongs to the browser's event loop.
    """

    def __init__(self, host: BrowserHost) -> None:
        self.host = host
        self._made: dict[tuple[str, Profile], asyncio.Task[tuple[str, BrowserContext]]] = {}

    async def take(self, session: str, gateway: Renames, profile: Profile) -> BrowserContext:
        """Return a fresh context with one page, for a session. Raises what `BrowserHost.context` raises."""
        key = (gateway.proxy_url("spare"), profile)
        spare = self._made.pop(key, None)
        context = None
        if spare is not None:
            try:
                name, context = await spare
                if context.pages:
                    gateway.rename(name, session)
                else:  # the browser has lost it
                    context = None
            except (PlaywrightError, StillwebError):
                context = None
        if context is None:
            context = await self.host.context(session, gateway.proxy_url(session), profile, gateway.ca_path)
            await context.new_page()
        if key not in self._made:
            self._made[key] = asyncio.ensure_future(self._make(gateway, profile))
        return context

    async def _make(self, gateway: Renames, profile: Profile) -> tuple[str, BrowserContext]:
        await asyncio.sleep(LATER)
        name = f"stillweb-spare-{next(_numbers)}"
        context = await self.host.context(name, gateway.proxy_url(name), profile, gateway.ca_path)
        await context.new_page()
        return name, context

    async def close(self) -> None:
        """Drop the spares without waiting for those in the making."""
        made, self._made = list(self._made.values()), {}
        for task in made:
            task.cancel()
        await asyncio.gather(*made, return_exceptions=True)
