"""The pages of `stillweb view`: an address gives a page. The server and the exports ask for the same pages.

An address is a path and a query that say everything: it can be sent to a colleague who opens the same runs and
snapshots. Recorded texts are only ever put into templates as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from stillweb.harness.view.library import Library, NotFound, Page
from stillweb.snapshots.errors import StillwebError

if TYPE_CHECKING:
    from stillweb.harness.view.run_pages import RunPages
    from stillweb.harness.view.snapshot_pages import SnapshotPages

_HERE = Path(__file__).parent
PART = "([^/]+)"  # pattern of one part of a path
UNREADABLE = 422  # status of a page that can't be made from its run or snapshot


class Site(Library):
    """Pages of the runs and snapshots of a library, by their addresses."""

    # -- addresses

    def page(self, path: str, query: Mapping[str, str] | None = None) -> Page:
        """Return the page of an address. Errors of the input become a page that says what can't be shown."""
        asked = dict(query or {})
        try:
            for pattern, make in self._routes(path):
                match = pattern.fullmatch(path)
                if match:
                    return make(*map(unquote, match.groups()), query=asked)
            raise NotFound(f"{path}: no page has this address. The first page lists all")
        except NotFound as error:
            return self._failed(404, error)
        except (StillwebError, OSError) as error:
            return self._failed(UNREADABLE, error)

    def replay(self, snapshot: str, view: str) -> Page:
        try:
            return self._snapshot_pages.replay(snapshot, view)
        except (StillwebError, OSError) as error:
            return self._failed(404 if isinstance(error, NotFound) else UNREADABLE, error)

    def make_step_page(self, name: str, attempt: str, step: str) -> Page:
        """Make the page at a step of an attempt again, keep it, and return the page on it."""
        try:
            return self.run_pages.make_page(name, attempt, step)
        except (StillwebError, OSError) as error:
            return self._failed(404 if isinstance(error, NotFound) else UNREADABLE, error)

    def _routes(self, path: str) -> list[tuple[re.Pattern[str], Callable[..., Page]]]:
        """Return the routes that `path` may fit. Pages on other things are imported when one is first asked for."""
        kind = path.split("/")[1] if path.startswith("/") else ""
        if kind == "snapshot":
            return self._snapshot_routes
        if kind == "run":
            return self._run_routes
        return self._comparison_routes if kind in ("compare", "divergence", "snapshots") else self._own_routes

    @cached_property
    def _snapshot_pages(self) -> SnapshotPages:
        from stillweb.harness.view.snapshot_pages import SnapshotPages

        return SnapshotPages(self)

    @cached_property
    def _snapshot_routes(self) -> list[tuple[re.Pattern[str], Callable[..., Page]]]:
        return _compiled(self._snapshot_pages.routes(PART))

    @cached_property
    def _comparison_routes(self) -> list[tuple[re.Pattern[str], Callable[..., Page]]]:
        from stillweb.harness.view.comparison_pages import ComparisonPages

        return _compiled(ComparisonPages(self).routes(PART))

    @cached_property
    def run_pages(self) -> RunPages:
        from stillweb.harness.view.run_pages import RunPages

        return RunPages(self)

    @cached_property
    def _run_routes(self) -> list[tuple[re.Pattern[str], Callable[..., Page]]]:
        return _compiled(self.run_pages.routes(PART))

    @cached_property
    def _own_routes(self) -> list[tuple[re.Pattern[str], Callable[..., Page]]]:
        return _compiled([("/", self._home), (f"/static/{PART}", self._static)])

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


def _compiled(
    routes: Sequence[tuple[str, Callable[..., Page]]],
) -> list[tuple[re.Pattern[str], Callable[..., Page]]]:
    return [(re.compile(pattern), make) for pattern, make in routes]
