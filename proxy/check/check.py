"""Replay of every view offline in a fresh browser, and comparison with the recording."""

from __future__ import annotations

import asyncio
import difflib
import io
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from playwright.async_api import Error as PlaywrightError

from stillweb.proxy.browser.browser import BrowserHost, lend_browser, profile_of
from stillweb.proxy.browser.driver import Driver
from stillweb.proxy.browser.errors import PageFailed, first_line
from stillweb.proxy.browser.page_snapshot import PageSnapshot, read_page, resources_of
from stillweb.proxy.browser.running import pages_at_once, run
from stillweb.proxy.browser.settle import BrowserResponse, SettleTimeouts
from stillweb.proxy.browser.steps import describe
from stillweb.proxy.browser.uploads import contents_of
from stillweb.proxy.replay.misses import MissedRequest, one_name, unseen_by_browser
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.identity.urlkeys import surt
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.view import Step, View

if TYPE_CHECKING:
    from stillweb.proxy.replay.gateway import Gateway
    from stillweb.proxy.replay.ledger import Ledger
    from stillweb.snapshots.request import Request
    from stillweb.snapshots.snapshot import Snapshot

Progress = Callable[[int, int], None]  # views done, views in all


@dataclass(slots=True)
class ViewCheck:
    """The comparison of one view. `text`, `aria` and `pixels` are shares from 0 to 1 (equal).

    `used` counts answers from the snapshot; `missed` lists URLs that the snapshot lacks although the origin
    served them; `unasked` lists URLs recorded for the view that were not requested again. `unread` is like
    `unasked`, for requests whose answers no page reads (see `is_unread`); they are no difference. `error`
    says why the view was not reached.
    """

    address: str
    title: str
    steps: list[str]
    text: float = 0.0
    aria: float = 0.0
    pixels: float = 0.0
    used: int = 0
    missed: list[str] = field(default_factory=list)
    unasked: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    error: str | None = None
    recorded: bytes = b""
    replayed: bytes = b""
    difference: bytes = b""
    text_changes: list[str] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Return True if text, accessibility snapshot and picture are equal, and nothing was missed."""
        return self.error is None and self.text == self.aria == self.pixels == 1.0 and not self.missed


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The comparisons of all views of a snapshot."""

    views: list[ViewCheck]
    seconds: float
    warning: str | None = None

    def share(self, what: str) -> float:
        """Return the share of views with equal `text`, `aria` or `pixels`; 0 if there are no views."""
        if not self.views:
            return 0.0
        equal = [view for view in self.views if view.error is None and getattr(view, what) == 1.0]
        return len(equal) / len(self.views)

    def passed(self, text: float = 0.98, pixels: float = 0.9) -> bool:
        """Return True if there are views, enough are equal, and none failed or missed anything."""
        whole = bool(self.views) and all(view.error is None and not view.missed for view in self.views)
        return whole and self.share("text") >= text and self.share("pixels") >= pixels

    def rows(self) -> list[dict[str, Any]]:
        """Return one row for each view, for a table or JSON."""
        return [
            {
                "view": view.address, "steps": " > ".join(view.steps), "text": view.text, "aria": view.aria,
                "pixels": view.pixels, "used": view.used, "missed": view.missed, "unasked": view.unasked, "unread": view.unread,
                "error": view.error, "same": view.same,
            }
            for view in self.views
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chain:
    """One replay: a URL, the longest steps, and the views met on the way (number of steps -> view)."""

    url: str
    steps: tuple[Step, ...]
    views: dict[int, View]
    session: str  # the recorded session: replay follows it where answers differ by themselves


def chains(views: Sequence[View]) -> list[Chain]:
    """Return the fewest replays that pass every view.

    A view is met on the way to views whose steps continue its own.
    """
    found: list[Chain] = []
    for view in sorted(views, key=lambda v: (v.url, -len(v.steps), v.address)):
        depth = len(view.steps)
        for chain in found:
            if (
                (chain.url, chain.session) == (view.url, view.session)
                and chain.steps[:depth] == view.steps
                and depth not in chain.views
            ):
                chain.views[depth] = view
                break
        else:
            found.append(Chain(view.url, view.steps, {depth: view}, view.session))
    # the longest first, so that no long one runs alone at the end
    return sorted(found, key=lambda chain: -len(chain.steps))


def likeness(before: str, after: str) -> float:
    """Return 1 for equal texts, else the share of common lines (below 1)."""
    if before == after:
        return 1.0
    ratio = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False).ratio()
    return min(ratio, 0.9999)


