from __future__ import annotations

from pathlib import Path

import click

from stillweb.harness.commands.options import OUT, PATH, OptionFor
from stillweb.snapshots.words import pluralize


@click.command("publish")
@click.argument("source", metavar="RUN|SNAPSHOT", type=PATH)
@click.option(
    "--to",
    metavar="ADDRESS",
    help="Publish there: hub:OWNER/SET, oci://HOST/NAME:TAG, s3://BUCKET/KEY or a directory (docs/sharing.md).",
)
@click.option("--replace", cls=OptionFor, needs="--to", is_flag=True, help="take the place of what is there.")
@click.option("-o", "--out", type=OUT, help="Only write the run to a new directory.")
@click.option("--open", "opens", is_flag=True, help="RUN is a published one: write it as it was, decrypted.")
def command(source: Path, to: str | None, replace: bool, out: Path | None, opens: bool) -> None:
    """Publish RUN, with its sealed snapshots, or a sealed SNAPSHOT: only files that are not there are sent.

    A run is published without secrets. Of an encrypted task set its text and the snapshots are encrypted again.

    \b
    stillweb publish run1 --to s3://bucket/run1         stillweb pull s3://bucket/run1 -o here
    stillweb publish site.wacz --to oci://registry.example/site:v1
    stillweb publish run1 -o published/run1
    stillweb publish published/run1 --open -o run1      to check or report it
    """
    from stillweb.api import publish
    from stillweb.harness.export.publication import open_published, publish_run

    if (to is None) == (out is None):
        raise click.UsageError("give --to or -o")
    if to is not None:
        if opens:
            raise click.UsageError("--open goes with -o")
        made = publish(source, to, replace=replace)
        click.echo(f"{made.address}: {pluralize(made.files, 'file')}, {made.sent} of them sent")
        return
    if out is None or not source.is_dir():
        raise click.UsageError(f"{source}: -o writes a run, a directory")
    if opens:
        click.echo(f"{out}: {pluralize(open_published(source, out), 'file')} decrypted; don't publish it")
        return
    count, encrypted = publish_run(source, out)
    note = f", {encrypted} of them encrypted as the task set is" if encrypted else ""
    click.echo(f"{out}: {pluralize(count, 'file')}{note}")
