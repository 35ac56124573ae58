"""Pages on snapshots: sites, views, captures, texts, the graph of states, failures and misses."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from stillweb.harness.view.library import MOST_SHOWN, Library, NotFound, Page, clipped, titled
from stillweb.snapshots.errors import StillwebError
from stillweb.snapshots.http import charsets, encodings
from stillweb.snapshots.request import SAFE_METHODS, Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.words import whole_number

if TYPE_CHECKING:
    from stillweb.harness.view.snapshot_pool import ListedCapture, SnapshotPool
    from stillweb.snapshots.evidence.lookup import NearCapture
    from stillweb.snapshots.request import Headers
    from stillweb.snapshots.snapshot import Snapshot
    from stillweb.snapshots.text.text import FrozenText
    from stillweb.snapshots.view import View


PAGE = 100  # captures on one page
GALLERY = 60  # views on one page
MOST_BODY = 4 * MOST_SHOWN  # bytes of a body that are read
MOST_TEXT = MOST_SHOWN  # characters of a text whose words are compared
MOST_MISSES = 500
T = TypeVar("T")
_PICTURES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"RIFF", "image/webp"))


class SnapshotPages:
    def __init__(self, site: Library) -> None:
        self._site, self._shelf = site, site.shelf
        self._indexes: dict[str, Any] = {}
        self._lock = threading.Lock()

    def routes(self, one: str) -> list[tuple[str, Callable[..., Page]]]:
        """Return patterns of paths with the functions that make their pages; `one` matches a part of a path."""
        base = f"/snapshot/{one}"
        return [
            (base, self.overview),
            (f"{base}/views", self.views),
            (f"{base}/map", self.graph),
            (f"{base}/captures", self.captures),
            (f"{base}/texts", self.texts),
            (f"{base}/text", self.text),
            (f"{base}/failures", self.failures),
            (f"{base}/misses", self.misses),
            (f"{base}/view/{one}", self.view),
            (f"{base}/shot/{one}", self.shot),
            (rf"{base}/capture/(\d+)", self.capture),
        ]

    def _open(self, name: str) -> Snapshot:
        snapshot = self._shelf.get(name)
        if snapshot is None:
            raise NotFound(f"{name}: no snapshot of this name is open. Give its path to `stillweb view`")
        return snapshot

    def _render(self, template: str, name: str, title: str, **names: Any) -> Page:
        return self._site.render(template, name=name, title=title, **names)

    def overview(self, name: str, query: Mapping[str, str]) -> Page:
        snapshot = self._open(name)
        views = snapshot.views()
        provenance, why = [], []
        try:
            provenance = snapshot.provenance
        except StillwebError as error:
            why.append(str(error))
        key = ("counts", name, self._shelf.version(name))
        paths = self._shelf.paths(name)
        self._site.prepare("snapshot.html")
        counts = self._site.soon(key, lambda: _counts_of(self._shelf.captures(name), views, paths))
        return self._render(
            "snapshot.html",
            name,
            name,
            paths=paths,
            id=snapshot.id,
            profile=snapshot.profile,
            provenance=provenance,
            notes=[*why, *snapshot.notes, *(f"{one}: an empty archive" for one in snapshot.empty_archives())],
            counts=counts,
            live=self._shelf.under_way(name),
            views=views,
            texts=snapshot.count_texts(),
            failures=snapshot.count_failures(),
            runs=[run for run in self._site.tables if self._site.snapshot_of(run) == name],
        )

    def _all(self, name: str) -> list[ListedCapture] | None:
        """Return all captures, or None while they are being read."""
        self._open(name)
        found: list[ListedCapture] | None = self._site.soon(
            ("captures", name, self._shelf.version(name)), partial(self._shelf.captures, name)
        )
        return found

    def _waiting(self, name: str, title: str, what: str = "captures") -> Page:
        """Return a page that asks for itself again, since `what` it shows is being read."""
        return self._render("waiting.html", name, title, what=what)

    def views(self, name: str, query: Mapping[str, str]) -> Page:
        snapshot = self._open(name)
        text = query.get("q", "").casefold()
        found = [
            view
            for view in snapshot.views()
            if text in f"{view.title} {view.address} {view.final_url}".casefold()
        ]
        part, number, pages = paged(found, query, len(found) if self._site.linker.static else GALLERY)
        return self._render(
            "views.html",
            name,
            f"Views of {name}",
            views=part,
            found=len(found),
            number=number,
            pages=pages,
            text=query.get("q", ""),
        )

    def shot(self, name: str, id_: str, query: Mapping[str, str]) -> Page:
        snapshot = self._open(name)
        view = snapshot.view(id_)
        data = snapshot.resource("view", view.address) if view else None
        media = next((kind for start, kind in _PICTURES if data and data.startswith(start)), "")
        if not data or not media:
            raise NotFound(f"{id_}: the view has no screenshot")
        return Page(data, media)

    def view(self, name: str, id_: str, query: Mapping[str, str]) -> Page:
        snapshot = self._open(name)
        view = snapshot.view(id_)
        if view is None:
            raise NotFound(f"{id_}: no view of {name}")
        from stillweb.proxy.browser.steps import to_yaml
        from stillweb.proxy.explore.graph import fields

        problems: list[str] = []

        def read(work: Callable[[], T]) -> T | None:
            try:
                return work()
            except (StillwebError, OSError) as error:  # the page shows the rest
                problems.append(str(error))
                return None

        picture, dom, seen = (
            read(partial(snapshot.resource, kind, view.address)) for kind in ("view", "dom", "text")
        )
        frozen = read(partial(self._text_of, snapshot, view))
        visible = seen.decode("utf-8", "replace") if seen else ""
        return self._render(
            "view.html",
            name,
            titled(view),
            view=view,
            problems=problems,
            picture=picture is not None,
            frame=self._site.frame_of_view(name, view.id) if dom else "",
            text=frozen,
            words=word_changes(visible, frozen.markdown) if frozen and visible else [],
            visible=visible,
            steps=to_yaml(view.steps) if view.steps else "",
            fields=list(fields(view.state)),
            parent=snapshot.view(view.parent) if view.parent else None,
            children=[one for one in snapshot.views() if one.parent == view.address],
            loaded=[self._loaded(name, one) for one in view.captures],
        )

    def replay(self, name: str, id_: str) -> Page:
        """Return the page on a view that is replayed now, which takes seconds."""

        snapshot = self._open(name)
        view = snapshot.view(id_)
        if view is None:
            raise NotFound(f"{id_}: no view of {name}")
        with self._site.browsing:
            done = replay_view(snapshot, view)
        picture = snapshot.resource("view", view.address) is not None
        title = f"{titled(view)}, replayed"
        return self._render("replayed.html", name, title, view=view, done=done, picture=picture)

    def _loaded(self, name: str, one: Mapping[str, Any]) -> dict[str, Any]:
        url, digest = str(one.get("url", "")), one.get("digest")
        found = next((c for c in self._shelf.listed(name, url) if digest in (None, c.digest)), None)
        return {
            "url": url,
            "method": one.get("method", "GET"),
            "status": one.get("status", ""),
            "path": found.path if found else "",
        }

    def _text_of(self, snapshot: Snapshot, view: View) -> FrozenText | None:
        for address in (view.address, f"{view.url.partition('#')[0]}#view={view.id}"):
            found = snapshot.text(address)
            if found is not None:
                return found
        return None

    def captures(self, name: str, query: Mapping[str, str]) -> Page:
        every = self._all(name)
        asked = {key: query.get(key, "") for key in ("q", "status", "type", "method", "session")}
        if every is None and (any(asked.values()) or query.get("page", "1") != "1"):
            return self._waiting(name, f"Captures of {name}")
        reading = every is None
        every = self._shelf.first(name, PAGE) if every is None else every
        wanted = asked["q"].casefold()
        found = [
            one
            for one in every
            if (not wanted or wanted in one.url.casefold())
            and (not asked["status"] or str(one.status).startswith(asked["status"]))
            and (not asked["type"] or asked["type"] in one.mime)
            and (not asked["method"] or one.method == asked["method"])
            and (not asked["session"] or one.session == asked["session"])
        ]
        part, number, pages = paged(found, query, PAGE)
        return self._render(
            "captures.html",
            name,
            f"Captures of {name}",
            captures=part,
            asked=asked,
            found=len(found),
            every=len(every),
            reading=reading,
            number=number,
            pages=pages,
            methods=sorted({one.method for one in every}),
        )

    def capture(self, name: str, offset: str, query: Mapping[str, str]) -> Page:
        snapshot = self._open(name)
        file = query.get("file", "")
        if self._all(name) is None:
            return self._waiting(name, f"{file} at {offset}")
        capture = self._shelf.capture(name, file, int(offset))
        if capture is None:
            raise NotFound(f"{file} at {offset}: no capture of {name}")
        problems: list[str] = []
        request = response = hit = None
        waiting = False
        sent = body = ""
        try:
            if capture.request_offset >= 0:
                request = snapshot.read_request(capture)
                sent = _shown(request.body, request.headers, problems)
            response = snapshot.read_start(capture, MOST_BODY)
            if not capture.mime.startswith(("image/", "font/", "video/", "audio/", "application/pdf")):
                body = _shown(response.body, response.headers, problems)
        except (StillwebError, OSError) as error:
            problems.append(str(error))
        try:
            key = ("lookup", name, self._shelf.version(name), capture.place)
            asked = request or Request("GET", capture.url)
            hit = self._site.soon(key, lambda: _served(self._shelf, name, asked))
            waiting = hit is None
        except (StillwebError, OSError) as error:
            problems.append(f"the lookup failed: {error}")
        text = None
        try:
            text = snapshot.text(capture.url)
        except (StillwebError, OSError) as error:
            problems.append(str(error))
        page = capture.mime.startswith(("text/html", "application/xhtml", "image/"))
        return self._render(
            "capture.html",
            name,
            capture.url,
            capture=capture,
            request=request,
            response=response,
            sent=sent,
            body=body,
            hit=hit,
            waiting=waiting,
            here=query,
            others=[c for c in self._shelf.listed(name, capture.url) if (c.file, c.offset) != capture.place][
                :50
            ],
            problems=problems,
            text=text,
            frame=self._site.frame_of_capture(name, file, int(offset))
            if page and response is not None
            else "",
        )

    def texts(self, name: str, query: Mapping[str, str]) -> Page:
        from stillweb.snapshots.text.search import parse_query

        snapshot = self._open(name)
        text = query.get("q", "")
        hits: Sequence[Any] = []
        why = ""
        if text and not parse_query(text).finds:
            why = f"{text!r} names no word to look for"
        elif text:
            index = self._site.soon(("texts", name, self._shelf.version(name)), partial(self._index, name))
            if index is None:
                return self._waiting(name, f"Texts of {name}", "texts")
            hits = index.search(text, 50)
        return self._render(
            "texts.html",
            name,
            f"Texts of {name}",
            text=text,
            hits=hits,
            why=why,
            count=snapshot.count_texts(),
        )

    def _index(self, name: str) -> Any:
        """Return the index of a snapshot's texts, which is made once for each state of the snapshot."""
        from stillweb.snapshots.searching import index_of

        with self._lock:
            version = self._shelf.version(name)
            if self._indexes.get(name, (None, None))[0] != version:
                self._indexes[name] = version, index_of(self._open(name))
            return self._indexes[name][1]

    def text(self, name: str, query: Mapping[str, str]) -> Page:
        snapshot = self._open(name)
        address = query.get("address", "")
        found = snapshot.text(address)
        if found is None:
            raise NotFound(f"{address}: no frozen text of {name}")
        view = snapshot.view(address)
        captures = self._shelf.listed(name, address.partition("#")[0])
        return self._render(
            "text.html",
            name,
            found.title or address,
            text=found,
            address=address,
            view=view,
            captures=captures[:20],
        )

    def failures(self, name: str, query: Mapping[str, str]) -> Page:
        snapshot = self._open(name)
        return self._render(
            "failures.html",
            name,
            f"Failed requests of {name}",
            failures=list(snapshot.failures())[:MOST_MISSES],
            count=snapshot.count_failures(),
        )

    def misses(self, name: str, query: Mapping[str, str]) -> Page:
        self._open(name)
        found: list[dict[str, Any]] = []
        left = 0
        for run, table in self._site.tables.items():
            if self._site.snapshot_of(run) != name:
                continue
            for row in table.rows:
                if not row.misses:
                    continue
                if len(found) >= MOST_MISSES:
                    left += row.misses
                    continue
                trace, _ = self._site.read(run, row.name)
                found += [
                    {"run": run, "attempt": row.name, "event": event, "asked": _asked(event)}
                    for event in (trace.misses if trace is not None else ())
                ]
        return self._render("misses.html", name, f"Misses of runs on {name}", misses=found, left=left)

    def graph(self, name: str, query: Mapping[str, str]) -> Page:
        from stillweb.proxy.explore.graph import CARD, trees

        snapshot = self._open(name)
        return self._render("map.html", name, f"Map of {name}", trees=trees(snapshot), card=CARD)


