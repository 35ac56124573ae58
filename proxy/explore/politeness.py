"""Politeness of an exploration: its limits, delays, robots.txt, and the blocking of harmful requests."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from playwright.async_api import Error as PlaywrightError

from stillweb.proxy.browser.documents import client
from stillweb.proxy.explore.moves import forbidden_request

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Request, Route
    from protego import Protego

    from stillweb.proxy.record.recorder import Recorder
    from stillweb.snapshots.profile import Profile

HERE = ("127.0.0.1", "localhost", "::1")  # this machine's own addresses need no delay


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of an exploration.

    `delay` is the seconds between two actions on a host other than this machine; `seconds` is the whole time.
    """

    views: int = 50
    depth: int = 2
    seconds: float = 900.0
    delay: float = 0.5
    parallel: int = 2
    obey_robots: bool = True


class Manners:
    """Rate limit per host and robots.txt rules, shared by all explorations that run at a time."""

    def __init__(
        self, recorder: Recorder, profile: Profile, delay: float, prefix: str, here: tuple[str, ...] = HERE
    ) -> None:
        """Take `delay` as the seconds between two requests to a host, unless the host is one of `here`."""
        self.recorder = recorder
        self.profile = profile
        self.delay = delay
        self.prefix = prefix
        self.here = here
        self._next_time: dict[str, float] = {}
        self._robots: dict[str, Protego | None] = {}

    async def wait_turn(self, url: str) -> None:
        """Wait until the URL's host may be asked again."""
        host = urlsplit(url).hostname or ""
        if host in self.here:
            return
        now = time.monotonic()
        turn = max(now, self._next_time.get(host, 0.0))
        self._next_time[host] = turn + self.delay
        if turn > now:
            await asyncio.sleep(turn - now)

    def hold(self, url: str, seconds: float) -> None:
        """Let nobody ask the URL's host for some seconds from now on."""
        host = urlsplit(url).hostname or ""
        self._next_time[host] = max(self._next_time.get(host, 0.0), time.monotonic() + seconds)

    async def allowed(self, url: str) -> bool:
        """Return True if robots.txt allows a URL (RFC 9309: unreachable means no, absent means yes)."""
        parts = urlsplit(url)
        site = f"{parts.scheme}://{parts.netloc}"
        if site not in self._robots:
            self._robots[site] = await self._robots_of(site)
        rules = self._robots[site]
        return rules is None or rules.can_fetch(url, "stillweb")

    async def _robots_of(self, site: str) -> Protego | None:
        import httpx
        from protego import Protego

        from stillweb.proxy.net.bounded_clients import MOST

        proxy_url = self.recorder.proxy_url(f"{self.prefix}-robots")
        nothing = Protego.parse("User-agent: *\nDisallow: /")
        async with client(proxy_url, self.recorder.ca_path, self.profile, MOST) as http:
            try:
                answer = await http.get(f"{site}/robots.txt")
            except httpx.HTTPError:
                return nothing
        if answer.status_code >= 500:
            return nothing
        if answer.status_code >= 400:
            return None
        return Protego.parse(answer.text)


class Guard:
    """A filter that aborts harmful requests, however the clicked control is named. `stopped` lists them."""

    def __init__(self) -> None:
        self.stopped: list[str] = []

    @classmethod
    async def over(cls, context: BrowserContext) -> Guard:
        """Filter all requests of a context from now on."""
        guard = cls()
        await context.route("**/*", guard._judge)
        return guard

    async def _judge(self, route: Route, request: Request) -> None:
        try:
            why = forbidden_request(request.method, request.url, request.post_data)
        except UnicodeDecodeError:
            # a binary body holds no mutation that we recognise
            why = forbidden_request(request.method, request.url, None)
        try:
            if why is None:
                await route.fallback()
            else:
                self.stopped.append(why)
                await route.abort()
        except PlaywrightError:
            return  # the page has gone
