"""`stillweb review`."""

from __future__ import annotations

from pathlib import Path

import click

from stillweb.harness.commands.ending import Until
from stillweb.harness.console import say
from stillweb.snapshots.words import counted


@click.command("review")
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--all", "everything", is_flag=True, help="Also attempts that are wholly right.")
@click.option("--export", type=click.Path(path_type=Path), help="Write one static file instead.")
@click.option(
    "--import",
    "reviews",
    type=click.Path(exists=True, path_type=Path),
    help="Take in the reviews that a static page saved.",
)
@click.option("--agreement", "agree", is_flag=True, help="Print how far two reviewers agree.")
def command(
    run: Path, port: int, everything: bool, export: Path | None, reviews: Path | None, agree: bool
) -> int:
    """Open a local page on which a person says why each answer of RUN was wrong.

    \b
    stillweb review run1
    stillweb review run1 --export review.html
    """
    from stillweb.harness.review.page import ReviewServer, export_review
    from stillweb.harness.review.reviews import agreement, import_reviews

    if reviews is not None:
        click.echo(f"{counted(import_reviews(run, reviews), 'review')} taken")
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
        click.echo(str(export_review(run, export)))
    else:
        until = Until()
        with until.signals(), ReviewServer(run, port=port, everything=everything) as server:
            click.echo(server.url)
            say("Ctrl-C ends it; reviews are kept in the traces")
            click.launch(server.url)
            return until.wait()
    return 0
