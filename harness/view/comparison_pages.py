"""Pages on differences: runs beside each other, the first divergence of two attempts, and two snapshots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import fsum
from typing import Any
from urllib.parse import quote

from stillweb.harness.compare.compare import (
    UNJUDGED,
    Comparison,
    RunComparison,
    changed_questions,
    compare_groups,
    differences,
    first_divergence,
    no_evidence,
    parts_of,
    parts_of_sets,
)
from stillweb.harness.trace import Trace, canonical
from stillweb.harness.view.library import Library, NotFound, Page
from stillweb.harness.view.run_table import PAGE, Row, RunTable, telling, values_of
from stillweb.harness.view.sheet import AttemptReport, sheet_of
from stillweb.snapshots.errors import StillwebError, UsageError
from stillweb.snapshots.operations.diff import Diff, diff
from stillweb.snapshots.words import whole_number

MOST_PIECES = 2000  # characters of a result shown on each side of a divergence


@dataclass(frozen=True, slots=True)
class TaskLine:
    """Line of the table of tasks × runs: attempts and mean of each run, and the difference to the first run."""

    task: str
    rows: list[list[Row]]
    means: list[float | None]
    deltas: list[float | None]

    @property
    def change(self) -> float:
        """Largest difference to the first run."""
        return max((abs(delta) for delta in self.deltas if delta is not None), default=0.0)


class ComparisonPages:
    def __init__(self, library: Library) -> None:
        self._library = library

    def routes(self, one: str) -> list[tuple[str, Callable[..., Page]]]:
        """Return patterns of paths with the functions that make their pages; `one` matches a part of a path."""
        return [
            ("/compare", self.runs),
            (f"/divergence/{one}/{one}/{one}/{one}", self.divergence),
            (f"/snapshots/{one}/{one}", self.snapshots),
        ]

    # -- runs

    def runs(self, query: Mapping[str, str]) -> Page:
        names = [name for name in query.get("run", "").split(",") if name] or list(self._library.tables)
        tables = [self._library.table(name) for name in names]
        for table in tables:
            table.refresh(0.1)
        metric, show = query.get("metric", ""), query.get("show", "changed")
        lines = _lines(tables, metric)
        shown = [line for line in lines if show == "all" or _fits(line, show)]
        if show != "all":
            shown.sort(key=lambda line: (-line.change, line.task))
        size = len(shown) or 1 if self._library.linker.static else PAGE
        pages = max(1, -(-len(shown) // size))
        number = max(1, min(whole_number(query.get("page", "1")) or 1, pages))
        against = [
            self._library.soon(
                (names[0], name, metric, tables[0].version, table.version),
                partial(_against, tables[0], table, metric),
            )
            for name, table in zip(names[1:], tables[1:], strict=True)
        ]
        return self._library.render(
            "compare.html",
            title="Compare " + ", ".join(names),
            names=names,
            every=list(self._library.tables),
            metric=metric,
            metrics=list(dict.fromkeys(one for table in tables for one in table.metrics)),
            show=show,
            lines=shown[(number - 1) * size : number * size],
            found=len(shown),
            tasks=len(lines),
            number=number,
            pages=pages,
            against=list(zip(names[1:], against, strict=True)),
            waiting=any(one is None for one in against) or any(table.reading for table in tables),
            pairs=_snapshot_pairs(self._library, names),
            divergence=_divergence_path,
        )

    # -- attempts

    def divergence(self, run_a: str, a: str, run_b: str, b: str, query: Mapping[str, str]) -> Page:
        sides: list[dict[str, Any]] = []
        for run, attempt in ((run_a, a), (run_b, b)):
            trace, why = self._library.read(run, attempt)
            sheet = sheet_of(trace) if trace else None
            sides.append({"run": run, "attempt": attempt, "trace": trace, "why": why, "sheet": sheet})
        traces = [side["trace"] for side in sides]
        at, how = first_divergence(traces[0], traces[1]) if all(traces) else (0, "an attempt can't be read")
        for side in sides:
            calls = side["trace"].of("tool_call") if side["trace"] else []
            event = calls[at] if at < len(calls) else None
            side["before"] = [_brief(call) for call in calls[:at]]
            side["step"] = _step(side["sheet"], event)
            side["said"] = _said(side["trace"], event)
            side["place"] = self._place(side["run"], event)
        return self._library.render(
            "divergence.html",
            title=f"{run_a}/{a} and {run_b}/{b}",
            sides=sides,
            at=at,
            how=how,
            pieces=_pieces(*(side["step"]["text"] if side["step"] else "" for side in sides)),
        )

    def _place(self, run: str, event: Mapping[str, Any] | None) -> tuple[str, str]:
        """Return the address of the page that a call saw and that of its screenshot; "" where there is none."""
        snapshot = self._library.snapshot_of(run)
        if not snapshot or event is None:
            return "", ""
        part = self._library.shelf.page_of(
            snapshot, event.get("view"), event.get("address"), event["captures"]
        )
        base = f"/snapshot/{quote(snapshot, safe='')}/"
        shot = f"{base}shot/{part.removeprefix('view/')}" if part.startswith("view/") else ""
        return (base + part if part else ""), shot

    # -- snapshots

    def snapshots(self, a: str, b: str, query: Mapping[str, str]) -> Page:
        old, new = self._library.shelf.get(a), self._library.shelf.get(b)
        if old is None or new is None:
            raise NotFound(f"{a if old is None else b}: no snapshot of this name is open")
        found: Diff | None = self._library.soon(("diff", a, b), lambda: diff(old, new))
        touched: list[tuple[str, Any]] = []
        if found is not None:
            from stillweb.harness.curation.affected import affected_by_run

            for run, table in self._library.tables.items():
                if self._library.snapshot_of(run) == a:
                    key = ("touched", run, table.version, a, b)
                    affected = self._library.soon(key, partial(affected_by_run, table.path, found))
                    touched.append((run, affected))
        views = []
        for change in found.views if found else ():
            before, after = old.view(change.address), new.view(change.now or change.address)
            views.append(
                {
                    "change": change,
                    "before": before.id if before and old.resource("view", before.address) else "",
                    "after": after.id if after and new.resource("view", after.address) else "",
                }
            )
        return self._library.render(
            "snapshots.html", title=f"{a} and {b}", a=a, b=b, diff=found, views=views, touched=touched
        )


def _lines(tables: Sequence[RunTable], metric: str) -> list[TaskLine]:
    found: dict[str, list[list[Row]]] = {}
    for number, table in enumerate(tables):
        for row in table.rows:
            found.setdefault(row.task, [[] for _ in tables])[number].append(row)
    lines = []
    for task, rows in found.items():
        means = [_mean(one, metric) for one in rows]
        first = means[0]
        deltas = [None if first is None or mean is None else mean - first for mean in means]
        lines.append(TaskLine(task, rows, means, deltas))
    return lines


def _mean(rows: Sequence[Row], metric: str) -> float | None:
    """Return a task's mean as the comparison takes it: None if an attempt says nothing about its agent.

    Attempts whose judge failed are left out.
    """
    reasons = {no_evidence(row.outcome, metric or row.metric) for row in rows}
    values = [] if reasons - {"", UNJUDGED} else values_of(rows, metric)
    return fsum(values) / len(values) if values else None


def _fits(line: TaskLine, show: str) -> bool:
    deltas = [delta for delta in line.deltas[1:] if delta is not None]
    if show == "worse":
        return any(delta < 0 for delta in deltas)
    if show == "better":
        return any(delta > 0 for delta in deltas)
    return any(deltas) or any(mean is None for mean in line.means)


def _against(first: RunTable, table: RunTable, metric: str) -> RunComparison:
    """Compare a run with the first; its `reasons` and `remarks` also say what of them can't be compared or read."""
    a, b = ([row.outcome for row in one.rows] for one in (first, table))
    comparisons: tuple[Comparison, ...] = ()
    try:
        comparisons, reasons = compare_groups(parts_of(a, b, metric or None))
    except UsageError as error:
        reasons = (error,)
    try:
        differs = differences(first.path, table.path)
        remarks = (*parts_of_sets(first.path, table.path), *changed_questions(first.path, table.path))
    except (StillwebError, OSError) as error:
        differs, remarks = {}, (f"the inputs of the runs can't be read: {error}",)
    return RunComparison(metric, comparisons, True, tuple(map(str, reasons)), differs, remarks)


