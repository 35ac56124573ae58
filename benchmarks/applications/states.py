"""The hand-written lists of states, and how many of them an exploration has found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from stillweb.proxy.browser.browser import BrowserHost
from stillweb.proxy.browser.driver import Driver
from stillweb.proxy.browser.errors import PageFailed
from stillweb.proxy.browser.page_snapshot import read_page
from stillweb.proxy.browser.settle import SettleTimeouts
from stillweb.proxy.browser.steps import canonical, describe
from stillweb.proxy.explore.moves import Noise, stable_content
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.view import Step


@dataclass(frozen=True, slots=True)
class Page:
    """Start of an exploration, relative to the application, and the states that it should find."""

    url: str
    states: tuple[tuple[Step, ...], ...]


@dataclass(frozen=True, slots=True)
class States:
    """One application's list: words for search fields, the most views worth storing, its pages."""

    values: tuple[str, ...]
    views: int
    pages: tuple[Page, ...]

    def within(self, depth: int) -> States:
        """The states of at most `depth` actions; sending the form of a field that was just set is one action with it."""
        pages = [
            Page(page.url, tuple(way for way in page.states if actions(way) <= depth)) for page in self.pages
        ]
        return replace(self, pages=tuple(pages))

    @property
    def count(self) -> int:
        """Return the number of states that the list names."""
        return sum(len(page.states) for page in self.pages)


def actions(way: tuple[Step, ...]) -> int:
    """Return the number of actions of a person on a way."""
    sent = [
        number
        for number, step in enumerate(way)
        if number and not {"click", "press"}.isdisjoint(step) and {"select", "fill", "check", "uncheck"} & set(way[number - 1])
        and ("press" in step or step["click"].get("text") in ("Apply", "Update"))
    ]  # fmt: skip
    return len(way) - len(sent)


def _step(item: Any) -> Any:
    """A name alone is the link or button of exactly that name, or what has that text."""
    return {"click": {"text": item, "exact": True}} if isinstance(item, str) else item


def load(path: Path) -> States:
    """The list in a YAML file."""
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    pages = [
        Page(page["url"], tuple(canonical([_step(one) for one in way]) for way in page["states"]))
        for page in data["pages"]
    ]
    return States(tuple(data["values"]), data["views"], tuple(pages))


def named(way: tuple[Step, ...]) -> str:
    """A way in words."""
    return " > ".join(describe(step) for step in way) or "the page"


async def walk(
    host: BrowserHost,
    session: str,
    proxy_url: str,
    profile: Profile,
    url: str,
    way: tuple[Step, ...],
    patience: SettleTimeouts,
) -> str:
    """Walk a way in the running application and return the page that it leads to.

    A way that can't be walked is an error of the list: PageFailed names it.
    """
    context = await host.context(session, proxy_url, profile, replay=False)
    try:
        driver = Driver(context, patience=patience)
        await driver.open_start(url)
        for place, step in enumerate(way, start=1):
            await driver.perform(step, place)
        sight = await read_page(driver.page, with_picture=False)
    except PageFailed as error:
        raise PageFailed(f"{url}: {named(way)}: {error}") from None
    finally:
        await context.close()
    return stable_content(sight.text, sight.aria)


def missing(walked: dict[str, str], stored: Iterable[str], noise: Noise) -> list[str]:
    """The walked states that no stored view (text and accessibility snapshot, as `stable_content` gives it) shows."""
    looks = {noise.look(one) for one in stored}
    return [name for name, what in walked.items() if noise.look(what) not in looks]
