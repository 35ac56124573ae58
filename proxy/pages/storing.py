"""Views put into a snapshot, each with the captures that it caused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from stillweb.proxy.pages.sight import Sight
from stillweb.proxy.pages.uploads import kept
from stillweb.proxy.pages.veil import Veil
from stillweb.proxy.wire.silence import Said
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.view import Step, View, view_address

if TYPE_CHECKING:
    from playwright.async_api import Page

    from stillweb.proxy.pages.traffic import Traffic
    from stillweb.snapshots.secrets.redact import Redactor
    from stillweb.snapshots.writer import Writer


class Records(Protocol):
    """What is needed of a recorder."""

    @property
    def ca_path(self) -> Path:
        """The CA that the browser is to trust."""

    @property
    def redactor(self) -> Redactor | None:
        """What secrets must pass before they are stored; None when nothing is redacted."""

    @property
    def failures(self) -> list[tuple[str, str]]:
        """(URL, reason) of what the origin did not give."""

    def proxy_url(self, session: str = ...) -> str:
        """The address of a session."""

    def wait_quiet(
        self, session: str = ..., seconds: float = ..., timeout: float = ..., hanging: int = ...
    ) -> bool:
        """Blocks until all of a session is written, `hanging` requests aside."""

    def looked(self, session: str = ..., steps: int = ...) -> None:
        """A view has been seen; see `Recorder.looked`."""

    def said(self, session: str = ...) -> Said:
        """What open streams have said; see `Recorder.said`."""

    def captures_of(self, session: str = ..., since: int = ...) -> list[Capture]:
        """What was recorded in a session from an event on."""


def page_info(view: View, sight: Sight, captures: Sequence[Capture], **more: Any) -> bytes:
    """The `urn:pageinfo:` record: a JSON object with what the page asked for and the state that it was in."""
    urls = {
        c.url: {"status": c.status, "mime": c.mime, "method": c.method, "digest": c.digest} for c in captures
    }
    info = {
        "pageid": view.id, "url": view.url, "finalUrl": view.final_url, "fragment": urlsplit(sight.url).fragment,
        "title": view.title, "ts": view.timestamp, "steps": list(view.steps), "parent": view.parent, "urls": urls,
        "state": sight.state,
    } | more  # fmt: skip
    return json.dumps(info, ensure_ascii=False, sort_keys=True).encode()


class Recording:
    """Stores the views of one session, each with the captures that it caused.

    What hangs in its `traffic`, once that is told, is not waited for: the page has not waited for it either.
    """

    def __init__(
        self, recorder: Records, writer: Writer, session: str, files: Mapping[str, bytes] | None = None
    ) -> None:
        self.recorder = recorder
        self.writer = writer
        self.session = session
        self.files = files or {}  # those to upload, by digest
        self.traffic: Traffic | None = None
        self.veil = Veil(recorder.redactor)
        self.count = 0  # captures that were told of

    def watch(self, traffic: Traffic) -> None:
        """The traffic of the pages that are recorded: what is said to them is known to the recorder, too."""
        self.traffic = traffic
        traffic.silence.said = lambda: self.recorder.said(self.session)

    async def look(self, page: Page, *, with_picture: bool = True) -> Sight:
        """What the page shows, without secrets."""
        if self.veil.redactor is not None:  # each answer must have been looked through for what it hands out
            await self._written()
        sight = await self.veil.look(page, with_picture=with_picture)
        steps = self.traffic.steps if self.traffic is not None else 0
        await asyncio.to_thread(self.recorder.looked, self.session, steps)
        return sight

    def address(self, url: str, steps: Sequence[Step]) -> str:
        """The address of a view, whose URL and steps name no secret."""
        return view_address(self.veil.text(url), self.veil.json(list(steps)))

    async def new_captures(self) -> list[Capture]:
        """What was recorded since the last call, all of it on disk."""
        await self._written()
        # by their number, not by when they began: one that took long began before others
        found = self.recorder.captures_of(self.session)[self.count :]
        self.count += len(found)
        return sorted(found, key=lambda capture: capture.begin)

    async def _written(self) -> None:
        traffic = self.traffic
        hanging = len(traffic.hanging) + len(traffic.unread) if traffic is not None else 0
        await asyncio.to_thread(self.recorder.wait_quiet, self.session, 0.0, 15.0, hanging)

    async def store(
        self,
        sight: Sight,
        url: str,
        steps: Sequence[Step],
        parent: str | None,
        captures: Sequence[Capture],
        **more: Any,
    ) -> View:
        """Write a view with its resources, all without the secrets known by now."""
        veil = self.veil
        sight, url, steps = veil.sight(sight), veil.text(url), veil.json(list(steps))
        view = View(
            address=view_address(url, list(steps)),
            url=url,
            final_url=sight.url,
            title=sight.title,
            steps=tuple(steps),
            parent=parent,
            timestamp=datetime.now(UTC).strftime("%Y%m%d%H%M%S"),
            session=self.session,
            captures=tuple(
                {"url": c.url, "method": c.method, "status": c.status, "digest": c.digest} for c in captures
            ),
            state=sight.state,
        )
        resources = {
            "view": sight.png,
            "dom": sight.html.encode("utf-8", "surrogatepass"),
            "aria": sight.aria.encode("utf-8", "replace"),
            "text": sight.text.encode("utf-8", "replace"),
            "pageinfo": page_info(view, sight, captures, **veil.json(more)),
        }
        if files := kept(steps, self.files):
            resources["files"] = files
        await asyncio.to_thread(self.writer.view, view, resources)
        return view
