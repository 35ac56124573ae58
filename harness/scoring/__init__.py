"""Scores: a task, an answer, and what a scorer needs go in; metrics, a status and the reasons come out.

    score(task, answer, context) -> Score        dispatches on task.scorer

Scorers are plain functions `(Task, str | None, Context) -> Score`, registered by name in `SCORERS` or named by
an import path `module:function`. They are loaded when first used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from stillweb.harness._parsing import load_module
from stillweb.harness.task import Task
from stillweb.snapshots.errors import StillwebError, UsageError

Status = Literal["scored", "zero", "unparsable", "timeout", "unsolvable"]
STATUSES: tuple[Status, ...] = ("scored", "zero", "unparsable", "timeout", "unsolvable")
FAULTS = ("judge", "reference", "scorer")  # whose it can be that an answer has no score, besides its own
Message = Mapping[str, Any]  # a Chat Completions message: {"role": …, "content": …}


class Judge(Protocol):
    """A model that judges. The harness supplies a taped client; tests a function in its place."""

    def complete(self, messages: Sequence[Message], model: str, temperature: float) -> str:
        """The text of the model's answer. Raises on a transport error, which the scorer reports as a problem."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors of unit length (so that a dot product is a cosine)."""

    name: str

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector a text, all of one length."""
        ...


@dataclass(frozen=True, slots=True)
class Score:
    """What an answer is worth.

    `metrics`: name -> value, None where it was not scored. `status`: `scored`; `zero`, nothing was answered;
    `unparsable`, something was answered that can't be read (metrics None); `timeout`; `unsolvable` in this
    snapshot. `detail` is JSON; for tables it holds `cells`: a list of rows of
    {column, value, normalised, reference, right}, and `problems`: list of sentences when something went wrong;
    `fault` is one of FAULTS where it was not the answer's that there is no score, or not all of it.
    """

    metrics: dict[str, float | None]
    status: Status = "scored"
    detail: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; inverse of `from_json`.

        What was measured on this machine (MEASURED metrics, `detail["measured"]`) stands under `aside`, which no
        hash covers; the member is absent where nothing was.
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
        """A score from its JSON object."""
        aside = value.get("aside", {})
        detail = dict(value.get("detail", {}))
        if "measured" in aside:
            detail["measured"] = aside["measured"]
        return cls({**value["metrics"], **aside.get("metrics", {})}, value["status"], detail)


@dataclass(frozen=True, slots=True)
class Context:
    """What scorers may use besides task and answer; each says clearly when something it needs is missing.

    `rubrics`: compiled side-cars by base task (see stillweb.harness.rubric). `page`: evaluates a JavaScript expression
    in the attempt's final page (None when there is none) and raises a StillwebError where the expression fails. `mode`: "faithful" or "fixed" (SGI-Bench). `env`
    holds the documented variables; scorers never read os.environ themselves.
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

SCORERS: dict[str, str | Scorer] = {
    "table": "stillweb.harness.scoring.table:score_table",
    "exact": "stillweb.harness.scoring.simple:score_exact",
    "judge": "stillweb.harness.scoring.simple:score_judged",
    "page": "stillweb.harness.scoring.simple:score_page",
    "browsecomp": "stillweb.harness.scoring.browsecomp:score_browsecomp",
    "sgi-deep-research": "stillweb.harness.scoring.sgi.deep_research:score_deep_research",
    "sgi-idea-generation": "stillweb.harness.scoring.sgi.idea:score_idea",
    "sgi-dry-experiment": "stillweb.harness.scoring.sgi.dry:score_dry",
    "sgi-wet-experiment": "stillweb.harness.scoring.sgi.wet:score_wet",
}