def _divergence_path(names: Sequence[str], line: TaskLine, number: int) -> str:
    """Return the address of the divergence of the first run's best attempt and the other's worst (or best) one."""
    first, other = line.rows[0], line.rows[number]
    if not first or not other:
        return ""
    first, other = (telling(rows, "") or rows for rows in (first, other))

    def rank(row: Row) -> float:
        return -1.0 if row.score is None else row.score

    fell = (line.deltas[number] or 0) <= 0
    one, two = (
        (max(first, key=rank), min(other, key=rank)) if fell else (min(first, key=rank), max(other, key=rank))
    )
    parts = (names[0], one.name, names[number], two.name)
    return "/divergence/" + "/".join(quote(part, safe="") for part in parts)


def _brief(call: Mapping[str, Any]) -> str:
    text = canonical(call["arguments"]).decode()
    return f"{call['tool']} {text if len(text) <= 200 else text[:200] + '…'}"


def _step(sheet: AttemptReport | None, event: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if sheet is None or event is None:
        return None
    return next((step for step in sheet.steps if step["n"] == event["n"]), None)


def _said(trace: Trace | None, event: Mapping[str, Any] | None) -> str:
    """Return what the model wrote last before a call, or before the answer."""
    if trace is None:
        return ""
    last = event["n"] if event is not None else len(trace.events) + 1
    for one in reversed(trace.of("model")):
        if one["n"] < last and one["purpose"] == "agent":
            return str(one["reply"].get("reasoning") or one["reply"]["text"] or "")
    return ""


def _pieces(one: str, two: str) -> list[list[tuple[str, bool]]]:
    """Return both results from where they begin to differ, each in pieces that say if the other side has them."""
    common = 0
    for left, right in zip(one, two, strict=False):
        if left != right:
            break
        common += 1
    start = max(0, common - 200)
    return [
        [
            (("… " if start else "") + text[start:common], True),
            (text[common : common + MOST_PIECES] + (" …" if len(text) > common + MOST_PIECES else ""), False),
        ]
        for text in (one, two)
    ]


def _snapshot_pairs(library: Library, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of different snapshots that the first run and another stand on."""
    found = [library.snapshot_of(name) for name in names]
    return sorted({(found[0], other) for other in found[1:] if found[0] and other and other != found[0]})
