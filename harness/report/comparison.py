"""The page of a comparison: what got worse, with both traces side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from stillweb.harness.compare.compare import Comparison, Pair
from stillweb.harness.report import render, sheet_of
from stillweb.harness.report.sheet import Sheet
from stillweb.harness.trace import read_trace
from stillweb.snapshots.archives.appending import write_text

MOST_ATTEMPTS = 40  # told in full on each side, of what got worse the most first


def write_comparison(
    comparisons: Sequence[Comparison], out: Path, differs: Sequence[str] = (), parts: Sequence[str] = ()
) -> Path:
    """Writes the page as one file, each attempt of the first run beside the one of that number in the second.

    `differs` names what the runs stand on that is not the same, `parts` says which have a part of their set only and what they asked otherwise
    (both from stillweb.harness.compare.compare).
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
