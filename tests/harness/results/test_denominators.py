"""Honest denominators: whatever mix of endings a run has, its parts sum to the whole and nothing leaves it."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillweb.harness.agents.attempt import Limits
from stillweb.harness.compare.compare import read_outcomes
from stillweb.harness.results.summary import summarise
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from tests.support.runs import SCRIPT, SHELF, bird_task, write_script

# kind of ending -> status, and whether it has a value
KINDS = {
    "right": ("scored", True),
    "wrong": ("scored", True),
    "silent": ("zero", True),
    "broken": ("zero", True),
    "slow": ("timeout", True),
    "babble": ("unparsable", False),
    "lacking": ("unsolvable", False),
    "unfinished": ("unfinished", False),
}


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run with an attempt of each kind but the unfinished."""
    folder = tmp_path_factory.mktemp("endings")
    script = write_script(folder, SCRIPT)
    names = [name for name in KINDS if name not in ("unfinished", "slow")]
    ready = Settings(agent=script, contracts=(SHELF,))
    files = start_run(folder / "run", ready, [bird_task(name) for name in names])
    run_attempts(files.path, display=SilentDisplay(), unsolvable={"lacking": "not captured"})
    hasty = Settings(
        agent=script, contracts=(SHELF,), limits=Limits(seconds=0.05), tool_options={"wait": 600.0}
    )
    slow = start_run(folder / "slow", hasty, [bird_task("slow")])
    run_attempts(slow.path, display=SilentDisplay())
    shutil.copy(slow.trace_path("slow", 1), files.trace_path("slow", 1))
    return files.path


@settings(max_examples=30, deadline=None)
@given(mix=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=12))
def test_the_parts_sum_to_the_whole(endings: Path, mix: list[str]) -> None:
    one = RunFiles(endings)
    with tempfile.TemporaryDirectory() as folder:
        files = start_run(
            Path(folder), one.manifest()[0], [bird_task(f"{kind}-{i}") for i, kind in enumerate(mix)]
        )
        for i, kind in enumerate(mix):
            if kind != "unfinished":
                text = one.trace_path(kind, 1).read_text()
                files.trace_path(f"{kind}-{i}", 1).write_text(
                    text.replace(f'"id":"{kind}"', f'"id":"{kind}-{i}"', 1)
                )
        summary = summarise(files.path)
        outcomes = read_outcomes(files.path)
    expected = Counter(KINDS[kind][0] for kind in mix)
    assert summary.owed == sum(summary.statuses.values()) == len(mix)
    assert {status: n for status, n in summary.statuses.items() if n} == dict(expected)
    assert sum(summary.ends.values()) == len(mix) - expected["unfinished"]
    valued = sum(KINDS[kind][1] for kind in mix)
    for mean in summary.means.values():
        assert (mean.scored, mean.of) == (valued, len(mix))
        assert mean.all is not None
        assert (mean.value is None) == (valued == 0)
        assert mean.all * mean.of == pytest.approx((mean.value or 0.0) * mean.scored)
        assert mean.all <= (mean.value if mean.value is not None else 0.0) + 1e-12
    if "em" in summary.means:
        assert (summary.means["em"].all or 0) * len(mix) == pytest.approx(mix.count("right"))
    assert Counter(outcome.status for outcome in outcomes) == expected
