"""Answer of a browser tool: built up by its action, then completed with the sections about the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from stillweb.harness.tools.browser_session import GIVEN_MS, Browsing
from stillweb.harness.tools.browser_text import Sections, fill_string
from stillweb.proxy.browser.page_snapshot import accessible_root
from stillweb.proxy.replay.misses import MissedRequest

if TYPE_CHECKING:
    from playwright.async_api import Locator

MOST_MISSES = 25  # misses named in one result


class Reply:
    """Answer under construction: sections, images and files."""

    def __init__(self, session: Browsing) -> None:
        self.session = session
        self.sections = Sections()
        self.images: list[dict[str, Any]] = []
        self.files: list[dict[str, Any]] = []  # files given to the page: name and digest
        self.address: str | None = None
        self.with_snapshot = False
        self.explicit: tuple[Locator | None, int | None, bool | None] | None = None
        self.closed = False

    def code(self, line: str) -> None:
        """Add a line to the "Ran Playwright code" section."""
        self.sections.code.append(line)

    def result(self, text: str) -> None:
        """Add a text to the "Result" section."""
        self.sections.results.append(text)

    def error(self, text: str) -> None:
        """Add a text to the "Error" section."""
        self.sections.errors.append(text)

    async def finish(self) -> None:
        """Add the sections about the tabs, the page and its snapshot."""
        session = self.session
        if self.closed or not session.tabs:
            return
        downloads = session.take_downloads()
        self.sections.events += [fill_string("downloading", name=name) for name in downloads]
        if downloads.left_out:
            self.sections.events.append(f"- Left out: {downloads.left_out} older downloads")
        if left_out := session.take_left_out():
            self.sections.events.append(f"- Left out: {left_out} requests of the page, which sends too many")
        if session.take_crowded():
            self.sections.events.append("- Left out: windows that the page opened, as too many are open")
        headers = [(tab, await tab.lines()) for tab in session.tabs]
        changed = [tab for tab, lines in headers if tab.header != lines]
        if self.with_snapshot or self.explicit or changed:
            if len(headers) != 1:
                self.sections.tabs = await tab_lines(session)
            self.sections.page = next(lines for tab, lines in headers if tab is session.tab)
        for tab, lines in headers:
            tab.header = lines
        self.sections.modal = session.modal()
        if (self.with_snapshot or self.explicit) and not session.tab.is_held:
            root, depth, boxes = self.explicit or (None, None, None)
            where = root or await accessible_root(session.page)
            self.sections.snapshot = (
                ""
                if where is None
                else await where.aria_snapshot(mode="ai", depth=depth, boxes=boxes, timeout=GIVEN_MS)
            )

    def add_misses(self, missed: Iterable[MissedRequest]) -> None:
        """List the requests of the page that were missed and matter, so that the page is not taken for complete."""
        said_already = "\n".join(self.sections.errors)
        lines = [
            f"- Failed to load: {one.url} ({one.kind})"
            for one in missed
            if one.matters and one.url not in said_already
        ]
        if len(lines) > MOST_MISSES:
            lines[MOST_MISSES:] = [f"- Failed to load: {len(lines) - MOST_MISSES} more"]
        self.sections.events += lines


async def tab_lines(session: Browsing) -> list[str]:
    """Return the lines of the "Open tabs" section."""
    if not session.tabs:
        return [fill_string("no_tabs")]
    lines = []
    for index, tab in enumerate(session.tabs):
        tab.header = await tab.lines()
        current = " (current)" if index == session.current else ""
        lines.append(f"- {index}:{current} [{await tab.title()}]({tab.url})")
    return lines
