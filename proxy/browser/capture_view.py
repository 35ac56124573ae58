"""Recording of views: load URLs, do their steps, and store each view with the captures that it caused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from playwright.async_api import Error as PlaywrightError

from stillweb.proxy.browser.browser import BrowserHost, complete, lend_browser, new_profile
from stillweb.proxy.browser.documents import (
    Document,
    Documents,
    document_of_download,
    failures_of,
    looks_like_document,
    shown_pdf,
)
from stillweb.proxy.browser.driver import SAVED, Driver
from stillweb.proxy.browser.errors import PageFailed, first_line
from stillweb.proxy.browser.page_checks import Finding, examine
from stillweb.proxy.browser.page_snapshot import PageSnapshot, ViewRedactor, resources_of, shows_pdf
from stillweb.proxy.browser.running import pages_at_once, run
from stillweb.proxy.browser.settle import SettleResult, SettleTimeouts
from stillweb.proxy.browser.steps import Flow
from stillweb.proxy.browser.uploads import file_contents
from stillweb.proxy.net.addresses import public
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.errors import StillwebError, UsageError
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.view import Step, View, view_address
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page, Request, Response

    from stillweb.proxy.browser.settle import Traffic
    from stillweb.proxy.record.recorder import Recorder
    from stillweb.snapshots.writer import Writer


def page_info(view: View, content: PageSnapshot, captures: Sequence[Capture], **more: Any) -> bytes:
    """Return the `urn:pageinfo:` record: a JSON object with the page's requests and its state."""
    urls = {
        c.url: {"status": c.status, "mime": c.mime, "method": c.method, "digest": c.digest} for c in captures
    }
    info = {
        "pageid": view.id, "url": view.url, "finalUrl": view.final_url, "fragment": urlsplit(content.url).fragment,
        "title": view.title, "ts": view.timestamp, "steps": list(view.steps), "parent": view.parent, "urls": urls,
        "state": content.state,
    } | more  # fmt: skip
    return json.dumps(info, ensure_ascii=False, sort_keys=True).encode()


class Recording:
    """A recording of the views of one session, each with the captures that it caused.

    Requests that hang in its `traffic`, once `watch` has set it, are not waited for: the page has not waited
    for them either.
    """

    def __init__(
        self, recorder: Recorder, writer: Writer, session: str, files: Mapping[str, bytes] | None = None
    ) -> None:
        self.recorder = recorder
        self.writer = writer
        self.session = session
        self.files = files or {}  # files to upload, by digest
        self.traffic: Traffic | None = None
        self.redactor = ViewRedactor(recorder.redactor)
        self.count = 0  # captures returned so far

    def watch(self, traffic: Traffic) -> None:
        """Set the traffic of the recorded pages, and let it ask the recorder for stream messages and bodies."""
        self.traffic = traffic
        traffic.bytes_received = lambda: self.recorder.bytes_under_way(self.session)
        traffic.silence.counters = lambda: self.recorder.stream_counters(self.session)

    async def look(self, page: Page, *, with_picture: bool = True) -> PageSnapshot:
        """Return the page's content, without secrets."""
        if self.redactor.redactor is not None:  # each answer must have been searched for secrets before
            await self._written()
        content = await self.redactor.look(page, with_picture=with_picture)
        steps = self.traffic.steps if self.traffic is not None else 0
        await asyncio.to_thread(self.recorder.mark_view_taken, self.session, steps)
        return content

    def address(self, url: str, steps: Sequence[Step]) -> str:
        """Return the address of a view, whose URL and steps name no secret."""
        return view_address(self.redactor.text(url), self.redactor.json(list(steps)))

    async def new_captures(self) -> list[Capture]:
        """Return the captures recorded since the last call, all of them on disk."""
        await self._written()
        # by their number, not by their start: a slow one started before others
        found = self.recorder.captures_of(self.session)[self.count :]
        self.count += len(found)
        return sorted(found, key=lambda capture: capture.begin)

    async def _written(self) -> None:
        async def quiet(seconds: float, *also: Collection[Request]) -> None:
            hanging = sum(map(len, (traffic.hanging(), traffic.unread, *also))) if traffic is not None else 0
            await asyncio.to_thread(self.recorder.wait_quiet, self.session, 0.0, seconds, hanging)

        traffic = self.traffic
        if traffic is not None and traffic.untold:
            await quiet(UNTOLD)
            await quiet(15.0, traffic.untold)
        else:
            await quiet(15.0)

    async def store(
        self,
        content: PageSnapshot,
        url: str,
        steps: Sequence[Step],
        parent: str | None,
        captures: Sequence[Capture],
        **more: Any,
    ) -> View:
        """Write a view with its resources, all without the secrets known by now."""
        redactor = self.redactor
        content, url, steps = (
            redactor.without_secrets(content),
            redactor.text(url),
            redactor.json(list(steps)),
        )
        view = View(
            address=view_address(url, list(steps)),
            url=url,
            final_url=content.url,
            title=content.title,
            steps=tuple(steps),
            parent=parent,
            timestamp=datetime.now(UTC).strftime("%Y%m%d%H%M%S"),
            session=self.session,
            captures=tuple(
                {"url": c.url, "method": c.method, "status": c.status, "digest": c.digest} for c in captures
            ),
            state=content.state,
        )
        resources = resources_of(content)
        resources["pageinfo"] = page_info(view, content, captures, **redactor.json(more))
        if files := file_contents(steps, self.files):
            resources["files"] = files
        await asyncio.to_thread(self.writer.view, view, resources)
        return view


