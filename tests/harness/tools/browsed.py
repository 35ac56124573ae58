"""The browser tools over a snapshot that was put together by hand: no browser is needed to record it."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stillweb.harness.tools.browser_shared import SharedBrowser
from stillweb.harness.tools.contract import ToolResult
from stillweb.harness.tools.toolset import Toolset
from stillweb.proxy.browser.browser import complete
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.harness.tools.frozen import Recorder

Call = Callable[..., ToolResult]


@dataclass
class Browsed:
    """Sessions of a toolset with the browser's tools; each call is waited for."""

    toolset: Toolset
    runner: asyncio.Runner
    sessions: int = 0

    def session(self, folder: Path | None = None) -> Call:
        """A session whose tools read the files of `folder`."""
        self.sessions += 1
        session = self.toolset.session(f"s{self.sessions}", folder)
        return lambda name, **given: self.runner.run(session.call(name, given))


@contextmanager
def browsed(path: Path, make: Callable[[Recorder], None], contracts: list[str]) -> Iterator[Browsed]:
    """A snapshot at `path`, filled by `make`, with tools of these contracts over it."""
    with Writer.open(path, profile=complete(Profile())) as writer:
        make(Recorder(writer))
    with Snapshot.open(path) as snapshot, Gateway(snapshot) as gateway, asyncio.Runner() as runner:
        browser = SharedBrowser(ca=gateway.ca_path)
        toolset = Toolset(snapshot, contracts, gateway=gateway, browser=browser)
        try:
            yield Browsed(toolset, runner)
        finally:
            runner.run(toolset.close())
            browser.close()
