"""Runs: everything accounted for, nothing lost, nothing done twice."""

import asyncio
import contextlib
import io
import os
import pickle
import signal
import subprocess
import sys
import types
from collections.abc import Generator
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from stillweb.harness.agents.attempt import AttemptUsage, Limits, Stop
from stillweb.harness.models.tape import part_of
from stillweb.harness.results.certificate import certify, write_certificate
from stillweb.harness.results.summary import score_run, summarise
from stillweb.harness.rubric.sidecar import Rubric
from stillweb.harness.runs.display import PlainDisplay, SilentDisplay, describe
from stillweb.harness.runs.engine import Job, LocalEngine, Outcome
from stillweb.harness.runs.repeating import KnownEnds
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import RayEngine, make_engine, remaining_attempts, run_attempts, start_run
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace, replace_events
from stillweb.snapshots.errors import MissingCapability, StillwebError, UsageError
from tests.harness.commands.calling import call
from tests.support.openai_endpoint import Asked, Endpoint, Said
from tests.support.runs import SHELF, bird_task, make_run, write_script
from tests.support.waiting import HANG, STARTS, until

ROOT = Path(__file__).parents[3]
NAMES = ["right", "wrong", "silent", "babble", "broken"]


def test_every_attempt_is_in_one_status_and_the_parts_sum_to_the_whole(tmp_path):
    files = make_run(tmp_path, NAMES, epochs=2)
    summary = summarise(files.path)
    assert summary.owed == 10
    assert summary.statuses == {
        "scored": 4,
        "zero": 4,
        "unparsable": 2,
        "timeout": 0,
        "unsolvable": 0,
        "unfinished": 0,
    }
    assert sum(summary.statuses.values()) == summary.owed
    assert summary.ends == {"answered": 6, "error": 2, "none": 2}
    em = summary.means["em"]
    assert (em.mean, em.mean_of_all, em.scored, em.of) == (0.25, 0.2, 8, 10)
    assert (summary.tool_calls, summary.misses) == (10, 4)


def test_what_no_trace_can_hold_fails_its_attempt_and_not_the_run(tmp_path):
    files = start_run(
        tmp_path / "run",
        Settings(agent=write_script(tmp_path), contracts=("tests.support.shelf_tools:Odd",)),
        [bird_task("right")],
    )
    run_attempts(files.path, display=SilentDisplay())
    trace = read_trace(files.trace_path("right", 1))
    assert trace.last("answer")["error"].endswith(
        "no trace can hold this tool_call: verdict: must be string or null, not int"
    )
    assert summarise(files.path).statuses["zero"] == 1
    assert remaining_attempts(files, retry_failed=True)


def test_what_is_unfinished_stays_in_the_denominator(tmp_path):
    files = make_run(tmp_path, NAMES)
    files.trace_path("right", 1).unlink()
    summary = summarise(files.path)
    assert summary.owed == 5
    assert summary.statuses["unfinished"] == 1
    assert summary.means["em"].of == 5


def test_cells_say_where_they_were_seen_and_what_was_lost(tmp_path):
    trace = read_trace(make_run(tmp_path, ["wrong"]).trace_path("wrong", 1))
    wrong = trace.last("answer")["rows"][1][1]
    assert (wrong["value"], wrong["reference"], wrong["right"]) == ("3800", "3700", False)
    assert wrong["seen"] == []
    place = wrong["reference_seen"][0]
    text = trace.events[place["event"] - 1]["output"]["text"]
    assert text[place["at"] :].startswith("3700")
    assert trace.misses[0]["nearest"] == [{"url": "https://shelf.example/", "differs": ["path"]}]


def test_retrieval_state_is_written_where_it_changes(tmp_path):
    script = {
        "default": {
            "steps": [
                {"call": "fetch", "with": {"url": f"https://shelf.example/list?year=2012&page={n}"}}
                for n in (1, 1, 2)
            ],
            "answer": "NONE",
        }
    }
    trace = read_trace(make_run(tmp_path, ["t"], script=script).trace_path("t", 1))
    first, second = trace.of("state")
    assert (first["filters"], first["page"], first["after"]) == ({"year": "2012"}, "1", 1)
    assert {c["name"]: (c["from"], c["to"]) for c in second["changed"]}["page"] == ("1", "2")


