"""The sums of a run: what is measured is shown and hashed nowhere."""

import json
import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from stillweb.harness.agents.attempt import Limits
from stillweb.harness.commands.score import command as score_command
from stillweb.harness.compare.compare import read_outcomes
from stillweb.harness.results.certificate import make_certificate
from stillweb.harness.results.summary import score_run, summarise
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.scoring import BEST
from stillweb.harness.view.export import write_report
from stillweb.snapshots.contents.failures import Failure
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.request import Request
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import START
from tests.support.runs import SCRIPT, SHELF, bird_task, write_script

SCORERS = "tests.support.scorers"


def run(folder: Path, scorer: str, env: dict[str, str] | None = None) -> RunFiles:
    folder.mkdir(exist_ok=True)
    settings = Settings(agent=write_script(folder), contracts=(SHELF,), env=env or {})
    tasks = [replace(bird_task(name), scorer=f"{SCORERS}:{scorer}") for name in ("right", "wrong", "silent")]
    files = start_run(folder / "run", settings, tasks)
    run_attempts(files.path, display=SilentDisplay())
    return files


def test_a_time_is_shown_and_changes_no_hash(tmp_path: Path) -> None:
    files, again = run(tmp_path / "a", "timed"), run(tmp_path / "b", "timed")
    one, other = summarise(files.path), summarise(again.path)
    assert list(one.means) == ["passall5"]
    assert (one.means["passall5"].scored, one.means["passall5"].of) == (3, 3)  # the silent attempt earns 0
    assert one.measured["aet"].mean != other.measured["aet"].mean
    assert (one.measured["aet"].mean_of_all, one.measured["aet"].scored, one.measured["aet"].of) == (
        None,
        2,
        3,
    )
    assert make_certificate(files.path)["hash"] == make_certificate(again.path)["hash"]
    assert "aet" not in json.dumps(make_certificate(files.path))
    said = CliRunner().invoke(score_command, [str(files.path)]).stdout
    assert f"aet {one.measured['aet'].mean:.3f}, mean of 2 measured on this machine, in no hash" in said
    told = json.loads(CliRunner().invoke(score_command, [str(files.path), "--json"]).stdout)
    assert told["measured"]["aet"]["scored"] == 2
    page = write_report(files.path).read_text(encoding="utf-8")
    assert '<th scope="row">aet</th>' in page


def test_two_scales_of_one_metric_make_no_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_100 = f"{SCORERS}:hundred"
    monkeypatch.setitem(BEST, of_100, 100.0)
    settings = Settings(agent=write_script(tmp_path), contracts=(SHELF,))
    other = replace(bird_task("wrong"), scorer=of_100)
    plain = replace(bird_task("right"), scorer="exact", reference="no", options={})
    files = start_run(tmp_path / "run", settings, [plain, other])
    run_attempts(files.path, display=SilentDisplay())
    means = summarise(files.path).means
    assert {name: (mean.mean, mean.of) for name, mean in means.items()} == {
        "exact (exact)": (0.0, 1),
        f"exact ({of_100})": (80.0, 1),
    }
    said = CliRunner().invoke(score_command, [str(files.path)]).stdout
    assert [line.split()[2:] for line in said.splitlines()[2:4]] == [["0.000", "-"], ["-", "80.000"]]
    assert "80</td>" in write_report(files.path).read_text(encoding="utf-8")


def test_a_scoring_that_failed_is_repeated_as_such(tmp_path: Path) -> None:
    files = run(tmp_path, "judged", {"OPENAI_NO_JUDGE": "1"})
    assert summarise(files.path).statuses["unparsable"] == 2
    assert score_run(files.path) == []
    settings, stands_on = files.manifest()
    files.write_manifest(replace(settings, env={}), stands_on)  # now it can be scored
    assert [(one.before["status"], one.after["status"]) for one in score_run(files.path)] == [
        ("unparsable", "scored")
    ] * 2


def test_a_score_that_can_not_be_had_again_is_no_failed_scoring(tmp_path: Path) -> None:
    files = run(tmp_path, "judged")
    settings, stands_on = files.manifest()
    files.write_manifest(replace(settings, env={"OPENAI_NO_JUDGE": "1"}), stands_on)
    with pytest.raises(UsageError, match="no judge"):
        score_run(files.path)


def test_what_failed_while_recording_is_told_apart_from_misses(tmp_path: Path) -> None:
    """In the sums, in the certificate where there is any, and in the report; other runs have the certificate they had."""
    dead, lacking = "http://dead.test/", "http://lacking.test/"
    with Writer.open(tmp_path / "s") as writer:
        Failure(Request("GET", dead), "dns", "no such name", START).write(writer)
    calls = [{"call": "fetch", "with": {"url": url}, "may_fail": True} for url in (dead, lacking)]
    script = {"agent": "script", "default": {"steps": calls, "answer": "none"}}
    settings = Settings(
        agent=write_script(tmp_path, script), contracts=("fetch",), snapshots=(str(tmp_path / "s"),)
    )
    files = start_run(tmp_path / "run", settings, [bird_task("one")])
    run_attempts(files.path, display=SilentDisplay())
    summary = summarise(files.path)
    assert (summary.misses, summary.failures) == (1, 1)
    assert make_certificate(files.path)["scores"]["failures"] == 1
    assert (
        "1 miss, 1 call that failed as while recording"
        in CliRunner().invoke(score_command, [str(files.path)]).stdout
    )
    report = write_report(files.path).read_text(encoding="utf-8")
    told = (
        "failed:dns</span>",
        "1 failed as recorded</span>",
        "call that failed as while recording: no miss<",
    )
    assert [part for part in told if part not in report] == []
    other = run(tmp_path / "other", "timed")
    assert "failures" not in make_certificate(other.path)["scores"]
    plain = write_report(other.path).read_text(encoding="utf-8")
    assert [part for part in ("failed as recorded", "failed as while") if part in plain] == []


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
    """Return a run with an attempt of each kind but the unfinished."""
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
        assert mean.mean_of_all is not None
        assert (mean.mean is None) == (valued == 0)
        assert mean.mean_of_all * mean.of == pytest.approx((mean.mean or 0.0) * mean.scored)
        assert mean.mean_of_all <= (mean.mean if mean.mean is not None else 0.0) + 1e-12
    if "em" in summary.means:
        assert (summary.means["em"].mean_of_all or 0) * len(mix) == pytest.approx(mix.count("right"))
    assert Counter(outcome.status for outcome in outcomes) == expected