def changes(before: str, after: str, most: int = 12) -> list[str]:
    """Return the first differing lines, as `-recorded` and `+replayed`."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return [line[:300] for line in lines if not line.startswith(("---", "+++", "@@"))][:most]


def compare_captures(
    view: View,
    answers: Sequence[BrowserResponse],
    snapshot: Snapshot,
    result: ViewCheck,
    missed: Sequence[MissedRequest] = (),
    asked: Sequence[str] = (),
) -> None:
    """Fill `result` with the differences between the requests now and those recorded for the view.

    `missed` are the gateway's misses. `asked` are the requested URLs, including those whose answer the
    browser withheld from the page.
    """
    info = json.loads(snapshot.resource("pageinfo", view.address) or b"{}")
    lost = set(info.get("lost", ()))
    mattering = {one_name(one.url) for one in missed if one.matters}
    ahead = {one_name(one.url) for one in missed} - mattering
    result.missed = [
        answer.url
        for answer in answers
        if answer.verdict == "miss" and answer.url not in lost and one_name(answer.url) not in ahead
    ]
    urls = [answer.url for answer in answers]
    result.missed += [
        one.url for one in unseen_by_browser(urls, missed) if one.matters and one.url not in lost
    ]
    kinds = [answer.verdict.partition(":")[0] for answer in answers]
    result.used = sum(kind not in ("", "miss", "failed") for kind in kinds)
    known = {answer.url for answer in answers}.union(asked)
    left = [capture for capture in view.captures if capture["url"] not in known]
    unread = unread_requests(snapshot, left)
    result.unasked = sorted({str(capture["url"]) for capture in left} - unread)
    result.unread = sorted(unread)


def compare(view: View, content: PageSnapshot, snapshot: Snapshot, result: ViewCheck) -> None:
    """Fill `result` with the differences of text, accessibility snapshot and picture."""

    def recorded(kind: str) -> bytes:
        return snapshot.resource(kind, view.address) or b""

    text = recorded("text").decode("utf-8", "replace")
    aria = recorded("aria").decode("utf-8", "replace")
    result.text = likeness(text, content.text)
    result.aria = likeness(aria, content.aria)
    if result.text != 1.0 or result.aria != 1.0:
        result.text_changes = changes(text, content.text) or changes(aria, content.aria)
    result.recorded, result.replayed = recorded("view"), content.png
    if result.recorded:
        try:
            difference = compare_pictures(result.recorded, content.png)
        except ValueError as error:
            result.error = str(error)
            return
        result.pixels, result.difference = 1.0 - difference.share, difference.picture
    else:
        result.pixels = 1.0  # another tool's archive has no screenshot


def _unreported(ledger: Ledger, session: str, reported: Sequence[str]) -> set[str]:
    """Return the names of a session's answers that the browser did not report: those of shared workers."""
    mine = (one for one in ledger.entries() if one["session"] == session and one["verdict"] != "miss")
    return set(Counter(one_name(one["url"]) for one in mine) - Counter(map(one_name, reported)))


