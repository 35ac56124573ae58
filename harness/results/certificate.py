"""Certificates of runs: the hashes that a score depends on, proved by repeating the run.

    certificate = make_certificate(run)   the certificate of a run's files
    report = certify(run, times=2)        repeats it in fresh processes and compares; see docs/certificate.md

A repetition differs from the first run in everything that must not matter: a new process, attempts in another
order and in parallel, another PYTHONHASHSEED, locale and timezone. Model calls come from the tape.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from stillweb.harness._parsing import look_in
from stillweb.harness.benchmark import benchmark_of, function_at
from stillweb.harness.models.tape import make_empty
from stillweb.harness.results.kept_certificate import (
    NAME,
    changed_certificate,
    find_difference,
    hash_of,
    other_traces,
    read_kept,
    short,
    wrong_traces_error,
)
from stillweb.harness.results.summary import score_run, summarise
from stillweb.harness.runs.engine import Job
from stillweb.harness.runs.hashes import code_hash, code_version, rubrics_hash, scoring_hashes
from stillweb.harness.runs.repeating import KnownEnds
from stillweb.harness.runs.resources import read_rubrics
from stillweb.harness.runs.run_files import RunFiles, snapshots_to_repeat
from stillweb.harness.scoring.grading import grader_template
from stillweb.harness.scoring.judging import Evaluator
from stillweb.harness.task import Task, TaskSet
from stillweb.harness.tools.workspace import copy_uploads
from stillweb.harness.trace import Trace, digest, hashed_part, read_trace
from stillweb.snapshots.errors import DamagedInput, MissingCapability, StillwebError, UsageError
from stillweb.snapshots.warc.appending import write_whole
from stillweb.snapshots.words import pluralize

VERSION = 1

# (PYTHONHASHSEED, LC_ALL, TZ) of the repetitions, in turn.
_SURROUNDINGS = (
    ("1", "C", "Pacific/Kiritimati"),
    ("2971215073", "tr_TR.UTF-8", "America/St_Johns"),
    ("42", "C.UTF-8", "UTC"),
)


def make_certificate(path: Path) -> dict[str, Any]:
    """Return the certificate of a run's files. Raise UsageError while an attempt is unfinished.

    `hash` covers all other members but `made_again`, `confinement`, `confidence` and `version_of_code`. Raise DamagedInput
    if tasks, side-cars or a trace are not those of the run. Scores by another version of the scorers are
    computed again first; raise UsageError if one differs.
    """
    files = RunFiles(path)
    settings, stands_on = files.manifest()
    look_in(settings.directory)
    tasks = _same_tasks(files, stands_on)
    attempts: dict[str, dict[str, str]] = {}
    models: set[str] = set()
    served: set[str] = set()
    replayable: list[str] = []
    confinement: dict[str, dict[str, set[str]]] = {}

    evaluator = Evaluator(
        read_rubrics(files), mode=settings.mode, fold_case=settings.fold_case, env=settings.env
    )

    def look(trace: Trace) -> None:
        name = f"{trace.task_id}/{trace.attempt}"
        _same_run(trace, tasks[trace.task_id], evaluator, stands_on)
        score = trace.last("score")
        for who, means in _confinement(trace):
            told = confinement.setdefault(who, {"held": set(means["held"]), "missing": set()})
            told["held"] &= set(means["held"])
            told["missing"] |= set(means["missing"])
        attempts[name] = {"trace": trace.hash, "score": digest(hashed_part(score or {}))}
        for event in trace.of("model"):
            models.add(event["model"])
            if event.get("served"):
                served.add(event["served"])
            if event["reply"].get("hosted"):
                replayable.append(name)

    summary = summarise(path, on_trace=look)
    if unfinished := summary.statuses["unfinished"]:
        raise UsageError(
            f"{path}: {unfinished} of {pluralize(summary.owed, 'attempt')} unfinished; run it to its end first"
        )
    scoring = scoring_hashes(tasks.values())
    if scoring != {name: stands_on.get(name) for name in scoring} and (different := score_run(path)):
        raise UsageError(
            f"{path}: {pluralize(len(different), 'score')} came out differently by the scorers of this version; "
            f"`stillweb score {path} --write` puts what they give in place"
        )
    certificate: dict[str, Any] = {
        "schema": "stillweb-certificate",
        "version": VERSION,
        "snapshot": stands_on.get("snapshot"),
        "tasks": stands_on.get("tasks"),
        "refused": stands_on.get("refused", 0),
        "part_of": stands_on.get("part_of"),
        "rubrics": stands_on.get("rubrics"),
        "contracts": stands_on.get("contracts"),
        "agent": stands_on.get("agent"),
        "prompts": (stands_on.get("agent") or {}).get("prompts"),
        "settings": settings.certified_members(),
        **scoring,
        "code": code_hash(),
        "judges": judges_wording(tasks.values()),
        "models": sorted(models),
        "served": sorted(served),
        "not_replayable": sorted(set(replayable)),
        "attempts": dict(sorted(attempts.items())),
        "scores": summary.to_json(),
    }
    certificate["hash"] = hash_of(certificate)
    certificate["made_again"] = files.made_again()  # not hashed: a repetition has no failed attempts
    certificate["confinement"] = {  # not hashed: another machine may have other means
        who: {name: sorted(members) for name, members in told.items()} for who, told in confinement.items()
    }
    # not hashed: how sure answers are after writes that were made at once may differ
    certificate["confidence"] = {"presumed": summary.presumed, "expected_wrong": summary.expected_wrong}
    certificate["version_of_code"] = code_version()
    return certificate


def _confinement(trace: Trace) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Yield which means confined the attempt's program (`agent`) and the code run to score it (`code`)."""
    answer, score = trace.last("answer") or {}, trace.last("score") or {}
    if means := answer.get("aside", {}).get("confinement"):
        yield "agent", means
    measured = score.get("aside", {}).get("measured")  # of a scorer of one's own it may be anything
    if isinstance(measured, dict) and (means := measured.get("confinement")):
        yield "code", means