@dataclass(frozen=True, slots=True)
class ServedAnswer:
    """Answer that a new session would get, and what decides it. `path` is the address of its capture, "" for none."""

    verdict: str
    confidence: float | None
    ambiguous: bool
    path: str
    place: tuple[str, int] | None
    grounds: list[str]
    nearest: list[NearCapture]


def _served(shelf: SnapshotPool, name: str, request: Request) -> ServedAnswer:
    hit = shelf.lookup(name, request)
    found = hit.capture
    listed = shelf.listed(name, found.url) if found else []
    return ServedAnswer(
        hit.verdict,
        hit.confidence,
        hit.ambiguous,
        next((one.path for one in listed if found and (one.file, one.offset) == found.place), ""),
        found.place if found else None,
        hit.grounds,
        [] if found else hit.nearest,
    )


@dataclass(frozen=True, slots=True)
class Counts:
    """Number of a snapshot's captures, counts of each site, largest first, and captures by day.

    `layers` are the layers' paths with days, captures, and places of the days on a line from 0 to 100.
    """

    captures: int
    sites: list[tuple[str, Counter[str]]]
    days: list[tuple[str, int]]
    layers: list[tuple[str, list[tuple[str, int, float]]]]


def _counts_of(captures: Sequence[ListedCapture], views: Sequence[View], paths: Sequence[str]) -> Counts:
    numbers = {f"layer{number}": number for number in range(2, len(paths) + 1)}
    by_layer: dict[int, Counter[str]] = {number: Counter() for number in range(1, len(paths) + 1)}
    sites: dict[str, Counter[str]] = {}
    for one in captures:
        scheme, mark, rest = one.url.partition("://")  # urlsplit takes four times as long
        site = re.split("[/?#]", rest, maxsplit=1)[0] if mark else scheme
        counts = sites.setdefault(site, Counter())
        counts["captures"] += 1
        counts["errors"] += one.status >= 400
        counts["writes"] += one.method not in SAFE_METHODS
        by_layer[numbers.get(one.file.partition("/")[0], 1)][one.timestamp[:8]] += 1
    for view in views:
        sites.setdefault(urlsplit(view.url).netloc, Counter())["views"] += 1
    return Counts(
        len(captures),
        sorted(sites.items(), key=lambda item: (-item[1]["captures"], item[0])),
        sorted(sum(by_layer.values(), Counter()).items()),
        _on_a_line(dict(zip(paths, by_layer.values(), strict=True))),
    )


