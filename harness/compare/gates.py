"""Gates: conditions on a comparison that fail a build."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from stillweb.harness.compare.compare import ONLY_FIRST, ONLY_THERE, SCORED_BY, Comparison
from stillweb.harness.compare.statistics import LEAST_CLUSTERS
from stillweb.snapshots.errors import GateFailed, UsageError
from stillweb.snapshots.words import pluralize

_GATE = re.compile(r"\s*([a-z_]+)\s*(<=|>=|<|>)\s*(-?[0-9.]+)\s*")

# values that a gate can test; None if unknown
_SEEN: dict[str, Callable[[Comparison], float | None]] = {
    "difference": lambda seen: seen.difference,
    "worse": lambda seen: float(len(seen.worse)),
    "better": lambda seen: float(len(seen.better)),
    "left_out": lambda seen: float(len(seen.left_out)),
    "p": lambda seen: seen.p,
    "sign_p": lambda seen: seen.sign_p,
    "lower": lambda seen: seen.interval[0] if seen.interval else None,
    "upper": lambda seen: seen.interval[1] if seen.interval else None,
    "mean_a": lambda seen: seen.mean_a,
    "mean_b": lambda seen: seen.mean_b,
}


def parse_gate(gate: str) -> tuple[str, str, float] | None:
    """Return name, operator and number of a gate, or None for `regressed`.

    Raise UsageError for any other text.
    """
    if gate.strip() == "regressed":
        return None
    found = _GATE.fullmatch(gate)
    try:
        limited = (found[1], found[2], float(found[3])) if found else None
    except ValueError:
        limited = None
    if limited is None or limited[0] not in _SEEN:
        raise UsageError(
            f"gate {gate!r}: expected `regressed` or one of {', '.join(_SEEN)} with < or > and a number"
        )
    return limited


def failed_gates(comparison: Comparison, gates: Iterable[str]) -> list[str]:
    """Return the gates that a comparison trips, each with the value that tripped it.

    A gate states the failing condition: `NAME OP NUMBER` with NAME one of difference, worse, better,
    left_out, p, sign_p, lower, upper, mean_a, mean_b; or `regressed` (worse than before, and p at most 0.05).
    Raise UsageError for any other text.

    An undecidable gate fails, too: while tasks are unfinished or their scorer failed; if the second run lacks
    tasks of the first, can't solve them in its snapshot or scored them by other rules; or if judges failed in
    it so often that the gate would be tripped had they given nothing. A gate on left_out limits the number of
    tasks left out, so that the gates beside it, except `regressed`, test only the others. `regressed` also
    fails if the mean is worse over so few clusters that no p could be that small. `lower` and `upper` fail
    without an interval.
    """
    parsed = [(gate.strip(), parse_gate(gate)) for gate in gates]
    may_lack = any(limited is not None and limited[0] == "left_out" for _, limited in parsed)
    failed = []
    for gate, limited in parsed:
        why = _regressed(comparison) if limited is None else _beyond(comparison, limited)
        if not why and limited is not None and not may_lack:
            why = _undecidable(comparison) or _unjudged(comparison, partial(_beyond, gate=limited))
        if why:
            failed.append(f"{gate}: {why}")
    return failed


def _beyond(comparison: Comparison, gate: tuple[str, str, float]) -> str | None:
    """Return the value that trips a gate on a number, as text, else None."""
    name, operator, limit = gate
    if (value := _SEEN[name](comparison)) is None:
        return comparison.no_interval
    tripped = {"<": value < limit, ">": value > limit, "<=": value <= limit, ">=": value >= limit}[operator]
    return f"{name} is {value:.4g}" if tripped else None


# Reasons for leaving a task out that leave open if the agent regressed, with the message for each.
_UNTOLD: tuple[tuple[Callable[[str], bool], str], ...] = (
    (lambda why: why.startswith("unfinished"), "tasks are unfinished"),
    (
        lambda why: why.startswith("unscored: its scorer failed"),
        "the scoring of tasks failed, which --retry-failed does again",
    ),
    (
        lambda why: why.startswith(SCORED_BY),
        "tasks are scored by other rules in the second run, which `stillweb score` of the first does alike",
    ),
    (lambda why: why == ONLY_FIRST, "tasks of the first run are not in the second"),
    (lambda why: why.endswith(ONLY_THERE), "the second run's snapshot lacks what tasks need"),
)


def _undecidable(comparison: Comparison) -> str | None:
    """Return the reason why it can't be decided if the second run is worse, or None."""
    for untold, told in _UNTOLD:
        if count := sum(untold(why) for _, why in comparison.left_out):
            return f"can't be told while {told} ({count})"
    return None


def _unjudged(comparison: Comparison, tripped: Callable[[Comparison], str | None]) -> str | None:
    """Return a message if the gate would be tripped had the failed judges given nothing, else None."""
    worst = comparison.at_worst
    if worst is None or not tripped(worst):
        return None
    tasks = pluralize(len({*worst.pairs} - {*comparison.pairs}), "task")
    return f"can't be told while a judge said of {tasks} in the second run what can't be read, which --retry-failed asks again"


def _regressed(comparison: Comparison) -> str | None:
    """Return why a comparison fails the gate `regressed`, or None."""
    return _undecidable(comparison) or _worse(comparison) or _unjudged(comparison, _worse)


def _worse(comparison: Comparison) -> str | None:
    if comparison.difference * comparison.sense >= 0:
        return None
    if comparison.p <= 0.05:
        return f"difference {comparison.difference:.4g}, p {comparison.p:.4g}"
    if comparison.clusters >= LEAST_CLUSTERS:  # if all n clusters got worse, p is 2/2**n
        return None
    return (
        f"difference {comparison.difference:.4g} over {pluralize(comparison.clusters, 'cluster')}, too few to tell it from "
        f"chance ({LEAST_CLUSTERS} could); gate on difference or worse instead"
    )


def check_gates(comparisons: Sequence[Comparison], gates: Sequence[str]) -> None:
    """Raise GateFailed naming every tripped gate, with its metric if there are several comparisons."""
    failed = [
        f"{comparison.metric}: {gate}" if len(comparisons) > 1 else gate
        for comparison in comparisons
        for gate in failed_gates(comparison, gates)
    ]
    if failed:
        raise GateFailed("; ".join(failed))
