"""Statistics over clusters: permutation test, sign test and bootstrap. Sampling is seeded and reported."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import comb, fsum, lcm
from random import Random

from stillweb.snapshots.words import pluralize

RESAMPLES = 10_000
# Least number of clusters for a 95 % interval. The range of n values holds their median with probability
# 1 - 2^(1-n) (David & Nagaraja, Order Statistics, 3rd ed., 7.1), and no percentile interval exceeds the
# range: 94 % for 5.
LEAST_CLUSTERS = 6
MOST_SUMS = 50_000  # distinct sums kept while counting sign flips exactly; with more, flips are sampled


def permutation_test(
    sums: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES
) -> tuple[float, str]:
    """Return the two-sided p of a permutation test that flips clusters' signs, and its description.

    p is the probability that random flips give a total at least as far from 0. All 2^n flips are counted
    exactly, by the distribution of their totals in exact fractions. If that has too many values, flips are
    sampled with the seed and p is (k+1)/(m+1).
    """
    fractions = [value for value in map(exact, sums) if value]
    scale = lcm(*(value.denominator for value in fractions))
    values = [int(value * scale) for value in fractions]  # integers: exact, and fast to add
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
    ), f"exact permutation test, {pluralize(len(values), 'cluster')} that changed"


def exact(value: float) -> Fraction:
    """Return the fraction that a sum of scores stands for: free of rounding, equal totals are equal."""
    return Fraction(value).limit_denominator(1_000_000)


def _sampled(values: list[float], seed: int, resamples: int) -> tuple[float, str]:
    random = Random(seed)
    # Slightly less, so that rounding can't drop a total equal to the observed one.
    least = abs(fsum(values)) * (1 - 1e-12)
    far = sum(
        abs(fsum(value if random.random() < 0.5 else -value for value in values)) >= least
        for _ in range(resamples)
    )
    said = f"permutation test, {resamples} flips sampled with seed {seed}, {pluralize(len(values), 'cluster')} that changed"
    return (far + 1) / (resamples + 1), said


def sign_test(sums: Sequence[float]) -> float:
    """Return the two-sided p of an exact sign test over clusters; unchanged clusters are ignored."""
    found = [exact(value) for value in sums]
    up, down = sum(value > 0 for value in found), sum(value < 0 for value in found)
    n = up + down
    tail = sum(comb(n, k) for k in range(min(up, down) + 1))
    return float(min(Fraction(1), Fraction(2 * tail, 2**n)))


def bootstrap_interval(
    groups: Sequence[Sequence[float]], *, seed: int = 0, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean difference, drawing whole clusters with replacement."""
    random = Random(seed)
    totals = [(fsum(group), len(group)) for group in groups]
    means = []
    for _ in range(resamples):
        drawn = random.choices(totals, k=len(totals))
        means.append(sum(total for total, _ in drawn) / sum(count for _, count in drawn))
    means.sort()
    cut = 0.025
    return means[int(cut * (resamples - 1))], means[int((1 - cut) * (resamples - 1) + 0.5)]
