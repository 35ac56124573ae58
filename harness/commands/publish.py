"""`stillweb publish`."""

from __future__ import annotations

from pathlib import Path

import click

from stillweb.snapshots.words import counted


@click.command("publish")
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), help="The new directory.")
@click.option("--open", "opens", is_flag=True, help="RUN is a published one: write it as it was, decrypted.")
def command(run: Path, out: Path, opens: bool) -> None:
    """Write RUN as it may be published: without secrets, and an encrypted task set's plain text encrypted again.

    \b
    stillweb publish run1 -o published/run1
    stillweb publish published/run1 --open -o run1      to check or report it
    """
    from stillweb.harness.export.published import open_published, publish

    if opens:
        click.echo(f"{out}: {counted(open_published(run, out), 'file')} decrypted; don't publish it")
        return
    count, encrypted = publish(run, out)
    told = f", {encrypted} of them encrypted as the task set is" if encrypted else ""
    click.echo(f"{out}: {counted(count, 'file')}{told}")
