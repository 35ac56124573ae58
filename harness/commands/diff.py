from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stillweb.harness.commands.options import SNAPSHOT
from stillweb.harness.console import print_json, say
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from stillweb.snapshots.operations.diff import Diff

_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


@click.command("diff")
@click.argument("a", type=SNAPSHOT)
@click.argument("b", type=SNAPSHOT)
@click.option(
    "--tasks",
    "source",
    help="Say which tasks are affected: of a task set, or (exactly) of a run's directory.",
)
@click.option(
    "--text/--no-text",
    "with_text",
    default=True,
    show_default=True,
    help="Show how texts differ, line by line.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the difference as JSON.")
def command(a: Path | str, b: Path | str, source: str | None, with_text: bool, as_json: bool) -> int:
    """Show what differs from snapshot A to snapshot B; exit code 1 if anything does.

    \b
    stillweb diff v1.wacz v2.wacz
    stillweb diff v1.wacz v2.wacz --tasks tasks.jsonl      which tasks that touches
    stillweb diff v1.wacz v2.wacz --tasks run1             which attempts of a run on v1
    """
    from stillweb.api import diff

    of_run = source is not None and (Path(source) / "run.json").is_file()
    found = diff(a, b, tasks=None if of_run else source, run=source if of_run else None, note=say)
    if as_json:
        print_json(found.to_json())
    else:
        _print(found, with_text)
    return 0 if found.same else 1


def _print(found: Diff, with_text: bool) -> None:
    from stillweb.snapshots.operations.diff import counts

    def lines(text: str) -> str:
        return "" if not text else "  (text +{} -{})".format(*counts(text))

    def show(text: str) -> None:
        if with_text and text:
            click.echo("".join(f"    {line}\n" for line in text.splitlines()[2:]), nl=False)

    for capture in found.captures:
        statuses = [sorted({s for s, _ in side}) for side in (capture.before, capture.after)]
        status = (
            f"  status {statuses[0]} to {statuses[1]}" if all(statuses) and statuses[0] != statuses[1] else ""
        )
        same = "  (the text is the same)" if capture.same_text else ""
        state = "  after the same requests" if capture.exchanged else ""
        click.echo(
            f"{_SIGNS[capture.kind]} {capture.method} {capture.url}{status}{state}{lines(capture.text)}{same}"
        )
        show(capture.text)
    for failure in found.failures:
        reasons = " to ".join(" and ".join(side) for side in (failure.before, failure.after) if side)
        click.echo(f"{_SIGNS[failure.kind]} failed {failure.method} {failure.url}  {reasons}")
    for view in found.views:
        parts = f"  {', '.join(view.parts)}" if view.parts else ""
        now = f"  now {view.now}" if view.now else ""
        click.echo(f"{_SIGNS[view.kind]} view {view.address}{parts}{now}{lines(view.text)}")
        show(view.text)
    shown = {capture.url for capture in found.captures if capture.text}
    for text in found.texts:
        if text.kind == "changed":
            click.echo(f"~ text {text.address}  by {_BY[text.cause]}{lines(text.text)}")
            if text.address not in shown:
                show(text.text)
        else:
            click.echo(f"{_SIGNS[text.kind]} text {text.address}")
    for name, (before, after) in found.profile.items():
        click.echo(f"~ profile {name}: {before!r} to {after!r}")
    for rule in found.rules:
        click.echo(f"~ {rule}")
    if found.tasks is not None:
        for one in found.tasks:
            click.echo(f"task {one.task}: {'; '.join(one.reasons)}")
        click.echo(f"{pluralize(len(found.tasks), 'task')} affected")
    click.echo(_total(found))


_BY = {"source": "other bytes", "extractor": "another extractor", "both": "other bytes and another extractor"}


def _total(found: Diff) -> str:
    kinds = ("added", "removed", "changed")
    parts = [
        f"{what}: " + ", ".join(f"{found.count(what, kind)} {kind}" for kind in kinds)
        for what in ("captures", "views", "texts")
    ]
    if found.failures:
        parts.append(f"{pluralize(len(found.failures), 'request')} failed in one only, or otherwise")
    if found.restated:
        parts.append(f"{pluralize(found.restated, 'capture')} with another token only")
    return "; ".join(parts) if not found.same else f"the same: {found.a}" if found.a == found.b else (
        "no served answer differs; " + "; ".join(parts)
    )  # fmt: skip
