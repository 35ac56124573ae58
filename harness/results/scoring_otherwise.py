"""Scoring of a run by other rules (references, scorers, options, side-cars), as a new run.

The questions must stay the same: an attempt at another question is no answer to this one. No agent is asked,
and judges only on request.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from stillweb.harness._parsing import look_in
from stillweb.harness.results.certificate import write_certificate
from stillweb.harness.rubric import compile_rubrics
from stillweb.harness.runs.hashes import as_json, rubrics_hash, scoring_hashes
from stillweb.harness.runs.preflight import check_judges, unnamed_judge
from stillweb.harness.runs.resources import read_rubrics
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.scoring import judging
from stillweb.harness.scoring.embeddings import embedder_for
from stillweb.harness.scoring.judging import Evaluator, judge_endpoints
from stillweb.harness.task import Task, TaskSet
from stillweb.harness.trace import Event, Trace, canonical, digest, hashed_part, read_trace, replace_events
from stillweb.snapshots._os.locking import locked_directory
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.warc.appending import write_whole

if TYPE_CHECKING:
    from stillweb.harness.models.client import Judge

BEGUN = ".begun"  # file that says which scoring an unfinished directory belongs to


def score_otherwise(
    run: Path,
    out: Path,
    *,
    tasks: Sequence[Task] | None = None,
    rubrics: Mapping[str, Any] | None = None,
    mode: Literal["faithful", "fixed"] | None = None,
    fold_case: bool | None = None,
    judges: Mapping[str, str] | None = None,
    parallel: int = 1,
    embedder: Any = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    note: Callable[[str], None] = lambda text: None,
) -> list[str]:
    """Write the rescored run with its certificate to `out`; return the attempts whose score changed.

    Rules that are not given stay those of `run`.

    `judges` allows asking judges for what the traces do not hold: the variables that name them, over those of
    the run. Their answers are added to the tape of `out`, and a judge's failure is recorded in the attempt's
    score. Judges are asked about `parallel` attempts at once. After an interruption the answers so far are
    kept beside `out` (`part_of`), `note` is told, and the same call continues from there.

    Raise UsageError if `out` is not empty, an attempt is unfinished, a task is missing or asks another
    question, or the side-cars of `run` were not compiled from its tasks and no others are given. Raise
    StillwebError if a scorer needs what the traces do not hold (a judge that was never asked and is not asked
    now, an expression in the final page). `out` is then unchanged.
    """
    files = RunFiles(run)
    settings, stands_on = files.manifest()
    before = files.tasks()
    look_in(settings.directory)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out}: is not empty; name another directory with -o")
    chosen = before if tasks is None else _matching(files, before, tasks)
    side_cars = _side_cars(files, before, chosen, rubrics, changed=tasks is not None)
    tape = files.tape(settings)
    settings = replace(
        settings,
        mode=mode or settings.mode,
        fold_case=settings.fold_case if fold_case is None else fold_case,
        tape_path=str(tape.absolute()) if settings.tape_path and judges is None else None,
        env={**settings.env, **(judges or {})},
        tape="auto" if judges is not None and settings.tape == "replay" else settings.tape,
    )
    _check_judges(chosen, settings, tape, asked=judges is not None)
    evaluator = Evaluator(
        side_cars,
        None,
        embedder or embedder_for({task.scorer for task in chosen}, settings.env),
        settings.mode,
        settings.fold_case,
        settings.env,
        settings.allow_unconfined,
    )
    hashes = {
        **stands_on,
        "tasks": TaskSet("run", tuple(chosen)).digest,
        "rubrics": rubrics_hash(side_cars),
        **scoring_hashes(chosen),
    }

    def told(done: int) -> None:
        progress(done, len(chosen) * settings.epochs)

    part = part_of(out)
    asked = judges is not None
    begun = digest(
        [settings.certified_members(), hashes, [one and one.hash for _, _, one in files.attempts()]]
    )
    with _claimed(part, begun if asked else "") as goes_on:
        try:
            new = RunFiles(part)
            if not goes_on:
                _copy(files, new, tape, to_be_added_to=asked)
                if asked:  # last: without this file the directory is not a beginning
                    write_whole(part / BEGUN, [begun.encode()])
            with _asking(new, settings, chosen if asked else (), tape) as asking:
                evaluator = replace(evaluator, judge=asking.judge)
                by_id = {task.id: task for task in chosen}
                different = _write_attempts(
                    files, new, by_id, evaluator, asking, parallel if asked else 1, told
                )
            _write_rest(new, settings, chosen, side_cars, hashes)
            write_certificate(part)
            os.replace(part, out)
            # not earlier: the paid answers of judges would belong to no scoring
            (out / BEGUN).unlink(missing_ok=True)
        except BaseException:
            if asked and any(new.traces.glob("*")):
                note(f"{part}: holds the judges' answers so far; the same command continues from there")
            else:
                shutil.rmtree(part, ignore_errors=True)
            raise
    return different


def part_of(out: Path) -> Path:
    """Return the directory that holds a rescored run until it is complete."""
    return out.with_name(f"{out.name}.part")


@contextmanager
def _claimed(part: Path, begun: str) -> Iterator[bool]:
    """Make the directory, and empty it unless it holds the beginning `begun`; yield True if it does.

    `begun` is "" for a scoring that is never continued. Raise UsageError while another process works there,
    or if it holds paid answers of judges for another scoring.
    """
    part.mkdir(parents=True, exist_ok=True)
    with locked_directory(part, "another process is scoring into it; wait until it has ended"):
        kept = (part / BEGUN).read_text(encoding="utf-8") if (part / BEGUN).exists() else ""
        if kept and kept != begun:
            raise UsageError(
                f"{part}: holds what judges said for another scoring; go on with that one, remove it, or name another "
                "directory with -o"
            )
        if not kept:
            for one in part.iterdir():
                shutil.rmtree(one) if one.is_dir() else one.unlink()
        yield bool(kept)


def _matching(files: RunFiles, before: Sequence[Task], tasks: Sequence[Task]) -> list[Task]:
    """Return the run's tasks as they are now, without tasks of the set that it made no attempt at."""
    now = {task.id: task for task in tasks}
    for task in before:
        if task.id not in now:
            raise UsageError(f"{files.path}: its task {task.id!r} is not among those given")
        for name in ("question", "start_url"):
            if getattr(task, name) != getattr(now[task.id], name):
                raise UsageError(
                    f"{files.path}: task {task.id!r} has another {name} now, which no attempt used; run it anew"
                )
    return [now[task.id] for task in before]