async def _replay(
    chain: Chain,
    host: BrowserHost,
    gateway: Gateway,
    snapshot: Snapshot,
    profile: Profile,
    session: str,
    patience: SettleTimeouts,
) -> list[ViewCheck]:
    results = {
        depth: ViewCheck(view.address, view.title, [describe(step) for step in view.steps])
        for depth, view in sorted(chain.views.items())
    }
    context = await host.context(session, gateway.proxy_url(session), profile, gateway.ca_path)
    files = contents_of(snapshot, chain.views[len(chain.steps)])
    driver = Driver(context, patience=patience, files=files)
    reached = since = seen = begun = 0
    try:
        await driver.open_start(chain.url)
        for depth in range(len(chain.steps) + 1):
            if depth:
                await driver.perform(chain.steps[depth - 1], depth)
            if depth in results:
                result = results[depth]
                missed = gateway.missed(session)
                traffic = driver.traffic
                compare_captures(
                    chain.views[depth],
                    traffic.answers[since:],
                    snapshot,
                    result,
                    missed[seen:],
                    traffic.asked[begun:],
                )
                since, seen, begun = len(traffic.answers), len(missed), len(traffic.asked)
                content = await read_page(driver.page)
                await asyncio.to_thread(compare, chain.views[depth], content, snapshot, result)
            reached = depth + 1
    except (PageFailed, PlaywrightError) as error:
        reason = first_line(error) if isinstance(error, PlaywrightError) else str(error)
        for depth, result in results.items():
            if depth >= reached:
                result.error = reason
                result.missed = result.missed or [answer.url for answer in driver.traffic.missed(since)]
                result.recorded = snapshot.resource("view", result.address) or b""
    finally:
        await context.close()
    if any(result.unasked for result in results.values()):
        untold = await asyncio.to_thread(_unreported, gateway.ledger, session, [*driver.traffic.asked])
        for result in results.values():
            result.unasked = [url for url in result.unasked if one_name(url) not in untold]
    return list(results.values())


async def check_all(
    snapshot: Snapshot,
    gateway: Gateway,
    *,
    host: BrowserHost | None = None,
    parallel: int | None = None,
    progress: Progress | None = None,
    patience: SettleTimeouts | None = None,
) -> CheckReport:
    """Replay and compare every view that has a recorded text, several at a time.

    The results are in the snapshot's order.
    """
    begun = time.monotonic()
    views = [view for view in snapshot.views() if snapshot.resource("text", view.address) is not None]
    profile = profile_of(snapshot)
    limit = asyncio.Semaphore(parallel or pages_at_once())
    done = 0

    taken: set[str] = set()

    async def one(shared: BrowserHost, number: int, chain: Chain) -> list[ViewCheck]:
        nonlocal done
        session = chain.session if chain.session and chain.session not in taken else f"check-{number}"
        taken.add(session)
        async with limit:
            results = await _replay(
                chain, shared, gateway, snapshot, profile, session, patience or SettleTimeouts()
            )
        done += len(results)
        if progress is not None:
            progress(done, len(views))
        return results

    warning = None
    async with lend_browser(host, gateway.ca_path) as shared:
        if views:
            await shared.start()
            warning = shared.difference(profile)
        jobs = enumerate(chains(views), start=1)
        found = await asyncio.gather(*(one(shared, number, chain) for number, chain in jobs))
    by_address = {result.address: result for results in found for result in results}
    return CheckReport([by_address[view.address] for view in views], time.monotonic() - begun, warning)


def check(snapshot: Snapshot, gateway: Gateway, **options: Any) -> CheckReport:
    """Run `check_all` without an event loop."""
    return run(check_all(snapshot, gateway, **options))


async def reread_views(snapshot: Snapshot, views: Sequence[View]) -> dict[str, dict[str, bytes]]:
    """Return screenshot, DOM, accessibility tree and text of views as the snapshot shows them now, by address.

    A view whose steps can't be taken any more is left out.
    """
    from stillweb.proxy.replay.gateway import Gateway

    profile = profile_of(snapshot)
    found: dict[str, dict[str, bytes]] = {}
    with Gateway(snapshot) as gateway:
        async with lend_browser(None, gateway.ca_path) as host:
            await host.start()
            for number, chain in enumerate(chains(views), start=1):
                session = f"look-{number}"
                context = await host.context(session, gateway.proxy_url(session), profile, gateway.ca_path)
                files = contents_of(snapshot, chain.views[len(chain.steps)])
                driver = Driver(context, patience=SettleTimeouts(), files=files)
                try:
                    await driver.open_start(chain.url)
                    for depth in range(len(chain.steps) + 1):
                        if depth:
                            await driver.perform(chain.steps[depth - 1], depth)
                        if depth in chain.views:
                            content = await read_page(driver.page)
                            found[chain.views[depth].address] = resources_of(content)
                except (PageFailed, PlaywrightError):
                    pass  # the caller says which views are missing
                finally:
                    await context.close()
    return found


