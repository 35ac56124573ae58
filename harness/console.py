"""The terminal of all commands: progress on standard error, results on standard output, signals that end a server."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TextIO

import click

from stillweb.snapshots._os.signals import handle_signals, installed_handlers

if TYPE_CHECKING:
    from rich.console import Console

    from stillweb.snapshots.snapshot import Snapshot
    from stillweb.snapshots.text.search import SearchIndex

MOST_NOTES = 5
# Controls, and the characters with Unicode's property Bidi_Control, which turn the order of the text after them
UNSEEN = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
# Characters that are not drawn (Unicode's Default_Ignorable_Code_Point), but for soft hyphens and what joins letters and emoji:
# a name, an address or an answer with one looks like another. Joiners join nothing beside ASCII.
_NOT_DRAWN = (
    r"\u115f\u1160\u180e\u200b\u2060-\u2064\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f"
)
_COMMANDS = re.compile(
    rf"\r(?!\n)|[{UNSEEN}{_NOT_DRAWN}]|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
)
_LINE_END = re.compile(r"[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")  # those of str.splitlines
Advance = Callable[[int, int], None]  # (done, total)


def visible(text: str) -> str:
    """Return a text whose control characters are written out (`\\x1b`, `\\u202e`), as are those that are not drawn."""
    return _COMMANDS.sub(_written, text)


def _written(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]


class Terminal:
    """A stream to a terminal, for texts of pages, models and files that others made. `stream` takes what commands it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(visible(text))

    @property
    def buffer(self) -> _TerminalBytes:
        return _TerminalBytes(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@dataclass(frozen=True, slots=True)
class _TerminalBytes:
    """A stream of bytes to a terminal; each writing has whole characters of UTF-8."""

    terminal: Terminal

    def write(self, data: bytes) -> int:
        self.terminal.write(data.decode("utf-8", "backslashreplace"))
        return len(data)

    def flush(self) -> None:
        self.terminal.flush()


def rich_console() -> Console:
    """Return rich's console on standard error, which commands the terminal; texts of others go through `visible` first."""
    from rich.console import Console

    stream = sys.stderr
    return Console(file=stream.stream if isinstance(stream, Terminal) else stream)


def say(text: str) -> None:
    """Print a line on standard error."""
    click.echo(text, err=True)


def show_page(address: str) -> None:
    """Open an address in the browser where there is a screen; elsewhere a browser of texts would take the terminal."""
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        click.launch(address)


def decimals(value: float, digits: int, sign: str = "") -> str:
    """Format a number with `digits` decimals, and a plus sign if `sign` is "+".

    A number that would look like an integer and isn't gets more decimals: p 0.00002 is not 0, and 0.9996 is not 1.
    """
    whole = round(value)
    # 4.000000000000001 is 4: a rounding error of a sum of floats
    if whole and abs(value - whole) < 1e-12 * abs(value):
        value = whole
    while float(text := f"{value:{sign}.{digits}f}").is_integer() and value != int(value) and digits < 12:
        digits += 1
    return text


def print_json(value: Any) -> None:
    """Print one JSON document on standard output, with keys in the given order."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def damage_notes(snapshot: Snapshot) -> Iterator[str]:
    """Yield the damage of a snapshot that is still usable, and what imports left out: such requests are misses."""
    notes = snapshot.notes
    yield from (f"damaged: {note}" for note in notes[:MOST_NOTES])
    if notes:
        more = f"{len(notes) - MOST_NOTES} more; " if len(notes) > MOST_NOTES else ""
        yield f"damaged: {more}what could be read is used; stillweb verify says all"
    yield from left_out_notes(snapshot)


def left_out_notes(snapshot: Snapshot) -> Iterator[str]:
    """Yield the entries of imported HAR or flow files without a usable answer: requests for them are misses."""
    from stillweb.snapshots.operations.importing import notes_on_left_out

    lacking = notes_on_left_out(snapshot)
    yield from (f"left out: {note}" for note in lacking[:MOST_NOTES])
    if len(lacking) > MOST_NOTES:
        yield f"left out: {len(lacking) - MOST_NOTES} more; stillweb import FILE -o DIR says all"


def say_damage(snapshot: Snapshot) -> None:
    for note in damage_notes(snapshot):
        say(note)


def say_failures(failures: Sequence[tuple[str, str]]) -> None:
    """Print which URLs were not recorded and why, each once."""
    for (url, reason), count in Counter(failures).items():
        say(f"not recorded: {url}: {reason}{f' ({count} times)' if count > 1 else ''}")


@contextmanager
def progress(title: str, *, unit: str = "") -> Iterator[Advance]:
    """Show a progress bar on standard error; without a terminal, print one line at the end.

    `unit` names the counted things, if `title` doesn't.
    """
    if not _terminal():
        state = [0, 0]

        def count(done: int, total: int) -> None:
            state[:] = [done, total]

        yield count
        say(f"{title}: {state[0]} of {state[1]} {unit}".rstrip() if state[1] else f"{title}: done")
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=rich_console(),
    )
    with bar:
        task = bar.add_task(title, total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total or None)

        yield advance


def _terminal() -> bool:
    """Return True if standard error is a terminal, by rich's rules; rich is slow to load, so only if it may be."""
    if not sys.stderr.isatty() and not {"FORCE_COLOR", "TTY_COMPATIBLE"} & os.environ.keys():
        return False
    return rich_console().is_terminal


def table(headers: list[str], rows: list[list[str]]) -> str:
    """Return a plain table: each column as wide as its widest cell, two spaces between columns, a line for each row."""
    cells = [[_LINE_END.sub(_written, cell) for cell in row] for row in (headers, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Show a status line on standard error that is overwritten; nothing without a terminal."""
    console = rich_console()
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status("starting", spinner="dots") as status:
        yield lambda text: status.update(visible(text))


def search_index(snapshot: Snapshot) -> SearchIndex:
    """Return the index over all frozen texts; build it with a progress bar if it is not ready."""
    from stillweb.snapshots.searching import index_of, is_ready

    say_unfrozen(snapshot)
    if is_ready(snapshot):
        return index_of(snapshot)
    say(
        f"indexing {snapshot.count_texts():,} texts for search; this is kept, and done once for a snapshot "
        "(stillweb seal --search-index does it beforehand)"
    )
    with progress("indexing texts") as advance:
        return index_of(snapshot, progress=advance)


def make_search_ready(snapshot: Snapshot) -> None:
    """Build the search index if it is not ready, so that no search has to wait."""
    from stillweb.snapshots.searching import is_ready

    if not is_ready(snapshot):
        search_index(snapshot).close()
    else:
        say_unfrozen(snapshot)


def say_unfrozen(snapshot: Snapshot) -> None:
    """Print a note if no text is frozen: the snapshot is not sealed, or is an archive from elsewhere."""
    if not snapshot.count_texts():
        say(
            "no text is frozen in it, so no search finds anything: 'stillweb seal DIR' freezes them, after "
            "'stillweb import FILE -o DIR' where it is an archive of others"
        )


class ServerEnd:
    """End of a server: exit code 130 for Ctrl-C, 129 for a closed terminal, 0 for SIGTERM (sent by scripts)."""

    def __init__(self) -> None:
        # SimpleQueue.put is reentrant: in a signal handler, Event.set could deadlock with wait
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._code = 0

    def wait(self) -> int:
        """Wait for a signal; return the exit code."""
        self._ended.get()
        return self._code

    def end(self) -> None:
        """End the wait, from another thread."""
        self._ended.put(None)

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Handle the signals while the context is open."""

        def end(number: int, _: object) -> None:
            self._code = 0 if number == signal.SIGTERM else 128 + number
            self._ended.put(None)

        with handle_signals(installed_handlers(), end):
            yield
