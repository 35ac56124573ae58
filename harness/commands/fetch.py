from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stillweb.harness.commands.options import OUT, at_option, split_address
from stillweb.harness.console import print_json, say, say_damage
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot


@click.command("fetch")
@click.argument("snapshots", nargs=-1, required=True, metavar="SNAPSHOTS... ADDRESS")
@click.option("--content", type=click.Choice(["text", "dom", "aria", "seen", "screenshot", "tables"]), default="text", show_default=True,
              help="The frozen text; or what a view stored: its DOM, accessibility snapshot, visible text, screenshot, tables.")  # fmt: skip
@click.option(
    "-o",
    "--out",
    type=OUT,
    help="Write to a file (needed for a screenshot); tables go to a directory, a CSV file each.",
)
@at_option
@click.option("--json", "as_json", is_flag=True, help="The text with extractor, version and warnings.")
def command(at: str, snapshots: tuple[str, ...], content: str, out: Path | None, as_json: bool) -> int:
    """Print the frozen text of ADDRESS: a page, a PDF, or a view.

    \b
    stillweb fetch site.wacz https://example.com/report.pdf
    stillweb fetch site.wacz 'https://example.com/list#view=0123456789abcdef' --content screenshot -o view.png
    stillweb fetch site.wacz https://example.com/list --content tables -o tables
    """
    from stillweb.api import fetch
    from stillweb.api import open as open_snapshot
    from stillweb.snapshots.warc.appending import write_whole

    paths, address = split_address(snapshots, "an address")
    with open_snapshot(*paths, at=at) as snapshot:
        say_damage(snapshot)
        if content == "tables":
            return _tables(snapshot, address, out, as_json)
        view = snapshot.view(address)
        if content != "text":
            kind = {"seen": "text", "screenshot": "view"}.get(content, content)
            data = snapshot.resource(kind, view.address if view is not None else address)
        else:
            frozen = fetch(snapshot, address, note=_say)
            if frozen is not None and as_json:
                print_json({"address": frozen.address, "title": frozen.title, "media": frozen.media,
                            "extractor": frozen.extractor, "version": frozen.version, "warnings": list(frozen.warnings),
                            "text": frozen.markdown})  # fmt: skip
                return 0
            data = frozen.markdown.encode() + b"\n" if frozen is not None else None
        if data is None:
            say(f"stillweb: {address}: {_why_not(snapshot, address, content, view is not None)}")
            return 1
    if out is not None:
        write_whole(out, [data])
    elif content == "screenshot":
        raise click.UsageError("a screenshot goes to a file; give -o FILE.png")
    else:
        sys.stdout.buffer.write(data)
    return 0


def _say(note: str) -> None:
    say(f"stillweb: {note}")


def _why_not(snapshot: Snapshot, address: str, content: str, view: bool) -> str:
    from stillweb.harness.tools.store import Store
    from stillweb.snapshots.view import id_in

    if not view and (content != "text" or id_in(address) is not None):
        return "no view of the snapshot; 'stillweb ls SNAPSHOT --views' lists them"
    if content == "text" and (found := Store(snapshot).session("fetch").follow(address).capture) is not None:
        kind = found.mime or "of no type"
        return f"is {kind}, which has no frozen text; 'stillweb replay SNAPSHOT -- curl -O {address}' gives its bytes"
    return f"not in the snapshot as {content}; 'stillweb lookup' says what comes nearest"


def _tables(snapshot: Snapshot, address: str, out: Path | None, as_json: bool) -> int:
    """Print or write the tables of a view's DOM, or of the page that a new client gets; return the exit code."""
    from stillweb.api import tables
    from stillweb.snapshots.warc.appending import write_whole

    found = tables(snapshot, address, note=_say)
    if found is None:
        say(
            f"stillweb: {address}: no view and no page of the snapshot; 'stillweb lookup' says what comes nearest"
        )
        return 1
    if as_json:
        print_json([{"caption": one.caption, "rows": [list(row) for row in one.rows]} for one in found])
    elif out is None:
        click.echo("\n".join(one.csv() for one in found), nl=False)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for number, one in enumerate(found, 1):
            path = out / f"table-{number}.csv"
            write_whole(path, [one.csv().encode()])
            say(
                f"{path}: {pluralize(len(one.rows), 'row')}, {pluralize(one.width, 'column')}  {one.caption}".rstrip()
            )
    if not found:
        say(f"stillweb: {address}: has no table")
    return 0 if found else 1
