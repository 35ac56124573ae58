"""Two runs, paired by task and clustered by base task: what changed, and whether chance explains it.

The forms of one base task (goal and constraint, two languages) are not independent, so tests and intervals move
whole clusters. Nothing here depends on a clock; sampling is seeded and said so.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from math import comb, fsum, lcm
from pathlib import Path
from random import Random
from typing import Any

from harness.scoring import BEST, MEASURED, Score
from snapshots.errors import GateFailed, UsageError

RESAMPLES = 10_000
MOST_SUMS = 50_000  # distinct sums kept while counting sign flips exactly; beyond it they are sampled


@dataclass(frozen=True, slots=True)
class Outcome:
    """One attempt's score. `status` is a score's, or "unfinished"; `trace` is where it can be read."""

    task_id: str
    base: str
    attempt: int
    metrics: dict[str, float | None]
    status: str
    variant: str = ""
    trace: str = ""
    language: str = ""
    best: float = 1.0  # what a metric of its scorer can be at most


@dataclass(frozen=True, slots=True)
class Pair:
    """One task in both runs; `a` and `b` are means over its attempts, `traces_a` and `traces_b` where each can be read."""

    task_id: str
    base: str
    a: float
    b: float
    trace_a: str = ""
    trace_b: str = ""
    traces_a: tuple[str, ...] = ()
    traces_b: tuple[str, ...] = ()

    @property
    def delta(self) -> float:
        """b - a."""
        return self.b - self.a


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides over the pairs they share. `interval` is the 95 % bootstrap interval of `difference` (b - a).

    `p` is two-sided, of the permutation test that `test` describes; `sign_p` of the exact sign test over clusters.
    `left_out` names what could not be paired, and why.
    """

    metric: str
    pairs: tuple[Pair, ...]
    clusters: int
    mean_a: float
    mean_b: float
    difference: float
    interval: tuple[float, float]
    p: float
    test: str
    sign_p: float
    seed: int
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def worse(self) -> tuple[Pair, ...]:
        """What got worse, the most first."""
        return self._moved(-1.0)

    @property
    def better(self) -> tuple[Pair, ...]:
        """What got better, the most first."""
        return self._moved(1.0)

    @property
    def sense(self) -> float:
        """1 where more of the metric is better, -1 where less is (a time)."""
        return -1.0 if self.metric in MEASURED else 1.0

    def _moved(self, way: float) -> tuple[Pair, ...]:
        way *= self.sense
        found = [pair for pair in self.pairs if pair.delta * way > 0]
        return tuple(sorted(found, key=lambda pair: (-pair.delta * way, pair.task_id)))

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return asdict(self) | {
            "pairs": [asdict(pair) | {"delta": pair.delta} for pair in self.pairs],
            "worse": [pair.task_id for pair in self.worse],
            "better": [pair.task_id for pair in self.better],
        }


def read_outcomes(run: str | Path) -> list[Outcome]:
    """The outcomes of a run, from its traces; what has no trace is `unfinished`."""
    from harness.run_files import RunFiles

    outcomes = []
    for task, attempt, trace in RunFiles(Path(run)).attempts():
        base, variant = task.base or task.id, str(task.meta.get("variant", ""))
        language = str(task.meta.get("language", ""))
        event = trace.last("score") if trace else None
        score = Score.from_json(event) if event else Score({}, "zero")
        status, path = (score.status, str(trace.path)) if trace and event else ("unfinished", "")
        best = BEST.get(task.scorer, 1.0)
        outcomes.append(Outcome(task.id, base, attempt, score.metrics, status, variant, path, language, best))
    return outcomes


def main_metric(outcomes: Iterable[Outcome]) -> str:
    """The metric that ranks a run: the first of its first scored attempt. UsageError if nothing was scored."""
    for outcome in outcomes:
        for name in outcome.metrics:
            return name
    raise UsageError("no attempt of the run has a score")


