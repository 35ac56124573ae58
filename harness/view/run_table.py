"""Attempts of a run as rows of a table.

A row is read from a trace once and kept in the cache; 10,000 rows are then loaded in a moment. New and changed traces
are read in a thread, so that a page never waits for all of them.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeVar

import msgspec

from stillweb.harness.compare.compare import Outcome, no_evidence, outcome_of
from stillweb.harness.runs.run_files import RunFiles, trace_name
from stillweb.harness.scoring import MEASURED
from stillweb.harness.task import Task
from stillweb.harness.trace import Counts, Trace, sum_counts
from stillweb.snapshots._os.cache import cache_dir
from stillweb.snapshots._os.processes import rare_collection
from stillweb.snapshots.errors import StillwebError
from stillweb.snapshots.warc.appending import write_whole
from stillweb.snapshots.words import whole_number

FORMAT = "stillweb view rows 5"
PAGE = 100  # rows shown at once
FRESH = 1.0  # seconds for which a listing of the traces' folder is taken as current
MANY = 2000  # traces to be read that take longer than a page waits
UNFINISHED, DAMAGED = "unfinished", "damaged"

REMEMBERED = 32  # results kept of one version of the rows

T = TypeVar("T")
_decode = msgspec.json.Decoder().decode


class Row(Counts, frozen=True):
    """Figures of one attempt. `name` is its trace's file name without `.jsonl`, which its address holds.

    `score` is the attempt's value of its first metric on a scale from 0 to 1. `problem` says why a trace can't be read.
    """

    name: str
    task: str
    epoch: int
    status: str = UNFINISHED
    scorer: str = ""
    end: str = ""
    error: str = ""
    metrics: dict[str, float | None] = msgspec.field(default_factory=dict)
    metric: str = ""
    score: float | None = None
    right: bool = False
    reviews: dict[str, str] = msgspec.field(default_factory=dict)
    problem: str = ""
    scored: Outcome | None = None

    @property
    def outcome(self) -> Outcome:
        """Return the attempt as comparisons take it."""
        return self.scored or Outcome(self.task, self.task, self.epoch, {}, UNFINISHED)

    @property
    def finished(self) -> bool:
        """Return True if the attempt has a score."""
        return self.status not in (UNFINISHED, DAMAGED)

    @property
    def flags(self) -> list[str]:
        """Return the names of the filters that the attempt fits."""
        return [name for name, (_, fits) in FILTERS.items() if fits(self)]

    @property
    def color(self) -> str:
        """Return the class of the cell's colour: right, part, none, unread, open or damaged."""
        if self.status == DAMAGED:
            return "damaged"
        if not self.finished:
            return "open"
        if self.right:
            return "right"
        if self.status in ("unparsable", "timeout", "unsolvable"):
            return "unread"
        return "part" if self.score else "none"


def row_of(path: Path, task: str, epoch: int) -> Row:
    """Return the row of a finished trace; a trace that can't be read gives a row that says so.

    Only the members that a row shows are looked at: the attempt's own page checks the whole trace.
    """
    name = path.name.removesuffix(".jsonl")
    try:
        events = [_decode(line) for line in path.read_bytes().splitlines() if line]
        trace = Trace(path, events[0], tuple(events[1:]))
        return _row(trace, name)
    except (
        msgspec.DecodeError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
        OSError,
        StillwebError,
    ) as error:
        reason = f"{type(error).__name__}: {error}" if isinstance(error, LookupError) else str(error)
        return Row(name, task, epoch, DAMAGED, problem=f"{path.name}: not a readable trace: {reason}")


def _row(trace: Trace, name: str) -> Row:
    from stillweb.harness.scoring.value_search import is_right

    answer, task = trace.last("answer") or {}, Task.from_json(trace.header["task"])
    scored = outcome_of(task, trace.attempt, trace)
    if scored.status == UNFINISHED:
        raise ValueError("it ends without a score")
    metric = next((n for n in scored.metrics if n not in MEASURED), "")
    value = scored.metrics.get(metric)
    return Row(
        name=name,
        task=trace.task_id,
        epoch=trace.attempt,
        status=scored.status,
        scorer=task.scorer,
        end=str(answer.get("end", "none")),
        error=str(answer.get("error") or ""),
        metrics=scored.metrics,
        metric=metric,
        score=None if value is None else value / scored.best,
        right=is_right(trace),
        reviews={str(e["reviewer"]): str(e["class"]) for e in trace.of("review")},
        scored=scored,
        **msgspec.structs.asdict(trace.counts),
    )


