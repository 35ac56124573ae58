"""Exploration of the states of a page: breadth first over all controls, each state stored once.

Each state is reached in a fresh context by its own steps, so that a view's steps lead to it from nothing.
Progress is kept in `explore.json` beside the archive, and in the snapshot when done.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import json
import os
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag, urlsplit

from playwright.async_api import Error as PlaywrightError

from stillweb.proxy.browser.browser import BrowserHost
from stillweb.proxy.browser.capture_view import Recording, Visitor
from stillweb.proxy.browser.driver import Driver
from stillweb.proxy.browser.errors import AmbiguousElement, PageFailed, UnusableElement, answered, first_line
from stillweb.proxy.browser.page_checks import examine
from stillweb.proxy.browser.page_snapshot import PageSnapshot, ViewRedactor, shows_pdf
from stillweb.proxy.browser.running import run
from stillweb.proxy.browser.settle import SettleResult, SettleTimeouts
from stillweb.proxy.browser.steps import describe
from stillweb.proxy.explore.graph import Edge, Graph, Node, graph_uri
from stillweb.proxy.explore.moves import (
    Choices,
    Move,
    Noise,
    controls_of,
    moves,
    skipped_reason,
    stable_content,
)
from stillweb.proxy.explore.politeness import Guard, Manners
from stillweb.proxy.explore.politeness import Limits as Limits  # part of this module's API
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.view import Step
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from stillweb.proxy.record.recorder import Recorder
    from stillweb.snapshots.writer import Writer

STATE_FILE = "explore.json"


class Explorer(Visitor):
    """The exploration of URLs through a recorder, into a writer."""

    def __init__(
        self,
        recorder: Recorder,
        writer: Writer,
        profile: Profile | None = None,
        *,
        limits: Limits | None = None,
        choices: Choices | None = None,
        patience: SettleTimeouts | None = None,
        prefix: str = "explore",
        launch: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(recorder, writer, profile, None, patience, f"{prefix}-{os.getpid()}", launch)
        self.limits = limits or Limits()
        self.choices = replace(choices or Choices(), clock=self.profile.clock)
        self.manners = Manners(recorder, self.profile, self.limits.delay, prefix)

    def explore(self, url: str, progress: Progress | None = None) -> Graph:
        """Explore one URL; continue an exploration that was interrupted or ran out of time.

        Raises errors that end everything (no browser, full disk).
        """
        return run(self.explore_url(url, progress))

    async def explore_url(self, url: str, progress: Progress | None = None) -> Graph:
        """Do what `explore` does, in a running event loop."""
        known = self._load(url)
        graph = Graph.from_json(known | {"url": url}) if known else Graph(url)
        async with self.browser() as host:
            under_way = Exploration(self, host, graph, progress or (lambda count, address: None), known)
            try:
                await under_way.go()
            finally:
                self.save(url, under_way.to_json())
        redactor = ViewRedactor(self.recorder.redactor)
        await asyncio.to_thread(
            self.writer.metadata, graph_uri(redactor.text(url)), redactor.json(graph.whole().to_json())
        )
        if under_way.finished:
            self._path(url).unlink(missing_ok=True)
        return graph

    # ---- saved progress

    def _path(self, url: str) -> Path:
        public = ViewRedactor(self.recorder.redactor).text(url)
        name = re.sub(r"[^\w.-]+", "_", public)[:64]
        # a hash, since other URLs may give the same name
        own = hashlib.sha256(public.encode(errors="surrogatepass")).hexdigest()[:12]
        return Path(self.writer.path) / f"{name}.{own}.{STATE_FILE}"

    def _load(self, url: str) -> dict[str, Any]:
        try:
            known = json.loads(self._path(url).read_text(encoding="utf-8"))
            Graph.from_json(known)
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return {}  # absent, or cut off while writing: start from the beginning
        return dict(known)

    def save(self, url: str, known: dict[str, Any]) -> None:
        """Save the progress of an exploration. Steps that contain a secret are lost."""
        path = self._path(url)
        part = path.with_suffix(".part")
        kept = ViewRedactor(self.recorder.redactor).json(known)
        part.write_text(json.dumps(kept, ensure_ascii=False), encoding="utf-8")
        os.replace(part, path)


class Landings:
    """Known targets of links. `held` maps each view's address to the hash of the client's state there."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self._led: dict[tuple[str, str], Node] = {}

    def tell(self, source: str, href: str, target: Node) -> None:
        """Record that a link on the view at `source` led to `target`."""
        self._led[_same_link(href), self.held.get(source, "")] = target

    def of(self, source: str, href: str | None) -> Node | None:
        """Return the target of a link on the view at `source`; None if it is not known yet."""
        return self._led.get((_same_link(href or ""), self.held.get(source, "")))