class Visitor:
    """A visitor of pages through a recorder, into a writer.

    `prefix` begins the names of its sessions; `launch` holds arguments of its own BrowserHost.
    """

    def __init__(
        self,
        recorder: Recorder,
        writer: Writer,
        profile: Profile | None,
        host: BrowserHost | None,
        patience: SettleTimeouts | None,
        prefix: str,
        launch: Mapping[str, Any] | None = None,
    ) -> None:
        self.recorder = recorder
        self.writer = writer
        self.profile = complete(profile) if profile is not None else new_profile()
        self._launch = launch
        self.patience = patience or SettleTimeouts()
        self._prefix = prefix
        self._host = host
        self._sessions = 0

    def driver(self, context: BrowserContext, files: Mapping[str, bytes] | None = None) -> Driver:
        """Return a driver for a context without pages. `files` maps digests to the files it may upload."""
        return Driver(context, patience=self.patience, redactor=self.recorder.redactor, files=files)

    def browser(self) -> AbstractAsyncContextManager[BrowserHost]:
        """Return the shared browser, or one of its own that ends with the context manager."""
        return lend_browser(self._host, self.recorder.ca_path, self._launch)

    def new_session(self) -> str:
        self._sessions += 1
        return f"{self._prefix}-{self._sessions}"


UNTOLD = 0.5  # s in which pings and reports are answered that belong to a view
RECORDER_FAILED = 502  # the recorder's answer if the origin gave none
MAX_LINKED = 50  # PDFs followed from one page
Progress = Callable[[str, str], None]  # (URL, event)


@dataclass(slots=True)
class FetchResult:
    """The result for one URL. `ok`: it was loaded, all steps were done, and no page of it was a wall.

    `views` are the addresses stored, `captures` counts exchanges, `findings` are the faults of pages not
    stored as good, `notes` hold what a person should know (never quiet, streams, downloads).
    """

    url: str
    ok: bool = True
    views: list[str] = field(default_factory=list)
    captures: int = 0
    error: str | None = None
    findings: list[Finding] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def row(self) -> dict[str, Any]:
        """Return a row of the table shown at the end."""
        why = self.error or "; ".join(self.notes)
        got = sum(document.error is None for document in self.documents)
        return {
            "url": self.url, "result": "captured" if self.ok else "failed", "views": len(self.views),
            "captures": self.captures, "documents": got, "why": why,
        }  # fmt: skip