def _packed(kept: Mapping[str, Any]) -> bytes:
    """Return the content of the cache. A row with a lone surrogate, which msgpack can't hold, is left out and read anew."""
    try:
        return msgspec.msgpack.encode((FORMAT, kept))
    except UnicodeEncodeError:
        return msgspec.msgpack.encode((FORMAT, {n: row for n, row in kept.items() if _encodes((n, row))}))


def _encodes(value: Any) -> bool:
    try:
        msgspec.msgpack.encode(value)
    except UnicodeEncodeError:
        return False
    return True


FILTERS: dict[str, tuple[str, Callable[[Row], bool]]] = {
    "wrong": ("wrong", lambda r: r.finished and not r.right),
    "right": ("right", lambda r: r.right),
    "unparsable": ("unparsable", lambda r: r.status == "unparsable"),
    "missed": ("missed the snapshot", lambda r: r.misses > 0),
    "failed": ("failures, as recorded", lambda r: r.failures > 0),
    "presumed": ("with presumed answers", lambda r: r.presumed > 0),
    "cutoff": ("cut off", lambda r: r.cut_off > 0 or r.status == "timeout"),
    "error": ("ended in an error", lambda r: bool(r.error)),
    "open": ("unfinished", lambda r: r.status == UNFINISHED),
    "damaged": ("not readable", lambda r: r.status == DAMAGED),
    "unreviewed": ("wrong, not reviewed", lambda r: r.finished and not r.right and not r.reviews),
    "disputed": ("disputed by reviewers", lambda r: len(set(r.reviews.values())) > 1),
}

SORTS: dict[str, Callable[[Row], Any]] = {
    "task": lambda r: (r.task, r.epoch),
    "score": lambda r: -1.0 if r.score is None else r.score,
    "calls": lambda r: r.calls,
    "misses": lambda r: r.misses,
    "presumed": lambda r: r.doubt,
    "tokens": lambda r: r.tokens,
    "cost": lambda r: r.cost or 0.0,
}


class Group(Counts, frozen=True):
    """Attempts of one task and their roll-up. Figures of scores are None while no attempt has one.

    `spread` is the standard deviation over the attempts, `error` the standard error of their mean. `passed` is the
    chance that one of `k` attempts is right, estimated without bias from all (Chen et al., 2021, equation 1).
    """

    task: str
    rows: tuple[Row, ...]
    mean: float | None
    spread: float | None
    error: float | None
    passed: float | None


def group_of(task: str, rows: Sequence[Row], metric: str, k: int) -> Group:
    """Return the roll-up of a task's attempts."""
    done = telling(rows, metric)
    values = values_of(rows, metric)
    spread = stdev(values) if len(values) > 1 else None
    return Group(
        task=task,
        rows=tuple(rows),
        mean=fmean(values) if values else None,
        spread=spread,
        error=None if spread is None else spread / math.sqrt(len(values)),
        passed=pass_at(len(done), sum(row.right for row in done), k),
        **sum_counts(rows),
    )


class Sums(Counts, frozen=True):
    """Sums over the attempts of a run. `counts` are attempts by colour.

    `mean` is over `of` attempts; None without any, and where their scorers have different scales.
    """

    mean: float | None
    of: int
    done: int
    right: int
    live: bool  # True if an attempt is still to come or under way
    counts: dict[str, int]


def sums_of(rows: Sequence[Row], metric: str) -> Sums:
    done = [row for row in rows if row.finished]
    values = values_of(rows, metric)
    giving = [row.outcome for row in done if not metric or metric in row.metrics]
    scales = {(one.best if metric else 1.0, one.own) for one in giving}  # scores are shares of the best
    return Sums(
        mean=fmean(values) if values and len(scales) == 1 else None,
        of=len(values),
        done=len(done),
        right=sum(row.right for row in done),
        live=any(row.status == UNFINISHED for row in rows),
        counts=Counter(row.color for row in rows),
        **sum_counts(rows),
    )


def telling(rows: Iterable[Row], metric: str) -> list[Row]:
    """Return the finished attempts that say something about their agent: no judge or scorer failed them."""
    return [row for row in rows if not no_evidence(row.outcome, metric or row.metric)]