def _same_link(href: str) -> str:
    """Return a link's URL with its query sorted."""
    parts = urlsplit(href)
    return parts._replace(query="&".join(sorted(parts.query.split("&")))).geturl()


async def hash_client_state(driver: Driver) -> str:
    """Return a hash of the client's state: cookies and storage."""
    kept = await driver.context.storage_state()
    session = await answered(
        driver.page.evaluate("() => { try { return JSON.stringify(sessionStorage) } catch { return '' } }")
    )
    for cookie in kept.get("cookies", ()):
        cookie.pop("expires", None)  # depends on the machine's clock, so it differs at each visit
    return hashlib.sha256(json.dumps([kept, session], sort_keys=True).encode(errors="replace")).hexdigest()


BROUGHT, ELSEWHERE, HERE, _BARREN, _AGAIN = range(5)  # the order of moves on views of equal depth


def _name(move: Move) -> str:
    return json.dumps(move.steps, sort_keys=True, ensure_ascii=False)


def _controls(steps: Iterable[Step]) -> tuple[str, ...]:
    """Return the controls that steps operate, sorted, whatever is chosen or typed there."""
    found = []
    for step in steps:
        action, given = next(iter(step.items()))
        place = {key: value for key, value in given.items() if key not in ("option", "value", "key")}
        found.append(json.dumps([action.removeprefix("un"), place], sort_keys=True, ensure_ascii=False))
    return tuple(sorted(found))


