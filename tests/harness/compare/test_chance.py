"""What chance alone would do: tests and intervals, held against enumeration and against scipy."""

from __future__ import annotations

from itertools import product
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillweb.harness.compare.statistics import bootstrap_interval, permutation_test, sign_test


@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), max_size=8))
def test_the_permutation_test_counts_every_flip(sums: list[float]) -> None:
    changed = [value for value in sums if value]
    flipped = [
        abs(sum(s * v for s, v in zip(signs, changed, strict=True)))
        for signs in product((1, -1), repeat=len(changed))
    ]
    expected = sum(total >= abs(sum(changed)) for total in flipped) / len(flipped)
    p, how = permutation_test(sums)
    assert p == expected
    assert how.startswith("exact")
    assert permutation_test([-value for value in sums])[0] == p


@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), max_size=12))
def test_the_sign_test_is_binomial(sums: list[float]) -> None:
    up, n = sum(v > 0 for v in sums), sum(v != 0 for v in sums)
    likelihood = [comb(n, k) for k in range(n + 1)]
    expected = sum(ways for k, ways in enumerate(likelihood) if abs(k - n / 2) >= abs(up - n / 2)) / 2**n
    assert sign_test(sums) == pytest.approx(expected)


def test_too_many_sums_are_sampled_with_the_seed() -> None:
    sums = [0.1 + i * 0.0137**2 + (i % 7) * 0.01 for i in range(60)]
    mixed = [value if i % 2 else -value for i, value in enumerate(sums)]
    p, how = permutation_test(mixed, seed=3, resamples=500)
    assert "sampled with seed 3" in how
    assert (p, how) == permutation_test(mixed, seed=3, resamples=500)
    assert permutation_test(sums, resamples=500)[0] == 1 / 501


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.floats(-1, 1), min_size=1, max_size=3), min_size=1, max_size=6), st.integers(0, 5)
)
def test_the_interval_is_seeded_and_within_the_clusters_means(groups: list[list[float]], seed: int) -> None:
    low, high = bootstrap_interval(groups, seed=seed, resamples=200)
    means = [sum(group) / len(group) for group in groups]
    assert min(means) - 1e-9 <= low <= high <= max(means) + 1e-9
    assert (low, high) == bootstrap_interval(groups, seed=seed, resamples=200)


def test_a_constant_difference_has_a_point_interval() -> None:
    assert bootstrap_interval([[0.5], [0.5, 0.5]]) == (0.5, 0.5)


# Values of scipy 1.17: stats.permutation_test (samples, exact) and stats.binomtest.
AGAINST_SCIPY = [
    ([0.5, -0.25, 0.125, 0.0, 0.75, 0.5], 0.1875, 0.375),
    ([1 / 3, -1 / 3, 2 / 3, 1 / 3, 0.0, -1 / 6, 1 / 2, 5 / 6], 0.140625, 0.453125),
    ([0.1] * 10, 0.001953125, 0.001953125),
    ([0.3 - 0.1 - 0.2, 0.1 + 0.2 - 0.3, 0.4, -0.2, 0.6], 0.5, 1.0),  # the first two are 0 but for rounding
    ([1, 1, -1, 0.5, 0.5, -0.5, 1, 0, 0, -1, 1, 1], 0.2890625, 0.34375),
    (
        [
            -0.2145,
            0.153,
            -0.056,
            0.2247,
            0.2511,
            -0.4213,
            -0.4840,
            0.5037,
            -0.1888,
            -0.2201,
            0.4,
            0.33,
            0.01,
            0.25,
        ],
        0.6417236328125,
        0.79052734375,
    ),
]


@pytest.mark.parametrize(("sums", "p", "sign"), AGAINST_SCIPY)
def test_both_tests_agree_with_scipy(sums: list[float], p: float, sign: float) -> None:
    found, how = permutation_test(sums)
    assert found == pytest.approx(p, abs=1e-12)
    assert how.startswith("exact")
    assert sign_test(sums) == pytest.approx(sign, abs=1e-12)


def test_the_bootstrap_agrees_with_scipy() -> None:
    """stats.bootstrap (percentile, 20,000 resamples) of the mean; its own noise is about 0.01."""
    low, high = bootstrap_interval([[value] for value in AGAINST_SCIPY[4][0]])
    assert (low, high) == pytest.approx((-0.1667, 0.7083), abs=0.05)