def _same_tasks(files: RunFiles, stands_on: Mapping[str, Any]) -> dict[str, Task]:
    """Return the tasks by id. Raise DamagedInput if they or the side-cars differ from the run's beginning."""
    tasks = files.tasks()
    if TaskSet("run", tuple(tasks)).digest != stands_on.get("tasks"):
        raise DamagedInput(f"{files.path / 'tasks.jsonl'}: the tasks are not those that the run began with")
    if rubrics_hash(read_rubrics(files)) != stands_on.get("rubrics"):
        raise DamagedInput(
            f"{files.path / 'rubrics.json'}: the side-cars are not those that the run began with"
        )
    return {task.id: task for task in tasks}


def _same_run(trace: Trace, task: Task, evaluator: Evaluator, stands_on: Mapping[str, Any]) -> None:
    """Raise DamagedInput for a trace that belongs to another run or task."""
    header = trace.header
    ours = {**evaluator.settings(), "embedder": header["scoring"].get("embedder")}
    for name, same in {
        "task": header["task"] == task.to_json(),
        "snapshot": header["snapshot"] == stands_on.get("snapshot"),
        "agent": header["agent"] == stands_on.get("agent"),
        "rubric": header.get("rubric") == evaluator.rubric(task),
        "scoring": header["scoring"] == ours,
    }.items():
        if not same:
            raise DamagedInput(f"{trace.path}: its {name} is not that of the run")


def write_certificate(path: Path) -> dict[str, Any]:
    """Make the certificate and write it to the run's directory, unless the same one is there already.

    So the certificate of an unchanged run can be checked in a read-only directory.
    """
    return _keep(path, make_certificate(path))


def check_traces(path: Path) -> dict[str, Any]:
    """Return the certificate of a run, and write it if there is none or a damaged one.

    Raise DamagedInput if the existing certificate was made of other traces: one of the two was changed.
    """
    certificate = make_certificate(path)
    try:
        kept = read_kept(path)
    except DamagedInput:
        kept = None
    if kept is not None and (other := other_traces(kept, certificate)):
        raise DamagedInput(wrong_traces_error(path, other))
    return _keep_where_allowed(path, certificate)


def _keep(path: Path, certificate: dict[str, Any]) -> dict[str, Any]:
    text, kept = json.dumps(certificate, ensure_ascii=False, indent=1) + "\n", path / NAME
    data = text.encode("utf-8", "backslashreplace")  # JSON escapes lone surrogates
    if not kept.exists() or kept.read_bytes() != data:
        write_whole(kept, [data])
    return certificate


def _keep_where_allowed(path: Path, certificate: dict[str, Any]) -> dict[str, Any]:
    try:
        return _keep(path, certificate)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return certificate  # the caller wants only the figures of a run in a read-only directory


@dataclass(frozen=True, slots=True)
class Certification:
    """Result of certify: the hashes of the run and its repetitions, and the first difference of each.

    `differences` also holds what the run's existing certificate says otherwise than its traces.
    """

    hash: str
    repeated: tuple[str, ...]
    differences: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.differences


