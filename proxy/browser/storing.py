"""Storing of views in a snapshot, each with the captures that it caused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from stillweb.proxy.browser.sight import Sight
from stillweb.proxy.browser.uploads import kept
from stillweb.proxy.browser.veil import Veil
from stillweb.proxy.net.silence import Said
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.view import Step, View, view_address

if TYPE_CHECKING:
    from playwright.async_api import Page

    from stillweb.proxy.browser.traffic import Traffic
    from stillweb.snapshots.secrets.redact import Redactor
    from stillweb.snapshots.writer import Writer


class Records(Protocol):
    """The part of a recorder that is used here."""

    @property
    def ca_path(self) -> Path:
        """The CA that the browser is to trust."""

    @property
    def redactor(self) -> Redactor | None:
        """The redactor that secrets pass before they are stored; None if nothing is redacted."""

    @property
    def failures(self) -> list[tuple[str, str]]:
        """The (URL, reason) of requests that the origin did not answer."""

    def proxy_url(self, session: str = ...) -> str:
        """Return the proxy address of a session."""

    def wait_quiet(
        self, session: str = ..., seconds: float = ..., timeout: float = ..., hanging: int = ...
    ) -> bool:
        """Block until all of a session is written, except for `hanging` requests."""

    def looked(self, session: str = ..., steps: int = ...) -> None:
        """Note that a view was taken; see `Recorder.looked`."""

    def said(self, session: str = ...) -> Said:
        """Return the messages of open streams so far; see `Recorder.said`."""

    def captures_of(self, session: str = ..., since: int = ...) -> list[Capture]:
        """Return the captures of a session from an event on."""


def page_info(view: View, sight: Sight, captures: Sequence[Capture], **more: Any) -> bytes:
    """Return the `urn:pageinfo:` record: a JSON object with the page's requests and its state."""
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
    """A recording of the views of one session, each with the captures that it caused.

    Requests that hang in its `traffic`, once `watch` has set it, are not waited for: the page has not waited
    for them either.
    """

    def __init__(
        self, recorder: Records, writer: Writer, session: str, files: Mapping[str, bytes] | None = None
    ) -> None:
        self.recorder = recorder
        self.writer = writer
        self.session = session
        self.files = files or {}  # files to upload, by digest
        self.traffic: Traffic | None = None
        self.veil = Veil(recorder.redactor)
        self.count = 0  # captures returned so far

    def watch(self, traffic: Traffic) -> None:
        """Set the traffic of the recorded pages, and let it ask the recorder for stream messages."""
        self.traffic = traffic
        traffic.silence.said = lambda: self.recorder.said(self.session)

    async def look(self, page: Page, *, with_picture: bool = True) -> Sight:
        """Return the page's content, without secrets."""
        if self.veil.redactor is not None:  # each answer must have been searched for secrets before
            await self._written()
        sight = await self.veil.look(page, with_picture=with_picture)
        steps = self.traffic.steps if self.traffic is not None else 0
        await asyncio.to_thread(self.recorder.looked, self.session, steps)
        return sight

    def address(self, url: str, steps: Sequence[Step]) -> str:
        """Return the address of a view, whose URL and steps name no secret."""
        return view_address(self.veil.text(url), self.veil.json(list(steps)))

    async def new_captures(self) -> list[Capture]:
        """Return the captures recorded since the last call, all of them on disk."""
        await self._written()
        # by their number, not by their start: a slow one started before others
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
