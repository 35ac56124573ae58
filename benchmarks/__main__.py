"""`python -m benchmarks [--quick] [--only ROW,…]`: runs the rows and writes RESULTS.md and ratios.json."""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click

from benchmarks import peers, report
from benchmarks.bench import Bench, NotRun, Row
from benchmarks.rows import ROWS

NOT_QUICK = frozenset({"mixed", "views"})  # left out of a quick run


def prepare_machine() -> None:
    """nginx, wrk, a compiler and pages of documentation from the distribution, where we may install them."""
    wanted = {"nginx": "nginx-light", "wrk": "wrk", "cc": "gcc libc6-dev"}
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    missing = [
        name
        for program, names in wanted.items()
        if not shutil.which(program, path=path)
        for name in names.split()
    ]
    if not Path("/usr/share/doc/python3-doc").exists():
        missing += ["python3-doc", "debian-faq"]
    if not missing or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    click.echo(f"installing {' '.join(missing)}", err=True)
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": False, "env": env}
    subprocess.run(["apt-get", "update", "-qq"], **quiet)  # type: ignore[call-overload]
    for package in missing:  # one by one: what this distribution has not is no reason to be without the rest
        command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
        subprocess.run(command, **quiet)  # type: ignore[call-overload]


@click.command()
@click.option("--quick", is_flag=True, help="Under three minutes.")
@click.option("--only", default="", help="Rows to run, by name, with commas.")
@click.option(
    "--keep", is_flag=True, help="Write RESULTS.md and ratios.json also after a quick or partial run."
)
def main(quick: bool, only: str, keep: bool) -> None:
    """Measures, prints, and writes benchmarks/RESULTS.md."""
    wanted = set(only.split(",")) - {""}
    if unknown := wanted - set(ROWS):
        raise click.UsageError(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    prepare_machine()
    click.echo("other people's programs", err=True)
    peers.install()
    for package in ("snapshots", "proxy", "harness"):  # as pip does with theirs and would with ours
        compileall.compile_dir(report.HERE.parent / package, quiet=1)
    bench = Bench(report.HERE / "work", quick, 1.0 if quick else 4.0, 5 if quick else 15)
    click.echo("corpus and snapshots", err=True)
    bench.prepare()
    if not bench.small:
        raise click.ClickException("no pages found: install a documentation package, such as python3-doc")
    rows: list[Row] = []
    load, began = os.getloadavg()[0], time.monotonic()
    for name, measure in ROWS.items():
        if (wanted and name not in wanted) or (quick and not wanted and name in NOT_QUICK):
            continue
        start = time.monotonic()
        try:
            found = measure(bench)
        except NotRun as missing:
            found = [Row(name, f"not run: {missing}")]
        except (RuntimeError, OSError, subprocess.SubprocessError, LookupError, ValueError) as error:
            found = [Row(name, f"could not be measured: {type(error).__name__}: {error}", held=False)]
        rows += found
        click.echo(f"measured: {name}, {time.monotonic() - start:.0f} s", err=True)
        click.echo(report.table(found), err=True)
    click.echo(report.table(rows))
    worse = report.compared(rows)
    for line in worse:
        click.echo(f"WORSE by more than a quarter: {line}")
    if keep or not (quick or wanted):
        seconds = time.monotonic() - began
        report.write(bench, rows, worse, load=load, seconds=seconds, partial=quick or bool(wanted))


if __name__ == "__main__":
    sys.exit(main())
