"""Wording of the judges' prompts: the packaged ones, or those of a task's record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from stillweb.harness.benchmark import benchmark_of, function_at
from stillweb.harness.scoring.grading import grader_template
from stillweb.harness.task import Task
from stillweb.harness.trace import digest


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
