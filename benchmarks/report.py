"""Report of a run: the table, rows that got worse, RESULTS.md with its plots, and ratios.json."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from benchmarks import peers, readme
from benchmarks.bench import Bench, Row
from benchmarks.plots import Series, plot

HERE = Path(__file__).parent
RATIOS = HERE / "ratios.json"
WORSE = 0.75  # a ratio below this part of the committed one is said to be worse
BUSY = " (the machine did other work: run it again when it is quiet)"


def versions() -> dict[str, str]:
    """Return the versions of the measured programs and of their tools."""
    # the distribution's Python is compiled with profiles of its use, one that a user compiled often isn't
    of = " of the distribution" if sys.base_prefix == "/usr" else ""
    found = {"Python": platform.python_version() + of, "cores": str(os.cpu_count())}
    found["machine"] = f"{platform.system()} {platform.machine()}"
    for name in ("uvloop", "mitmproxy", "isal"):
        found[name] = version(name)
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    if Path(program).exists():
        done = subprocess.run([program, "-v"], capture_output=True, text=True, check=False)
        found["nginx"] = (done.stderr or done.stdout).strip().rpartition("/")[2]
    return found | peers.versions(("pywb", "uwsgi", "warcprox", "cdxj-indexer"))


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| what | ours | theirs | ratio | bar | |", "|---|---|---|---|---|---|"]
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f} ×"
        held = {True: "held", False: "**not held**", None: ""}[row.held]
        note = f" ({row.note})" if row.note else ""
        cells = (row.name, row.ours + note, row.theirs, ratio, row.bar, held)
        lines.append("| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |")
    return "\n".join(lines)


def compared(rows: list[Row]) -> list[str]:
    """Return the ratios that are worse by more than a quarter than those committed last."""
    if not RATIOS.exists():
        return []
    before = json.loads(RATIOS.read_text())
    out = []
    for row in rows:
        old = before.get(row.name)
        if row.ratio is None or not old:
            continue
        good = old / row.ratio if row.bar.startswith("≤") else row.ratio / old
        if good < WORSE:
            out.append(f"{row.name}: {row.ratio:.2f}, was {old:.2f}")
    return out


def drawn(rows: list[Row]) -> dict[str, str]:
    """The plots that these rows give, by file name."""
    out = {}
    for row in rows:
        if points := row.data.get("lookups"):
            series: Series = {
                "p50, not asked for before": [(n, found["new"][0]) for n, found in points],
                "p99, not asked for before": [(n, found["new"][1]) for n, found in points],
                "p50, asked for again": [(n, found["again"][0]) for n, found in points],
            }
            out["captures.svg"] = plot("A lookup against captures", "captures", "µs", series)
            series = {
                "opening until the first lookup, ms": [(n, found["first"] * 1e3) for n, found in points],
                "memory, MB": [(n, found["mb"]) for n, found in points],
            }
            out["opening.svg"] = plot("Opening against captures", "captures", "ms · MB", series)
        if rates := row.data.get("rates"):
            title = "5 KB pages over HTTPS against connections"
            out["connections.svg"] = plot(title, "connections", "requests a second", rates)
    return out


def write(
    bench: Bench, rows: list[Row], worse: list[str], *, load: float, seconds: float, partial: bool
) -> None:
    """RESULTS.md, the plots and the ratios. A partial run keeps the ratios of the rows it left out."""
    about = ", ".join(f"{name} {value}" for name, value in versions().items())
    mean = sum(size for _, size in bench.mixed) / max(1, len(bench.mixed))
    plots = drawn(rows)
    for name, svg in plots.items():
        (HERE / name).write_text(svg)
    pictures = "".join(f"\n![{name.removesuffix('.svg')}]({name})\n" for name in plots)
    told = "".join(f"- worse by more than a quarter than before: {line}\n" for line in worse)
    (HERE / "RESULTS.md").write_text(
        f"# Results\n\nWritten by `{'make bench-quick' if bench.quick else 'make bench'}`. {about}.\n"
        f"Load average when it began: {load:.1f}{BUSY if load > 1 else ''}. It took {seconds:.0f} s.\n"
        "Hold the ratios; the figures are this machine's. Servers that are compared ran in turns, and the ratio\n"
        "is the median over the turns. The ledger, verdicts, states and redaction are on in all of ours.\n"
        f"Small pages are 5,000 bytes; the mix is {mean / 1000:.0f} kB on average. Ours is one process, nginx has two.\n\n"
        f"{table(rows)}\n{told and chr(10) + told}{pictures}"
    )
    known = json.loads(RATIOS.read_text()) if RATIOS.exists() and partial else {}
    known |= {row.name: round(row.ratio, 3) for row in rows if row.ratio is not None}
    RATIOS.write_text(json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    readme.put(known)
