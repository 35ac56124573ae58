"""The base of page recorders: holds the recorder, the writer, the browser and the session names."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from stillweb.proxy.browser.acting import Driver
from stillweb.proxy.browser.browser import BrowserHost, complete, lent
from stillweb.proxy.browser.patience import Patience
from stillweb.proxy.browser.storing import Records
from stillweb.snapshots.profile import Profile

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext

    from stillweb.snapshots.writer import Writer


class Visitor:
    """A visitor of pages through a recorder, into a writer. `prefix` begins the names of its sessions."""

    def __init__(
        self,
        recorder: Records,
        writer: Writer,
        profile: Profile | None,
        host: BrowserHost | None,
        patience: Patience | None,
        prefix: str,
    ) -> None:
        self.recorder = recorder
        self.writer = writer
        self.profile = complete(profile or Profile())
        self.patience = patience or Patience()
        self._prefix = prefix
        self._host = host
        self._sessions = 0

    def driver(self, context: BrowserContext, files: Mapping[str, bytes] | None = None) -> Driver:
        """Return a driver for a context without pages. `files` maps digests to the files it may upload."""
        return Driver(context, patience=self.patience, redactor=self.recorder.redactor, files=files)

    def browser(self) -> AbstractAsyncContextManager[BrowserHost]:
        """Return the shared browser, or one of its own that ends with the context manager."""
        return lent(self._host, self.recorder.ca_path)

    def new_session(self) -> str:
        """Return a session name that this visitor has not used yet."""
        self._sessions += 1
        return f"{self._prefix}-{self._sessions}"
