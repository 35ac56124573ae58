"""A judge whose answer nobody can read is asked again on request; the agent is not."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stillweb.harness.agents.attempt import Attempt
from stillweb.harness.agents.module import ModuleAgent
from stillweb.harness.results.certificate import certify, write_certificate
from stillweb.harness.results.summary import summarise
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.scoring.judging import Evaluator, rescore
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace
from stillweb.harness.view.export import write_report
from tests.harness.commands.calling import call
from tests.support.openai_endpoint import KEY, Asked, Endpoint

ASKED: list[str] = []  # the tasks at which the agent was set


class Teller:
    """An agent on no tape."""

    name = "teller"

    def identity(self) -> dict[str, str]:
        """JSON for traces and certificates."""
        return {"kind": "teller"}

    async def run(self, attempt: Attempt) -> str:
        """The right answer."""
        return "Alpha"


@pytest.fixture(autouse=True)
def _counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the agent's attempts; its second answer to a task is another one."""

    async def counted(agent: ModuleAgent, attempt: Attempt) -> str | None:
        ASKED.append(attempt.task.id)
        answer = await run(agent, attempt)
        return answer if ASKED.count(attempt.task.id) == 1 else "Omega"

    run = ModuleAgent.run
    monkeypatch.setattr(ModuleAgent, "run", counted)


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    """Babbles of what holds "odd" until it is told to be sensible."""
    ASKED.clear()
    monkeypatch.setenv("GRADER_API_KEY", KEY)

    def said(asked: Asked) -> str:
        if "odd" in asked.question and not sensible:
            return "correct: yes or no"
        return "correct: no" if "Omega" in asked.question else "correct: yes"

    sensible: list[bool] = []
    with Endpoint(said) as endpoint:
        endpoint.sensible = sensible  # type: ignore[attr-defined]
        yield endpoint


@pytest.fixture
def run(judge: Endpoint, tmp_path: Path) -> RunFiles:
    """Two judged attempts, of which one judgement is none."""
    env = {"GRADER_BASE_URL": judge.url, "GRADER_MODEL": "judge"}
    settings = Settings(agent="tests.harness.runs.test_judged_again:Teller", contracts=(), env=env)
    tasks = [Task(name, f"{name}?", "Alpha", "judge") for name in ("odd", "even")]
    files = start_run(tmp_path / "run", settings, tasks)
    run_attempts(files.path, display=SilentDisplay())
    return files


@pytest.mark.slow
def test_what_judges_used_is_in_the_sums_of_the_terminal_too(run: RunFiles) -> None:
    for name in ("odd", "even"):
        run.trace_path(name, 1).unlink()
    display = SilentDisplay()
    run_attempts(run.path, display=display)
    summary = summarise(run.path)
    assert display.totals.counts.tokens == summary.tokens > 0
    assert display.totals.counts.cost is summary.cost is None  # nobody gave a price


