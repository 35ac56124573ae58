"""Progress of a run: a live table on a terminal, one line per attempt elsewhere."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TextIO

from stillweb.harness.console import decimals, rich_console, visible
from stillweb.harness.runs.engine import Outcome
from stillweb.harness.trace import Counts, sum_counts
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from stillweb.harness.agents.attempt import Attempt


QUIET_SECONDS = 60.0  # without a finished attempt, until a line names the running ones
MOST_NAMED = 5


class Display(Protocol):
    """Context manager that is told of the attempts of a run.

    `changed` is also called when an attempt begins.
    """

    def __enter__(self) -> Any: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def begin(self, total: int) -> None: ...
    def changed(self, attempt: Attempt) -> None: ...
    def left(self, attempt: Attempt, seconds: float) -> None: ...
    def finished(self, outcome: Outcome) -> None: ...


class Totals:
    """Sums over the attempts that ended."""

    def __init__(self) -> None:
        self.total = self.done = 0
        self.counts = Counts()
        self.statuses: Counter[str] = Counter()

    def add(self, outcome: Outcome) -> None:
        self.done += 1
        self.statuses[outcome.status] += 1
        self.counts = Counts(**sum_counts([self.counts, outcome.counts]))

    def line(self) -> str:
        parts = ", ".join(f"{count} {status}" for status, count in sorted(self.statuses.items()))
        spent = self.counts
        cost = "cost unknown" if spent.cost is None else f"cost {spent.cost:.4f}"
        return (
            f"{self.done} of {pluralize(self.total, 'attempt')} ({parts or 'none yet'}); "
            f"{pluralize(spent.calls, 'tool call')}, {pluralize(spent.misses, 'miss')}, {pluralize(spent.tokens, 'token')}, {cost}"
        )


def describe(outcome: Outcome) -> str:
    """Return one attempt on one line: name, status, metrics, and the answer or the error."""
    names = [name for name in outcome.metrics if not name.startswith(("raw_", "forgiven_"))]
    shown = [f"{name} {_number(outcome.metrics[name])}" for name in names[:4]]
    if outcome.counts.misses:
        shown.append(pluralize(outcome.counts.misses, "miss"))
    if outcome.error:
        shown.append(one_line(outcome.error))
    elif outcome.answer is not None:
        text = "".join(
            c if c.isprintable() or c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in outcome.answer
        )
        shown.append(f"answer: {one_line(text, 80)}")
    return f"{outcome.job.task_id}/{outcome.job.attempt}  {outcome.status}  {', '.join(shown)}"


def one_line(text: str, most: int = 240) -> str:
    """Return an error text on one line, cut after `most` characters; of a traceback only its last line."""
    before, trace, after = text.partition("Traceback (most recent call last):")
    if trace:
        # the lines of an exception group begin with bars
        lines = [line.strip(" |+-") for line in after.splitlines()]
        after = next((line for line in reversed(lines) if line), "")
    line = " ".join(f"{before} {after}".replace("### Error\n", "").split())
    return line if len(line) <= most else line[:most] + "…"


def _number(value: float | None) -> str:
    return "not scored" if value is None else decimals(value, 3).rstrip("0").rstrip(".")


class PlainDisplay:
    """Display that prints lines to a stream (standard error).

    It prints one line per attempt, and one after every `quiet` seconds in which no attempt ended.
    """

    def __init__(
        self, stream: TextIO | None = None, *, each: bool = True, quiet: float = QUIET_SECONDS
    ) -> None:
        self.totals = Totals()
        self._stream = stream
        self._each = each
        self._told = False
        self._quiet = quiet
        self._running: dict[str, Attempt] = {}
        self._news = threading.Condition()
        self._over = False
        self._watch: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._watch = threading.Thread(target=self._watching, name="stillweb-display", daemon=True)
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._note(over=True)
        if self._watch:
            self._watch.join()
        if self.totals.total and not self._told and (self.totals.done or kind is None):
            self._told = True
            self._say(self.totals.line())

    def begin(self, total: int) -> None:
        """Set the number of attempts to make."""
        self.totals.total = total

    def changed(self, attempt: Attempt) -> None:
        """Add an attempt to those named as still running."""
        self._running[attempt.session] = attempt

    def left(self, attempt: Attempt, seconds: float) -> None:
        """Remove an attempt from those named as still running."""
        self._running.pop(attempt.session, None)

    def finished(self, outcome: Outcome) -> None:
        """Count an attempt that ended and print its line."""
        self.totals.add(outcome)
        self._note()
        if self._each:
            self._say(f"[{self.totals.done}/{self.totals.total}] {describe(outcome)}")

    def _note(self, *, over: bool = False) -> None:
        with self._news:
            self._over = over
            self._news.notify_all()

    def _watching(self) -> None:
        times = 0
        with self._news:
            while not self._over:
                if self._news.wait(self._quiet):
                    times = 0
                elif self.totals.total:
                    times += 1
                    self._say(self._still(times * self._quiet))

    def _still(self, seconds: float) -> str:
        running = [
            f"{one.task.id}/{one.number} ({pluralize(one.usage.steps, 'model call')}, {pluralize(one.usage.calls, 'tool call')})"
            for one in list(self._running.values())
        ]
        named = ", ".join(running[:MOST_NAMED]) or "attempts elsewhere"
        more = f" and {len(running) - MOST_NAMED} more" if len(running) > MOST_NAMED else ""
        return f"[{self.totals.done}/{self.totals.total}] none ended for {seconds:g} s; still running: {named}{more}"

    def _say(self, line: str) -> None:
        stream = self._stream or sys.stderr
        stream.write(line + "\n")
        stream.flush()


class SilentDisplay(PlainDisplay):
    """Display that counts the attempts and prints nothing."""

    def __enter__(self) -> Self:
        return self

    def _say(self, line: str) -> None:
        return


class LiveDisplay(PlainDisplay):
    """Live line of sums; with a line for `each` attempt, a table of the running ones and lines of the finished ones."""

    def __init__(self, *, each: bool = True) -> None:
        super().__init__(each=each)
        from rich.live import Live

        self._live = Live(
            console=rich_console(), refresh_per_second=4, get_renderable=self._table, transient=True
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()
        super().__exit__(kind, error, trace)

    def finished(self, outcome: Outcome) -> None:
        """Count an attempt that ended and print its line above the table."""
        self.totals.add(outcome)
        if self._each:
            self._live.console.print(visible(describe(outcome)), highlight=False, markup=False)

    def _table(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        if not self._each:
            return Text(self.totals.line())

        table = Table(caption=self.totals.line(), expand=True)
        for name in ("attempt", "model calls", "tool calls", "misses", "tokens", "cost"):
            table.add_column(name, justify="left" if name == "attempt" else "right")
        for session, attempt in list(self._running.items()):
            spent = attempt.usage
            cost = "?" if spent.cost is None else f"{spent.cost:.4f}"
            table.add_row(
                Text(visible(session)),
                str(spent.steps),
                str(spent.calls),
                str(spent.misses),
                str(spent.tokens),
                cost,
            )
        return table


def make_display(*, each: bool = True) -> Display:
    """Return a live display if standard error is a terminal, else one of plain lines; with a line for `each` attempt."""
    return LiveDisplay(each=each) if sys.stderr.isatty() else PlainDisplay(each=each)