class Agenda:
    """A priority queue of (view, move). `take_up` reads the output of `to_json`."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, int, int, Node, Move]] = []
        self._count = 0
        self._rounds: Counter[tuple[str, ...]] = Counter()  # controls -> moves with exactly these
        self._paid: dict[str, bool] = {}  # move -> True if it ever led to a new view
        self._failed: set[tuple[str, str]] = set()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, node: Node, move: Move, turn: int = BROUGHT, number: int | None = None) -> None:
        """Queue a move: new on this view (BROUGHT), or one that its source had too (ELSEWHERE, HERE).

        `number` is its round, if known; else the next round of its controls.
        """
        controls = _controls([*node.steps, *move.steps])
        self._put(node, move, turn, self._rounds[controls] if number is None else number)
        self._rounds[controls] += 1

    def _put(self, node: Node, move: Move, turn: int, number: int) -> None:
        self._count += 1
        late = turn if turn >= _BARREN else 0
        heapq.heappush(self._heap, (node.depth, late, number, turn, self._count, node, move))

    def take(self) -> tuple[Node, Move]:
        """Remove and return the next move to try. Raises IndexError if the queue is empty."""
        while True:
            depth, late, number, _, count, node, move = heapq.heappop(self._heap)
            if late or self._paid.get(_name(move), True):
                return node, move
            heapq.heappush(self._heap, (depth, _BARREN, number, _BARREN, count, node, move))

    def tell(self, move: Move, *, new: bool) -> None:
        """Record if a move led to a new view."""
        self._paid[_name(move)] = new or self._paid.get(_name(move), False)

    def again(self, node: Node, move: Move) -> bool:
        """Queue a failed move at the end, once: the machine may have been busy.

        Return True if it was queued.
        """
        key = (node.address, _name(move))
        if key in self._failed:
            return False
        self._failed.add(key)
        self._put(node, move, _AGAIN, 0)
        return True

    def to_json(self, first: Iterable[tuple[Node, Move]] = ()) -> dict[str, Any]:
        """Return the moves left to try as JSON, with `first` (those being tried) before the rest."""
        left = [(BROUGHT, 0, node, move) for node, move in first]
        left += [(one[3], one[2], one[5], one[6]) for one in sorted(self._heap, key=lambda one: one[:5])]
        return {
            "queue": [(node.address, asdict(move), turn, number) for turn, number, node, move in left],
            "paid": self._paid,
        }

    def take_up(self, known: dict[str, Any], nodes: dict[str, Node]) -> list[tuple[Node, Move]]:
        """Restore the output of `to_json`, for views that are still known; return the restored moves.

        `done` in `known` lists the tried moves, as JSON of steps.
        """
        self._paid.update(known.get("paid", {}))
        self._rounds.update(_controls(json.loads(key)) for key in known.get("done", ()))
        found = []
        for address, asked, *place in known.get("queue", ()):  # older versions stored no round
            if address in nodes:
                found.append((nodes[address], Move.from_json(asked)))
                self.add(*found[-1], *place)
        return found


_FIELDS = ("select", "radio", "check", "uncheck", "value", "text")


class Walk:
    """A fresh page of a URL with its recording and its driver."""

    def __init__(self, means: Explorer, url: str, driver: Driver, recording: Recording) -> None:
        self.url = url
        self.driver = driver
        self.recording = recording
        self._manners = means.manners

    async def reach(self, steps: Sequence[Step]) -> tuple[int, SettleResult]:
        """Load the URL and do the steps; return the status and how the page settled.

        If the page ever failed to settle, the first such result is kept.
        """
        await self._manners.wait_turn(self.url)
        response, calm = await self.driver.open_start(self.url)
        for number, step in enumerate(steps, start=1):
            await self._manners.wait_turn(self.url)
            later = await self.driver.perform(step, number)
            calm = later if calm.quiet else calm
        return (response.status if response is not None else 0), calm

    async def look(self) -> PageSnapshot:
        """Return the page's content, without a picture and without secrets."""
        return await self.recording.look(self.driver.page, with_picture=False)

    async def make(
        self, move: Move, before: Sequence[Step], unchanged: Callable[[PageSnapshot], bool]
    ) -> tuple[PageSnapshot, list[Step], SettleResult]:
        """Do a move after the steps `before`; return what the page shows, all steps, and how it settled.

        CSS selectors are used if the names are ambiguous. The form's button is clicked if a field alone
        changes nothing.
        """
        steps = list(before)
        calm = SettleResult(True, 0.0, 0)
        for named, plain in zip(move.steps, move.plain, strict=True):
            await self._manners.wait_turn(self.url)
            try:
                calm = await self.driver.perform(named, len(steps) + 1)
                steps.append(named)
            except AmbiguousElement:  # after any other failure the step may have been done already
                if named == plain:
                    raise
                calm = await self.driver.perform(plain, len(steps) + 1)
                steps.append(plain)
        content = await self.look()
        if move.then and move.kind in _FIELDS and unchanged(content):
            for step in move.then:
                calm = await self.driver.perform(step, len(steps) + 1)
                steps.append(step)
            content = await self.look()
        return content, steps, calm

    def half_loaded(self, calm: SettleResult) -> bool:
        """Return True if the site failed to deliver something, or too late: a script may be missing."""
        site = urlsplit(self.url).netloc
        late = not calm.quiet and not calm.reason.startswith("keeps sending requests")
        return late or any(urlsplit(url).netloc == site for url in self.driver.traffic.lost_urls())


@asynccontextmanager
async def open_walk(means: Explorer, host: BrowserHost, url: str) -> AsyncIterator[Walk]:
    """Yield a walk through the recorder in a new session; close its context at the end."""
    session, recorder = means.new_session(), means.recorder
    context = await host.context(
        session, recorder.proxy_url(session), means.profile, recorder.ca_path, replay=False
    )
    try:
        driver = means.driver(context)
        recording = Recording(recorder, means.writer, session)
        recording.watch(driver.traffic)
        yield Walk(means, url, driver, recording)
    finally:
        await context.close()