def _on_a_line(layers: Mapping[str, Counter[str]]) -> list[tuple[str, list[tuple[str, int, float]]]]:
    """Return the days of each layer, with their captures and their places between the first day and the last."""
    moments = {day: _ordinal(day) for days in layers.values() for day in days}
    first, last = min(moments.values(), default=0), max(moments.values(), default=0)
    scale = 100 / ((last - first) or 1)
    return [
        (path, [(day, days[day], scale * (moments[day] - first)) for day in sorted(days)])
        for path, days in layers.items()
    ]


def _ordinal(day: str) -> int:
    """Return the number of a day of 8 digits; 0 for digits that are no day."""
    try:
        return date(int(day[:4]), int(day[4:6]), int(day[6:])).toordinal()
    except ValueError:
        return 0


def _asked(event: Mapping[str, Any]) -> str:
    arguments = event["arguments"]
    if isinstance(arguments, dict):
        return ", ".join(f"{key} {value}" for key, value in arguments.items())
    return str(arguments)


def _shown(body: bytes, headers: Headers, problems: list[str]) -> str:
    """Return a body as text; one that is not text as the number of its bytes."""
    fields = {name.lower(): value for name, value in headers}
    try:
        plain = encodings.decode(body, fields.get("content-encoding"), limit=MOST_BODY)
    except encodings.EncodingProblem as error:
        problems.append(f"the body can't be decoded: {error}")
        plain = body
    if b"\0" in plain[:1000]:
        return f"({len(plain):,} bytes that are no text)"
    return clipped(charsets.decode(plain, fields.get("content-type")).text)


