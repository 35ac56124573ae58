"""What a comparison by one metric does not show: tasks that got worse by another of their metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import fsum

from stillweb.harness.comparing.compare import Comparison, Outcome
from stillweb.harness.console import decimals
from stillweb.harness.scoring import MEASURED
from stillweb.snapshots.words import counted


def worse_by_others(comparison: Comparison, a: Sequence[Outcome], b: Sequence[Outcome]) -> list[str]:
    """A sentence for each other metric by which tasks fell that are not worse by the one that is compared.

    An answer that is not wholly right in both runs has the same `em` of 0, however much less of it is right by now. Stricter
    and more forgiving readings of a metric, and what is measured, are no metrics of their own here.
    """
    worse = {pair.task_id for pair in comparison.worse}
    ids = [pair.task_id for pair in comparison.pairs if pair.task_id not in worse]
    told = []
    for name in dict.fromkeys(name for outcome in a for name in outcome.metrics):
        if name == comparison.metric or name in MEASURED or name.startswith(("raw_", "forgiven_")):
            continue
        before, after = _means(a, name), _means(b, name)
        fell = [task_id for task_id in ids if before.get(task_id, 0.0) > after.get(task_id, 0.0)]
        if fell:
            first = f"{fell[0]} {decimals(before[fell[0]], 3)} to {decimals(after.get(fell[0], 0.0), 3)}"
            told.append(
                f"not worse by {comparison.metric}, but by {name}: {counted(len(fell), 'task')} "
                f"({'the first: ' if fell[1:] else ''}{first}; --metric {name} compares by it)"
            )
    return told


def _means(outcomes: Iterable[Outcome], name: str) -> dict[str, float]:
    """The mean over its attempts of each task; an attempt without a value earned nothing."""
    found: dict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        found[outcome.task_id].append(outcome.metrics.get(name) or 0.0)
    return {task_id: fsum(values) / len(values) for task_id, values in found.items()}
