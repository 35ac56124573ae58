"""One exploration going on: from known views, by moves, to views that are new."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag

from playwright.async_api import Error as PlaywrightError

from stillweb.proxy.exploring.agenda import BROUGHT, ELSEWHERE, HERE, Agenda
from stillweb.proxy.exploring.graph import Edge, Graph, Node
from stillweb.proxy.exploring.landings import Landings, held_by
from stillweb.proxy.exploring.moves import Move, controls_of, moves, passed_by
from stillweb.proxy.exploring.noise import Noise, shown
from stillweb.proxy.exploring.politeness import Guard
from stillweb.proxy.exploring.walking import Means, Walk, walking
from stillweb.proxy.pages.failures import Failed, Unusable, first_line
from stillweb.proxy.pages.quality import examine
from stillweb.proxy.pages.sight import Sight, shows_pdf
from stillweb.proxy.pages.steps import describe
from stillweb.snapshots.view import Step
from stillweb.snapshots.words import counted

if TYPE_CHECKING:
    from stillweb.proxy.pages.acting import Driver
    from stillweb.proxy.pages.browser import BrowserHost
    from stillweb.proxy.pages.patience import Calm

COMPARED = 3  # visits of a view that are looked at to learn what changes by itself
Progress = Callable[[int, str], None]  # views so far, the newest address


def _key(steps: list[Step] | tuple[Step, ...]) -> str:
    return json.dumps(list(steps), sort_keys=True, ensure_ascii=False)


def _said(error: Failed | PlaywrightError) -> str:
    return first_line(error) if isinstance(error, PlaywrightError) else str(error)


class Exploration:
    """One exploration going on: a queue of moves to try, workers that try them, and the graph.

    What is known so far, which `to_json` gives, a later exploration takes as `known`.
    """

    def __init__(
        self,
        explorer: Means,
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
        self.shown: dict[str, str] = {}  # address -> what that view shows
        self.looks = {node.look: node for node in graph.views}
        self.tried = set(graph.done)
        self.queue = Agenda()
        self.trying: list[tuple[Node, Move]] = []
        self.busy = 0
        self.claimed = len(graph.views)  # stored, or being stored
        self.compared: dict[str, int] = {}  # address -> how often it was reached again to learn what is noise
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
        """Whether another call has nothing to add, its time aside: no time ran out."""
        return not self.graph.ended.endswith(" s")

    def to_json(self) -> dict[str, Any]:
        """The graph, and what is left to try."""
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
            self.graph.ended = counted(self.limits.views, "view")
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
        """Read the controls of a view that was found by an exploration that ended just then."""
        async with walking(self.explorer, self.host, self.graph.url) as walk:
            try:
                await walk.reach(node.steps)
                sight = await walk.look()
                self.shown[node.address] = shown(sight.text, sight.aria)
                await self._plan(walk.driver, node)
            except (Failed, PlaywrightError) as error:
                self.graph.failed.append((_key(node.steps), _said(error)))

    async def _plan(self, driver: Driver, node: Node, source: Node | None = None) -> None:
        """Queue what can be tried on the page that is open, which was reached from `source`."""
        if node.depth >= self.limits.depth:
            return
        found, left = moves(await controls_of(driver.page), self.explorer.choices)
        held = await held_by(driver)
        permitted = [move for move in found if self._new(node, move) and await self._permitted(move)]
        # from here on nothing is waited for: who is interrupted has planned a view wholly, or not at all
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
        """Whether robots.txt lets a link be followed; one that it does not is listed."""
        if not move.href or not self.limits.obey_robots or await self.explorer.manners.allowed(move.href):
            return True
        if move.href not in self.graph.robots:
            self.graph.robots.append(move.href)
        return False

    async def _visit(self, source: Node | None, move: Move | None) -> None:
        """Reach a view, make a move on it, store what that shows if it is new."""
        if source is not None and move is not None and self._known(source, move):
            return
        before = list(source.steps) if source is not None else []
        async with walking(self.explorer, self.host, self.graph.url) as walk:
            try:
                new = await self._walked(walk, source, move, before)
            except (Failed, PlaywrightError) as error:
                said = _said(error)
                waited = isinstance(error, Unusable)  # long enough
                if source is not None and move is not None and not waited and self.queue.again(source, move):
                    return
                way = _key([*before, *(move.steps if move else ())])
                self.graph.failed.append((way, said))
                if source is None:
                    self.graph.ended = said
                new = False
        if move is not None and new is not None:
            self.queue.tell(move, new=new)
            self.graph.done.append(_key([*before, *move.steps]))

    async def _walked(
        self, walk: Walk, source: Node | None, move: Move | None, before: list[Step]
    ) -> bool | None:
        """Whether a walk found what is new; None when nothing came of it: it was stopped, or is to be made again."""
        driver = walk.driver
        status, calm = await walk.reach(before)
        if source is None or move is None:
            return await self._keep(walk, source, move, before, await walk.look(), status, calm, False)
        await walk.recording.new_captures()  # those belong to the view that it starts from
        await self._compare(walk, source)
        answers = len(driver.traffic.answers)
        guard = await Guard.over(driver.context)
        sight, steps, later = await walk.make(move, before, lambda seen: self._look(seen) == source.look)
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
        new = await self._keep(walk, source, move, steps, sight, status, calm, bool(loaded))
        if not loaded:
            self._then_send(source, move, steps)
        return new

    def _then_send(self, source: Node, move: Move, steps: list[Step]) -> None:
        """A field that changed the page a little is one view, and its form sent with it another, as near."""
        done = tuple(steps[len(source.steps) :])
        key = _key([*steps, *move.then])
        if move.then and len(done) == len(move.steps) and key not in self.tried:
            self.tried.add(key)
            self.queue.add(source, Move(move.kind, (*done, *move.then), (*done, *move.then)))

    def _save(self) -> None:
        """Keep what is known so far, not more often than it costs."""
        now = time.monotonic()
        if now >= self.save_at:
            self.explorer.save(self.graph.url, self.to_json())
            self.save_at = time.monotonic() + 10 * (time.monotonic() - now)

    async def _compare(self, walk: Walk, source: Node) -> None:
        """Learn what changes by itself from a view that is reached again, the first times."""
        if self.compared.get(source.address, 0) >= COMPARED:
            return
        self.compared[source.address] = self.compared.get(source.address, 0) + 1
        sight = await walk.look()
        now = shown(sight.text, sight.aria)
        before = self.shown.setdefault(source.address, now)
        if self.noise.learn(before, now):
            self.graph.noise = sorted(self.noise.masks)
            nodes = [*self.graph.views, *(n for n in self.looks.values() if n not in self.graph.views)]
            for node in nodes:  # those being stored too
                if node.address in self.shown:
                    node.look = self.noise.look(self.shown[node.address])
            self.looks = {node.look: node for node in reversed(nodes)}

    def _look(self, sight: Sight) -> str:
        return self.noise.look(shown(sight.text, sight.aria))

    async def _keep(
        self,
        walk: Walk,
        source: Node | None,
        move: Move | None,
        steps: list[Step],
        sight: Sight,
        status: int,
        calm: Calm,
        loaded: bool,
    ) -> bool:
        """Store what is new, and draw the edge; whether it was new."""
        graph, driver, recording = self.graph, walk.driver, walk.recording
        if apart := passed_by(sight.url, graph.url, _key(steps), pdf=await shows_pdf(driver.page)):
            graph.left += [apart] if apart not in graph.left else []
            return False
        look = self._look(sight)
        known = self.looks.get(look)
        new = known is None
        if known is None:
            wall = examine(status, sight.text, sight.html, driver.traffic.broken(driver.page.url))
            if wall is not None:
                graph.walls.append((_key(steps), f"{wall.kind}: {wall.reason}"))
                return False
            if self.claimed >= self.limits.views:
                return False
            depth = 0 if source is None else source.depth + 1
            address = recording.address(graph.url, steps)
            known = Node(address, steps, sight.title, sight.url, depth, look)
            self.looks[look] = known  # before anything is waited for: the other worker may see the same
            self.claimed += 1
            self.shown[address] = shown(sight.text, sight.aria)
            try:
                sight = await recording.veil.drawn(sight, driver.page)
                captures = await recording.new_captures()
                await recording.store(
                    sight, graph.url, steps, source.address if source else None, captures,
                    quiet=calm.quiet, reason=calm.reason, tsStatus=status, dismissed=driver.dismissed,
                    downloads=driver.downloads, lost=driver.traffic.lost(),
                )  # fmt: skip
            except PlaywrightError:
                self.looks.pop(known.look, None)  # another way may lead there
                self.claimed -= 1
                raise
            graph.views.append(known)  # only what is on disk: an interrupted one is found again
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
        """Whether another way has shown where this link leads."""
        target = self.landings.of(source.address, move.href)
        if target is None:
            return False
        self._edge(source, target, move, list(move.steps))
        self.graph.done.append(_key([*source.steps, *move.steps]))
        return True
