from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stillweb.harness.commands.options import OUT, SNAPSHOT, OptionFor
from stillweb.harness.console import print_json, say, say_damage, table
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot


@click.command("ls")
@click.argument("snapshots", nargs=-1, required=True, type=SNAPSHOT)
@click.option("--views", is_flag=True, help="List the views instead of the captures.")
@click.option(
    "--html", cls=OptionFor, needs="--views", type=OUT, help="the graph of all views as one HTML file."
)
@click.option(
    "--steps", cls=OptionFor, needs="--views", metavar="ADDRESS", help="the steps file of this view."
)
@click.option("--states", is_flag=True, help="Also say what state each capture was recorded in.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    snapshots: tuple[Path | str, ...],
    views: bool,
    html: Path | None,
    steps: str | None,
    states: bool,
    as_json: bool,
) -> int:
    """List what SNAPSHOTS hold.

    \b
    stillweb ls site.wacz
    stillweb ls site.wacz --states          labels as in ledgers: equal after equal acts
    stillweb ls site.wacz --views --json
    stillweb ls site.wacz --views --html views.html
    stillweb ls site.wacz --views --steps 'https://example.com/list#view=0123456789abcdef' > steps.yaml
    """
    from stillweb.snapshots import Snapshot

    if states and views:
        raise click.UsageError("--states goes without --views: it says in what state captures were recorded")
    with Snapshot.open(*snapshots) as snapshot:
        say_damage(snapshot)
        if steps is not None:
            return _steps(snapshot, steps)
        if html is not None:
            from stillweb.harness.view.export import export_views

            click.echo(str(export_views(snapshots, html)))
            return 0
        if views:
            _views(snapshot.views(), as_json)
            return 0
        captures = list(snapshot.captures())
        confidences = [""] * len(captures)
        if states:
            from stillweb.snapshots.evidence.matcher import Matcher

            known = Matcher(snapshot).states()
            confidences = [known.get(c.place, "") for c in captures]
        if as_json:
            print_json(
                [
                    {"method": c.method, "url": c.url, "status": c.status, "mime": c.mime, "timestamp": c.timestamp,
                     "digest": c.digest, "session": c.session, **({"state": state} if states else {})}
                    for c, state in zip(captures, confidences, strict=True)
                ]
            )  # fmt: skip
            return 0
        rows = [[c.method, str(c.status), c.mime, c.timestamp, c.url] for c in captures]
        if states:
            rows = [[state, *row] for state, row in zip(confidences, rows, strict=True)]
        click.echo(table([*["state"] * states, "method", "status", "type", "time", "URL"], rows))
        for recording in snapshot.provenance:
            click.echo(f"recorded {recording}")
        for one in snapshot.failures():
            click.echo(f"failed: {one.request.method} {one.request.url}: {one.reason} ({one.message})")
        sockets = [(url, len(conversation["messages"])) for url, conversation in snapshot.conversations()]
        for url, count in sockets:
            click.echo(f"web socket: {url}: {pluralize(count, 'message')}")
        sums = [pluralize(len(captures), "capture"), pluralize(len(snapshot.views()), "view")]
        sums += [pluralize(len(sockets), "web socket")] if sockets else []
        click.echo(f"{', '.join(sums)}, snapshot {snapshot.id}")
    return 0


def _steps(snapshot: Snapshot, address: str) -> int:
    from stillweb.proxy.browser.steps import to_yaml
    from stillweb.snapshots.secrets.detect import PSEUDONYM_TEXT

    view = snapshot.view(address)
    if view is None:
        say(f"stillweb: {address}: no view of the snapshot; 'stillweb ls SNAPSHOT --views' lists them")
        return 1
    click.echo(f"# stillweb record {view.url} --steps FILE")
    steps = to_yaml(view.steps)
    if PSEUDONYM_TEXT.search(steps):
        click.echo(
            "# stillweb-secret-…: stands for a secret, which a site itself wants; write it there to record"
        )
    click.echo(steps, nl=False)
    return 0


def _views(views: list, as_json: bool) -> None:  # type: ignore[type-arg]
    if as_json:
        print_json(
            [{"address": v.address, "url": v.url, "final_url": v.final_url, "title": v.title, "steps": list(v.steps),
              "parent": v.parent} for v in views]
        )  # fmt: skip
        return
    click.echo(table(["address", "steps", "title"], [[v.address, str(len(v.steps)), v.title] for v in views]))