def values_of(rows: Iterable[Row], metric: str) -> list[float]:
    """Return the values of the telling attempts whose scorers give the metric.

    An attempt without a readable answer has 0; of a measured metric, where 0 would be the best, it has none.
    """
    shown = telling(rows, metric)
    giving = {row.scorer for row in shown if not metric or metric in row.metrics}
    values = [row.metrics.get(metric) if metric else row.score for row in shown if row.scorer in giving]
    return [value or 0.0 for value in values if value is not None or metric not in MEASURED]


def pass_at(n: int, right: int, k: int) -> float | None:
    """Return pass@k from `n` attempts of which `right` are right; None with fewer than `k` attempts."""
    if n < k or k < 1:
        return None
    return 1.0 - math.comb(n - right, k) / math.comb(n, k)


class RunTable:
    """Rows of a run, in the order of its tasks. `problems` say what of the run can't be read.

    `refresh` begins to read what is new; `rows` are those read so far. `version` rises with each change.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = RunFiles(path)
        self.problems: list[str] = []
        self.tasks: list[Task] = []
        self.epochs = 1
        self.reading = 0  # traces still to be read
        self._rows: dict[tuple[str, int], Row] = {}
        self._kept: dict[str, tuple[int, int, Row]] = {}
        self._order: list[tuple[str, int]] = []
        self._lock = threading.Lock()
        self._listed = 0.0
        self.version = 0
        self._worked: dict[Any, tuple[int, Any]] = {}  # what `_once` found, with the version that it is of
        self._thread: threading.Thread | None = None
        self._load()

    def refresh(self, wait: float | None = 0.0, *, changed: bool = False) -> None:
        """Begin to read traces that are new or changed, and wait for them at most `wait` seconds, or to the end.

        No page waits for `MANY` traces. A listing is taken as current for a moment, unless a trace is known to have `changed`.
        """
        with self._lock:
            busy = self._thread is not None and self._thread.is_alive()
            if not busy and (changed or time.monotonic() - self._listed > FRESH):
                self._thread = threading.Thread(target=self._read, name="stillweb-view-read", daemon=True)
                self._thread.start()
            thread = self._thread
        if thread is not None:
            thread.join(wait if wait is None or self.reading < MANY else 0)

    @property
    def rows(self) -> list[Row]:
        """Return the rows of all attempts that the run owes; those without a trace are unfinished."""
        return self._cached("rows", self._in_order)

    def _in_order(self) -> list[Row]:
        return [
            self._rows.get(key) or Row(trace_name(*key).removesuffix(".jsonl"), *key) for key in self._order
        ]

    def _cached(self, key: Any, work: Callable[[], T]) -> T:
        """Return what `work` finds in the rows, worked out once for each version of them."""
        version = self.version  # before the rows are looked at: a newer version is worked out anew
        known = self._worked.get(key)
        if known is not None and known[0] == version:
            found: T = known[1]
            return found
        if len(self._worked) >= REMEMBERED:
            self._worked.clear()
        found = work()
        self._worked[key] = version, found
        return found

    def _load(self) -> None:
        try:
            settings, _ = self.files.manifest()
            self.epochs = settings.epochs
        except (StillwebError, OSError) as error:
            self.problems.append(str(error))
        try:
            self.tasks = self.files.tasks()
        except (StillwebError, OSError) as error:
            self.problems.append(str(error))
        self._order = [(task.id, n) for task in self.tasks for n in range(1, self.epochs + 1)]
        try:
            with rare_collection():
                kept = msgspec.msgpack.decode(
                    self._cache().read_bytes(), type=tuple[str, dict[str, tuple[int, int, Row]]]
                )
            self._kept = kept[1] if kept[0] == FORMAT else {}
        except (OSError, msgspec.DecodeError):  # no rows are kept yet: they are read from the traces
            self._kept = {}
        self._rows = {(row.task, row.epoch): row for _, _, row in self._kept.values()}
        if not self.tasks:  # the list of tasks can't be read: the traces alone tell of them
            self._order = sorted(self._rows)

    def _cache(self) -> Path:
        named = sha256(f"{FORMAT}\n{self.path.resolve()}".encode(errors="surrogatepass")).hexdigest()[:32]
        return cache_dir() / f"{named}-rows"

    def _read(self) -> None:
        stated: dict[str, tuple[int, int]] = {}
        try:
            with os.scandir(self.files.traces) as entries:
                for entry in entries:
                    if entry.name.endswith(".jsonl"):
                        found = entry.stat()
                        stated[entry.name] = (found.st_size, found.st_mtime_ns)
        except OSError as error:
            reason = f"{self.files.traces}: the traces can't be listed: {error.strerror}"
            if reason not in self.problems:
                self.problems.append(reason)
        self._listed = time.monotonic()
        known = {trace_name(*key): key for key in self._order}
        todo = [name for name, state in stated.items() if self._kept.get(name, (0, 0))[:2] != state]
        gone = self._kept.keys() - stated.keys()
        if not todo and not gone:
            return
        self.reading = len(todo)
        rows, kept = dict(self._rows), dict(self._kept)
        for name in gone:
            row = kept.pop(name)[2]
            rows.pop((row.task, row.epoch), None)
        for number, name in enumerate(sorted(todo), 1):
            task, epoch = known.get(name) or _named(name)
            row = row_of(self.files.traces / name, task, epoch)
            key = (task, epoch) if name in known else (row.task, row.epoch)
            rows[key] = row
            kept[name] = (*stated[name], row)
            self.reading -= 1
            if number % 500 == 0:
                self._take(rows, kept, known)
                time.sleep(0)
        self._take(rows, kept, known)
        try:
            write_whole(self._cache(), [_packed(kept)])
        except OSError as error:
            self.problems.append(f"the table is not kept: {error}. Set STILLWEB_CACHE to a writable folder")

    def _take(
        self,
        rows: Mapping[tuple[str, int], Row],
        kept: Mapping[str, tuple[int, int, Row]],
        known: Mapping[str, Any],
    ) -> None:
        if not self.tasks:
            self._order = sorted(rows)
        self._rows, self._kept = dict(rows), dict(kept)
        self.version += 1

    def find(self, name: str) -> Row | None:
        """Return the row whose trace has this name, or None."""
        return self._cached("names", lambda: {row.name: row for row in self.rows}).get(name)

    @property
    def metrics(self) -> list[str]:
        """Return the names of the metrics, in order of appearance."""
        return self._cached(
            "metrics", lambda: list(dict.fromkeys(n for row in self.rows for n in row.metrics))
        )

    def sums(self, metric: str) -> Sums:
        return self._cached(("sums", metric), lambda: sums_of(self.rows, metric))

    def select(self, show: str = "", text: str = "", sort: str = "", metric: str = "") -> list[Row]:
        """Return the rows that fit. `sort` is a name of SORTS or a metric, with a leading `-` for descending."""
        return self._cached((show, text, sort, metric), lambda: self._selected(show, text, sort, metric))

    def _selected(self, show: str, text: str, sort: str, metric: str) -> list[Row]:
        rows: Iterable[Row] = self.rows
        if show.startswith("class:"):
            name = show.removeprefix("class:")
            rows = [row for row in rows if name in row.reviews.values()]
        elif show in FILTERS:
            rows = filter(FILTERS[show][1], rows)
        if metric:
            rows = [row for row in rows if metric in row.metrics]
        if text:
            wanted = text.casefold()
            rows = [row for row in rows if wanted in f"{row.task} {row.error} {row.problem}".casefold()]
        chosen = list(rows)
        name, down = sort.removeprefix("-"), sort.startswith("-")
        if name in SORTS:
            chosen.sort(key=SORTS[name], reverse=down)
        elif name in self.metrics:
            chosen.sort(
                key=lambda row: -math.inf if (v := row.metrics.get(name)) is None else v, reverse=down
            )
        return chosen

    def groups(self, tasks: Iterable[str], metric: str, k: int) -> list[Group]:
        """Return the roll-ups of tasks, each over all attempts of its task."""
        by_task = self._cached("tasks", self._by_task)
        return [group_of(task, by_task.get(task, []), metric, k) for task in tasks]

    def _by_task(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            found.setdefault(row.task, []).append(row)
        return found


def _named(name: str) -> tuple[str, int]:
    """Return task and epoch as a trace's file name says them, for a run whose task list can't be read."""
    task, _, epoch = name.removesuffix(".jsonl").rpartition(".")
    return task, whole_number(epoch) or 1
