"""Page of a comparison: the tasks that got worse, with both traces side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from stillweb.harness.compare.compare import Comparison, Pair
from stillweb.harness.report import render, sheet_of
from stillweb.harness.report.sheet import Sheet
from stillweb.harness.trace import read_trace
from stillweb.snapshots.warc.appending import write_text

MOST_ATTEMPTS = 40  # shown in full on each side, for the tasks that got worse most


def write_comparison(
    comparisons: Sequence[Comparison], out: Path, differs: Sequence[str] = (), parts: Sequence[str] = ()
) -> Path:
    """Write the page as one file, with the n-th attempts of both runs side by side.

    `differs` names differences in what the runs depend on; `parts` are remarks on partial sets and changed
    questions (both from stillweb.harness.compare.compare).
    """
    told: list[tuple[str, Pair, list[tuple[Sheet | None, Sheet | None]]]] = []
    left = MOST_ATTEMPTS
    worse = [(one.metric, pair) for one in comparisons for pair in one.worse]
    for metric, pair in worse:
        beside = list(zip_longest(pair.traces_a, pair.traces_b))
        if told and len(beside) > left:
            break
        left -= len(beside)
        told.append((metric, pair, [(_sheet(one, "one"), _sheet(two, "two")) for one, two in beside]))
    page = render(
        "compare.html",
        comparisons=comparisons,
        worse=told,
        more=len(worse) - len(told),
        differs=differs,
        partial=parts,
    )
    write_text(out, page)
    return out


def _sheet(path: str | None, side: str) -> Sheet | None:
    if path is None:
        return None  # the other run made more attempts
    sheet = sheet_of(read_trace(Path(path)), None)
    return replace(sheet, id=f"{side}-{sheet.id}")
