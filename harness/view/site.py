"""The pages of `stillweb view`: an address gives a page. The server and the exports ask for the same pages.

An address is a path and a query that say everything: it can be sent to a colleague who opens the same runs and
snapshots. Recorded texts are only ever put into templates as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from stillweb.harness.view.library import Library, NotFound, Page
from stillweb.snapshots.errors import StillwebError

_HERE = Path(__file__).parent
PART = "([^/]+)"  # pattern of one part of a path
UNREADABLE = 422  # status of a page that can't be made from its run or snapshot
# first part of an address -> module and class of its pages
_PARTS = {
    "snapshot": ("snapshot_pages", "SnapshotPages"),
    "run": ("run_pages", "RunPages"),
    **dict.fromkeys(("compare", "divergence", "snapshots"), ("comparison_pages", "ComparisonPages")),
}


class Site(Library):
    """Pages of the runs and snapshots of a library, by their addresses."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._parts: dict[str, Any] = {}
        self._compiled: dict[str, list[tuple[re.Pattern[str], Callable[..., Page]]]] = {}

    # -- addresses

    def page(self, path: str, query: Mapping[str, str] | None = None) -> Page:
        """Return the page of an address. Errors of the input become a page that says what can't be shown."""
        asked = dict(query or {})

        def make() -> Page:
            for pattern, page in self._routes(path):
                match = pattern.fullmatch(path)
                if match:
                    return page(*map(unquote, match.groups()), query=asked)
            raise NotFound(f"{path}: no page has this address. The first page lists all")

        return self._answered(make)

    def replay(self, snapshot: str, view: str) -> Page:
        return self._answered(lambda: self.part("snapshot").replay(snapshot, view))

    def make_step_page(self, name: str, attempt: str, step: str) -> Page:
        """Make the page at a step of an attempt again, keep it, and return the page on it."""
        return self._answered(lambda: self.part("run").make_page(name, attempt, step))

    def _answered(self, make: Callable[[], Page]) -> Page:
        """Return the page that `make` returns. Errors of the input become a page that says what can't be shown."""
        try:
            return make()
        except NotFound as error:
            return self._failed(404, error)
        except (StillwebError, OSError) as error:
            return self._failed(UNREADABLE, error)

    def part(self, kind: str) -> Any:
        """Return the pages on a kind of thing. Their module is imported when the first of them is asked for."""
        if kind not in self._parts:
            module, name = _PARTS[kind]
            self._parts[kind] = getattr(import_module(f"stillweb.harness.view.{module}"), name)(self)
        return self._parts[kind]

    def _routes(self, path: str) -> list[tuple[re.Pattern[str], Callable[..., Page]]]:
        """Return the routes that `path` may fit."""
        kind = path.split("/")[1] if path.startswith("/") else ""
        kind = kind if kind in _PARTS else ""
        if kind not in self._compiled:
            pages = self.part(kind) if kind else self
            self._compiled[kind] = [(re.compile(pattern), make) for pattern, make in pages.routes(PART)]
        return self._compiled[kind]

    def routes(self, one: str) -> list[tuple[str, Callable[..., Page]]]:
        """Return patterns of paths with the functions that make their pages; `one` matches a part of a path."""
        return [("/", self._home), (f"/static/{one}", self._static)]

    def _failed(self, status: int, error: Exception) -> Page:
        page = self.render("failed.html", error=str(error), title="Not shown", query={})
        return Page(page.body, page.media, status)

    def _static(self, name: str, query: Mapping[str, str]) -> Page:
        kinds = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
        path = _HERE / "static" / name
        if path.suffix[1:] not in kinds or not path.is_file() or "/" in name or "\\" in name:
            raise NotFound(f"{name}: no file of the pages")
        return Page(path.read_bytes(), kinds[path.suffix[1:]])

    def _home(self, query: Mapping[str, str]) -> Page:
        cards = []
        for name, table in self.tables.items():
            table.refresh(0.3)
            sums, owed = table.sums(""), len(table.rows)
            cards.append(
                {
                    "name": name,
                    "owed": owed,
                    "right": sums.right,
                    "wrong": sums.done - sums.right,
                    "open": owed - sums.done,
                    "reading": table.reading,
                    "snapshot": self._of_run[name],
                    "problems": table.problems,
                }
            )
        snapshots = [{"name": name, **self.shelf.brief(name)} for name in self.shelf.names]
        return self.render("home.html", title="Runs and snapshots", runs=cards, snapshots=snapshots)