def _side_cars(
    files: RunFiles,
    before: Sequence[Task],
    chosen: Sequence[Task],
    given: Mapping[str, Any] | None,
    *,
    changed: bool,
) -> dict[str, Any]:
    """Return the side-cars to score by: the given ones, else the run's.

    If tasks changed, the run's compiled side-cars are compiled again.
    """
    if given is not None:
        return {name: as_json(one) for name, one in given.items()}
    kept = read_rubrics(files)
    if not changed:
        return kept
    if kept != {name: as_json(one) for name, one in compile_rubrics(before).items()}:
        raise UsageError(
            f"{files.path}: has side-cars that were not compiled from its tasks; choose them with --rubrics "
            f"({files.path / 'rubrics.json'} has those of the run)"
        )
    return {name: as_json(one) for name, one in compile_rubrics(chosen).items()}


def _check_judges(tasks: Sequence[Task], settings: Settings, tape: Path, *, asked: bool) -> None:
    """Check that judges can be asked, before anyone is asked or anything is written."""
    if asked:
        if tape.is_file():
            raise UsageError(f"{tape}: the run's tape is sealed, so no judge's answer can be added to it")
        check_judges(tasks, settings, taped=False)
        return
    if (task := unnamed_judge(tasks, settings)) is not None:
        raise UsageError(
            f"task {task.id}: scorer {task.scorer!r} needs a judge, and the run named none; set GRADER_MODEL "
            "(or options.model) and say --ask-judge"
        )


@dataclass(frozen=True, slots=True)
class _Asking:
    """Judge of the tasks, None if they need none.

    `anew` begins the judge's session on an attempt, `stop` ends the judge's work.
    """

    judge: Judge | None = None
    anew: Callable[[str], None] = lambda session: None
    stop: Callable[[], None] = lambda: None