def test_a_run_goes_on_where_it_stopped_and_repeats_nothing(tmp_path):
    files = make_run(tmp_path, NAMES)
    files.trace_path("right", 1).unlink()
    stamps = {p: p.stat().st_mtime_ns for p in files.traces.iterdir()}
    assert [job.task_id for job in remaining_attempts(files)] == ["right"]
    assert run_attempts(files.path, display=SilentDisplay()) == 1
    assert {p: p.stat().st_mtime_ns for p in stamps} == stamps


def test_failed_attempts_are_made_again_on_request_only_and_that_is_told(tmp_path, capsys):
    files = make_run(tmp_path, NAMES)
    assert run_attempts(files.path, display=SilentDisplay()) == 0
    assert [job.task_id for job in remaining_attempts(files, retry_failed=True)] == ["broken"]
    assert write_certificate(files.path)["made_again"] == 0
    failed = read_trace(files.trace_path("broken", 1)).hash
    for times in (1, 2):
        assert run_attempts(files.path, display=SilentDisplay(), retry_failed=True) == 1
        assert write_certificate(files.path)["made_again"] == times
        kept = files.path / "failed" / f"broken.1.failed-{times}.jsonl"
        assert read_trace(kept).hash == failed
    code, told = call(capsys, "score", files.path)
    assert code == 0
    assert "2 failed attempts made again" in told


@pytest.mark.parametrize(
    ("settings", "tasks", "message"),
    [
        ({"epochs": 3}, ["a"], "epochs = 1, not 3"),
        ({"limits": Limits(steps=1)}, ["a"], "limits"),
        ({}, ["a", "b"], "tasks is not what it was"),
    ],
)
def test_another_run_does_not_go_on_in_the_same_directory(tmp_path, settings, tasks, message):
    make_run(tmp_path, ["a"])
    with pytest.raises(UsageError, match=message):
        make_run(tmp_path, tasks, **settings)


def test_a_limit_has_one_hash_however_it_is_written(tmp_path):
    hashes = set()
    for number, seconds in enumerate((60, 60.0)):
        (tmp_path / str(number)).mkdir()
        files = make_run(tmp_path / str(number), ["a"], limits=Limits(seconds=seconds))
        hashes.add(write_certificate(files.path)["hash"])
    assert len(hashes) == 1


def test_a_second_process_that_is_refused_moves_nothing(tmp_path):
    files = make_run(tmp_path, ["a"])
    settings, _ = files.manifest()
    tasks = files.tasks()
    with files.lock(), pytest.raises(UsageError, match="another process is working on this run"):
        start_run(files.path, replace(settings, tape_path=str(tmp_path / "another")), tasks)
    assert files.manifest()[0] == settings


def test_a_run_of_which_nothing_was_made_is_begun_with_other_words(tmp_path):
    """A misnamed contract is only seen by who opens the tools; its name stayed in the directory for good."""
    agent = write_script(tmp_path, {"default": {"answer": "7|3900"}})
    misnamed = Settings(agent=agent, contracts=("tests.support.no_such:Tools",))
    side_car = Rubric.from_json({"columns": ["id", "mass"], "row_key": ["id"]}, "a")
    files = start_run(tmp_path / "run", misnamed, [bird_task("a")], rubrics={"a": side_car})
    assert (files.path / "rubrics.json").exists()
    with pytest.raises(StillwebError):
        run_attempts(files.path, display=SilentDisplay())
    with files.lock(), pytest.raises(UsageError, match="another process is working on this run"):
        start_run(files.path, Settings(agent=agent, contracts=(SHELF,)), [bird_task("b")])
    start_run(files.path, Settings(agent=agent, contracts=(SHELF,)), [bird_task("b")])
    assert not (files.path / "rubrics.json").exists()
    assert run_attempts(files.path, display=SilentDisplay()) == 1


def test_another_script_is_another_run(tmp_path):
    files = make_run(tmp_path, ["a"])
    files.trace_path("a", 1).unlink()
    write_script(tmp_path, {"default": {"answer": "NONE"}})
    with pytest.raises(UsageError, match="agent is not what it was"):
        run_attempts(files.path, display=SilentDisplay())


def test_old_scores_do_not_pass_for_those_of_another_agent(tmp_path):
    make_run(tmp_path, ["a"])
    with pytest.raises(
        UsageError, match=r"agent is not what it was .*\(agent\.\w+: .{12,} -> .{12,}\); choose"
    ):
        make_run(tmp_path, ["a"], script={"default": {"answer": "NONE"}})


