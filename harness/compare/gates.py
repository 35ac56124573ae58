"""Gates: what of a comparison fails a build."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from stillweb.harness.compare.compare import ONLY_FIRST, ONLY_THERE, SCORED_BY, Comparison
from stillweb.harness.compare.statistics import LEAST_CLUSTERS
from stillweb.snapshots.errors import GateFailed, UsageError
from stillweb.snapshots.words import counted

_GATE = re.compile(r"\s*([a-z_]+)\s*(<=|>=|<|>)\s*(-?[0-9.]+)\s*")

# what a gate can be on; None where it is not known
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
    """What a gate is on, how it is compared and with which number; None for `regressed`. UsageError for any other text."""
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
    """The gates that a comparison trips, each with what it saw.

    A gate says what fails: `NAME OP NUMBER` with NAME one of difference, worse, better, left_out, p, sign_p, lower,
    upper, mean_a, mean_b; or `regressed` (worse than before, and p at most 0.05). UsageError for any other text.
    What can't be told is no pass: a gate also fails while tasks are unfinished or their scorer failed, where the second
    run lacks tasks of the first, can't solve them in its snapshot or scored them by other rules, and where judges failed in
    it so often that the gate would have been tripped had they given nothing. A gate on left_out says how many tasks may be
    left out, so that those beside it, but `regressed`, hold for the others. `regressed` also fails where the mean is worse
    over so few clusters that no p could be that small; `lower` and `upper` fail where there is no interval.
    """
    parsed = [(gate.strip(), parse_gate(gate)) for gate in gates]
    may_lack = any(limited is not None and limited[0] == "left_out" for _, limited in parsed)
    failed = []
    for gate, limited in parsed:
        why = _regressed(comparison) if limited is None else _beyond(comparison, limited)
        if not why and limited is not None and not may_lack:
            why = _untold(comparison) or _unjudged(comparison, partial(_beyond, gate=limited))
        if why:
            failed.append(f"{gate}: {why}")
    return failed


def _beyond(comparison: Comparison, gate: tuple[str, str, float]) -> str | None:
    """What a gate on a number saw that trips it."""
    name, operator, limit = gate
    if (value := _SEEN[name](comparison)) is None:
        return comparison.no_interval
    tripped = {"<": value < limit, ">": value > limit, "<=": value <= limit, ">=": value >= limit}[operator]
    return f"{name} is {value:.4g}" if tripped else None


# Why a task can be left out without a word on whether the agent regressed, and what is said of that.
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


def _untold(comparison: Comparison) -> str | None:
    """What keeps it from being told whether the second run is worse."""
    for untold, told in _UNTOLD:
        if count := sum(untold(why) for _, why in comparison.left_out):
            return f"can't be told while {told} ({count})"
    return None


def _unjudged(comparison: Comparison, tripped: Callable[[Comparison], str | None]) -> str | None:
    """Why judges that failed keep it from being told, where a gate would be tripped had they given nothing."""
    worst = comparison.at_worst
    if worst is None or not tripped(worst):
        return None
    tasks = counted(len(worst.pairs) - len(comparison.pairs), "task")
    return f"can't be told while a judge said of {tasks} in the second run what can't be read, which --retry-failed asks again"


def _regressed(comparison: Comparison) -> str | None:
    """Why a comparison does not pass for "no regression", None if it does."""
    return _untold(comparison) or _worse(comparison) or _unjudged(comparison, _worse)


def _worse(comparison: Comparison) -> str | None:
    if comparison.difference * comparison.sense >= 0:
        return None
    if comparison.p <= 0.05:
        return f"difference {comparison.difference:.4g}, p {comparison.p:.4g}"
    if comparison.clusters >= LEAST_CLUSTERS:  # if all of n got worse, p is 2/2**n
        return None
    return (
        f"difference {comparison.difference:.4g} over {counted(comparison.clusters, 'cluster')}, too few to tell it from "
        f"chance ({LEAST_CLUSTERS} could); gate on difference or worse instead"
    )


def check_gates(comparisons: Sequence[Comparison], gates: Sequence[str]) -> None:
    """Raises GateFailed naming every gate that one of them trips, by its metric where they are several."""
    failed = [
        f"{comparison.metric}: {gate}" if len(comparisons) > 1 else gate
        for comparison in comparisons
        for gate in failed_gates(comparison, gates)
    ]
    if failed:
        raise GateFailed("; ".join(failed))
