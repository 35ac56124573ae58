"""A run checks the machine for all that it needs before it starts; a loss during the run counts against no answer."""

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.results.certificate import certify
from stillweb.harness.results.summary import summarise
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.preflight import check_ready
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.snapshots.errors import MissingCapability, UsageError
from tests.harness.benchmarks.sgi.test_dry import OUTPUTS, RIGHT, record
from tests.support.isolating import needs_isolation
from tests.support.runs import SHELF, write_script


@pytest.fixture(autouse=True)
def judge_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADER_API_KEY", "k")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    folder = tmp_path / "env"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    return folder


def dry(number: str = "0001") -> Task:
    return Task(f"SGI_DryExperiment_{number}", "?", record(OUTPUTS), "sgi-dry-experiment")


def settings(environment: Path, **env: str) -> Settings:
    grader = {"GRADER_BASE_URL": "http://127.0.0.1:9/v1"}
    return Settings(agent="", env={"SGI_CONDA_ENV": str(environment), **grader, **env})


def check(task: Task, ready: Settings, tape: Path = Path("/nonexistent")) -> None:
    check_ready([task], ready, tape)


@needs_isolation
def test_the_environment_of_dry_experiments_and_their_fixtures(tmp_path: Path, environment: Path) -> None:
    check(dry(), settings(environment))
    with pytest.raises(MissingCapability, match="0206 needs fixtures in SGI_DRY_EXPERIMENT_DATA_DIR"):
        check(dry("0206"), settings(environment))
    data = tmp_path / "data" / "SGI_DryExperiment_0206"
    data.mkdir(parents=True)
    there = settings(environment, SGI_DRY_EXPERIMENT_DATA_DIR=str(data.parent))
    with pytest.raises(MissingCapability, match=r"0206 needs fixtures in .*SGI_DryExperiment_0206"):
        check(dry("0206"), there)
    (data / "x").write_text("x")
    check(dry("0206"), there)
    with pytest.raises(UsageError, match="SGI_EXECUTION_TIMEOUT 'soon'"):
        check(dry(), settings(environment, SGI_EXECUTION_TIMEOUT="soon"))
    (environment / "bin" / "python").unlink()
    with pytest.raises(MissingCapability, match="SGI_CONDA_ENV"):
        check(dry(), settings(environment))
    (environment / "bin" / "python").write_text("#!/bin/sh\necho broken pip >&2\nexit 3\n")
    (environment / "bin" / "python").chmod(0o755)
    with pytest.raises(MissingCapability, match="does not run in the sandbox: broken pip"):
        check(dry(), settings(environment))


def test_judges_need_a_model_and_a_key_unless_a_tape_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = Task("a", "?", "x", "judge")
    base = {"GRADER_BASE_URL": "http://127.0.0.1:9/v1"}
    with pytest.raises(UsageError, match=r"task a: scorer 'judge' needs options\.model or GRADER_MODEL"):
        check(judged, Settings(agent="", env=base))
    named = Settings(agent="", env=base | {"GRADER_MODEL": "m"})
    check(judged, named)
    monkeypatch.delenv("GRADER_API_KEY")
    with pytest.raises(MissingCapability, match=r"GRADER_API_KEY holds no key for http://127.0.0.1:9/v1"):
        check(judged, named)
    (tmp_path / "tape").mkdir()
    check(judged, named, tmp_path / "tape")


def test_three_judges_of_ideas_have_three_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    idea = Task("a", "?", {}, "sgi-idea-generation")
    env = {f"SGI_JUDGE_BASE_URL_{n}": f"http://127.0.0.1:9/{n}" for n in (1, 2, 3)}
    for n in (1, 2):
        monkeypatch.setenv(f"SGI_JUDGE_API_KEY_{n}", "k")
    monkeypatch.delenv("GRADER_API_KEY")
    ready = Settings(agent="", env=env)
    with pytest.raises(
        MissingCapability, match=r"the judge anthropic/claude-sonnet-4.5: .*SGI_JUDGE_API_KEY_3"
    ):
        check(idea, ready)
    monkeypatch.setenv("SGI_JUDGE_API_KEY_3", "k")
    check(idea, ready)  # no grader is asked, so none needs a key


def start(folder: Path, environment: Path, **more: Any) -> RunFiles:
    script = write_script(folder, {"agent": "script", "default": {"answer": RIGHT}})
    ready = Settings(agent=script, contracts=(SHELF,), env=dict(settings(environment).env), **more)
    return start_run(folder / "run", ready, [dry(), dry("0002")])


def test_a_run_without_its_environment_does_not_begin(tmp_path: Path) -> None:
    files = start(tmp_path, tmp_path / "nowhere" / "env")
    with pytest.raises(MissingCapability, match="SGI_CONDA_ENV"):
        run_attempts(files.path, display=SilentDisplay())
    assert list(files.traces.iterdir()) == []


@pytest.mark.slow
@needs_isolation
def test_a_sandbox_lost_during_a_run_ends_it_and_the_same_call_goes_on(
    tmp_path: Path, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = start(tmp_path, environment)
    monkeypatch.setattr(
        "stillweb.harness.runs.runner.check_ready", lambda *arguments: shutil.rmtree(environment)
    )
    with pytest.raises(MissingCapability, match="SGI_CONDA_ENV"):
        run_attempts(files.path, display=SilentDisplay())
    monkeypatch.undo()
    monkeypatch.setenv("GRADER_API_KEY", "k")
    assert summarise(files.path).statuses["unfinished"] == 2  # no zero, nothing unparsable
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(sys.executable)
    assert run_attempts(files.path, display=SilentDisplay()) == 2
    assert summarise(files.path).means["passall5"].mean == 1.0
    assert certify(files.path, times=1).holds


@pytest.mark.parametrize(
    ("scorer", "options", "says"),
    [
        ("exat", {}, "task a: no scorer 'exat'; known are "),
        ("exact", {"foldcase": True}, "task a: unknown option 'foldcase'; known are fold_case, "),
        ("exact", {"numeric": True, "tolerance": "wide"}, "task a: options.tolerance: 'wide'"),
        ("page", {}, "task a: scorer 'page' needs options.expression"),
        ("judge", {"modell": "m"}, "task a: unknown option 'modell'"),
    ],
)
def test_a_scorer_that_could_not_score_is_told_before_anything_is_paid(
    tmp_path: Path, scorer: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        check(Task("a", "?", "x", scorer, options=options), Settings(agent=""))


def test_a_program_that_is_not_there_is_told_before_anything_begins(tmp_path: Path) -> None:
    check(Task("a", "?", "x", "exact"), Settings(agent="command:true"))
    with pytest.raises(UsageError, match="there is no program 'no-such-program'"):
        check(Task("a", "?", "x", "exact"), Settings(agent="command:no-such-program x"))