def is_unread(request: Request) -> bool:
    """Return True if no page reads the answer: a prefetch, a beacon, a ping or a report.

    Prefetches come from Resource Hints and Speculation Rules. By Fetch Metadata, a POST with mode no-cors and
    an empty destination is a beacon, or works like one.
    """
    if "prefetch" in (request.header("sec-purpose") or request.header("purpose") or ""):
        return True
    destination = request.header("sec-fetch-dest") or ""
    tells = destination == "empty" and request.header("sec-fetch-mode") == "no-cors"
    return request.method == "POST" and (
        destination == "report" or tells or request.header("ping-to") is not None
    )


def unread_requests(snapshot: Snapshot, captures: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the URLs whose captures were all recorded for an unread request (see `is_unread`).

    `captures` have the form of a view's `captures`.
    """
    read: dict[str, bool] = {}
    for one in captures:
        url = str(one["url"])
        read[url] = read.get(url, False) or not _recorded_unread(snapshot, one)
    return {url for url, was_read in read.items() if not was_read}


def _recorded_unread(snapshot: Snapshot, one: Mapping[str, Any]) -> bool:
    url, method, digest = str(one["url"]), one.get("method", "GET"), one.get("digest")
    same = [
        capture
        for capture in snapshot.prefix(surt(url))
        if (capture.url, capture.method, capture.digest) == (url, method, digest)
    ]
    try:
        return bool(same) and all(is_unread(snapshot.read_request(capture)) for capture in same)
    except DamagedInput:
        return False


TOLERANCE = 8  # of 255 in any channel: smaller differences are invisible rounding of blends


@dataclass(frozen=True, slots=True)
class Difference:
    """The `share` of differing pixels (0 to 1), and a PNG that shows them (b"" if there are none)."""

    share: float
    picture: bytes


def compare_pictures(before: bytes, after: bytes) -> Difference:
    """Compare two PNGs. A pixel that only one of them has counts as different.

    Raises ValueError if one of them can't be read, or the second is empty.
    """
    if before == after:
        return Difference(0.0, b"")
    if not after:
        raise ValueError("the page shows nothing: its document has no root")
    from PIL import Image, ImageChops, UnidentifiedImageError

    try:
        old = Image.open(io.BytesIO(before)).convert("RGB")
        new = Image.open(io.BytesIO(after)).convert("RGB")
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"a screenshot can't be read: {error}") from None
    width, height = max(old.width, new.width), max(old.height, new.height)
    if old.size != new.size:  # fill each with its own colour, so that pixels of only one picture differ
        wide_old = Image.new("RGB", (width, height), (255, 0, 255))
        wide_new = Image.new("RGB", (width, height), (0, 255, 0))
        wide_old.paste(old)
        wide_new.paste(new)
        old, new = wide_old, wide_new
    channels = ImageChops.difference(old, new).split()
    most = ImageChops.lighter(ImageChops.lighter(channels[0], channels[1]), channels[2])
    mask = most.point([0] * (TOLERANCE + 1) + [255] * (255 - TOLERANCE))
    count = mask.histogram()[255]
    if not count:
        return Difference(0.0, b"")
    faded = Image.blend(new, Image.new("RGB", new.size, (255, 255, 255)), 0.7)
    faded.paste((220, 0, 60), mask=mask)
    out = io.BytesIO()
    faded.save(out, "PNG")
    return Difference(count / (width * height), out.getvalue())


def small_screenshot(png: bytes) -> tuple[str, bytes]:
    """Return a screenshot for a report as (media type, bytes): WebP if Pillow can write it."""
    from PIL import Image, features

    if not features.check("webp"):
        return "image/png", png
    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").save(out, "WEBP", quality=80, method=2)
    return "image/webp", out.getvalue()