class Fetcher(Visitor):
    """A recorder of views: loads URLs in Chromium through a recorder and stores their views.

    `host` shares a running browser; without one, `fetch` starts and ends its own. Its sessions are
    numbered from `first` on.
    """

    def __init__(
        self,
        recorder: Recorder,
        writer: Writer,
        profile: Profile | None = None,
        *,
        host: BrowserHost | None = None,
        patience: SettleTimeouts | None = None,
        launch: Mapping[str, Any] | None = None,
        first: int = 1,
    ) -> None:
        super().__init__(recorder, writer, profile, host, patience, "view", launch)
        self._sessions = first - 1
        self._documents: set[str] = set()

    def fetch(
        self,
        urls: Iterable[str],
        steps: Sequence[Step] | Sequence[Flow] = (),
        pdfs: bool = False,
        progress: Progress | None = None,
        parallel: int | None = None,
        turn: Callable[[str], Awaitable[None]] | None = None,
    ) -> list[FetchResult]:
        """Record URLs, each with the steps. Return results in the order of the jobs.

        `steps` is a list of steps for each URL, or flows. `pdfs` follows links to PDFs. `turn` is
        awaited before a URL is loaded. Ctrl-C closes the contexts in order and is raised; stored views stay.
        """
        return run(self.fetch_all(urls, steps, pdfs, progress, parallel, turn))

    async def fetch_all(
        self,
        urls: Iterable[str],
        steps: Sequence[Step] | Sequence[Flow] = (),
        pdfs: bool = False,
        progress: Progress | None = None,
        parallel: int | None = None,
        turn: Callable[[str], Awaitable[None]] | None = None,
    ) -> list[FetchResult]:
        """Record URLs as `fetch` does, in a running event loop."""
        jobs = plan(list(urls), steps)
        limit = asyncio.Semaphore(parallel or pages_at_once())
        tell = progress or (lambda url, event: None)
        async with self.browser() as host:

            async def one(flow: Flow, session: str) -> FetchResult:
                async with limit:
                    if turn is not None and flow.url is not None:
                        await turn(flow.url)
                    return await self._fetch_one(host, flow, session, pdfs, tell)

            tasks = [asyncio.ensure_future(one(job, self.new_session())) for job in jobs]
            try:
                return await asyncio.gather(*tasks)
            except BaseException:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                raise

    async def _fetch_one(
        self, host: BrowserHost, flow: Flow, session: str, pdfs: bool, tell: Progress
    ) -> FetchResult:
        assert flow.url is not None
        result = FetchResult(flow.url)
        tell(flow.url, "started")
        recording = Recording(self.recorder, self.writer, session, flow.files)
        proxy_url = self.recorder.proxy_url(session)
        try:
            context = await host.context(
                session, proxy_url, self.profile, self.recorder.ca_path, replay=False
            )
            try:
                async with Documents(proxy_url, self.recorder.ca_path, self.profile) as http:
                    driver = self.driver(context, flow.files)
                    recording.watch(driver.traffic)
                    found = await self._views(driver, recording, flow, http, result, tell)
                    await self._downloads(driver, recording, result, tell)
                    if pdfs:
                        await self._follow_pdf_links(driver, http, found, result, tell)
            finally:
                await context.close()
        except (PageFailed, PlaywrightError) as error:
            await host.check()
            reason = str(error) if isinstance(error, PageFailed) else f"{flow.url}: {first_line(error)}"
            result.ok, result.error = False, self._reason(reason, flow.url)
        except StillwebError as error:
            if not isinstance(error, UsageError):
                raise  # no browser, full disk: nothing else will go better
            result.ok, result.error = False, str(error)
        await recording.new_captures()
        result.captures = recording.count
        tell(flow.url, "done" if result.ok else f"failed: {result.error}")
        return result

    def _reason(self, said: str, url: str) -> str:
        """Return the error, with the recorder's reason if it knows better why the origin gave nothing."""
        named = public(url, self.recorder.redactor)
        known = next((reason for where, reason in reversed(self.recorder.failures) if where == named), None)
        return f"{url}: {known}" if known and known not in said and said.startswith(url) else said

    async def _views(
        self,
        driver: Driver,
        recording: Recording,
        flow: Flow,
        http: Documents,
        result: FetchResult,
        tell: Progress,
    ) -> list[str]:
        """Load the URL, perform the steps and store views into `result`. Return links to PDFs."""
        url = flow.url
        assert url is not None
        if looks_like_document(url) and await self._document(driver, http, url, result):
            return _not_done(flow, result)
        response, calm = await self._load(driver, url)
        if response is None:  # the browser would save it or show its viewer
            await self._document(driver, http, url, result, page=False)
            return _not_done(flow, result)
        links: dict[str, None] = {}
        status = response.status
        steps: list[Step] = []
        content = await recording.look(driver.page)
        captures = await recording.new_captures()
        parent: str | None = None
        pending: list[Capture] = []
        if self._passed_through(status, content, url, bool(flow.steps), result):
            pending += captures
        elif self._is_good(driver, status, content, url, result):
            stored = await recording.store(
                content, url, steps, parent, captures, **self._circumstances(driver, calm, status)
            )
            parent = stored.address
            result.views.append(stored.address)
            self._note(driver, calm, content, result)
            tell(url, f"view {stored.address}")
        else:
            return []
        last = content.fingerprint
        links.update(dict.fromkeys(content.pdfs))
        viewer = False
        for number, step in enumerate(flow.steps, start=1):
            answers = len(driver.traffic.answers)
            if viewer and "goto" not in step:
                raise PageFailed(
                    f"step {number}: {next(iter(step))}: {driver.page.url} is a PDF, with nothing to act on; "
                    "write a goto to a page before it"
                )
            later = await driver.perform(step, number)
            steps.append(driver.public(step))
            status = _status(driver, answers)
            if viewer := await shows_pdf(driver.page):  # the viewer is the browser's, not the site's
                pending += await recording.new_captures()
                await self._add_shown_pdf(driver, http, pending, result)
                tell(url, f"document {driver.page.url}")
                continue
            calm = later if calm.quiet or status else calm  # a document that lacked a script still lacks it
            content = await recording.look(driver.page)
            pending += await recording.new_captures()
            more, where = number < len(flow.steps), f"{url} after step {number}"
            if content.fingerprint == last and more:
                continue
            if self._passed_through(status, content, where, more, result):
                last = content.fingerprint
                continue
            if not self._is_good(driver, status, content, where, result):
                return list(links)
            stored = await recording.store(
                content, url, steps, parent, pending, **self._circumstances(driver, calm, status)
            )
            parent, pending = stored.address, []
            last = content.fingerprint
            result.views.append(stored.address)
            links.update(dict.fromkeys(content.pdfs))
            self._note(driver, calm, content, result)
            tell(url, f"view {stored.address}")
        return list(links)

    async def _load(self, driver: Driver, url: str) -> tuple[Response | None, SettleResult]:
        """Load a URL. Return (None, …) for a document that no page can show."""
        try:
            response, calm = await driver.open_start(url)
        except PageFailed as error:
            if SAVED in str(error) or driver.downloads or "ERR_ABORTED" in str(error):
                return None, SettleResult(True, 0.0, 0)
            raise
        media = response.headers.get("content-type", "") if response else ""
        return (None if "application/pdf" in media else response), calm

    def _circumstances(self, driver: Driver, calm: SettleResult, status: int) -> dict[str, Any]:
        # the recorder learns the secrets in a socket's address when the socket has ended
        streams = dict.fromkeys(public(url, self.recorder.redactor) for url in driver.traffic.streams)
        return {
            "quiet": calm.quiet, "reason": calm.reason, "tsStatus": status,
            "counts": {"jsErrors": driver.script_errors}, "dismissed": driver.dismissed,
            "dialogs": list(driver.dialogs), "downloads": list(driver.downloads),
            "streams": list(streams), "serviceWorker": driver.traffic.blocked,
            "lost": driver.traffic.lost_urls(),
        }  # fmt: skip

    def _note(self, driver: Driver, calm: SettleResult, content: PageSnapshot, result: FetchResult) -> None:
        notes = []
        if not calm.quiet:
            notes.append(f"never quiet: {calm.reason}")
        # each connection may have another query
        streams = {url.partition("?")[0] for url in driver.traffic.streams}
        if new := sorted(one for one in streams if not any(one in note for note in result.notes)):
            notes.append(f"open streams: {', '.join(new)}")
        notes += driver.traffic.of_workers(lambda url: public(url, self.recorder.redactor))
        if left_out := driver.traffic.left_out:
            notes.append(f"sends too many requests: the first {left_out} are not looked at")
        if left_out := driver.downloads.left_out:
            notes.append(f"starts too many downloads: the first {left_out} are left out")
        if driver.traffic.crowded:
            notes.append("opens too many windows: some were blocked, as they are in replay")
        if driver.dismissed:
            notes.append(f"cookie banner dismissed with {driver.dismissed!r}")
        if content.redacted:
            notes.append(
                f"{result.views[-1]} showed a secret: it is replaced; see whether its picture draws it elsewhere"
            )
        if driver.hidden:
            notes.append("secrets that were filled in are kept as pseudonyms in the steps")
        result.notes += [note for note in notes if note not in result.notes]

    def _passed_through(
        self, status: int, content: PageSnapshot, where: str, more: bool, result: FetchResult
    ) -> bool:
        """Return True for a login form that further steps may fill in: it is not a view, and no end either."""
        finding = examine(status, content.text, content.html) if more else None
        if finding is None or not finding.form:
            return False
        note = f"{where}: not stored as a view: login ({finding.reason}); the steps go on from it"
        result.notes += [note] if note not in result.notes else []
        return True

    def _is_good(
        self, driver: Driver, status: int, content: PageSnapshot, where: str, result: FetchResult
    ) -> bool:
        finding = examine(
            status, content.text, content.html, driver.traffic.incomplete_reason(driver.page.url)
        )
        if finding is None:
            return True
        result.findings.append(finding)
        result.ok = False
        error = f"{where}: not stored as a view: {finding.kind} ({finding.reason})"
        result.error = self._reason(error, result.url) if status == RECORDER_FAILED else error
        return False

    async def _document(
        self, driver: Driver, http: Documents, url: str, result: FetchResult, page: bool = True
    ) -> bool:
        """Fetch a document. Return False if it is a page after all, such as one that shows a file.

        With `page` false it is known to be none.
        """
        document = await http.get(url, driver.context)
        if page and document.media == "text/html":
            return False
        result.documents.append(document)
        if document.error is not None:
            result.ok = False
            result.error = self._reason(f"{url}: {document.error}", url)
        return True

    async def _add_shown_pdf(
        self, driver: Driver, http: Documents, captures: Sequence[Capture], result: FetchResult
    ) -> None:
        """Add a PDF that a step led to: as the browser fetched it, or whole if the viewer asked for parts."""
        url = driver.page.url.partition("#")[0]
        document = shown_pdf(url, captures) or await http.get(url, driver.context)
        self._documents.add(url)
        result.documents.append(document)
        if document.error is not None:
            result.notes.append(self._reason(f"{url}: {document.error}", url))

    async def _downloads(
        self, driver: Driver, recording: Recording, result: FetchResult, tell: Progress
    ) -> None:
        """Add the downloads of the page as documents. A failed one is noted; the page stays captured."""
        saved = [*driver.saved]
        failures = await failures_of(saved)
        await recording.new_captures()
        known = self.recorder.captures_of(recording.session)
        for download, failure in zip(saved, failures, strict=True):
            document = await document_of_download(download, failure, known)
            self._documents.add(document.url)
            result.documents.append(document)
            if document.error is not None:
                result.notes.append(self._reason(f"{document.url}: {document.error}", document.url))
            tell(result.url, f"document {document.url}")

    async def _follow_pdf_links(
        self, driver: Driver, http: Documents, links: list[str], result: FetchResult, tell: Progress
    ) -> None:
        """Follow links to PDFs, each once in a fetcher's life.

        A failed one is noted; the page stays captured.
        """
        wanted = [link.partition("#")[0] for link in dict.fromkeys([*links, *driver.downloads])]
        for url in wanted[:MAX_LINKED]:
            if url in self._documents:
                continue
            self._documents.add(url)
            document = await http.get(url, driver.context)
            result.documents.append(document)
            if document.error is not None:
                result.notes.append(self._reason(f"{url}: {document.error}", url))
            tell(result.url, f"document {url}")
        if len(wanted) > MAX_LINKED:
            result.notes.append(f"{pluralize(len(wanted) - MAX_LINKED, 'linked PDF')} left out")


