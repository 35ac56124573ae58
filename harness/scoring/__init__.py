"""Scores: a scorer turns a task and an answer into metrics, a status and reasons.

    score(task, answer, context) -> Score        dispatches on task.scorer

Scorers are plain functions `(Task, str | None, Context) -> Score`, registered by name in `SCORERS` (generic ones and
those of benchmarks, see stillweb.harness.benchmark) or named by an import path `module:function`. They are loaded when
first used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from stillweb.harness._parsing import load_module
from stillweb.harness.benchmark import ScorerInfo, benchmarks
from stillweb.harness.task import Task
from stillweb.snapshots.errors import StillwebError, UsageError

Status = Literal["scored", "zero", "unparsable", "timeout", "unsolvable"]
STATUSES: tuple[Status, ...] = ("scored", "zero", "unparsable", "timeout", "unsolvable")
FAULTS = ("judge", "reference", "scorer")  # causes of a missing score other than the answer
Message = Mapping[str, Any]  # a Chat Completions message: {"role": …, "content": …}


class JudgeFailed(StillwebError):
    """Error for a judge that gave no whole answer (a refusal, an outage, a limit). Only its part of a score is missing."""


class Judge(Protocol):
    """Model that judges. The harness supplies a taped client, tests a function."""

    def complete(self, messages: Sequence[Message], model: str, temperature: float) -> str:
        """Return the text of the model's answer. Raise JudgeFailed if there is none, or no whole one."""
        ...


