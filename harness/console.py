"""What every command shows alike: progress on standard error, results on standard output."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot

MOST_NOTES = 5
Advance = Callable[[int, int], None]  # (done, total)


def say(text: str) -> None:
    """A line for the person, on standard error."""
    click.echo(text, err=True)


def decimals(value: float, digits: int, sign: str = "") -> str:
    """A figure with that many decimals (and a plus, with `sign`), more where it would look whole and isn't: p 0.00002 is not 0, nor 0.9996 all right."""
    whole = round(value)
    # 4.000000000000001 is 4: the last digits of a sum of floats
    if whole and abs(value - whole) < 1e-12 * abs(value):
        value = whole
    while float(text := f"{value:{sign}.{digits}f}").is_integer() and value != int(value) and digits < 12:
        digits += 1
    return text


def print_json(value: Any) -> None:
    """One JSON document on standard output, keys in the order given."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def say_damage(snapshot: Snapshot) -> None:
    """What is wrong with a snapshot that can be used all the same: what is missing would only be missed."""
    notes = snapshot.notes
    for note in notes[:MOST_NOTES]:
        say(f"damaged: {note}")
    if notes:
        more = f"{len(notes) - MOST_NOTES} more; " if len(notes) > MOST_NOTES else ""
        say(f"damaged: {more}what could be read is used; stillweb verify says all")
    say_left_out(snapshot)


def say_failures(failures: Sequence[tuple[str, str]]) -> None:
    """Say which addresses were not recorded and why, each once."""
    for (url, reason), count in Counter(failures).items():
        say(f"not recorded: {url}: {reason}{f' ({count} times)' if count > 1 else ''}")


def say_left_out(snapshot: Snapshot) -> None:
    """What a HAR or flow file holds that is no answer: a request for it is a miss."""
    from stillweb.snapshots.upkeep.importing import left_out

    notes = left_out(snapshot)
    for note in notes[:MOST_NOTES]:
        say(f"left out: {note}")
    if len(notes) > MOST_NOTES:
        say(f"left out: {len(notes) - MOST_NOTES} more; stillweb import FILE -o DIR says all")


@contextmanager
def progress(title: str, *, unit: str = "") -> Iterator[Advance]:
    """A bar on standard error; where that is no terminal, one line at the end. `unit`: of what is counted, if no title says it."""
    if not _terminal():
        state = [0, 0]

        def count(done: int, total: int) -> None:
            state[:] = [done, total]

        yield count
        say(f"{title}: {state[0]} of {state[1]} {unit}".rstrip() if state[1] else f"{title}: done")
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
    with bar:
        task = bar.add_task(title, total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total or None)

        yield advance


def _terminal() -> bool:
    """Whether standard error is a terminal, also as rich is told it; which is not loaded where it surely isn't."""
    if not sys.stderr.isatty() and not {"FORCE_COLOR", "TTY_COMPATIBLE"} & os.environ.keys():
        return False
    from rich.console import Console

    return Console(stderr=True).is_terminal


def table(headers: list[str], rows: list[list[str]]) -> str:
    """A plain table: columns as wide as their widest cell, two spaces between."""
    cells = [headers, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """A line on standard error that is written over; nothing where that is no terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status("starting", spinner="dots") as status:
        yield lambda text: status.update(text)
