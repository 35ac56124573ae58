"""Finding the states of a page: breadth first over all that can be operated, each state stored once.

Each state is reached in a fresh context by its own steps, so that every view is named by a way that works from
nothing. What was found is kept in `explore.json` beside the archive while it goes on, and in the snapshot when done.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillweb.proxy.exploring.exploration import Exploration, Progress
from stillweb.proxy.exploring.graph import Graph, graph_uri
from stillweb.proxy.exploring.moves import Choices
from stillweb.proxy.exploring.politeness import Limits as Limits  # part of this module's face
from stillweb.proxy.exploring.politeness import Manners
from stillweb.proxy.pages.browser import BrowserHost
from stillweb.proxy.pages.patience import Patience
from stillweb.proxy.pages.running import run
from stillweb.proxy.pages.storing import Records
from stillweb.proxy.pages.veil import Veil
from stillweb.proxy.pages.visitor import Visitor
from stillweb.snapshots.profile import Profile

if TYPE_CHECKING:
    from stillweb.snapshots.writer import Writer

STATE_FILE = "explore.json"


class Explorer(Visitor):
    """Explores URLs through a recorder, into a writer. `host` shares a running browser."""

    def __init__(
        self,
        recorder: Records,
        writer: Writer,
        profile: Profile | None = None,
        *,
        host: BrowserHost | None = None,
        limits: Limits | None = None,
        choices: Choices | None = None,
        patience: Patience | None = None,
        prefix: str = "explore",
    ) -> None:
        super().__init__(recorder, writer, profile, host, patience, f"{prefix}-{os.getpid()}")
        self.limits = limits or Limits()
        self.choices = replace(choices or Choices(), clock=self.profile.clock)
        self.manners = Manners(recorder, self.profile, self.limits.delay, prefix)

    def explore(self, url: str, progress: Progress | None = None) -> Graph:
        """Explore one URL; goes on where one stopped that was interrupted or ran out of time. Raises what ends all (no browser, full disk)."""
        return run(self.explore_url(url, progress))

    async def explore_url(self, url: str, progress: Progress | None = None) -> Graph:
        """As `explore`, in a running event loop."""
        known = self._load(url)
        graph = Graph.from_json(known | {"url": url}) if known else Graph(url)
        async with self.browser() as host:
            under_way = Exploration(self, host, graph, progress or (lambda count, address: None), known)
            try:
                await under_way.go()
            finally:
                self.save(url, under_way.to_json())
        veil = Veil(self.recorder.redactor)
        await asyncio.to_thread(
            self.writer.metadata, graph_uri(veil.text(url)), veil.json(graph.whole().to_json())
        )
        if under_way.finished:
            self._path(url).unlink(missing_ok=True)
        return graph

    # ---- where it stopped

    def _path(self, url: str) -> Path:
        public = Veil(self.recorder.redactor).text(url)
        name = re.sub(r"[^\w.-]+", "_", public)[:64]
        # other addresses are spelt much alike
        own = hashlib.sha256(public.encode(errors="surrogatepass")).hexdigest()[:12]
        return Path(self.writer.path) / f"{name}.{own}.{STATE_FILE}"

    def _load(self, url: str) -> dict[str, Any]:
        try:
            known = json.loads(self._path(url).read_text(encoding="utf-8"))
            Graph.from_json(known)
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return {}  # nothing there, or cut off in writing: begin anew
        return dict(known)

    def save(self, url: str, known: dict[str, Any]) -> None:
        """Keep what an exploration knows. A way that names a secret is lost to it."""
        path = self._path(url)
        part = path.with_suffix(".part")
        kept = Veil(self.recorder.redactor).json(known)
        part.write_text(json.dumps(kept, ensure_ascii=False), encoding="utf-8")
        os.replace(part, path)