def test_an_agent_that_could_not_be_read_is_not_kept(tmp_path):
    begun = Settings(agent=f"script:{tmp_path / 'misspelt.yaml'}", contracts=(SHELF,))
    files = start_run(tmp_path / "run", begun, [bird_task("a")])
    with pytest.raises(UsageError, match="No such file"):
        run_attempts(files.path, display=SilentDisplay())
    assert summarise(make_run(tmp_path, ["a"]).path).means["em"].mean == 1.0


def test_a_metric_is_the_mean_of_the_tasks_that_have_it(tmp_path):
    tasks = [bird_task("a"), Task("b", "Which bird?", "none", "exact"), Task("c", "Which?", "none", "exact")]
    settings = Settings(agent=write_script(tmp_path), contracts=(SHELF,))
    files = start_run(tmp_path / "run", settings, tasks)
    run_attempts(files.path, display=SilentDisplay())
    means = summarise(files.path).means
    assert [(name, means[name].mean_of_all, means[name].of) for name in ("em", "exact")] == [
        ("em", 1.0, 1),
        ("exact", 0.0, 2),
    ]


def test_tasks_are_chosen_by_id_and_limit(tmp_path):
    tasks = [bird_task(name) for name in "abc"]
    settings = Settings(agent=write_script(tmp_path), contracts=(SHELF,))
    assert [t.id for t in start_run(tmp_path / "1", settings, tasks, limit=2).tasks()] == ["a", "b"]
    assert [t.id for t in start_run(tmp_path / "2", settings, tasks, only=["c", "a"]).tasks()] == ["a", "c"]
    with pytest.raises(UsageError, match="--only: there is no task 'z'"):
        start_run(tmp_path / "3", settings, tasks, only=["z"])
    with pytest.raises(UsageError, match=r"no task 'birds_001'; did you mean 'birds_001-g'\?$"):
        start_run(tmp_path / "3", settings, [*tasks, bird_task("birds_001-g")], only=["birds_001"])
    with pytest.raises(UsageError, match="two tasks have the id 'a'"):
        start_run(tmp_path / "4", settings, [*tasks, tasks[0]])
    with pytest.raises(UsageError, match="no task to run"):
        start_run(tmp_path / "5", settings, [])


@pytest.mark.parametrize(
    ("limits", "wait", "end", "status"),
    [(Limits(calls=1), 0.0, "calls", "zero"), (Limits(seconds=0.15), 600.0, "seconds", "timeout")],
)
def test_a_limit_ends_an_attempt_and_is_its_reason(tmp_path, limits, wait, end, status):
    files = make_run(tmp_path, ["wrong"], limits=limits, tool_options={"wait": wait})
    trace = read_trace(files.trace_path("wrong", 1))
    assert (trace.last("answer")["end"], trace.last("score")["status"]) == (end, status)
    assert set(trace.last("score")["metrics"].values()) == {0.0}


def test_what_the_snapshot_cannot_answer_is_unsolvable_and_costs_nothing(tmp_path):
    files = make_run(tmp_path, ["right", "wrong"], run=False)
    run_attempts(files.path, display=SilentDisplay(), unsolvable={"wrong": "page X was not captured"})
    trace = read_trace(files.trace_path("wrong", 1))
    assert trace.of("tool_call") == []
    assert trace.last("score")["status"] == "unsolvable"
    assert "page X was not captured" in trace.last("score")["detail"]["problems"][0]


def test_a_scorer_of_the_final_page_reads_it_once_and_again_from_the_trace(tmp_path):
    task = Task("page", "Open it.", "Birds", "page", options={"expression": "document.title"})
    settings = Settings(agent=write_script(tmp_path), contracts=(SHELF,))
    files = start_run(tmp_path / "run", settings, [task])
    run_attempts(files.path, display=SilentDisplay())
    trace = read_trace(files.trace_path("page", 1))
    assert trace.last("score")["metrics"] == {"page": 1.0}
    assert trace.last("evidence")["value"] == "Birds"
    assert score_run(files.path) == []