def plan(urls: Sequence[str], steps: Sequence[Step] | Sequence[Flow]) -> list[Flow]:
    """Return the jobs: flows that have a URL, and the others for every URL. Raises UsageError.

    URLs must be http(s).
    """
    flows = [one if isinstance(one, Flow) else None for one in steps]
    plain = tuple(one for one in steps if not isinstance(one, Flow))
    jobs: list[Flow] = []
    given = [flow for flow in flows if flow is not None] or [Flow(None, plain)]
    for flow in given:
        jobs += [flow] if flow.url is not None else [Flow(url, flow.steps, flow.files) for url in urls]
    named = {flow.url for flow in given if flow.url}
    if named and not any(flow.url is None for flow in given):
        jobs += [Flow(url, ()) for url in urls if url not in named]
    for job in jobs:
        try:
            parts = urlsplit(job.url or "")
        except ValueError:  # brackets that hold no address
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            meant = "" if parts.scheme or not job.url else f"; did you mean https://{job.url}?"
            raise UsageError(f"{job.url!r} is not an http(s) URL{meant}")
    return jobs


def _not_done(flow: Flow, result: FetchResult) -> list[str]:
    """Report steps on a file as not done, unless the file itself failed. Return no links."""
    if flow.steps and result.ok:
        result.ok = False
        result.error = f"{flow.url}: is a file, with nothing to act on: its steps were not done"
    return []


def _status(driver: Driver, since: int) -> int:
    """Return the status of the document that a step loaded, 0 if it loaded none."""
    loaded = [one.status for one in driver.traffic.answers[since:] if one.kind == "document"]
    return loaded[-1] if loaded and not 300 <= loaded[-1] < 400 else 0