@contextmanager
def _asking(new: RunFiles, settings: Settings, tasks: Sequence[Task], before: Path) -> Iterator[_Asking]:
    """Open the tape of `new` and the judges of `tasks`. `before` is the tape of the run itself.

    A session with a newer generation than in `before` was begun by this scoring.
    """
    endpoints = judge_endpoints(settings.env, tasks)
    if not endpoints:
        yield _Asking()
        return
    from stillweb.harness.models.client import Judge
    from stillweb.harness.models.tape import Tape

    known = Tape(before, "replay").generations if before.exists() else {}
    with Tape(new.tape(settings), settings.tape) as tape:

        def anew(session: str) -> None:
            name = f"{session}/judge"
            fresh = tape.generations.get(name, 0) == known.get(name, 0)
            tape.ask_again(name, everything=fresh)

        with closing(Judge(tape, endpoints, prices=settings.prices)) as judge:
            yield _Asking(judge, anew, judge.close)


def _write_attempts(
    files: RunFiles,
    new: RunFiles,
    tasks: Mapping[str, Task],
    evaluator: Evaluator,
    asking: _Asking,
    parallel: int,
    progress: Callable[[int], None],
) -> list[str]:
    """Score the attempts, `parallel` at once, each into its own trace; return those whose score changed."""
    new.traces.mkdir(exist_ok=True)
    stopped = threading.Event()

    def score(task: Task, number: int, trace: Trace) -> str | None:
        now = tasks[task.id]
        rubric = evaluator.rubric(now)
        header = {
            **trace.header,
            "task": now.to_json(),
            "rubric": None if rubric is None else as_json(rubric),
            "scoring": evaluator.settings(),
        }
        path = new.trace_path(task.id, number)
        lines = _kept(path, header, evaluator)
        if lines is None:
            wanted = Trace(trace.path, header, trace.events)
            lines = judging.score_otherwise(wanted, evaluator, asking.anew)[1:]
            if stopped.is_set():  # its judge was closed, so this is no score
                return None
            replace_events(path, [header, *lines])
        old, fresh = (
            next(e for e in reversed(events) if e["event"] == "score") for events in (trace.events, lines)
        )
        differs = any(hashed_part(old)[name] != hashed_part(fresh)[name] for name in ("metrics", "status"))
        return f"{task.id}.{number}" if differs else None

    found: list[str | None] = []
    ahead: deque[Future[str | None]] = deque()
    pool = ThreadPoolExecutor(parallel, thread_name_prefix="stillweb-scoring")

    def take() -> None:
        found.append(ahead.popleft().result())
        progress(len(found))

    try:
        for task, number, trace in files.attempts():
            if trace is None:
                raise UsageError(f"{files.path}: {task.id}.{number} is unfinished; run it to its end first")
            ahead.append(pool.submit(score, task, number, trace))
            if len(ahead) > 2 * parallel:
                take()
        while ahead:
            take()
    except BaseException:
        stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)
        asking.stop()
        raise
    finally:
        pool.shutdown()
    return [name for name in found if name is not None]


def _kept(path: Path, header: Event, evaluator: Evaluator) -> list[Event] | None:
    """Return the events of an attempt that was already scored before an interruption.

    None means that it must be scored, e.g. again after a failure.
    """
    if not path.exists():
        return None
    trace = read_trace(path)
    if canonical(hashed_part(trace.header)) != canonical(hashed_part(header)):
        return None
    if judging.scoring_failed(trace.last("score")) or judging.why_judge_failed(trace):
        return None
    lines = judging.rescore(trace, evaluator)
    return list(trace.events) if lines == [trace.header, *trace.events] else None


def _copy(files: RunFiles, new: RunFiles, tape: Path, *, to_be_added_to: bool) -> None:
    """Copy the files that certify needs, and those that are counted.

    A tape outside the run's directory stays there, unless it is added to.
    """
    kept = files.path / "tape"
    places = (
        (tape if to_be_added_to else kept, "tape"),
        (files.path / "failed", "failed"),
        (files.uploads, "uploads"),
    )
    for there, name in places:
        if there.is_dir():
            shutil.copytree(there, new.path / name)


def _write_rest(
    new: RunFiles,
    settings: Settings,
    tasks: Sequence[Task],
    side_cars: Mapping[str, Any],
    hashes: Mapping[str, Any],
) -> None:
    if side_cars:
        text = json.dumps(side_cars, ensure_ascii=False, indent=1) + "\n"
        write_whole(new.path / "rubrics.json", [text.encode("utf-8", "backslashreplace")])
    new.create(settings, tasks, hashes)
