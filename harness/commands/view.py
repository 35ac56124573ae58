from __future__ import annotations

from pathlib import Path

import click

from stillweb.harness.commands.options import OUT, SNAPSHOT
from stillweb.harness.console import ServerEnd, say, show_page


@click.command("view")
@click.argument("paths", nargs=-1, required=True, metavar="[SNAPSHOT|RUN]...", type=SNAPSHOT)
@click.option(
    "--port", default=0, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one."
)
@click.option("--open/--no-open", "show", default=True, show_default=True, help="Open it in the browser.")
@click.option(
    "--export",
    type=OUT,
    metavar="DIR",
    help="Write the pages into a new folder instead, to be opened without a server.",
)
def command(paths: tuple[Path | str, ...], port: int, show: bool, export: Path | None) -> int:
    """Look at snapshots and runs in the browser: attempts, steps, pages as the agent saw them, reviews.

    Runs (directories with a run.json or traces) and snapshots may be given in any order.

    \b
    stillweb view run1
    stillweb view run1 run2 run3 site.wacz
    stillweb view run1 run2 --export pages
    """
    runs = [path for path in paths if isinstance(path, Path) and is_run(path)]
    snapshots = [path for path in paths if path not in runs]
    for path in snapshots:
        if isinstance(path, Path) and path.is_dir():
            refuse_other_folders(path)
    if export is not None:
        from stillweb.harness.view.export import export_folder

        click.echo(str(export_folder(runs, snapshots, export).resolve()))
        return 0
    from stillweb.harness.view.server import ViewServer
    from stillweb.harness.view.site import Site

    site = Site(runs, snapshots)
    until = ServerEnd()
    with until.signals(), ViewServer(site, port=port) as server:
        click.echo(server.url)
        say("Ctrl-C ends it")
        if show:
            show_page(server.url)
        return until.wait()


def refuse_other_folders(path: Path) -> None:
    """Raise UsageError for a folder that is neither a run nor a snapshot; name the runs in it."""
    from stillweb.snapshots.errors import DamagedInput, UsageError
    from stillweb.snapshots.opening import open_container

    try:
        open_container(path).close()
    except DamagedInput as error:
        within = sorted(str(one) for one in path.iterdir() if is_run(one))
        hint = f". It holds runs: {' '.join(within[:3])}{' …' if within[3:] else ''}" if within else ""
        raise UsageError(f"{error}, and is not a run{hint}") from error


def is_run(path: Path) -> bool:
    """Return True if a path is a run's directory; a half-written one may lack its run.json."""
    return (path / "run.json").exists() or (path / "traces").is_dir()