def test_scores_are_recomputed_from_traces_alone_and_a_changed_one_is_found(tmp_path):
    files = make_run(tmp_path, NAMES)
    assert score_run(files.path) == []
    path = files.trace_path("right", 1)
    trace = read_trace(path)
    forged = [trace.header, *trace.events]
    forged[-1] = {**forged[-1], "metrics": {**forged[-1]["metrics"], "em": 0.5}}
    replace_events(path, forged)
    found = score_run(files.path, write=True)
    assert [(f.attempt, f.before["metrics"]["em"], f.after["metrics"]["em"]) for f in found] == [
        ("right.1", 0.5, 1.0)
    ]
    assert score_run(files.path) == []


@pytest.mark.slow
@pytest.mark.parametrize("given", ["42", "{'a': {1}}", "b'x'"])
def test_an_answer_that_is_no_text_is_one_failed_sample(tmp_path, monkeypatch, given):
    (tmp_path / "wordless_agent.py").write_text(
        "class Wordless:\n"
        "    name = 'wordless'\n"
        "    def identity(self): return {'kind': 'wordless'}\n"
        "    async def run(self, attempt):\n"
        f"        return {given} if attempt.task.id == 'a' else 'NONE'\n"
        "agent = Wordless()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "wordless_agent", raising=False)
    settings = Settings(agent="wordless_agent:agent", contracts=(SHELF,))
    files = start_run(tmp_path / "run", settings, [bird_task("a"), bird_task("b")])
    run_attempts(files.path, display=SilentDisplay())
    assert summarise(files.path).ends == {"answered": 1, "error": 1}
    answer = read_trace(files.trace_path("a", 1)).last("answer")
    assert answer["error"].startswith("the agent's answer is not text but ")


@pytest.mark.slow
def test_an_agent_that_raises_is_one_failed_sample_with_its_traceback(tmp_path):
    (tmp_path / "faulty_agent.py").write_text(
        "class Faulty:\n"
        "    name = 'faulty'\n"
        "    def identity(self): return {'kind': 'faulty'}\n"
        "    async def run(self, attempt):\n"
        "        if attempt.task.id == 'a': raise ValueError('no idea')\n"
        "        return '7|3900\\n9|3700'\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        settings = Settings(agent="faulty_agent:Faulty", contracts=(SHELF,))
        files = start_run(tmp_path / "run", settings, [bird_task("a"), bird_task("b")])
        run_attempts(files.path, display=SilentDisplay())
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("faulty_agent", None)
    trace = read_trace(files.trace_path("a", 1))
    assert trace.last("answer")["error"] == "ValueError: no idea"
    assert "no idea" in trace.last("evidence")["aside"]["traceback"]
    assert summarise(files.path).means["em"].mean_of_all == 0.5


CODE = """
import sys
from pathlib import Path
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.runner import run_attempts
run_attempts(Path(sys.argv[1]), display=SilentDisplay())
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_loses_no_finished_attempt_and_the_same_call_ends_it(tmp_path, how):
    names = [f"t{i}" for i in range(40)]
    hold = tmp_path / "hold"
    hold.touch()
    files = make_run(tmp_path, names, run=False, tool_options={"hold": str(hold), "rush": 24})
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, str(files.path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )
    # the 25th is held: one is under way whenever the signal comes
    done, begun = (lambda: len(list(files.traces.glob("*.jsonl"))), lambda: list(files.traces.glob("*.part")))
    assert until(lambda: done() >= 24 and begun(), STARTS)
    process.send_signal(how)
    process.wait(timeout=STARTS)
    hold.unlink()
    finished = {path: path.read_bytes() for path in files.traces.glob("*.jsonl")}
    assert 6 <= len(finished) < 40
    parts = len(list(files.traces.glob("*.part")))
    assert run_attempts(files.path, display=SilentDisplay()) == 40 - len(finished)
    assert {path: path.read_bytes() for path in finished} == finished
    assert len(list((files.path / "interrupted").glob("*"))) == parts > 0
    assert summarise(files.path).statuses["scored"] == 40


def test_a_run_that_another_process_works_on_is_left_alone(tmp_path):
    files = make_run(tmp_path, ["right", "wrong"])
    files.trace_path("wrong", 1).unlink()
    under_way = files.traces / "wrong.1.jsonl.part"
    under_way.write_text("")
    with (
        files.lock(),
        pytest.raises(UsageError, match="another process is working on this run; wait until it has ended"),
    ):
        run_attempts(files.path, display=SilentDisplay())
    assert under_way.exists()
    assert run_attempts(files.path, display=SilentDisplay()) == 1
    assert not under_way.exists()


@pytest.mark.slow
def test_a_scorer_that_fails_is_named_and_counted_and_the_rest_goes_on(tmp_path):
    names = ["fine", "raises", "nan", "none", "detail", "exits"]
    tasks = [Task(name, "?", "x", "tests.support.scorers:broken") for name in names]
    script = {"default": {"answer": "x"}}
    settings = Settings(agent=write_script(tmp_path, script), contracts=(SHELF,))
    files = start_run(tmp_path / "run", settings, tasks)
    run_attempts(files.path, display=SilentDisplay())
    scores = {name: read_trace(files.trace_path(name, 1)).last("score") for name in names}
    assert {name: score["status"] for name, score in scores.items()} == dict.fromkeys(names, "unparsable") | {
        "fine": "scored"
    }
    told = {name: score["detail"]["problems"][0] for name, score in scores.items() if name != "fine"}
    assert {name: text.partition("broken: ")[2][:30] for name, text in told.items()} == {
        "raises": "KeyError: 'nothing'",
        "nan": "ValueError: the metric 'right'",
        "none": "TypeError: gave no score: None",
        "detail": "TypeError: Object of type set ",
        "exits": "SystemExit: 0",
    }
    summary = summarise(files.path)
    assert (summary.means["right"].scored, summary.means["right"].of, summary.means["right"].mean_of_all) == (
        1,
        6,
        1 / 6,
    )
    assert score_run(files.path) == []
    assert certify(files.path, times=1).holds


def test_lines_are_printed_where_there_is_no_terminal(tmp_path, capsys):
    files = make_run(tmp_path, ["right", "broken"], run=False)
    run_attempts(files.path, display=PlainDisplay(), engine=LocalEngine(1))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("[1/2] right/1  scored  em 1, item_f1 1")
    assert "fetch failed" in lines[1]
    assert lines[2] == "2 of 2 attempts (1 scored, 1 zero); 2 tool calls, 1 miss, 0 tokens, cost 0.0000"


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
    assert summarise(files.path).means["em"].mean == 1.0
    assert certify(files.path, times=1).holds


def test_a_worker_is_told_what_is_known_of_its_attempt(tmp_path: Path, ray: Any) -> None:
    files = make_run(tmp_path, ["right", "wrong"], run=False)
    known = KnownEnds(stops={("right", 1): Stop(0, 0, "seconds", "as before")})
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
    done: list[str] = []

    async def work(job: Job) -> Outcome:
        return Outcome(job, "answered", "scored")

    engine = LocalEngine(10**9)
    asyncio.run(engine.run([Job("a", 1), Job("b", 1)], work, lambda made: done.append(made.job.task_id)))
    assert done == ["a", "b"]


def attempt(name: str) -> Any:
    return SimpleNamespace(
        task=SimpleNamespace(id=name), number=1, session=name, usage=AttemptUsage(steps=3, calls=7)
    )


def test_a_run_in_which_nothing_ends_says_what_is_still_running() -> None:
    """An agent that hangs looked like a CI that hangs."""
    stream = io.StringIO()
    with PlainDisplay(stream, quiet=0.01) as shown:
        shown.begin(9)
        for number in range(7):
            shown.changed(attempt(f"t{number}"))
        shown.left(attempt("t0"), 1.0)
        assert until(lambda: "[0/9] none ended for 0.02 s" in stream.getvalue())
    text = stream.getvalue()
    assert "still running: t1/1 (3 model calls, 7 tool calls), t2/1" in text
    assert text.splitlines()[0].endswith("t5/1 (3 model calls, 7 tool calls) and 1 more")


def test_the_line_of_a_scored_attempt_has_its_answer_cut_to_a_line() -> None:
    outcome = Outcome(
        Job("a", 2), "answered", "scored", {"exact": 1.0}, answer="one\n\x1b[2Jtwo " + "x" * 200
    )
    line = describe(outcome)
    assert line.startswith("a/2  scored  exact 1, answer: one \ufffd[2Jtwo xxx")
    assert line.endswith("x…")
    assert len(line) < 130


def test_a_figure_that_is_not_whole_does_not_look_it() -> None:
    line = describe(Outcome(Job("a", 1), "answered", "scored", {"em": 0.9996, "item_f1": 0.0004}))
    assert "em 0.9996, item_f1 0.0004" in line
