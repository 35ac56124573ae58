"""`python -m benchmarks.damage [--seeds N] [--only KIND] [--jobs N]`: archives, runs and requests harmed in many ways.

A small snapshot of each kind of capture is put into each form that can be opened (a recording's directory, a sealed
.wacz, plain WARC, .warc.gz, .warc.zst, an archive as Common Crawl's, HAR, mitmproxy's flows). Copies of it are harmed
(bits, bytes, blocks, records, whole files) before they are opened, between being indexed and being opened, when they are
open, and when all was asked for once. Then everything is asked of them. Wrong is:
- an answer that is not the recorded one (`served wrong`), or one less to a request whose records are whole (`lost`);
- an error that does not name its file and offset; a bug, a hang (60 s) or more than 1 GB of memory;
- `stillweb verify` that calls sound what is not.
The same of run directories (score, report, compare, certify: nothing doctored passes as certified), and of what is sent
to the proxy of a replay: malformed and smuggled HTTP/1.1, spoilt frames of HTTP/2.

HAR, flows and the heads of records in plain WARC and Zstandard frames have no check sums: a flipped bit can't be told
there, and answers that stand on such places are not counted. Nor are: whole records missing or exchanged in archives of
others, which are sound without them (an answer whose request is gone may be taken for that to a GET, as
docs/snapshot.md says); a zip, HAR or flow file that is refused whole (`refused`); and another recorded answer of a site with states, where
the records that told them apart are gone (`other of its site`). A case is made of its name and seed alone.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from benchmarks.damaging.archives import Case, Master, cases, masters, try_case
from benchmarks.damaging.bounded import Found, bounded
from benchmarks.damaging.recorded import FORMS
from benchmarks.damaging.runs import Run, RunCase, make_runs, run_cases, try_run
from benchmarks.damaging.wire import WireCase, try_wire, wire_cases

AnyCase = Case | RunCase | WireCase
FAULTS = (
    "served wrong", "lost", "unsure now", "no place is named", "no file is named", "crash", "hang", "memory",
    "failed", "verify calls it sound", "doctored", "desync", "silence",
)  # fmt: skip


@click.command()
@click.option("--seeds", default=1, show_default=True, type=click.IntRange(1), help="Of each case.")
@click.option("--only", default="", help="Cases whose kind or name this regular expression finds.")
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(1), help="Cases at once.")
def main(seeds: int, only: str, jobs: int) -> None:
    """Tries each case in a process of its own."""
    rows, faults = measure(seeds, only, jobs)
    click.echo(table(rows))
    sys.exit(bool(faults))


def measure(
    seeds: int, only: str = "", jobs: int = 2, most: int = 0
) -> tuple[dict[str, Counter[str]], list[str]]:
    """Return the findings of each kind, and the faults in words; at most `most` cases of a kind if given."""
    rows: dict[str, Counter[str]] = {}
    faults = []
    kept = os.environ.get("STILLWEB_CACHE")
    with tempfile.TemporaryDirectory(prefix="stillweb-damage-") as folder:
        os.environ["STILLWEB_CACHE"] = f"{folder}/cache"
        try:
            chosen = _chosen(Path(folder), seeds, only, most)
            for case, found in bounded(*chosen, jobs):
                row = rows.setdefault(case.form, Counter())
                row["cases"] += 1
                row["faulty"] += any(not one.startswith("(") for one in found)
                for one in found:
                    row[one.strip("(").partition(":")[0].rstrip(")")] += 1
                    if not one.startswith("("):
                        faults.append(f"{case.name}: {one}")
                        click.echo(faults[-1][:400], err=True)
        finally:
            os.environ.pop("STILLWEB_CACHE")
            if kept is not None:
                os.environ["STILLWEB_CACHE"] = kept
    return rows, faults


def _chosen(
    folder: Path, seeds: int, only: str, most: int
) -> tuple[list[AnyCase], Callable[[AnyCase], Found]]:
    made = masters(folder, list(FORMS))
    (folder / "runs").mkdir()
    runs = make_runs(folder / "runs")
    todo: list[AnyCase] = [*cases(made, seeds), *run_cases(runs, seeds), *wire_cases(seeds)]
    seen: Counter[str] = Counter()
    chosen = []
    for case in todo:
        if re.search(only, case.name) and (not most or seen[case.form] < most):
            seen[case.form] += 1
            chosen.append(case)
    return chosen, partial(_try, made=made, runs=runs)


def _try(case: AnyCase, made: dict[str, Master], runs: dict[str, Run]) -> Found:
    match case:
        case Case():
            return try_case(case, made)
        case RunCase():
            return try_run(case, runs)
    return try_wire(case)


def table(rows: dict[str, Counter[str]]) -> str:
    """As Markdown."""
    lines = [
        "| kind | cases | with a fault | faults | refused whole | other of its site |",
        "|---|---|---|---|---|---|",
    ]
    for form, row in rows.items():
        told = ", ".join(f"{name} {row[name]}" for name in FAULTS if row[name])
        refused, other = row["refused whole"], row["other answer of the site"]
        lines.append(f"| {form} | {row['cases']} | {row['faulty']} | {told} | {refused} | {other} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