class Embedder(Protocol):
    """Model that turns texts into vectors of unit length, so that a dot product is a cosine."""

    name: str

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, all of one length."""
        ...


@dataclass(frozen=True, slots=True)
class Score:
    """Score of an answer.

    `metrics` maps names to values, None if not scored. `status`: `scored`; `zero`, nothing was answered;
    `unparsable`, the answer can't be read (metrics None); `timeout`; `unsolvable` in this snapshot. `detail`
    is JSON. For tables it holds `cells`, a list of rows of {column, value, normalised, reference, right}.
    `problems` is a list of sentences on what went wrong. `fault` is one of FAULTS if a score, or part of it,
    is missing for another reason than the answer.
    """

    metrics: dict[str, float | None]
    status: Status = "scored"
    detail: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; inverse of `from_json`.

        Measurements of this machine (MEASURED metrics, `detail["measured"]`) are in `aside`, which no hash
        covers. The member is absent if there are none.
        """
        measured = {name: value for name, value in self.metrics.items() if name in MEASURED}
        aside = {"metrics": measured} if measured else {}
        if "measured" in self.detail:
            aside["measured"] = self.detail["measured"]
        return {
            "metrics": {name: value for name, value in self.metrics.items() if name not in MEASURED},
            "status": self.status,
            "detail": {name: value for name, value in self.detail.items() if name != "measured"},
            **({"aside": aside} if aside else {}),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Score:
        aside = value.get("aside", {})
        detail = dict(value.get("detail", {}))
        if "measured" in aside:
            detail["measured"] = aside["measured"]
        return cls({**value["metrics"], **aside.get("metrics", {})}, value["status"], detail)


@dataclass(frozen=True, slots=True)
class Context:
    """Resources of scorers besides task and answer.

    A scorer reports clearly when one that it needs is missing.

    `rubrics` are compiled side-cars by base task (see stillweb.harness.rubric). `page` evaluates a JavaScript
    expression in the attempt's final page (None without one) and raises a StillwebError if the expression
    fails. `mode` is "faithful" or "fixed" (SGI-Bench). `env` holds the documented variables; scorers never
    read os.environ.
    """

    rubrics: Mapping[str, Any] = field(default_factory=dict)
    judge: Judge | None = None
    embedder: Embedder | None = None
    page: Callable[[str], Any] | None = None
    mode: Literal["faithful", "fixed"] = "faithful"
    fold_case: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    allow_unconfined: bool = False  # see stillweb.harness.sandbox.running


Scorer = Callable[[Task, str | None, Context], Score]

_GENERIC = {
    "table": ScorerInfo(
        "stillweb.harness.scoring.table:score_table",
        tuple(
            level + name
            for level in ("", "raw_", "forgiven_")
            for name in ("em", "item_f1", "row_f1", "order_accuracy")
        ),
        settings=("fold_case",),
    ),
    "exact": ScorerInfo("stillweb.harness.scoring.simple:score_exact", ("exact",), text=True, settings=()),
    "judge": ScorerInfo(
        "stillweb.harness.scoring.simple:score_judged",
        ("correct",),
        judged=True,
        text=True,
        settings=("GRADER_MODEL",),
    ),
    "page": ScorerInfo("stillweb.harness.scoring.simple:score_page", ("page",), settings=()),
}
INFOS: Mapping[str, ScorerInfo] = {
    **_GENERIC,
    **{name: info for one in benchmarks().values() for name, info in one.scorers.items()},
}
SCORERS: dict[str, str | Scorer] = {name: info.function for name, info in INFOS.items()}

# The metrics of each scorer; the first one ranks runs.
METRICS: dict[str, tuple[str, ...]] = {name: info.metrics for name, info in INFOS.items()}

# Highest value of a scorer's metrics if it is not 1.
BEST: dict[str, float] = {name: info.best for name, info in INFOS.items() if info.best != 1.0}

# Metrics measured on this machine; they differ from run to run, so no hash covers them.
MEASURED = frozenset(name for info in INFOS.values() for name in info.measured)

JUDGED = frozenset(name for name, info in INFOS.items() if info.judged)  # scorers that ask a judge
TEXTUAL = frozenset(name for name, info in INFOS.items() if info.text)  # compare an answer with a text
GRADED = tuple(name for name in INFOS if name in JUDGED & TEXTUAL)  # scorers that ask a grader


def scale_of(scorer: str) -> tuple[float, str]:
    """Return the highest value of a scorer's metrics, and the scorer if its scale is unknown, else ""."""
    return BEST.get(scorer, 1.0), "" if scorer in METRICS else scorer


def is_packaged(scorer: str) -> bool:
    """Return True if a scorer is Stillweb's own code, which the evaluator's hash covers."""
    return (
        scorer in INFOS
        and SCORERS[scorer] == INFOS[scorer].function
        and INFOS[scorer].function.startswith("stillweb.")
    )


def register(name: str, scorer: Scorer, metrics: Iterable[str]) -> None:
    """Add (or replace) a scorer under a name, with the names of its metrics."""
    SCORERS[name] = scorer
    METRICS[name] = tuple(metrics)


def find_scorer(name: str) -> Scorer:
    """Return the scorer of that name or import path. Raise UsageError naming what is missing."""
    entry: str | Scorer = SCORERS.get(name, name)
    if not isinstance(entry, str):
        return entry
    module_name, colon, function_name = entry.partition(":")
    if not colon:
        known = ", ".join(sorted(SCORERS))
        raise UsageError(f"no scorer {name!r}; known are {known}, or give an import path module:function")
    found: Scorer | None = getattr(load_module(module_name, f"scorer {name!r}"), function_name, None)
    if not callable(found):
        raise UsageError(f"scorer {name!r}: module {module_name!r} has no function {function_name!r}")
    return found


def score(task: Task, answer: str | None, context: Context | None = None) -> Score:
    """Score one answer with the task's scorer. `answer` is None if the attempt ended without one.

    Raise UsageError if a scorer raises another error or returns no valid score: the attempt is then not
    scored.
    """
    scorer = find_scorer(task.scorer)
    try:
        found = _sound(scorer(task, answer, context or Context()))
        return found if is_packaged(task.scorer) else _as_read_back(found)
    except JudgeFailed as error:
        return score_without_answer(task, "unparsable", f"the judge failed: {error}", fault="judge")
    except StillwebError:
        raise
    # foreign code (which may even exit) or odd texts: the failure is reported and counted, and the run
    # continues
    except (Exception, SystemExit) as error:
        raise UsageError(f"scorer {task.scorer}: {type(error).__name__}: {error}") from error


def _sound(found: Score) -> Score:
    """Return the score if a trace can hold its numbers and detail.

    Raise ValueError or TypeError otherwise.
    """
    if not isinstance(found, Score) or found.status not in STATUSES:
        raise TypeError(f"gave no score: {found!r:.200}")
    for name, value in found.metrics.items():
        if value is not None and not math.isfinite(value):
            raise ValueError(f"the metric {name!r} is {value}")
    json.dumps(found.to_json(), allow_nan=False)
    return found


def _as_read_back(found: Score) -> Score:
    """Return a custom scorer's score as read back from a trace: true is 1, keys are text. Raise TypeError."""
    for name in ("problems", "columns", "cells"):
        if not isinstance(found.detail.get(name, []), list | tuple):
            raise TypeError(f"detail[{name!r}] is not a list")
    for cell in (cell for row in found.detail.get("cells", ()) for cell in row):
        texts = all(isinstance(cell.get(name), str | None) for name in ("value", "reference", "normalised"))
        if not texts or not isinstance(cell.get("right"), bool) or not isinstance(cell.get("column"), str):
            raise TypeError(f"detail['cells'] holds an item that is not a cell: {cell!r:.200}")
    metrics = {name: float(v) if isinstance(v, bool) else v for name, v in found.metrics.items()}
    return Score.from_json(json.loads(json.dumps(Score(metrics, found.status, found.detail).to_json())))


def score_without_answer(task: Task, status: Status, reason: str, *, fault: str | None = None) -> Score:
    """Return the score of an attempt without an answer to judge.

    `timeout` and `zero` earn 0 in every metric of the scorer; for `unparsable` and `unsolvable` metrics are
    None. `fault` (see FAULTS) says that the agent did not fail, so that a comparison of agents leaves the
    attempt out.
    """
    value: float | None = 0.0 if status in ("timeout", "zero") else None
    metrics: dict[str, float | None] = dict.fromkeys(METRICS.get(task.scorer, ()), value)
    for name in MEASURED & metrics.keys():
        metrics[name] = None  # a time, of which 0 would be the best
    return Score(metrics, status, {"problems": [reason], **({"fault": fault} if fault else {})})


@dataclass(frozen=True, slots=True)
class MetricInBothModes:
    """Metric in both modes, with the reason for a difference."""

    faithful: float | None
    fixed: float | None
    why: str = ""


def score_of(
    metrics: Mapping[str, MetricInBothModes], context: Context, detail: dict[str, Any], problems: list[str]
) -> Score:
    """Return the score in the context's mode, `unparsable` if no metric has a value.

    Differences in measured metrics (seconds), which change each time, are listed under `measured`.
    """
    differs: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for name, both in metrics.items():
        if both.faithful != both.fixed:
            entry = {"metric": name, "faithful": both.faithful, "fixed": both.fixed, "why": both.why}
            differs[name in MEASURED].append(entry)
    values = {
        name: both.faithful if context.mode == "faithful" else both.fixed for name, both in metrics.items()
    }
    told: dict[str, Any] = {"mode": context.mode, "differs": differs[False], **detail}
    if differs[True]:
        told["measured"] = {**told.get("measured", {}), "differs": differs[True]}
    if problems:
        told["problems"] = problems
    parsed = any(value is not None for value in values.values())
    return Score(values, "scored" if parsed else "unparsable", told)
