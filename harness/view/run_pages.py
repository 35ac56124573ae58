"""Pages on runs: the table, attempts, pages at a step, figures and reviews."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from stillweb.harness.review.reviews import CLASSES, COMPOSITION, agreement_on, hints_of, latest_reviews
from stillweb.harness.trace import Trace
from stillweb.harness.view.library import Library, NotFound, Page
from stillweb.harness.view.run_table import DAMAGED, FILTERS, PAGE, SORTS, RunTable
from stillweb.snapshots.errors import StillwebError
from stillweb.snapshots.words import whole_number

if TYPE_CHECKING:
    from stillweb.harness.view.figures import Figures
    from stillweb.harness.view.sheet import AttemptReport
    from stillweb.snapshots.snapshot import Snapshot

MARKED = 60  # most characters of a value that is marked in a step's result


class RunPages:
    def __init__(self, site: Library) -> None:
        self._site = site

    def routes(self, one: str) -> list[tuple[str, Callable[..., Page]]]:
        """Return patterns of paths with the functions that make their pages; `one` matches a part of a path."""
        base = f"/run/{one}"
        return [
            (base, self.run),
            (f"{base}/attempt/{one}", self.attempt),
            (f"{base}/attempt/{one}/page/([0-9]+)", self.step_page),
            (f"{base}/attempt/{one}/shot/([0-9]+)", self.step_shot),
            (f"{base}/agreement", self.agreement),
            (f"{base}/figures", self.figures),
        ]

    def run(self, name: str, query: Mapping[str, str]) -> Page:
        table = self._site.table(name)
        table.refresh(0.15)
        asked = {key: query.get(key, "") for key in ("show", "q", "sort", "metric", "by", "k")}
        rows = table.select(asked["show"], asked["q"], asked["sort"], asked["metric"])
        k = whole_number(asked["k"]) or max(1, min(table.epochs, 8))
        by_task = asked["by"] != "attempt"
        page = whole_number(query.get("page", "1")) or 1
        size = len(rows) or 1 if self._site.linker.static else PAGE
        every: Sequence[Any] = list(dict.fromkeys(row.task for row in rows)) if by_task else rows
        pages = max(1, -(-len(every) // size))
        page = max(1, min(page, pages))
        part = every[(page - 1) * size : page * size]
        groups = table.groups(part, asked["metric"], k) if by_task else []
        return self._site.render(
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
            snapshot=self._site.snapshot_of(name),
        )

    def attempt(
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

        table = self._site.table(name)
        trace, why = self._site.read(name, attempt)
        row = table.find(attempt)
        sheet = sheet_of(trace) if trace else None
        asked = {key: query.get(key, "") for key in ("show", "q", "sort", "metric", "by", "k")}
        before, after = self._beside(table, attempt, asked)
        snapshot = self._site.snapshot_of(name)
        hints = hints_of(trace) if trace and not why else []
        other = self._other_snapshot(snapshot, trace)
        places = {} if other else self._places(snapshot, sheet)
        return self._site.render(
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
            pages=set() if other or not snapshot or self._site.linker.static else _with_pages(trace),
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

        trace, why = self._site.read(name, attempt)
        n = int(step)
        if trace is None or not any(event["n"] == n and has_page(event) for event in trace.of("tool_call")):
            raise NotFound(f"{attempt}: step {step} shows no page{f' ({why})' if why else ''}")
        snapshot = self._site.shelf.get(self._site.snapshot_of(name))
        if snapshot is None:
            raise NotFound(f"{name}: the run has no snapshot, so no page of it can be made again")
        if other := self._other_snapshot(self._site.snapshot_of(name), trace):
            raise NotFound(f"{name}: {other}")
        return trace, snapshot, key_of(trace, snapshot, n)

    def make_page(self, name: str, attempt: str, step: str) -> Page:
        """Make the page at a step of an attempt again, keep it, and return the page on it."""
        from stillweb.harness.view.step_page import make_page

        trace, snapshot, key = self._step(name, attempt, step)
        with self._site.browsing:
            make_page(self._site.table(name).files, snapshot, trace, int(step), key)
        return self.step_page(name, attempt, step, {})

    def step_page(self, name: str, attempt: str, step: str, query: Mapping[str, str]) -> Page:
        from stillweb.harness.view.snapshot_pages import word_changes
        from stillweb.harness.view.step_page import by_browser, has_page, kept_page

        trace, _, key = self._step(name, attempt, step)
        steps = [event["n"] for event in trace.of("tool_call") if has_page(event)]
        at = steps.index(int(step))
        event = next(event for event in trace.events if event["n"] == int(step))
        page = kept_page(key)
        return self._site.render(
            "step_page.html",
            title=f"Page at step {step}",
            name=name,
            attempt=attempt,
            step=step,
            event=event,
            page=page,
            words=word_changes(event["output"]["text"], page.text) if page and not by_browser(event) else [],
            before=steps[at - 1] if at else 0,
            after=steps[at + 1] if at + 1 < len(steps) else 0,
            frame=self._site.frames.step_address(self._site.snapshot_of(name), key)
            if self._site.frames
            else "",
        )

    def step_shot(self, name: str, attempt: str, step: str, query: Mapping[str, str]) -> Page:
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
            snapshot = self._site.shelf.get(name)
        except (StillwebError, OSError) as error:
            return f"The snapshot can't be opened, so no page is linked: {error}"
        then = trace.header.get("snapshot") if trace else None
        if snapshot is not None and then and snapshot.id != then:
            return "The snapshot is not the one of the run any more, so no page is linked."
        return ""

    def _places(self, snapshot: str, sheet: AttemptReport | None) -> dict[int, str]:
        """Map steps to the addresses of the pages that they saw."""
        if not snapshot or sheet is None:
            return {}
        found = {}
        for step in sheet.steps:
            if step["kind"] == "tool":
                place = self._site.shelf.page_of(snapshot, step["view"], step["address"], step["captures"])
                if place and (place.startswith("view/") or not self._site.linker.embedded):
                    found[step["n"]] = f"/snapshot/{quote(snapshot, safe='')}/{place}"
        return found

    def figures(self, name: str, query: Mapping[str, str]) -> Page:
        from stillweb.harness.view.figures import figures_of

        table = self._site.table(name)
        table.refresh(0.1)
        figures: Figures | None = None
        why = ""
        try:
            figures = self._site.soon(("figures", name, table.version), partial(figures_of, table.path))
        except (StillwebError, OSError) as error:
            why = str(error)
        return self._site.render(
            "figures.html", title=f"Figures of {name}", name=name, figures=figures, why=why
        )

    def agreement(self, name: str, query: Mapping[str, str]) -> Page:
        table = self._site.table(name)
        table.refresh(None)
        rows = table.rows
        names = {f"{row.task}/{row.epoch}": row.name for row in rows}
        why = next((row.problem for row in rows if row.status == DAMAGED), "")
        pairs = [] if why else agreement_on({f"{row.task}/{row.epoch}": row.reviews for row in rows})
        counts: dict[str, int] = dict.fromkeys(CLASSES, 0)
        for row in rows:
            for given in row.reviews.values():
                counts[given] = counts.get(given, 0) + 1
        return self._site.render(
            "agreement.html",
            title=f"Reviews of {name}",
            name=name,
            pairs=pairs,
            why=why,
            names=names,
            counts=counts,
            classes=CLASSES,
        )


def _with_pages(trace: Trace | None) -> set[int]:
    """Return the steps whose page can be made again."""
    from stillweb.harness.view.step_page import has_page

    return {event["n"] for event in trace.of("tool_call") if has_page(event)} if trace else set()


def _sought(sheet: AttemptReport | None) -> dict[int, list[str]]:
    """Map steps to the values of the answer that were seen there, to mark them in the step's result."""
    found: dict[int, list[str]] = {}
    for row in sheet.table if sheet else ():
        for cell in row["cells"]:
            for step, value in ((cell["seen"], cell["value"]), (cell["reference_seen"], cell["reference"])):
                if step is not None and value and len(str(value)) <= MARKED:
                    found.setdefault(step, []).append(str(value))
    return found
