from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stillweb.harness.commands.options import OUT, SNAPSHOT, FiniteRange
from stillweb.harness.console import print_json, progress, say, say_damage, table
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from stillweb.proxy.check.check import CheckReport


@click.command("check")
@click.argument("snapshots", nargs=-1, required=True, type=SNAPSHOT)
@click.option(
    "--text",
    "least_text",
    type=FiniteRange(0, 1),
    default=0.98,
    show_default=True,
    help="Least share of views whose text is equal.",
)
@click.option(
    "--pixels",
    "least_pixels",
    type=FiniteRange(0, 1),
    default=0.90,
    show_default=True,
    help="Least share of views whose pixels are equal.",
)
@click.option(
    "--parallel", type=click.IntRange(1), help="Views at once. [default: two for each core, at most 16]"
)
@click.option("--html", type=OUT, help="Write a page with both pictures side by side.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def command(
    snapshots: tuple[Path | str, ...],
    least_text: float,
    least_pixels: float,
    parallel: int | None,
    html: Path | None,
    as_json: bool,
) -> int:
    """Replay every view of SNAPSHOTS offline in a fresh browser and compare it with what was recorded.

    \b
    stillweb check site.wacz --html check.html       exit code 1 below a share, or without views
    """
    if html is not None and not html.absolute().parent.is_dir():
        raise click.UsageError(f"{html}: there is no directory {html.parent}")
    from stillweb.api import check as replay_views
    from stillweb.api import open as open_snapshot
    from stillweb.snapshots.warc.appending import write_whole

    with open_snapshot(*snapshots) as snapshot, progress("checking") as advance:
        say_damage(snapshot)
        report = replay_views(snapshot, parallel=parallel, progress=advance)
    if report.warning:
        say(report.warning)
    if html is not None:
        from stillweb.harness.view.export import check_page

        write_whole(html, [check_page(report, str(snapshots[-1]), snapshot.id).encode()])
    if as_json:
        print_json({"views": report.rows(), "seconds": report.seconds, "shares": _shares(report)})
    elif not report.views:
        say(
            "there is no view to compare, so nothing was, and the check fails: 'stillweb record URL' stores them, a program's "
            "captures have none"
        )
    else:
        rows = [
            [
                v.address,
                f"{v.text:.3f}",
                f"{v.aria:.3f}",
                f"{v.pixels:.4f}",
                str(v.used),
                str(len(v.missed)),
                v.error or "",
            ]
            for v in report.views
        ]
        click.echo(table(["view", "text", "aria", "pixels", "used", "missed", "error"], rows))
        shares = ", ".join(f"{name} equal in {share:.1%}" for name, share in _shares(report).items())
        click.echo(f"{pluralize(len(report.views), 'view')} in {report.seconds:.1f} s: {shares}")
    if report.passed(least_text, least_pixels):
        return 0
    if why := _why_not(report, {"text": least_text, "pixels": least_pixels}):
        say(f"not passed: {'; '.join(why)}")
    return 1


def _why_not(report: CheckReport, least: dict[str, float]) -> list[str]:
    """Return the reasons why the check failed; empty if there are no views."""
    if not report.views:
        return []
    failed = sum(view.error is not None for view in report.views)
    missed = sum(bool(view.missed) for view in report.views)
    why = [f"{pluralize(failed, 'view')} could not be reached"] if failed else []
    why += [f"{pluralize(missed, 'view')} asked for what was not recorded"] if missed else []
    return why + [
        f"{name} equal in {report.share(name):.1%}, {share:.1%} asked for"
        for name, share in least.items()
        if report.share(name) < share
    ]


def _shares(report: CheckReport) -> dict[str, float]:
    return {name: report.share(name) for name in ("text", "aria", "pixels")}