# The metrics each built-in scorer gives, the one that ranks runs first.
METRICS: dict[str, tuple[str, ...]] = {
    "table": tuple(
        level + name
        for level in ("", "raw_", "forgiven_")
        for name in ("em", "item_f1", "row_f1", "order_accuracy")
    ),
    "exact": ("exact",),
    "judge": ("correct",),
    "page": ("page",),
    "browsecomp": ("correct",),
    "sgi-deep-research": ("em", "step_accuracy"),
    "sgi-idea-generation": ("final", "effectiveness", "novelty", "detailedness", "feasibility"),
    "sgi-dry-experiment": ("passall5", "passall3", "passall1", "ser", "aet"),
    "sgi-wet-experiment": ("final", "sequence_similarity", "parameter_accuracy"),
}

# What the metrics of a scorer can be at most, where that is not 1.
BEST: dict[str, float] = {"sgi-idea-generation": 100.0}


def scale_of(scorer: str) -> tuple[float, str]:
    """What the metrics of a scorer can be at most, and whose measure that is: of a scorer that never said, its own."""
    return BEST.get(scorer, 1.0), "" if scorer in METRICS else scorer


# Metrics that are measured on this machine and differ from run to run; they belong in no hash.
MEASURED = frozenset({"aet"})


def register(name: str, scorer: Scorer, metrics: Iterable[str]) -> None:
    """Adds (or replaces) a scorer under a name, with the names of the metrics it gives."""
    SCORERS[name] = scorer
    METRICS[name] = tuple(metrics)


def find_scorer(name: str) -> Scorer:
    """The scorer of that name or import path. UsageError names what is missing."""
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
    """Scores one answer with the task's scorer. `answer` None: the attempt ended without one.

    UsageError where a scorer raises something else, or gives what is no score: the attempt is not scored then.
    """
    scorer = find_scorer(task.scorer)
    try:
        found = _sound(scorer(task, answer, context or Context()))
        return found if isinstance(SCORERS.get(task.scorer), str) else _as_read_back(found)
    except StillwebError:
        raise
    # foreign code (which may even end the process) or odd texts: the failure is told and counted, the rest goes on
    except (Exception, SystemExit) as error:
        raise UsageError(f"scorer {task.scorer}: {type(error).__name__}: {error}") from error


def _sound(found: Score) -> Score:
    """The score, if it is one whose numbers and detail a trace can hold. Raises ValueError or TypeError."""
    if not isinstance(found, Score) or found.status not in STATUSES:
        raise TypeError(f"gave no score: {found!r:.200}")
    for name, value in found.metrics.items():
        if value is not None and not math.isfinite(value):
            raise ValueError(f"the metric {name!r} is {value}")
    json.dumps(found.to_json(), allow_nan=False)
    return found


def _as_read_back(found: Score) -> Score:
    """A score of a scorer of one's own as a trace gives it back: true is 1, a number as a key its text. Raises TypeError."""
    for name in ("problems", "columns", "cells"):
        if not isinstance(found.detail.get(name, []), list | tuple):
            raise TypeError(f"detail[{name!r}] is no list")
    for cell in (cell for row in found.detail.get("cells", ()) for cell in row):
        texts = all(isinstance(cell.get(name), str | None) for name in ("value", "reference", "normalised"))
        if not texts or not isinstance(cell.get("right"), bool) or not isinstance(cell.get("column"), str):
            raise TypeError(f"detail['cells'] holds what is no cell: {cell!r:.200}")
    metrics = {name: float(v) if isinstance(v, bool) else v for name, v in found.metrics.items()}
    return Score.from_json(json.loads(json.dumps(Score(metrics, found.status, found.detail).to_json())))


def unscored(task: Task, status: Status, reason: str, *, fault: str | None = None) -> Score:
    """The score of an attempt that has no answer to judge.

    A `timeout` or `zero` earns 0 in every metric of its scorer; `unparsable` and `unsolvable` are null. `fault` (see
    FAULTS) says that it is no failure of the agent, so that a comparison of agents leaves it out.
    """
    value: float | None = 0.0 if status in ("timeout", "zero") else None
    metrics: dict[str, float | None] = dict.fromkeys(METRICS.get(task.scorer, ()), value)
    for name in MEASURED & metrics.keys():
        metrics[name] = None  # a time, so that 0 would be the best there is
    return Score(metrics, status, {"problems": [reason], **({"fault": fault} if fault else {})})
