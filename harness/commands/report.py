from __future__ import annotations

from pathlib import Path

import click

from stillweb.harness.commands.options import FOLDER, OUT
from stillweb.harness.console import show_page


@click.command("report")
@click.argument("run", type=FOLDER)
@click.option("-o", "--out", type=OUT, help="The file to write; RUN/report.* by default.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "csv", "openinference", "inspect"]),
    default="html",
    show_default=True,
    help="An HTML page; a table, one row an attempt; OTLP/JSON spans named as OpenInference does, one line an attempt; or a log of inspect_ai.",
)
@click.option("--open/--no-open", "show", default=False, help="Open it in the browser.")
def command(run: Path, out: Path | None, form: str, show: bool) -> None:
    """Write the report of RUN: one HTML file with tasks, scores, tool calls, pictures and tables cell by cell.

    \b
    stillweb report run1 --open
    stillweb report run1 --format csv                              for a spreadsheet or pandas
    mkdir -p logs && stillweb report run1 --format inspect -o logs/run1.json        for `inspect view --log-dir logs`
    """
    if form == "openinference":
        from stillweb.harness.export.openinference import export_openinference

        path = export_openinference(run, out or run / "report.otlp.jsonl").resolve()
    elif form == "csv":
        from stillweb.harness.export.attempts_csv import export_csv

        path = export_csv(run, out or run / "report.csv").resolve()
    elif form == "inspect":
        from stillweb.harness.export.inspect_log import export_inspect

        path = export_inspect(run, out or run / "report.inspect.json").resolve()
    else:
        from stillweb.harness.view.export import write_report

        path = write_report(run, out).resolve()
    if not path.is_file():  # a pipe or /dev/stdout: another line would become part of the report
        return
    click.echo(str(path))
    if show:
        show_page(path.as_uri())
