"""What two runs must share for their scores to be compared, and what else they stand on that differs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stillweb.harness.task import Task
from stillweb.harness.trace import digest
from stillweb.snapshots.words import counted

Rules = tuple[tuple[str, str], ...]  # what decides a score, each with a digest
ALIKE = "`stillweb score A -o NEW` scores the first run alike, by the same --tasks, --rubrics or --mode"

# Settings of scoring (members of a trace's header) that decide the scores of a scorer; of one's own all of them.
_SCORING: Mapping[str, tuple[str, ...]] = {
    "table": ("fold_case",),
    "exact": (),
    "page": (),
    "judge": ("GRADER_MODEL",),
    "browsecomp": ("GRADER_MODEL",),
    "sgi-wet-experiment": ("mode",),
}
_STANDS_ON = ("snapshot", "tasks", "rubrics", "contracts", "evaluator", "scorers", "code")
_SETTINGS = ("accept", "epochs", "limits", "synthetic_search", "tool_options", "mode", "fold_case")


def rules_of(task: Task, header: Mapping[str, Any]) -> Rules:
    """What decided the score of an attempt besides its answer. `header` is its trace's."""
    scoring = header["scoring"]
    known = {**scoring, "GRADER_MODEL": scoring["models"].get("GRADER_MODEL")}
    parts = {
        "scorer": task.scorer,
        "reference": task.reference,
        "options": task.options,
        "rubric": header.get("rubric") or task.meta.get("rubric"),
        **{
            name: known[name]
            for name in _SCORING.get(task.scorer, ("mode", "fold_case", "models", "embedder"))
        },
    }
    return tuple((name, digest(value)) for name, value in parts.items())


def other_rules(a: Rules, b: Rules) -> list[str]:
    """The names of the rules that differ; [] where a side has none (no trace)."""
    return sorted({name for name, _ in set(a) ^ set(b)}) if a and b else []


def parts_of_sets(a: Path, b: Path | None = None) -> tuple[str, ...]:
    """A sentence for each of the runs that takes a part of its task set only, whose set could not be read whole, or that has no certificate."""
    from stillweb.harness.results.kept_certificate import read_kept
    from stillweb.harness.results.left_out import part, unread_records
    from stillweb.harness.runs.run_files import RunFiles

    found = []
    for name, path in (("A", a), ("B", b)):
        if path is not None and read_kept(path) is None:
            told = name if b is not None else "the run"
            found.append(f"{told} has no certificate, so that nothing shows an edited trace")
        if path is not None and (of := RunFiles(path).manifest()[1].get("part_of")):
            words = part(len(RunFiles(path).tasks()), of)
            both = "; compared are the tasks that both have"
            found.append(f"{name} has {words}{both}" if b is not None else f"the run has {words}")
        if path is not None and (unread := unread_records(RunFiles(path))):
            found.append(f"of {name if b is not None else 'the run'}, {unread}")
    return tuple(found)


def asked_otherwise(a: Path, b: Path) -> tuple[str, ...]:
    """A sentence where tasks of both runs have another question or start URL in the second."""
    from stillweb.harness.runs.run_files import RunFiles

    before = {task.id: task for task in RunFiles(a).tasks()}
    found = [
        task.id
        for task in RunFiles(b).tasks()
        if (was := before.get(task.id)) and (was.question, was.start_url) != (task.question, task.start_url)
    ]
    if not found:
        return ()
    more = f" (the first: {found[0]})" if found[1:] else f" ({found[0]})"
    return (f"B asks {counted(len(found), 'task')} in other words or from another start URL{more}",)


def differences(a: Path, b: Path) -> tuple[str, ...]:
    """What two runs stand on that isn't the same, by name; the agent, which is what a comparison is about, left out."""
    from stillweb.harness.runs.run_files import RunFiles

    (one, stood_on), (two, stands_on) = RunFiles(a).manifest(), RunFiles(b).manifest()
    old, new = one.deciding(), two.deciding()
    found = [name for name in _STANDS_ON if stood_on.get(name) != stands_on.get(name)]
    return (*found, *(name for name in _SETTINGS if digest(old[name]) != digest(new[name])))
