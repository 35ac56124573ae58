"""The page of a comparison: what got worse, with both traces side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.compare import Comparison
from harness.report import render, sheet_of
from harness.report.sheet import Sheet
from harness.trace import read_trace

MOST_PAIRS = 40  # told in full, the worst first


def write_comparison(comparison: Comparison, out: Path) -> Path:
    """Writes the page as one file. Of a task attempted several times the first attempts are shown."""
    told = comparison.worse[:MOST_PAIRS]
    worse = [(pair, _sheet(pair.trace_a, "one"), _sheet(pair.trace_b, "two")) for pair in told]
    more = len(comparison.worse) - len(told)
    out.write_text(render("compare.html", comparison=comparison, worse=worse, more=more), encoding="utf-8")
    return out


def _sheet(path: str, side: str) -> Sheet:
    sheet = sheet_of(read_trace(Path(path)), None)
    return replace(sheet, id=f"{side}-{sheet.id}")
