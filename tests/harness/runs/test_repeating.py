"""Events that no tape holds (a clock that struck, an endpoint that failed) end a repetition where they ended the run."""

import importlib
from pathlib import Path

import pytest
import yaml

from stillweb.harness.agents.attempt import Limits, tool_key
from stillweb.harness.results.certificate import certify
from stillweb.harness.results.summary import score_run, summarise
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.engine import LocalEngine
from stillweb.harness.runs.repeating import KnownEnds, Stop
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace
from tests.support.openai_endpoint import Asked, Endpoint, Said
from tests.support.runs import SHELF, bird_task, make_run

KEY = "sk-of-nobody"
PAGE = "https://shelf.example/list?year=2012&page=1"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("GRADER_API_KEY", KEY)


def bird(asked: Asked) -> Said:
    if not asked.tool_answers:
        return [("fetch", {"url": PAGE})]
    return "7|3900\n9|3700"


def model(folder: Path, url: str, **members: object) -> str:
    path = folder / "agent.yaml"
    told = {"agent": "openai", "model": "m", "base_url": url, "tries": 1, **members}
    path.write_text(yaml.safe_dump(told))
    return str(path)


def ended(files: RunFiles, name: str) -> str:
    answer = read_trace(files.trace_path(name, 1)).last("answer")
    assert answer is not None
    return str(answer["end"])


@pytest.mark.slow
def test_an_attempt_that_the_clock_ended_ends_there_again(tmp_path: Path) -> None:
    steps = [{"call": "fetch", "with": {"url": PAGE}}, {"call": "fetch", "with": {"url": PAGE}}]
    script = {"default": {"steps": steps, "answer": "NONE"}}
    files = make_run(
        tmp_path, ["a"], script=script, limits=Limits(seconds=3.0), tool_options={"wait": 600, "free": 1}
    )
    assert ended(files, "a") == "seconds"
    fetched = {tool_key("fetch", {"url": PAGE}): 1}
    stop = Stop(0, 1, "seconds", "the limit of 3 seconds is used up", fetched)
    assert KnownEnds.of_run(files).stops == {("a", 1): stop}
    assert certify(files.path, times=1).holds
    assert KnownEnds.from_json(KnownEnds.of_run(files).to_json()) == KnownEnds.of_run(files)


@pytest.mark.slow
def test_an_endpoint_that_hung_or_failed_repeats_as_such(tmp_path: Path) -> None:
    importlib.import_module("openai")  # takes seconds on a busy machine: no attempt should pay for it
    with Endpoint(bird) as endpoint:
        settings = Settings(
            agent=model(tmp_path, endpoint.url), contracts=(SHELF,), limits=Limits(seconds=8.0), tape="auto"
        )
        tasks = [bird_task("hangs"), bird_task("fails"), bird_task("works")]
        files = start_run(tmp_path / "run", settings, tasks)
        # One after the other: (answer, hang), (answer, 500), (answer, answer).
        script = iter([None, "hang", None, 500, None, None])

        class Faults(list[int | str]):
            def __bool__(self) -> bool:
                self[:] = [fault] if (fault := next(script)) is not None else []
                return len(self) > 0

        endpoint.faults, endpoint.hang = Faults(), 600.0
        run_attempts(files.path, display=SilentDisplay(), engine=LocalEngine(1))
    assert [ended(files, name) for name in ("hangs", "fails", "works")] == ["seconds", "error", "answered"]
    stops = KnownEnds.of_run(files).stops
    assert {name: (stop.steps, stop.calls) for (name, _), stop in stops.items()} == {
        "hangs": (1, 1),
        "fails": (1, 1),
    }
    assert "status 500" in stops["fails", 1].error
    outcome = certify(files.path, times=1)
    assert outcome.holds, outcome.differences


@pytest.mark.slow
def test_a_judge_that_failed_is_counted_repeats_as_such_and_is_asked_again_on_request(tmp_path: Path) -> None:
    def both(asked: Asked) -> Said:
        return "correct: yes" if asked.body["model"] == "grader" else "A kestrel."

    task = Task("bird", "Which bird?", "kestrel", "judge", options={"model": "grader"})
    with Endpoint(both) as endpoint:
        env = {"GRADER_BASE_URL": endpoint.url}
        settings = Settings(agent=model(tmp_path, endpoint.url), contracts=(SHELF,), env=env)
        files = start_run(tmp_path / "run", settings, [task])

        def broken(asked: Asked) -> Said:
            endpoint.faults = [401]  # the key was wrong: such an answer is on no tape
            endpoint.policy = both
            return "A kestrel."

        endpoint.policy = broken
        run_attempts(files.path, display=SilentDisplay())
        assert summarise(files.path).statuses["unparsable"] == 1
        score = read_trace(files.trace_path("bird", 1)).last("score")
        assert score is not None
        assert score["detail"]["problems"][0].startswith("the judge failed: ")
        assert "status 401" in score["detail"]["problems"][0]
        outcome = certify(files.path, times=1)
        assert outcome.holds, outcome.differences
        assert run_attempts(files.path, display=SilentDisplay()) == 0
        assert run_attempts(files.path, display=SilentDisplay(), retry_failed=True) == 1
    assert summarise(files.path).means["correct"].mean == 1.0
    assert score_run(files.path) == []
    assert certify(files.path, times=1).holds


@pytest.mark.slow
@pytest.mark.parametrize("status", [400, 404])
def test_what_an_endpoint_refused_is_asked_again_when_the_attempt_is_made_again(
    tmp_path: Path, status: int
) -> None:
    with Endpoint(bird) as endpoint:
        settings = Settings(agent=model(tmp_path, endpoint.url), contracts=(SHELF,), tape="auto")
        files = start_run(tmp_path / "run", settings, [bird_task("a")])

        def refused(asked: Asked) -> Said:
            endpoint.faults = [status]  # the second call
            endpoint.policy = bird
            return bird(asked)

        endpoint.policy = refused
        run_attempts(files.path, display=SilentDisplay())
        assert (ended(files, "a"), len(endpoint.requests)) == ("error", 2)
        assert certify(files.path, times=1).holds
        assert run_attempts(files.path, display=SilentDisplay()) == 0
        assert run_attempts(files.path, display=SilentDisplay(), retry_failed=True) == 1
        assert (ended(files, "a"), len(endpoint.requests)) == (
            "answered",
            3,
        )  # what was answered is not paid again
    outcome = certify(files.path, times=1)
    assert outcome.holds, outcome.differences
