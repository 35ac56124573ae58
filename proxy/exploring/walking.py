"""One walk: a session of its own, led by steps from nothing to a view, and a move made there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from stillweb.proxy.pages.acting import Driver
from stillweb.proxy.pages.failures import Unclear
from stillweb.proxy.pages.patience import Calm
from stillweb.proxy.pages.sight import Sight
from stillweb.proxy.pages.storing import Recording
from stillweb.snapshots.view import Step

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext

    from stillweb.proxy.exploring.moves import Choices, Move
    from stillweb.proxy.exploring.politeness import Limits, Manners
    from stillweb.proxy.pages.browser import BrowserHost
    from stillweb.proxy.pages.storing import Records
    from stillweb.snapshots.profile import Profile
    from stillweb.snapshots.writer import Writer

_FIELDS = ("select", "radio", "check", "uncheck", "value", "text")


class Means(Protocol):
    """What an exploration works with, and where it leaves what it knows."""

    recorder: Records
    writer: Writer
    profile: Profile
    limits: Limits
    choices: Choices
    manners: Manners

    def new_session(self) -> str:
        """A name that no other exploration of this process has."""

    def driver(self, context: BrowserContext) -> Driver:
        """The hand for a context without pages."""

    def save(self, url: str, known: dict[str, Any]) -> None:
        """Keep what is known of a URL's states."""


class Walk:
    """A fresh page of a URL, what is recorded of it, and the hand that leads it."""

    def __init__(self, means: Means, url: str, driver: Driver, recording: Recording) -> None:
        self.url = url
        self.driver = driver
        self.recording = recording
        self._manners = means.manners

    async def reach(self, steps: Sequence[Step]) -> tuple[int, Calm]:
        """Load the URL and do the steps; the status, and how it ended. What was too late for its scripts stays so."""
        await self._manners.wait_turn(self.url)
        response, calm = await self.driver.begin(self.url)
        for number, step in enumerate(steps, start=1):
            await self._manners.wait_turn(self.url)
            later = await self.driver.perform(step, number)
            calm = later if calm.quiet else calm
        return (response.status if response is not None else 0), calm

    async def look(self) -> Sight:
        """What the page shows, without a picture and without secrets."""
        return await self.recording.look(self.driver.page, with_picture=False)

    async def make(
        self, move: Move, before: Sequence[Step], unchanged: Callable[[Sight], bool]
    ) -> tuple[Sight, list[Step], Calm]:
        """Do a move after the steps `before`; by CSS if its names are ambiguous; with the form's button if it alone changes nothing."""
        steps = list(before)
        calm = Calm(True, 0.0, 0)
        for named, plain in zip(move.steps, move.plain, strict=True):
            await self._manners.wait_turn(self.url)
            try:
                calm = await self.driver.perform(named, len(steps) + 1)
                steps.append(named)
            except Unclear:  # of any other failure it is not known whether something was done
                if named == plain:
                    raise
                calm = await self.driver.perform(plain, len(steps) + 1)
                steps.append(plain)
        sight = await self.look()
        if move.then and move.kind in _FIELDS and unchanged(sight):
            for step in move.then:
                calm = await self.driver.perform(step, len(steps) + 1)
                steps.append(step)
            sight = await self.look()
        return sight, steps, calm

    def half_loaded(self, calm: Calm) -> bool:
        """Whether the site itself failed to give something, or gave it too late: what is seen may lack a script."""
        site = urlsplit(self.url).netloc
        late = not calm.quiet and not calm.reason.startswith("keeps asking")
        return late or any(urlsplit(url).netloc == site for url in self.driver.traffic.lost())


@asynccontextmanager
async def walking(means: Means, host: BrowserHost, url: str) -> AsyncIterator[Walk]:
    """A walk through the recorder in a new session, whose context is closed at the end."""
    session, recorder = means.new_session(), means.recorder
    context = await host.context(
        session, recorder.proxy_url(session), means.profile, recorder.ca_path, replay=False
    )
    try:
        driver = means.driver(context)
        recording = Recording(recorder, means.writer, session)
        recording.watch(driver.traffic)
        yield Walk(means, url, driver, recording)
    finally:
        await context.close()
