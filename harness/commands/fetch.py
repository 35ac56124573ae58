"""`stillweb fetch`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stillweb.harness.commands.options import LocalPath, at_option, split_address
from stillweb.harness.console import print_json, say, say_damage
from stillweb.snapshots.words import counted

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot
    from stillweb.snapshots.text.text import FrozenText


@click.command("fetch")
@click.argument("snapshots", nargs=-1, required=True, metavar="SNAPSHOTS... ADDRESS")
@click.option("--content", type=click.Choice(["text", "dom", "aria", "seen", "screenshot", "tables"]), default="text", show_default=True,
              help="The frozen text; or what a view stored: its DOM, accessibility snapshot, visible text, screenshot, tables.")  # fmt: skip
@click.option(
    "-o",
    "--out",
    type=LocalPath(path_type=Path),
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
    from stillweb.snapshots import Snapshot
    from stillweb.snapshots.warc.appending import write_whole

    paths, address = split_address(snapshots, "an address")
    with Snapshot.open(*paths, at=at) as snapshot:
        say_damage(snapshot)
        if content == "tables":
            return _tables(snapshot, address, out, as_json)
        view = snapshot.view(address)
        if content != "text":
            kind = {"seen": "text", "screenshot": "view"}.get(content, content)
            data = snapshot.resource(kind, view.address if view is not None else address)
        else:
            frozen = snapshot.text(address)
            if frozen is None:
                frozen = _text(snapshot, address)
            else:
                frozen = _as_asked(snapshot, frozen)
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


def _text(snapshot: Snapshot, address: str) -> FrozenText | None:
    """Return the text of a view, by any of its addresses, or of the page that a new client gets; None if missed."""
    from stillweb.harness.tools.store import Store
    from stillweb.snapshots.view import id_in

    store = Store(snapshot)
    if (found := store.view_text(address)) is not None:
        return found[0]
    if id_in(address) is not None:
        return None
    page = store.session("fetch").follow(address)
    return store.text_of(page.capture) if page.capture is not None and not page.redirects else None


def _as_asked(snapshot: Snapshot, frozen: FrozenText) -> FrozenText:
    """Return the text of the page that a new client gets: the frozen text may be of a later server state."""
    from stillweb.harness.tools.store import Store

    if "#" in frozen.address or "digest" not in frozen.meta:
        return frozen
    store = Store(snapshot)
    page = store.session("fetch").follow(frozen.address)
    if page.capture is None:
        say(f"stillweb: {frozen.address}: recorded in another state; a client that begins anew gets a miss")
        return frozen
    return frozen if page.capture.digest == frozen.meta["digest"] else store.text_of(page.capture) or frozen


def _why_not(snapshot: Snapshot, address: str, content: str, view: bool) -> str:
    from stillweb.harness.tools.store import Store
    from stillweb.snapshots.view import id_in

    if not view and (content != "text" or id_in(address) is not None):
        return "no view of the snapshot; 'stillweb ls SNAPSHOT --views' lists them"
    if content == "text" and (found := Store(snapshot).session("fetch").follow(address).capture) is not None:
        kind = found.mime or "of no type"
        return f"is {kind}, of which no text is frozen; 'stillweb replay SNAPSHOT -- curl -O {address}' gives its bytes"
    return f"not in the snapshot as {content}; 'stillweb lookup' says what comes nearest"


def _tables(snapshot: Snapshot, address: str, out: Path | None, as_json: bool) -> int:
    """Print or write the tables of a view's DOM, or of the page that a new client gets; return the exit code."""
    from stillweb.snapshots.text.tables import tables_of
    from stillweb.snapshots.warc.appending import write_whole

    html = _html(snapshot, address)
    if html is None:
        say(
            f"stillweb: {address}: no view and no page of the snapshot; 'stillweb lookup' says what comes nearest"
        )
        return 1
    found = tables_of(html)
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
                f"{path}: {counted(len(one.rows), 'row')}, {counted(one.width, 'column')}  {one.caption}".rstrip()
            )
    if not found:
        say(f"stillweb: {address}: has no table")
    return 0 if found else 1


def _html(snapshot: Snapshot, address: str) -> str | None:
    from stillweb.harness.tools.store import Store
    from stillweb.snapshots.http import charsets
    from stillweb.snapshots.text.text import READ, unpacked
    from stillweb.snapshots.view import id_in

    view = snapshot.view(address)
    dom = snapshot.resource("dom", view.address) if view is not None else None
    if dom is not None:
        return dom.decode("utf-8", "replace")
    if id_in(address) is not None:
        return None  # the page without the view's steps would be another view
    found = Store(snapshot).session("fetch").follow(address)
    if found.capture is None or found.redirects:
        return None
    response = snapshot.read_start(found.capture, READ + 1)
    body, problem = unpacked(response)
    if problem:
        say(f"stillweb: {address}: read as far as it can be unpacked: {problem}")
    return charsets.decode(body, response.header("content-type")).text
