"""What a browser tool answers, built up by its action and finished with the sections about the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from stillweb.harness.tools.browser_session import GIVEN_MS, Browsing
from stillweb.harness.tools.browser_text import Sections, said
from stillweb.proxy.pages.sight import readable
from stillweb.proxy.serving.misses import Missed

if TYPE_CHECKING:
    from playwright.async_api import Locator

MOST_MISSES = 25  # named in one result


class Reply:
    """What an action builds up."""

    def __init__(self, session: Browsing) -> None:
        self.session = session
        self.sections = Sections()
        self.images: list[dict[str, Any]] = []
        self.files: list[dict[str, Any]] = []  # given to the page: name and digest
        self.address: str | None = None
        self.with_snapshot = False
        self.explicit: tuple[Locator | None, int | None, bool | None] | None = None
        self.closed = False

    def code(self, line: str) -> None:
        """A line of what was done."""
        self.sections.code.append(line)

    def result(self, text: str) -> None:
        """A part of the "Result" section."""
        self.sections.results.append(text)

    def error(self, text: str) -> None:
        """A part of the "Error" section."""
        self.sections.errors.append(text)

    async def finish(self) -> None:
        """Add the sections about the page."""
        session = self.session
        if self.closed or not session.tabs:
            return
        self.sections.events += [said("downloading", name=name) for name in session.told_downloads()]
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
            where = root or await readable(session.page)
            self.sections.snapshot = (
                ""
                if where is None
                else await where.aria_snapshot(mode="ai", depth=depth, boxes=boxes, timeout=GIVEN_MS)
            )

    def missed(self, missed: Iterable[Missed]) -> None:
        """Name what the page lacks, as far as it matters, so that nobody takes it for whole."""
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
    """The list of open tabs."""
    if not session.tabs:
        return [said("no_tabs")]
    lines = []
    for index, tab in enumerate(session.tabs):
        tab.header = await tab.lines()
        current = " (current)" if index == session.current else ""
        lines.append(f"- {index}:{current} [{await tab.title()}]({tab.url})")
    return lines