def certify(
    path: Path,
    *,
    times: int = 2,
    parallel: int = 4,
    snapshots: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Certification:
    """Repeat a run `times` times in fresh processes and compare. The caller raises GateFailed.

    `snapshots` are the paths of the run's snapshots on this machine; by default those that the run names, or
    beside it. The certificate is written to the run if nothing differs; otherwise the existing one stays, as
    the traces may be altered. Raise StillwebError with the reason if a repetition can't be made (no tape,
    another agent file, …).
    """
    if times < 1:
        raise UsageError(f"{path}: times {times}: a run is repeated at least once")
    certificate = make_certificate(path)
    differences = changed_certificate(path, certificate)
    settings, _ = RunFiles(path).manifest()
    if certificate["models"] and not (tape := RunFiles(path).tape(settings)).exists():
        raise UsageError(f"{path}: its model calls lie on no tape ({tape}), so that it can't be repeated")
    hashes: list[str] = []
    for number in range(times):
        with tempfile.TemporaryDirectory(prefix="stillweb-certify-") as folder:
            again = Path(folder) / "run"
            repeat(path, again, number, parallel, snapshots)
            other = make_certificate(again)
            hashes.append(other["hash"])
            if other["hash"] != certificate["hash"]:
                differences.append(
                    f"repetition {number + 1}: {first_difference(path, again, certificate, other)}"
                )
        if progress:
            progress(number + 1, times)
    if not differences:
        _keep_where_allowed(path, certificate)
    return Certification(certificate["hash"], tuple(hashes), tuple(differences))


def repeat(path: Path, again: Path, number: int, parallel: int, snapshots: Sequence[str] = ()) -> None:
    """Make the run again in another process and environment, with models from the tape only."""
    files = RunFiles(path)
    settings, stands_on = files.manifest()
    snapshots = snapshots_to_repeat(path, settings.snapshots, snapshots)
    again.mkdir(parents=True)
    (again / "traces").mkdir()
    tape = files.tape(settings)
    if not tape.exists():  # without a tape no model was asked or none answered; the repetition gets the same
        make_empty(tape := again / "tape")
    repeated = replace(
        files.with_secrets(settings), snapshots=snapshots, tape="replay", tape_path=str(tape.resolve())
    )
    began: dict[str, Any] = {
        name: stands_on[name] for name in ("tasks", "rubrics", "refused", "part_of") if name in stands_on
    }
    for name in ("tasks.jsonl", "rubrics.json"):
        if (path / name).exists():
            shutil.copy(path / name, again / name)
    copy_uploads(files.uploads, RunFiles(again).uploads, settings.uploads)
    RunFiles(again).write_manifest(repeated, began)
    (again / "known.json").write_text(json.dumps(KnownEnds.of_run(files).to_json()), encoding="utf-8")
    seed, locale, zone = _SURROUNDINGS[number % len(_SURROUNDINGS)]
    environment = {**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale, "TZ": zone}
    # -P: a folder called stillweb in the working directory must not be imported instead of this package
    command = [
        sys.executable,
        "-P",
        "-m",
        "stillweb.harness.results.certificate",
        str(again),
        str(number + 1),
        str(parallel),
    ]
    begun = settings.directory if settings.directory and Path(settings.directory).is_dir() else None
    done = subprocess.run(
        command, env=environment, cwd=begun, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        tail = done.stderr.strip().splitlines()
        kinds = {kind.exit_code: kind for kind in (DamagedInput, MissingCapability)}
        error = tail[-1] if tail else f"code {done.returncode}"
        if done.returncode == UsageError.exit_code:
            elsewhere = f"{Path.cwd()}, for {settings.directory}, where the run was begun, is not here"
            error += f" (the agent's files are looked for in {begun or elsewhere})"
        raise kinds.get(done.returncode, StillwebError)(f"{path}: the repetition failed: {error}")


def shuffled(jobs: list[Job], seed: str) -> list[Job]:
    """Return jobs in an order that depends only on the seed, the same on every machine."""

    def place(job: Job) -> bytes:
        return sha256(f"{seed} {job.task_id} {job.attempt}".encode("utf-8", "surrogatepass")).digest()

    return sorted(jobs, key=place)


def _main(arguments: list[str]) -> int:
    """Run the process of a repetition: `python -m stillweb.harness.results.certificate RUN SEED PARALLEL`."""
    from stillweb.harness.runs.display import SilentDisplay
    from stillweb.harness.runs.engine import LocalEngine
    from stillweb.harness.runs.runner import run_attempts

    path, seed, parallel = Path(arguments[0]), arguments[1], int(arguments[2])
    known = KnownEnds.from_json(json.loads((path / "known.json").read_text(encoding="utf-8")))
    try:
        run_attempts(
            path,
            engine=LocalEngine(parallel),
            display=SilentDisplay(),
            order=lambda jobs: shuffled(jobs, seed),
            unsolvable=known.unsolvable,
            known=known,
        )
    except StillwebError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(f"{error.filename or 'this machine'}: {error.strerror}\n")
        return 2
    return 0


@dataclass(frozen=True, slots=True)
class Difference:
    """First event that differs between a run and its repetition. `path` leads to the member."""

    attempt: str
    event: int  # n; 0 is the header
    kind: str
    path: str
    before: Any
    after: Any
    why: str = ""

    def __str__(self) -> str:
        what = "the header" if self.event == 0 else f"event {self.event} ({self.kind})"
        return f"{self.attempt}: {what} differs in {self.path}: {short(self.before)}, repeated {short(self.after)}{self.why}"


def first_difference(
    path: Path, again: Path, certificate: Mapping[str, Any], other: Mapping[str, Any]
) -> Difference | str:
    """Return the first event that differs, in task order; if none does, the member of the certificate."""
    one, two = RunFiles(path), RunFiles(again)
    for task, number, trace in one.attempts():
        repeated = two.trace_path(task.id, number)
        name = f"{task.id}/{number}"
        if trace is None or not repeated.exists():
            return f"{name}: there is a trace in one run only"
        if certificate["attempts"].get(name) != other["attempts"].get(name):
            return _compare(name, trace, read_trace(repeated))
    for member in certificate:
        if member != "hash" and certificate[member] != other.get(member):
            return f"the certificate's {member} differs: {short(certificate[member])}, repeated {short(other.get(member))}"
    return "the hashes differ, but no member does"


def _compare(name: str, one: Trace, two: Trace) -> Difference | str:
    mine = [event for event in (one.header, *one.events) if event["event"] != "review"]
    theirs = [event for event in (two.header, *two.events) if event["event"] != "review"]
    for before, after in zip(mine, theirs, strict=False):
        old, new = hashed_part(before), hashed_part(after)
        if old != new:
            place, was, now = find_difference(old, new)
            return Difference(name, before.get("n", 0), before["event"], place, was, now, _why(one, two))
    return f"{name}: {pluralize(len(mine) - 1, 'event')}, repeated {len(theirs) - 1}"


def _why(one: Trace, two: Trace) -> str:
    """Return the reason as far as the traces tell it, as the end of a line."""
    first, again = (trace.last("answer") or {} for trace in (one, two))
    # the repetition ended before it reached this event
    if again.get("error") and again["error"] != first.get("error"):
        return f" ({again['end']}: {again['error']})"
    was, now = ((answer.get("aside") or {}).get("given_up", 0) for answer in (first, again))
    if was != now:
        cause = f"gave up {pluralize(now, 'model call')} under way, and {was} the first time"
        return f" (its agent {cause}: what it does hangs on the clock)"
    if any("order" in (event.get("aside") or {}) for event in one.of("model")):
        return " (its agent has calls under way at once, and what it does hangs on which of them ends first)"
    return ""


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))


def judges_wording(tasks: Iterable[Task]) -> dict[str, list[dict[str, str]]]:
    """Return scorer -> its wordings, each {"wording", "sha256"}; {} if no task is judged.

    `wording` is the version of the packaged prompt (the benchmark's own, or `stillweb-…`, written here), or `options.template` if the record's prompt replaces it; the digest is that of the prompts'
    texts.
    """
    found: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for task in tasks:
        packaged = _packaged(task.scorer)
        if packaged is None:
            continue
        template = task.options.get("template")
        if template is None:
            found[task.scorer].add((packaged["version"], digest(packaged)))
        else:
            found[task.scorer].add(("options.template", digest([template, packaged])))
    return {
        scorer: [{"wording": name, "sha256": value} for name, value in sorted(wordings)]
        for scorer, wordings in sorted(found.items())
    }


def _packaged(scorer: str) -> dict[str, str] | None:
    if scorer == "judge":
        return grader_template()
    benchmark = benchmark_of(scorer)
    found: dict[str, str] | None = None
    if benchmark is not None and benchmark.wording:
        found = function_at(benchmark.wording)(scorer)
    return found