def compare(
    a: Sequence[Outcome],
    b: Sequence[Outcome],
    metric: str | None = None,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Comparison:
    """Compares two runs on the tasks they share. UsageError if they share none that can be compared.

    An attempt that gave nothing readable counts 0 (it earned nothing); `unsolvable` and `unfinished` ones are no
    evidence about an agent and leave the pair out, by name.
    """
    metric = metric or main_metric(a)
    left, left_out = _by_task(a, metric)
    right, right_out = _by_task(b, metric)
    out = {**left_out, **right_out}
    for task_id in (left.keys() | left_out.keys()) ^ (right.keys() | right_out.keys()):
        out[task_id] = (
            "only in the first run" if task_id in left or task_id in left_out else "only in the second run"
        )
    pairs = [
        _pair(task_id, left[task_id], right[task_id])
        for task_id in left
        if task_id in right and task_id not in out
    ]
    return _compared(metric, pairs, out, seed, resamples)


def compare_variants(
    outcomes: Sequence[Outcome],
    metric: str | None = None,
    *,
    first: str = "constraint",
    second: str = "goal",
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Comparison:
    """Two forms of the same base tasks within one run: `second` against `first`, each in its own language."""
    metric = metric or main_metric(outcomes)
    values, out = _by_task(outcomes, metric)
    forms: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    languages: dict[str, set[str]] = defaultdict(set)
    for outcome in outcomes:
        languages[outcome.base].add(outcome.language)
        there = forms[outcome.base, outcome.language].setdefault(outcome.variant, outcome.task_id)
        if there != outcome.task_id:
            out[outcome.task_id] = f"has the same form as {there}"
    pairs = []
    for (base, language), ids in forms.items():
        if first in ids and second in ids:
            one, two = values.get(ids[first]), values.get(ids[second])
            name = base if len(languages[base]) == 1 else f"{base} ({language})"
            if one and two:
                pairs.append(_pair(name, one, two))
            elif one or two:
                out[ids[first if one else second]] = "its other form is left out"
            for variant in ids.keys() - {first, second}:
                out[ids[variant]] = f"is neither {first} nor {second}"
        else:
            out.update((task_id, "its other form is not in the run") for task_id in ids.values())
    return _compared(metric, pairs, out, seed, resamples)


_Value = tuple[str, float, tuple[str, ...]]  # base, mean over attempts, traces


def _pair(name: str, a: _Value, b: _Value) -> Pair:
    return Pair(name, a[0], a[1], b[1], a[2][0], b[2][0], a[2], b[2])


def _by_task(outcomes: Sequence[Outcome], metric: str) -> tuple[dict[str, _Value], dict[str, str]]:
    """The values of tasks, and the tasks left out with the reason."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.task_id].append(outcome)
    values: dict[str, _Value] = {}
    out: dict[str, str] = {}
    for task_id, group in groups.items():
        lost = [o.status for o in group if o.status in ("unsolvable", "unfinished")]
        if lost:
            out[task_id] = f"{lost[0]} ({len(lost)} of {len(group)} attempts)"
        elif any(metric not in o.metrics for o in group):
            out[task_id] = f"has no metric {metric!r}"
        elif metric in MEASURED and any(o.metrics[metric] is None for o in group):
            out[task_id] = f"{metric} was not measured"  # counted as 0 it would be the best there is
        else:
            mean = fsum(o.metrics[metric] or 0.0 for o in group) / len(group)
            values[task_id] = (
                group[0].base,
                mean,
                tuple(o.trace for o in sorted(group, key=lambda o: o.attempt)),
            )
    return values, out


def _compared(metric: str, pairs: list[Pair], out: dict[str, str], seed: int, resamples: int) -> Comparison:
    if not pairs:
        reason = next(iter(out.values()), "no tasks")
        raise UsageError(f"nothing to compare by {metric!r}: {reason}")
    pairs.sort(key=lambda pair: pair.task_id)
    clusters: dict[str, list[float]] = defaultdict(list)
    for pair in pairs:
        clusters[pair.base].append(pair.delta)
    groups = [clusters[base] for base in sorted(clusters)]
    p, test = permutation_test([fsum(group) for group in groups], seed=seed, resamples=resamples)
    n = len(pairs)
    return Comparison(
        metric=metric,
        pairs=tuple(pairs),
        clusters=len(groups),
        mean_a=fsum(pair.a for pair in pairs) / n,
        mean_b=fsum(pair.b for pair in pairs) / n,
        difference=fsum(pair.delta for pair in pairs) / n,
        interval=bootstrap_interval(groups, seed=seed, resamples=resamples),
        p=p,
        test=test,
        sign_p=sign_test([fsum(group) for group in groups]),
        seed=seed,
        left_out=tuple(sorted(out.items())),
    )


def permutation_test(
    sums: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES
) -> tuple[float, str]:
    """Two-sided p that flipping the signs of clusters' sums at random gives a total as far from 0, and how.

    All 2^n flips are counted exactly, by the distribution of their totals in exact fractions; where that has too
    many values, flips are sampled with the seed and p is (k+1)/(m+1).
    """
    fractions = [value for value in map(_exact, sums) if value]
    scale = lcm(*(value.denominator for value in fractions))
    values = [int(value * scale) for value in fractions]  # whole numbers: exact, and quick to add
    observed = abs(sum(values))
    counts: dict[int, int] = {0: 1}
    for value in values:
        following: dict[int, int] = {}
        for total, ways in counts.items():
            following[total + value] = following.get(total + value, 0) + ways
            following[total - value] = following.get(total - value, 0) + ways
        counts = following
        if len(counts) > MOST_SUMS:
            return _sampled([float(value) for value in fractions], seed, resamples)
    far = sum(ways for total, ways in counts.items() if abs(total) >= observed)
    return float(
        Fraction(far, 2 ** len(values))
    ), f"exact permutation test, {_clusters(len(values))} that changed"


def _clusters(count: int) -> str:
    return f"{count} cluster{'s' if count != 1 else ''}"


def _exact(value: float) -> Fraction:
    """The fraction that a sum of scores stands for: what is 0 but for rounding is 0, and equal totals are equal."""
    return Fraction(value).limit_denominator(1_000_000)


def _sampled(values: list[float], seed: int, resamples: int) -> tuple[float, str]:
    random = Random(seed)
    # A hair below, so that rounding can't drop a total equal to the observed one.
    least = abs(fsum(values)) * (1 - 1e-12)
    far = sum(
        abs(fsum(value if random.random() < 0.5 else -value for value in values)) >= least
        for _ in range(resamples)
    )
    said = (
        f"permutation test, {resamples} flips sampled with seed {seed}, {_clusters(len(values))} that changed"
    )
    return (far + 1) / (resamples + 1), said


def sign_test(sums: Sequence[float]) -> float:
    """Two-sided exact sign test over clusters; those that didn't change say nothing."""
    exact = [_exact(value) for value in sums]
    up, down = sum(value > 0 for value in exact), sum(value < 0 for value in exact)
    n = up + down
    tail = sum(comb(n, k) for k in range(min(up, down) + 1))
    return float(min(Fraction(1), Fraction(2 * tail, 2**n)))


def bootstrap_interval(
    groups: Sequence[Sequence[float]], *, seed: int = 0, resamples: int = RESAMPLES, level: float = 0.95
) -> tuple[float, float]:
    """Percentile interval of the mean difference, whole clusters drawn with replacement."""
    random = Random(seed)
    totals = [(fsum(group), len(group)) for group in groups]
    means = []
    for _ in range(resamples):
        drawn = random.choices(totals, k=len(totals))
        means.append(sum(total for total, _ in drawn) / sum(count for _, count in drawn))
    means.sort()
    cut = (1 - level) / 2
    return means[int(cut * (resamples - 1))], means[int((1 - cut) * (resamples - 1) + 0.5)]


_GATE = re.compile(r"\s*([a-z_]+)\s*(<=|>=|<|>)\s*(-?[0-9.]+)\s*")


def failed_gates(comparison: Comparison, gates: Iterable[str]) -> list[str]:
    """The gates that a comparison trips, each with what it saw.

    A gate says what fails: `NAME OP NUMBER` with NAME one of difference, worse, better, left_out, p, sign_p, lower,
    upper, mean_a, mean_b; or `regressed` (worse than before, and p at most 0.05). UsageError for any other text.
    """
    seen = {
        "difference": comparison.difference,
        "worse": float(len(comparison.worse)),
        "better": float(len(comparison.better)),
        "left_out": float(len(comparison.left_out)),
        "p": comparison.p,
        "sign_p": comparison.sign_p,
        "lower": comparison.interval[0],
        "upper": comparison.interval[1],
        "mean_a": comparison.mean_a,
        "mean_b": comparison.mean_b,
    }
    failed = []
    for gate in gates:
        if gate.strip() == "regressed":
            if comparison.difference * comparison.sense < 0 and comparison.p <= 0.05:
                failed.append(f"regressed: difference {comparison.difference:.4g}, p {comparison.p:.4g}")
            continue
        found = _GATE.fullmatch(gate)
        try:
            name, operator, limit = (found[1], found[2], float(found[3])) if found else ("", "", 0.0)
        except ValueError:
            name = ""
        if name not in seen:
            raise UsageError(
                f"gate {gate!r}: expected `regressed` or one of {', '.join(seen)} with < or > and a number"
            )
        value = seen[name]
        if {"<": value < limit, ">": value > limit, "<=": value <= limit, ">=": value >= limit}[operator]:
            failed.append(f"{gate.strip()}: {name} is {value:.4g}")
    return failed


def check_gates(comparison: Comparison, gates: Iterable[str]) -> None:
    """Raises GateFailed naming every gate that is tripped."""
    if failed := failed_gates(comparison, gates):
        raise GateFailed("; ".join(failed))
