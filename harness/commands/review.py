from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import click

from stillweb.harness.commands.options import FOLDER, OUT, PATH
from stillweb.harness.console import ServerEnd, say, show_page
from stillweb.harness.runs.run_files import RunFiles
from stillweb.snapshots.words import pluralize


@click.command("review")
@click.argument("run", type=FOLDER)
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--all", "everything", is_flag=True, help="Also attempts that are wholly right.")
@click.option("--export", type=OUT, help="Write one static file instead.")
@click.option("--import", "reviews", type=PATH, help="Take in the reviews that a static page saved.")
@click.option("--agreement", "agree", is_flag=True, help="Print how far two reviewers agree.")
def command(
    run: Path, port: int, everything: bool, export: Path | None, reviews: Path | None, agree: bool
) -> int:
    """Open a local page on which a person says why each answer of RUN was wrong.

    \b
    stillweb review run1
    stillweb review run1 --export review.html
    """
    from stillweb.harness.review.reviews import agreement, import_reviews

    if reviews is not None:
        click.echo(f"{pluralize(import_reviews(run, reviews), 'review')} taken")
    elif agree:
        pairs = agreement(run)
        for pair in pairs:
            kappa = "undefined" if pair.kappa is None else f"{pair.kappa:.3f}"
            disputed = f"; disputed: {', '.join(pair.disputed)}" if pair.disputed else ""
            click.echo(
                f"{' and '.join(pair.reviewers)}: {pair.agreed} of {pair.both} agreed, Cohen's kappa {kappa}{disputed}"
            )
        if not pairs:
            click.echo("no two reviewers yet")
    elif export is not None:
        from stillweb.harness.view.export import export_file

        click.echo(str(export_file([run], export, title="Review")))
    else:
        from stillweb.harness.view.server import ViewServer
        from stillweb.harness.view.site import Site

        RunFiles(run).manifest()
        site = Site([run])
        until = ServerEnd()
        with until.signals(), ViewServer(site, port=port) as server:
            shown = "" if everything else "&show=wrong"
            url = f"{server.url}run/{quote(next(iter(site.tables)), safe='')}?by=attempt{shown}"
            click.echo(url)
            say("Ctrl-C ends it; reviews are kept in the traces")
            show_page(url)
            return until.wait()
    return 0