def paged(found: Sequence[Any], query: Mapping[str, str], size: int) -> tuple[Sequence[Any], int, int]:
    """Return the asked part of a list, its number from 1, and the number of parts."""
    size = size or 1
    pages = max(1, -(-len(found) // size))
    number = max(1, min(whole_number(query.get("page", "1")) or 1, pages))
    return found[(number - 1) * size : number * size], number, pages


def word_changes(visible: str, frozen: str) -> list[tuple[str, str]]:
    """Return the visible text of a page in parts, each with "lost" if the frozen text lacks its words, else "".

    A word counts as often as it occurs. Words that only the frozen text has come last, as "restored".
    """
    visible, frozen = visible[:MOST_TEXT], frozen[:MOST_TEXT]
    left = Counter(re.findall(r"\w+", frozen.casefold()))
    parts: list[tuple[str, str]] = []
    for piece in re.findall(r"\w+|\W+", visible):
        word = piece.casefold()
        if not re.match(r"\w", piece):
            kind = parts[-1][1] if parts else ""
        elif left[word] > 0:
            left[word] -= 1
            kind = ""
        else:
            kind = "lost"
        if parts and parts[-1][1] == kind:
            parts[-1] = (parts[-1][0] + piece, kind)
        else:
            parts.append((piece, kind))
    more = [word for word, count in left.items() for _ in range(count)]
    return [*parts, (" ".join(more), "restored")] if more else parts


MOST_ENTRIES = 300  # requests listed


@dataclass(frozen=True, slots=True)
class ReplayedView:
    """A replayed view: its picture as a data URI, its text, the requests with their verdicts, and what went wrong."""

    picture: str = ""
    text: str = ""
    entries: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""
    window: bool = False  # True if a window stays open on the display


def replay_view(snapshot: Snapshot, view: View) -> ReplayedView:
    """Start a browser on a view's page in a new session, do its steps, and return what it shows.

    With a display the browser has a window, which stays open until it is closed.
    """
    window = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    results: SimpleQueue[ReplayedView] = SimpleQueue()

    def work() -> None:
        try:
            asyncio.run(_replay(snapshot, view, window, results))
        except (StillwebError, OSError) as error:
            results.put(ReplayedView(error=str(error)))

    threading.Thread(target=work, name="stillweb-view-replay", daemon=True).start()
    return results.get()


async def _replay(snapshot: Snapshot, view: View, window: bool, results: SimpleQueue[ReplayedView]) -> None:
    from playwright.async_api import Error

    from stillweb.proxy.browser.browser import BrowserHost, profile_of
    from stillweb.proxy.browser.driver import Driver
    from stillweb.proxy.browser.errors import PageFailed, first_line
    from stillweb.proxy.browser.page_snapshot import read_page
    from stillweb.proxy.browser.settle import SettleTimeouts
    from stillweb.proxy.browser.uploads import contents_of
    from stillweb.proxy.replay.gateway import Gateway

    session = view.session or "view"
    with Gateway(snapshot) as gateway:
        async with BrowserHost(ca=gateway.ca_path, headless=not window) as host:
            profile = profile_of(snapshot)
            context = await host.context(session, gateway.proxy_url(session), profile, gateway.ca_path)
            driver = Driver(context, patience=SettleTimeouts(), files=contents_of(snapshot, view))
            error = picture = text = ""
            try:
                await driver.open_start(view.url)
                for number, step in enumerate(view.steps, 1):
                    await driver.perform(step, number)
                content = await read_page(driver.page)
                picture, text = base64.b64encode(content.png).decode(), content.text
            except (PageFailed, Error) as failed:
                error = first_line(failed) if isinstance(failed, Error) else str(failed)
            entries = await asyncio.to_thread(gateway.ledger.entries)
            stays = window and not error
            results.put(
                ReplayedView(
                    f"data:image/png;base64,{picture}" if picture else "",
                    text,
                    list(entries)[:MOST_ENTRIES],
                    error,
                    stays,
                )
            )
            if stays:
                await driver.page.wait_for_event("close", timeout=0)
