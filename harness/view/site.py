"""The pages of `stillweb view`: an address gives a page. The server and the exports ask for the same pages.

An address is a path and a query that say everything: it can be sent to a colleague who opens the same runs and
snapshots. Recorded texts are only ever put into templates as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from stillweb.harness.review.reviews import CLASSES, COMPOSITION, agreement_on, hints_of, latest_reviews
from stillweb.harness.trace import Trace
from stillweb.harness.view.library import Library, NotFound, Page
from stillweb.harness.view.run_table import DAMAGED, FILTERS, PAGE, SORTS, RunTable
from stillweb.snapshots.errors import StillwebError
from stillweb.snapshots.words import whole_number

if TYPE_CHECKING:
    from stillweb.harness.view.figures import Figures
    from stillweb.harness.view.sheet import Sheet
    from stillweb.harness.view.snapshot_pages import SnapshotPages
    from stillweb.snapshots.snapshot import Snapshot

_HERE = Path(__file__).parent
PART = "([^/]+)"  # pattern of one part of a path
MARKED = 60  # most characters of a value that is marked in a step's result


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
            return self._failed(500, error)

    def replay(self, snapshot: str, view: str) -> Page:
        """Replay a view in a browser, and return the page on it."""
        try:
            return self._snapshot_pages.replay(snapshot, view)
        except (StillwebError, OSError) as error:
            return self._failed(404 if isinstance(error, NotFound) else 500, error)

    def make_step_page(self, name: str, attempt: str, step: str) -> Page:
        """Make the page at a step of an attempt again, keep it, and return the page on it."""
        from stillweb.harness.view.step_page import make_page

        try:
            trace, snapshot, key = self._step(name, attempt, step)
            with self.browsing:
                make_page(self.table(name).files, snapshot, trace, int(step), key)
            return self._step_page(name, attempt, step, {})
        except (StillwebError, OSError) as error:
            return self._failed(404 if isinstance(error, NotFound) else 500, error)

    def _routes(self, path: str) -> list[tuple[re.Pattern[str], Callable[..., Page]]]:
        """Return the routes that `path` may fit. Pages on other things are imported when one is first asked for."""
        kind = path.split("/")[1] if path.startswith("/") else ""
        if kind == "snapshot":
            return self._snapshot_routes
        return self._comparison_routes if kind in ("compare", "divergence", "snapshots") else self._run_routes

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
    def _run_routes(self) -> list[tuple[re.Pattern[str], Callable[..., Page]]]:
        return _compiled(
            [
                ("/", self._home),
                (f"/run/{PART}", self._run),
                (f"/run/{PART}/attempt/{PART}", self._attempt),
                (f"/run/{PART}/attempt/{PART}/page/([0-9]+)", self._step_page),
                (f"/run/{PART}/attempt/{PART}/shot/([0-9]+)", self._step_shot),
                (f"/run/{PART}/agreement", self._agreement),
                (f"/run/{PART}/figures", self._figures),
                (f"/static/{PART}", self._static),
            ]
        )

    def _failed(self, status: int, error: Exception) -> Page:
        page = self.render("failed.html", error=str(error), title="Not shown", query={})
        return Page(page.body, page.media, status)

    def _static(self, name: str, query: Mapping[str, str]) -> Page:
        kinds = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
        path = _HERE / "static" / name
        if path.suffix[1:] not in kinds or not path.is_file() or "/" in name or "\\" in name:
            raise NotFound(f"{name}: no file of the pages")
        return Page(path.read_bytes(), kinds[path.suffix[1:]])

    # -- runs

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

    def _run(self, name: str, query: Mapping[str, str]) -> Page:
        table = self.table(name)
        table.refresh(0.15)
        asked = {key: query.get(key, "") for key in ("show", "q", "sort", "metric", "by", "k")}
        rows = table.select(asked["show"], asked["q"], asked["sort"], asked["metric"])
        k = whole_number(asked["k"]) or max(1, min(table.epochs, 8))
        by_task = asked["by"] != "attempt"
        page = whole_number(query.get("page", "1")) or 1
        size = len(rows) or 1 if self.linker.static else PAGE
        every: Sequence[Any] = list(dict.fromkeys(row.task for row in rows)) if by_task else rows
        pages = max(1, -(-len(every) // size))
        page = max(1, min(page, pages))
        part = every[(page - 1) * size : page * size]
        groups = table.groups(part, asked["metric"], k) if by_task else []
        return self.render(
            "run.html",
            title=name,
            name=name,
            table=table,
            asked=asked,
            k=k,
            by_task=by_task,
            groups=groups,
            rows=[] if by_task else part,
            number=page,
            pages=pages,
            found=len(every),
            matching=len(rows),
            owed=len(table.rows),
            sums=table.sums(asked["metric"]),
            filters=FILTERS,
            sorts=list(SORTS),
            classes=CLASSES,
            snapshot=self._of_run[name],
        )

    def _attempt(self, name: str, attempt: str, query: Mapping[str, str]) -> Page:
        return self.attempt_page(name, attempt, query)

    def attempt_page(
        self,
        name: str,
        attempt: str,
        query: Mapping[str, str],
        *,
        problem: str = "",
        filled: Mapping[str, str] | None = None,
    ) -> Page:
        """Return an attempt's page; `problem` and `filled` are those of a review that was not accepted."""
        from stillweb.harness.view.sheet import sheet_of

        table = self.table(name)
        trace, why = self.read(name, attempt)
        row = table.find(attempt)
        sheet = sheet_of(trace) if trace else None
        asked = {key: query.get(key, "") for key in ("show", "q", "sort", "metric", "by", "k")}
        before, after = self._beside(table, attempt, asked)
        snapshot = self._of_run[name]
        hints = hints_of(trace) if trace and not why else []
        other = self._other_snapshot(snapshot, trace)
        places = {} if other else self._places(snapshot, sheet)
        return self.render(
            "attempt.html",
            title=attempt,
            name=name,
            attempt=attempt,
            sheet=sheet,
            row=row,
            why=why,
            asked=asked,
            before=before,
            after=after,
            snapshot=snapshot,
            places=places,
            pages=set() if other or not snapshot or self.linker.static else _with_pages(trace),
            other=other,
            sought=_sought(sheet),
            hints=hints,
            open=any(hint.upstream for hint in hints),
            reviews=list(latest_reviews(trace).values()) if trace else [],
            classes=CLASSES,
            composition=COMPOSITION,
            last=len(trace.events) if trace else 0,
            problem=problem,
            filled=filled or {},
            mark=sha256(str(table.path.resolve()).encode(errors="surrogatepass")).hexdigest()[:16],
        )

    def _step(self, name: str, attempt: str, step: str) -> tuple[Trace, Snapshot, str]:
        """Return an attempt's trace, its snapshot, and the key of the page at a step. Raise NotFound."""
        from stillweb.harness.view.step_page import has_page, key_of

        trace, why = self.read(name, attempt)
        n = int(step)
        if trace is None or not any(event["n"] == n and has_page(event) for event in trace.of("tool_call")):
            raise NotFound(f"{attempt}: step {step} shows no page{f' ({why})' if why else ''}")
        snapshot = self.shelf.get(self._of_run[name])
        if snapshot is None:
            raise NotFound(f"{name}: the run has no snapshot, so no page of it can be made again")
        if other := self._other_snapshot(self._of_run[name], trace):
            raise NotFound(f"{name}: {other}")
        return trace, snapshot, key_of(trace, snapshot, n)

    def _step_page(self, name: str, attempt: str, step: str, query: Mapping[str, str]) -> Page:
        from stillweb.harness.view.step_page import has_page, kept_page

        trace, _, key = self._step(name, attempt, step)
        steps = [event["n"] for event in trace.of("tool_call") if has_page(event)]
        at = steps.index(int(step))
        event = next(event for event in trace.events if event["n"] == int(step))
        return self.render(
            "step_page.html",
            title=f"Page at step {step}",
            name=name,
            attempt=attempt,
            step=step,
            event=event,
            page=kept_page(key),
            before=steps[at - 1] if at else 0,
            after=steps[at + 1] if at + 1 < len(steps) else 0,
            frame=self.frames.step_address(self._of_run[name], key) if self.frames else "",
        )

    def _step_shot(self, name: str, attempt: str, step: str, query: Mapping[str, str]) -> Page:
        from stillweb.harness.view.step_page import kept_page

        page = kept_page(self._step(name, attempt, step)[2])
        if page is None or not page.picture:
            raise NotFound(f"{attempt}: no picture of step {step} is kept")
        return Page(page.picture, "image/png")

    def _beside(self, table: RunTable, attempt: str, asked: Mapping[str, str]) -> tuple[str, str]:
        """Return the names of the attempts before and after, in the order that the table was shown in."""
        rows = table.select(asked["show"], asked["q"], asked["sort"], asked["metric"])
        names = [row.name for row in rows]
        try:
            at = names.index(attempt)
        except ValueError:  # the table, filtered so, does not show it
            return "", ""
        return (names[at - 1] if at else ""), (names[at + 1] if at + 1 < len(names) else "")

    def _other_snapshot(self, name: str, trace: Trace | None) -> str:
        """Return why the snapshot shows no page of an attempt; "" if it is the one that the attempt ran on."""
        try:
            snapshot = self.shelf.get(name)
        except (StillwebError, OSError) as error:
            return f"The snapshot can't be opened, so no page is linked: {error}"
        then = trace.header.get("snapshot") if trace else None
        if snapshot is not None and then and snapshot.id != then:
            return "The snapshot is not the one of the run any more, so no page is linked."
        return ""

    def _places(self, snapshot: str, sheet: Sheet | None) -> dict[int, str]:
        """Map steps to the addresses of the pages that they saw."""
        if not snapshot or sheet is None:
            return {}
        found = {}
        for step in sheet.steps:
            if step["kind"] == "tool":
                place = self.shelf.page_of(snapshot, step["view"], step["address"], step["captures"])
                if place and (place.startswith("view/") or not self.linker.embedded):
                    found[step["n"]] = f"/snapshot/{quote(snapshot, safe='')}/{place}"
        return found

    def _figures(self, name: str, query: Mapping[str, str]) -> Page:
        table = self.table(name)
        table.refresh(0.1)
        figures: Figures | None = None
        why = ""
        try:
            figures = self.figures(name)
        except (StillwebError, OSError) as error:
            why = str(error)
        return self.render("figures.html", title=f"Figures of {name}", name=name, figures=figures, why=why)

    def figures(self, name: str) -> Figures | None:
        """Return the figures of a run, or None while its traces are being read. Raise DamagedInput."""
        from stillweb.harness.view.figures import figures_of

        table = self.table(name)
        found: Figures | None = self.soon(("figures", name, table.version), partial(figures_of, table.path))
        return found

    def _agreement(self, name: str, query: Mapping[str, str]) -> Page:
        table = self.table(name)
        table.refresh(None)
        rows = table.rows
        names = {f"{row.task}/{row.epoch}": row.name for row in rows}
        why = next((row.problem for row in rows if row.status == DAMAGED), "")
        pairs = [] if why else agreement_on({f"{row.task}/{row.epoch}": row.reviews for row in rows})
        counts: dict[str, int] = dict.fromkeys(CLASSES, 0)
        for row in rows:
            for given in row.reviews.values():
                counts[given] = counts.get(given, 0) + 1
        return self.render(
            "agreement.html",
            title=f"Reviews of {name}",
            name=name,
            pairs=pairs,
            why=why,
            names=names,
            counts=counts,
            classes=CLASSES,
        )


def _compiled(
    routes: Sequence[tuple[str, Callable[..., Page]]],
) -> list[tuple[re.Pattern[str], Callable[..., Page]]]:
    return [(re.compile(pattern), make) for pattern, make in routes]


def _with_pages(trace: Trace | None) -> set[int]:
    """Return the steps whose page can be made again."""
    from stillweb.harness.view.step_page import has_page

    return {event["n"] for event in trace.of("tool_call") if has_page(event)} if trace else set()


def _sought(sheet: Sheet | None) -> dict[int, list[str]]:
    """Map steps to the values of the answer that were seen there, to mark them in the step's result."""
    found: dict[int, list[str]] = {}
    for row in sheet.table if sheet else ():
        for cell in row["cells"]:
            for step, value in ((cell["seen"], cell["value"]), (cell["reference_seen"], cell["reference"])):
                if step is not None and value and len(str(value)) <= MARKED:
                    found.setdefault(step, []).append(str(value))
    return found
