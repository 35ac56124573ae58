"""Task sets: those of benchmarks (stillweb.harness.benchmark), and any JSONL of questions.

    load_tasks(path_or_name) -> TaskSet

A path is a file (JSONL, JSON, CSV, Parquet) or a folder of such files. The set is recognised by the fields
of its records, or named by `kind`. A name `hub:<owner>/<set>` (or `…@<revision>`) is read from the Hugging
Face hub (optional extra). A malformed record becomes a `Problem` (file, line, field) in the result; the
others load. Unknown fields become `notices`.
"""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from stillweb.harness.benchmark import benchmarks
from stillweb.harness.datasets.records import Record, RecordError, folders_not_read, read_records
from stillweb.harness.task import Problem, Task, TaskSet
from stillweb.snapshots.errors import DamagedInput, UsageError
from stillweb.snapshots.words import pluralize

__all__ = ["KINDS", "load_tasks"]

Build = Callable[[Record], Task]

# kind -> module with FIELDS, `recognise(data) -> bool` and `build(record) -> Task`; the first that
# recognises a record reads it
KINDS: dict[str, str] = {
    **{kind: module for one in benchmarks().values() for kind, module in one.kinds.items()},
    "jsonl": "stillweb.harness.datasets.generic",
}


def load_tasks(source: str | Path, *, kind: str | None = None, split: str | None = None) -> TaskSet:
    """Return the tasks of a file, a folder or a set on the hub, in the source's order.

    `kind` names the set (see KINDS) instead of recognising it. `split` keeps files of that split (a folder
    of SGR-Bench: goal, constraint; the hub: its split). Raise UsageError for a missing or empty source and an
    unknown kind, DamagedInput if no record could be read.
    """
    if kind is not None and kind not in KINDS:
        raise UsageError(f"no task set kind {kind!r}; known are {', '.join(KINDS)}")
    tasks: list[Task] = []
    problems: list[Problem] = []
    seen: dict[str, Record] = {}
    unread: Counter[tuple[str, str]] = Counter()
    for item in read_records(source, split=split):
        if isinstance(item, Problem):
            problems.append(item)
            continue
        try:
            task, fields = _build(item, kind)
            if task.id in seen:
                raise RecordError("id", f"{task.id!r} is also at {seen[task.id].place}")
        except RecordError as error:
            problems.append(Problem(item.file, item.line, error.field, error.message))
            continue
        seen[task.id] = item
        tasks.append(task)
        unread.update((item.file, name) for name in item.data if name not in fields)
    if not problems and not tasks:
        raise UsageError(f"{source}: holds no tasks")
    if not tasks:
        raise DamagedInput(f"{problems[0]} ({pluralize(len(problems), 'record')}, none could be read)")
    notices = [
        Problem(file, 0, name, f"unknown field, read by nothing ({pluralize(count, 'record')})")
        for (file, name), count in sorted(unread.items())
    ]
    if split is None and not str(source).startswith("hub:") and Path(source).is_dir():
        notices += [
            Problem(str(Path(source, name)), 0, "", "a folder beside files that are read; name it to read it")
            for name in folders_not_read(Path(source))
        ]
    return TaskSet(str(source), tuple(tasks), tuple(problems), tuple(notices))


def _as_read_back(task: Task) -> Task:
    """Return a task after a round trip through JSON, as a run's files give it (text keys, no tuples)."""
    try:
        return Task.from_json(json.loads(json.dumps(task.to_json(), allow_nan=False)))
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError("", f"holds what JSON can't: {error}") from error


def _build(record: Record, kind: str | None) -> tuple[Task, frozenset[str]]:
    """Return the task of a record, and the fields that its set knows."""
    for name, module_name in KINDS.items():
        module = importlib.import_module(module_name)
        if name == kind or (kind is None and module.recognise(record.data)):
            build: Build = module.build
            return _as_read_back(build(record)), module.FIELDS
    raise RecordError("", "not a record of a known task set; it has no question or instruction")
