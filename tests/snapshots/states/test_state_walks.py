"""Random walks on a site with every kind of state (tests/support/stateful_site.py): the right answer, or a miss."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.walks import random_walk, record, replay


@pytest.mark.slow
@pytest.mark.timeout(1800)  # minutes of work where other tests take the cores
def test_random_walks_replay_right_or_miss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Recorded by 8 sessions at once; replayed by 8 as recorded, and on walks that nobody recorded."""
    walks = [random_walk(seed, 7) for seed in range(1000)]
    with record(tmp_path / "walks", walks) as snapshot:
        same = replay(snapshot, walks)
        other = replay(snapshot, [random_walk(seed, 7) for seed in range(10_000, 10_200)])
    with capsys.disabled():
        print(f"\nwalks as recorded: {same.rate:.1%} right; others: {other.rate:.1%} right; 0 wrong")  # noqa: T201
    assert same.wrong == []
    assert other.wrong == []
    assert same.rate > 0.95
    assert other.rate > 0.8


@pytest.mark.parametrize("seed", range(5))
def test_walks_over_a_thin_recording_replay_right_or_miss(tmp_path: Path, seed: int) -> None:
    walks = [random_walk(100 * seed + n, 12) for n in range(3)]
    others = [walk[start:] for walk in walks for start in (2, 5)] + [walk * 2 for walk in walks]
    with record(tmp_path / "walks", walks) as snapshot:
        assert replay(snapshot, walks).missed <= 12
        found = replay(snapshot, others, accept="canonical")
    assert found.wrong == []
    assert found.right > 20


def test_the_captures_that_change_something_are_found_in_the_index(tmp_path: Path) -> None:
    with record(tmp_path / "walks", [[("filter", "toys"), ("contact", "hi"), ("get", "/about")]]) as snapshot:
        found = {c.place for c in snapshot.changing()}
        assert found == {c.place for c in snapshot.captures() if c.changes or "$" in c.state}
        assert {c.url.rpartition("/")[2] for c in snapshot.changing()} == {"filter", "contact"}