COMPARED = 3  # visits of a view that are compared to learn which lines change by themselves
Progress = Callable[[int, str], None]  # views so far, address of the newest


def _key(steps: list[Step] | tuple[Step, ...]) -> str:
    return json.dumps(list(steps), sort_keys=True, ensure_ascii=False)


def _said(error: PageFailed | PlaywrightError) -> str:
    return first_line(error) if isinstance(error, PlaywrightError) else str(error)


class Exploration:
    """A running exploration: a queue of moves, workers that try them, and the graph.

    A later exploration continues from the output of `to_json`, given as `known`.
    """

    def __init__(
        self,
        explorer: Explorer,
        host: BrowserHost,
        graph: Graph,
        progress: Progress,
        known: dict[str, Any] | None = None,
    ) -> None:
        self.explorer = explorer
        self.host = host
        self.graph = graph
        self.progress = progress
        self.limits = explorer.limits
        self.noise = Noise(graph.noise)
        self.shown: dict[str, str] = {}  # address -> what the view shows
        self.looks = {node.look: node for node in graph.views}
        self.tried = set(graph.done)
        self.queue = Agenda()
        self.trying: list[tuple[Node, Move]] = []
        self.busy = 0
        self.claimed = len(graph.views)  # views stored or being stored
        self.compared: dict[str, int] = {}  # address -> visits compared to learn what is noise
        self.landings = Landings()
        self.changed = asyncio.Condition()
        self.save_at = 0.0
        self._take_up(known or {})
        self.deadline = time.monotonic() + self.limits.seconds

    def _take_up(self, known: dict[str, Any]) -> None:
        nodes = {node.address: node for node in self.graph.views}
        for node, move in self.queue.take_up(known, nodes):
            self.tried.add(_key([*node.steps, *move.steps]))
        self.landings.held.update(known.get("held", {}))

    @property
    def finished(self) -> bool:
        """Return True unless the time ran out: another call would find nothing more."""
        return not self.graph.ended.endswith(" s")

    def to_json(self) -> dict[str, Any]:
        """Return the graph and the moves left to try."""
        left = self.queue.to_json(self.trying)
        return self.graph.whole().to_json() | left | {"held": self.landings.held}

    async def go(self) -> None:
        """Explore until nothing is left, or a limit is reached."""
        graph, url = self.graph, self.graph.url
        graph.ended = ""
        if self.limits.obey_robots and not await self.explorer.manners.allowed(url):
            graph.robots.append(url)
            graph.ended = "robots.txt forbids it"
            return
        if not graph.views:
            await self._visit(None, None)
        for node in list(graph.views):
            if node.depth < self.limits.depth and node.address not in self.landings.held:
                await self._again(node)
        if not graph.views:
            graph.ended = graph.ended or "the page can't be stored"
            return
        workers = [asyncio.ensure_future(self._work()) for _ in range(self.limits.parallel)]
        try:
            await asyncio.gather(*workers)
        except BaseException:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            raise
        graph.ended = graph.ended or "all was tried"

    def _over(self) -> bool:
        if self.claimed >= self.limits.views:
            self.graph.ended = pluralize(self.limits.views, "view")
        elif time.monotonic() > self.deadline:
            self.graph.ended = f"{self.limits.seconds:g} s"
        return bool(self.graph.ended)

    async def _work(self) -> None:
        while True:
            async with self.changed:
                while not self.queue and self.busy and not self._over():
                    await self.changed.wait()
                if self._over() or not self.queue:
                    self.changed.notify_all()
                    return
                node, move = self.queue.take()
                self.busy += 1
                self.trying.append((node, move))
            try:
                await self._visit(node, move)
                self.trying.remove((node, move))
                self._save()
            finally:
                async with self.changed:
                    self.busy -= 1
                    self.changed.notify_all()

    async def _again(self, node: Node) -> None:
        """Read the controls of a stored view whose exploration ended before its moves were queued."""
        async with open_walk(self.explorer, self.host, self.graph.url) as walk:
            try:
                await walk.reach(node.steps)
                content = await walk.look()
                self.shown[node.address] = stable_content(content.text, content.aria)
                await self._plan(walk.driver, node)
            except (PageFailed, PlaywrightError) as error:
                self.graph.failed.append((_key(node.steps), _said(error)))

    async def _plan(self, driver: Driver, node: Node, source: Node | None = None) -> None:
        """Queue the moves of the open page `node`, which was reached from `source`."""
        if node.depth >= self.limits.depth:
            return
        found, left = moves(await controls_of(driver.page), self.explorer.choices)
        held = await hash_client_state(driver)
        permitted = [move for move in found if self._new(node, move) and await self._permitted(move)]
        # no await from here on, so that an interrupt leaves a view planned completely or not at all
        self.landings.held[node.address] = held
        self.graph.left += [one for one in left if one not in self.graph.left]
        for move in permitted:
            if not self._new(node, move):
                continue
            self.tried.add(_key([*node.steps, *move.steps]))
            had = source is not None and _key([*source.steps, *move.steps]) in self.tried
            moved = source is not None and urldefrag(source.url)[0] != urldefrag(node.url)[0]
            self.queue.add(node, move, (ELSEWHERE if moved else HERE) if had else BROUGHT)

    def _new(self, node: Node, move: Move) -> bool:
        return _key([*node.steps, *move.steps]) not in self.tried

    async def _permitted(self, move: Move) -> bool:
        """Return True if robots.txt allows following a link; list the link if not."""
        if not move.href or not self.limits.obey_robots or await self.explorer.manners.allowed(move.href):
            return True
        if move.href not in self.graph.robots:
            self.graph.robots.append(move.href)
        return False

    async def _visit(self, source: Node | None, move: Move | None) -> None:
        """Reach a view, make a move on it, and store the result if it is new."""
        if source is not None and move is not None and self._known(source, move):
            return
        before = list(source.steps) if source is not None else []
        async with open_walk(self.explorer, self.host, self.graph.url) as walk:
            try:
                new = await self._walked(walk, source, move, before)
            except (PageFailed, PlaywrightError) as error:
                await self.host.check()
                reason = _said(error)
                waited = isinstance(error, UnusableElement)  # UnusableElement: it was waited for long enough
                if source is not None and move is not None and not waited and self.queue.again(source, move):
                    return
                way = _key([*before, *(move.steps if move else ())])
                self.graph.failed.append((way, reason))
                if source is None:
                    self.graph.ended = reason
                new = False
        if move is not None and new is not None:
            self.queue.tell(move, new=new)
            self.graph.done.append(_key([*before, *move.steps]))

    async def _walked(
        self, walk: Walk, source: Node | None, move: Move | None, before: list[Step]
    ) -> bool | None:
        """Return True if a walk found a new view; None if it was stopped or must be repeated."""
        driver = walk.driver
        status, calm = await walk.reach(before)
        if source is None or move is None:
            return await self._keep(walk, source, move, before, await walk.look(), status, calm, False)
        await walk.recording.new_captures()  # drop the captures of the view where the move starts
        await self._compare(walk, source)
        answers = len(driver.traffic.answers)
        guard = await Guard.over(driver.context)
        content, steps, later = await walk.make(move, before, lambda seen: self._look(seen) == source.look)
        calm = later if calm.quiet else calm
        if guard.stopped:
            named = f"{move.kind} {describe(move.steps[-1])}"
            found = [(named, why) for why in dict.fromkeys(guard.stopped)]
            self.graph.left += [one for one in found if one not in self.graph.left]
            return None
        if walk.half_loaded(calm) and self.queue.again(source, move):
            return None
        loaded = [one.status for one in driver.traffic.answers[answers:] if one.kind == "document"]
        status = loaded[-1] if loaded and not 300 <= loaded[-1] < 400 else 0
        new = await self._keep(walk, source, move, steps, content, status, calm, bool(loaded))
        if not loaded:
            self._then_send(source, move, steps)
        return new

    def _then_send(self, source: Node, move: Move, steps: list[Step]) -> None:
        """Queue the form's submission as a move of its own after a field that changed the page."""
        done = tuple(steps[len(source.steps) :])
        key = _key([*steps, *move.then])
        if move.then and len(done) == len(move.steps) and key not in self.tried:
            self.tried.add(key)
            self.queue.add(source, Move(move.kind, (*done, *move.then), (*done, *move.then)))

    def _save(self) -> None:
        """Save the progress, spending at most a tenth of the time on it."""
        now = time.monotonic()
        if now >= self.save_at:
            self.explorer.save(self.graph.url, self.to_json())
            self.save_at = time.monotonic() + 10 * (time.monotonic() - now)

    async def _compare(self, walk: Walk, source: Node) -> None:
        """Learn which lines change by themselves, from the first revisits of a view."""
        if self.compared.get(source.address, 0) >= COMPARED:
            return
        self.compared[source.address] = self.compared.get(source.address, 0) + 1
        content = await walk.look()
        now = stable_content(content.text, content.aria)
        before = self.shown.setdefault(source.address, now)
        if self.noise.learn(before, now):
            self.graph.noise = sorted(self.noise.masks)
            nodes = [*self.graph.views, *(n for n in self.looks.values() if n not in self.graph.views)]
            for node in nodes:  # includes views that are being stored
                if node.address in self.shown:
                    node.look = self.noise.look(self.shown[node.address])
            self.looks = {node.look: node for node in reversed(nodes)}

    def _look(self, content: PageSnapshot) -> str:
        return self.noise.look(stable_content(content.text, content.aria))

    async def _keep(
        self,
        walk: Walk,
        source: Node | None,
        move: Move | None,
        steps: list[Step],
        content: PageSnapshot,
        status: int,
        calm: SettleResult,
        loaded: bool,
    ) -> bool:
        """Store the page if it is a new view, and add the edge; return True if it was new."""
        graph, driver, recording = self.graph, walk.driver, walk.recording
        if apart := skipped_reason(content.url, graph.url, _key(steps), pdf=await shows_pdf(driver.page)):
            graph.left += [apart] if apart not in graph.left else []
            return False
        look = self._look(content)
        known = self.looks.get(look)
        new = known is None
        if known is None:
            wall = examine(
                status, content.text, content.html, driver.traffic.incomplete_reason(driver.page.url)
            )
            if wall is not None:
                graph.walls.append((_key(steps), f"{wall.kind}: {wall.reason}"))
                return False
            if self.claimed >= self.limits.views:
                return False
            depth = 0 if source is None else source.depth + 1
            address = recording.address(graph.url, steps)
            known = Node(address, steps, content.title, content.url, depth, look)
            self.looks[look] = known  # set before the first await: another worker may see the same view
            self.claimed += 1
            self.shown[address] = stable_content(content.text, content.aria)
            try:
                content = await recording.redactor.with_picture(content, driver.page)
                captures = await recording.new_captures()
                await recording.store(
                    content, graph.url, steps, source.address if source else None, captures,
                    quiet=calm.quiet, reason=calm.reason, tsStatus=status, dismissed=driver.dismissed,
                    downloads=[*driver.downloads], lost=driver.traffic.lost_urls(),
                )  # fmt: skip
            except PlaywrightError:
                self.looks.pop(known.look, None)  # so that another way to the view can store it
                self.claimed -= 1
                raise
            graph.views.append(known)  # only once it is on disk: an interrupted view is found again
            self.progress(len(graph.views), address)
            await self._plan(driver, known, source)
        if source is not None and move is not None and move.href and loaded:
            self.landings.tell(source.address, move.href, known)
        if source is not None and move is not None:
            self._edge(source, known, move, steps[len(source.steps) :])
        return new

    def _edge(self, source: Node, target: Node, move: Move, steps: list[Step]) -> None:
        if target is not source:
            self.graph.edges.append(Edge(source.address, target.address, move.kind, steps))

    def _known(self, source: Node, move: Move) -> bool:
        """Return True if the target of this link is known, and add the edge to it."""
        target = self.landings.of(source.address, move.href)
        if target is None:
            return False
        self._edge(source, target, move, list(move.steps))
        self.graph.done.append(_key([*source.steps, *move.steps]))
        return True
