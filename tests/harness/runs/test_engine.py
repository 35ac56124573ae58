"""Engines: that of Ray, on a stand-in of it whose workers are threads. docs/certificate.md says how it was run for real."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import sys
import types
from collections.abc import Generator
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
import yaml

from stillweb.harness.agents.attempt import Stop
from stillweb.harness.models.tape import part_of
from stillweb.harness.results.certificate import certify
from stillweb.harness.results.summary import summarise
from stillweb.harness.runs.cluster import RayEngine, make_engine
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.engine import Job, LocalEngine, Outcome
from stillweb.harness.runs.repeating import Known
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.snapshots.errors import MissingCapability, UsageError
from tests.support.openai_endpoint import Asked, Endpoint, Said
from tests.support.runs import SHELF, bird_task, make_run
from tests.support.waiting import HANG


class Reference:
    def __init__(self, future: Future[Any]) -> None:
        self.future = future

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self.future).__await__()


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module: Any = types.ModuleType("ray")
    pool = ThreadPoolExecutor(2)
    module.started = []

    class Remote:
        def __init__(self, function: Any) -> None:
            self.function = function

        def remote(self, *arguments: Any) -> Reference:
            return Reference(pool.submit(self.function, *pickle.loads(pickle.dumps(arguments))))

    def wait_for(
        references: list[Reference], num_returns: int, timeout: float | None = None
    ) -> tuple[list[Reference], list[Reference]]:
        when = FIRST_COMPLETED if num_returns == 1 else ALL_COMPLETED
        done, _ = wait([r.future for r in references], timeout, return_when=when)
        return [r for r in references if r.future in done], [r for r in references if r.future not in done]

    module.exceptions = types.SimpleNamespace(RayError=type("RayError", (Exception,), {}))
    module.is_initialized = lambda: False
    module.init = lambda **options: module.started.append(options)
    module.shutdown = lambda: pool.shutdown()
    module.cancel = lambda reference: reference.future.cancel()
    module.remote, module.wait = Remote, wait_for
    monkeypatch.setitem(sys.modules, "ray", module)
    made: types.ModuleType = module
    return made


def birds(asked: Asked) -> Said:
    if not asked.tool_answers:
        return [("fetch", {"url": "https://shelf.example/list?year=2012&page=1"})]
    return "7|3900\n9|3700"


def start(folder: Path, url: str) -> RunFiles:
    (folder / "agent.yaml").write_text(yaml.safe_dump({"agent": "openai", "model": "m", "base_url": url}))
    settings = Settings(agent=str(folder / "agent.yaml"), contracts=(SHELF,), epochs=2)
    return start_run(folder / "run", settings, [bird_task("a"), bird_task("b")])


@pytest.mark.slow
def test_workers_record_into_parts_that_become_the_tape_and_the_run_repeats_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray: Any
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with Endpoint(birds) as endpoint:
        files = start(tmp_path, endpoint.url)
        engine = make_engine("ray", files.path, 2)
        assert isinstance(engine, RayEngine)
        assert run_attempts(files.path, engine=engine, display=SilentDisplay()) == 4
    assert ray.started == [{"log_to_driver": False, "include_dashboard": False, "logging_level": "ERROR"}]
    assert not part_of(files.path / "tape", "x").parent.exists()
    assert summarise(files.path).means["em"].value == 1.0
    assert certify(files.path, times=1).holds


def test_a_worker_is_told_what_is_known_of_its_attempt(tmp_path: Path, ray: Any) -> None:
    """What run_attempts was told of unsolvable tasks and earlier runs was lost on the way to a cluster."""
    files = make_run(tmp_path, ["right", "wrong"], run=False)
    known = Known(stops={("right", 1): Stop(0, 0, "seconds", "as before")})
    run_attempts(
        files.path,
        engine=RayEngine(files.path, 1),
        display=SilentDisplay(),
        unsolvable={"wrong": "page X was not captured"},
        known=known,
    )
    ends = {task.id: trace.last("answer") for task, _, trace in files.attempts() if trace}
    assert (ends["wrong"]["end"], ends["wrong"]["error"]) == ("unsolvable", "page X was not captured")
    assert (ends["right"]["end"], ends["right"]["error"]) == ("seconds", "as before")


def test_a_failing_worker_ends_the_run_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ray: Any
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    files = start(tmp_path, "http://127.0.0.1:9/v1")
    with pytest.raises(MissingCapability, match="OPENAI_API_KEY holds no key"):
        run_attempts(files.path, engine=RayEngine(files.path, 1), display=SilentDisplay())
    assert summarise(files.path).statuses["unfinished"] == 4


def test_what_is_no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert isinstance(make_engine("local", tmp_path, 3), LocalEngine)
    with pytest.raises(UsageError, match="neither local nor ray"):
        make_engine("slurm", tmp_path, 3)
    with pytest.raises(UsageError, match="at least 1"):
        LocalEngine(0)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingCapability, match=r"pip install 'stillweb\[ray\]'"):
        make_engine("ray", tmp_path, 3)


def test_an_engine_that_is_cancelled_begins_no_more_even_where_a_job_swallowed_it() -> None:
    begun: list[str] = []

    async def work(job: Job) -> Outcome:
        begun.append(job.task_id)
        with contextlib.suppress(asyncio.CancelledError):  # as code does that ends a task of its own
            await asyncio.sleep(60 if len(begun) <= 2 else 0)
        return Outcome(job, "answered", "scored")

    async def main() -> None:
        engine = LocalEngine(2)
        running = asyncio.ensure_future(engine.run([Job(name, 1) for name in "abcdef"], work, lambda _: None))
        while len(begun) < 2:
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(asyncio.wait_for(main(), HANG))
    assert begun == ["a", "b"]


def test_more_attempts_at_once_than_there_are_cost_nothing() -> None:
    """A task was made for each that could run: a number with three zeros too many took all memory."""
    done: list[str] = []

    async def work(job: Job) -> Outcome:
        return Outcome(job, "answered", "scored")

    engine = LocalEngine(10**9)
    asyncio.run(engine.run([Job("a", 1), Job("b", 1)], work, lambda made: done.append(made.job.task_id)))
    assert done == ["a", "b"]
