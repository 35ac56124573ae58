"""Within one run: the problems with errors, and the tasks whose repeated attempts don't agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from stillweb.harness.comparing.compare import Outcome
from stillweb.harness.scoring import MEASURED


@dataclass(frozen=True, slots=True)
class Cluster:
    """How a base task fared: attempts that earned less than there was to earn, of how many, and their statuses."""

    base: str
    wrong: int
    attempts: int
    statuses: dict[str, int]


def errors_by_base(outcomes: Iterable[Outcome], metric: str) -> list[Cluster]:
    """Base tasks with errors, the most wrong first."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if metric in outcome.metrics or not outcome.metrics:  # the others are scored by something else
            groups[outcome.base].append(outcome)
    clusters = []
    for base, group in groups.items():
        wrong = [o for o in group if _short(o, metric)]
        statuses: dict[str, int] = defaultdict(int)
        for outcome in wrong:
            statuses[outcome.status] += 1
        if wrong:
            clusters.append(Cluster(base, len(wrong), len(group), dict(sorted(statuses.items()))))
    return sorted(clusters, key=lambda c: (-c.wrong / c.attempts, -c.wrong, c.base))


def _short(outcome: Outcome, metric: str) -> bool:
    value = outcome.metrics.get(metric)
    return value is None or (metric not in MEASURED and value < outcome.best)


def flips(outcomes: Iterable[Outcome], metric: str) -> dict[str, list[float | None]]:
    """Tasks whose repeated attempts don't agree (a judge that changes its mind, an agent that wavers)."""
    values: dict[str, list[float | None]] = defaultdict(list)
    for outcome in sorted(outcomes, key=lambda o: (o.task_id, o.attempt)):
        if outcome.status == "unfinished":
            continue
        values[outcome.task_id].append(outcome.metrics.get(metric))
    return {task_id: found for task_id, found in values.items() if len(set(found)) > 1}