@pytest.mark.slow
def test_a_judgement_that_is_none_is_told_and_asked_again(
    run: RunFiles, judge: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    write_certificate(run.path)
    said = (
        "n 1 of 2 attempts the judge gave no answer that can be read (odd.1: the grader's answer has no line"
    )
    code, out = call(capsys, "score", run.path)
    assert (code, f"i{said}" in out) == (0, True)
    assert f"I{said}" in write_report(run.path).read_text().replace("&#39;", "'")
    assert json.loads(call(capsys, "score", run.path, "--json")[1])["unjudged"][0][0] == "odd.1"

    judge.sensible.append(True)  # type: ignore[attr-defined]
    before = len(judge.requests)
    assert run_attempts(run.path, display=SilentDisplay()) == 0  # unasked, nothing is made again
    assert run_attempts(run.path, display=SilentDisplay(), retry_failed=True) == 1
    assert (len(judge.requests) - before, sorted(ASKED)) == (1, ["even", "odd"])
    trace = read_trace(run.trace_path("odd", 1))
    assert (trace.last("answer") or {})["text"] == "Alpha"
    assert [event["event"] for event in trace.events] == ["model", "answer", "score"]
    assert (trace.last("score") or {})["metrics"] == {"correct": 1.0}
    summary = summarise(run.path)
    assert (summary.unjudged, summary.means["correct"].mean, run.made_again()) == ((), 1.0, 1)
    assert run_attempts(run.path, display=SilentDisplay(), retry_failed=True) == 0
    assert call(capsys, "score", run.path)[0] == 0
    del ASKED[:]
    assert certify(run.path, times=1).holds


def test_a_judge_is_asked_again_alone_also_by_who_takes_it_up_after_a_crash(
    run: RunFiles, judge: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge.sensible.append(True)  # type: ignore[attr-defined]
    monkeypatch.setattr("stillweb.harness.runs.runner.check_ready", killed)
    with pytest.raises(KeyboardInterrupt):
        run_attempts(run.path, display=SilentDisplay(), retry_failed=True)
    assert not run.trace_path("odd", 1).exists()
    monkeypatch.undo()
    monkeypatch.setenv("GRADER_API_KEY", KEY)
    assert run_attempts(run.path, display=SilentDisplay()) == 1
    trace = read_trace(run.trace_path("odd", 1))
    assert (trace.last("answer") or {})["text"] == "Alpha"
    assert (trace.last("score") or {})["metrics"] == {"correct": 1.0}
    assert (sorted(ASKED), run.made_again()) == (["even", "odd"], 1)


def killed(*_: object) -> None:
    """Stands where a process may be killed."""
    raise KeyboardInterrupt


@pytest.mark.slow
def test_a_judge_that_answers_at_another_address_by_then_certifies(run: RunFiles) -> None:
    with Endpoint(lambda asked: "correct: yes") as moved:
        settings, _ = run.manifest()
        elsewhere = replace(settings, env={**settings.env, "GRADER_BASE_URL": moved.url})
        start_run(run.path, elsewhere, run.tasks())
        assert run_attempts(run.path, retry_failed=True, display=SilentDisplay()) == 1
        assert len(moved.requests) == 1
    ASKED.clear()
    assert summarise(run.path).statuses["scored"] == 2
    assert certify(run.path, times=1).differences == ()


@pytest.mark.slow
def test_a_judge_that_is_down_costs_its_part_and_is_asked_again_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The parser's part stands, also in a repetition and where the scores are computed anew."""
    ASKED.clear()
    monkeypatch.setenv("GRADER_API_KEY", KEY)
    reference = {"answer": "Alpha", "steps": ["one"]}
    task = Task("deep", "Which?", reference, "sgi-deep-research")

    def said(asked: Asked) -> str:
        if asked.body["model"] == "gpt-4.1-mini":
            endpoint.faults = [] if mended else [401]  # for the next call, which is on no tape then
            return "Alpha"
        return '[{"judge": "correct"}]'

    mended: list[bool] = []
    with Endpoint(said) as endpoint:
        settings = Settings(
            agent="tests.harness.runs.test_judged_again:Teller",
            contracts=(),
            env={"GRADER_BASE_URL": endpoint.url},
        )
        files = start_run(tmp_path / "run", settings, [task])
        run_attempts(files.path, display=SilentDisplay())
        trace = read_trace(files.trace_path("deep", 1))
        score = trace.last("score") or {}
        assert (score["status"], score["metrics"]) == ("scored", {"em": 1.0, "step_accuracy": None})
        assert [event["kind"] for event in trace.of("evidence")] == ["judge"]
        assert "status 401" in trace.of("evidence")[0]["problem"]
        assert summarise(files.path).failed[0][0] == "deep.1"  # so that `run` ends with exit code 1
        assert write_report(files.path).read_text().count("a judge failed")
        certificate = write_certificate(files.path)
        assert call(capsys, "score", files.path)[0] == 0
        ASKED.clear()
        outcome = certify(files.path, times=1)
        assert outcome.holds, outcome.differences
        mended.append(True)
        ASKED.append("deep")
        assert run_attempts(files.path, display=SilentDisplay(), retry_failed=True) == 1
    assert ASKED == ["deep"]
    assert (read_trace(files.trace_path("deep", 1)).last("score") or {})["metrics"]["step_accuracy"] == 1
    assert write_certificate(files.path)["hash"] != certificate["hash"]


@pytest.mark.slow
def test_a_judgement_that_its_endpoint_stopped_is_none(judge: Endpoint, tmp_path: Path) -> None:
    """A verdict may stand before the end, and be taken back there; APIs name the stop in words of their own."""
    env = {"GRADER_BASE_URL": judge.url, "GRADER_MODEL": "judge", "GRADER_PARAMS": '{"max_tokens": 9}'}
    agent = "tests.harness.runs.test_judged_again:Teller"
    settings = Settings(agent=agent, contracts=(), env=env)
    files = start_run(tmp_path / "run", settings, [Task("even", "even?", "Alpha", "judge")])
    run_attempts(files.path, display=SilentDisplay())
    path = files.trace_path("even", 1)
    written = path.read_text()
    expected = {"length": "unparsable", "MAX_TOKENS": "unparsable", "content_filter": "unparsable"}
    for finish, status in {**expected, "stop": "scored", "end_turn": "scored", "completed": "scored"}.items():
        path.write_text(written.replace('"finish":"length"', f'"finish":"{finish}"'))
        assert rescore(read_trace(path), Evaluator(env=env))[-1]["status"] == status
    path.write_text(written)
    assert summarise(files.path).unjudged == (
        ("even.1", "the judge failed: its endpoint stopped the answer before its end (length)"),
    )
    assert certify(files.path, times=1).differences == ()
