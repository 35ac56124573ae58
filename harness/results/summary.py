"""The sums of a run, from its traces alone: every attempt owed is in exactly one status, and the parts sum to the whole."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import fsum
from pathlib import Path
from typing import Any

from stillweb.harness._parsing import look_in
from stillweb.harness.runs.hashes import scoring_hashes
from stillweb.harness.runs.run_files import RunFiles
from stillweb.harness.runs.workshop import read_rubrics
from stillweb.harness.scoring import MEASURED, STATUSES, Score, scale_of
from stillweb.harness.scoring.embeddings import embedder_for
from stillweb.harness.scoring.judging import Evaluator, failure, rescore, unjudged
from stillweb.harness.trace import Event, Trace, canonical, hashed_part, replace_events

UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True)
class Mean:
    """A metric over a run: `scored` attempts have a value, of `of` owed by tasks that are scored by it.

    `all` counts what has none as 0; None for what is measured, where 0 would be the best.
    """

    value: float | None
    all: float | None
    scored: int
    of: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Attempts owed, how many are in each status, the means, and what was used. `cost` is None without prices.

    `means` are by metric; one that scorers give on different scales is `NAME (SCORER)`, a mean for each.

    `measured` are the means of what differs from machine to machine (seconds): shown, and in no hash. `failed` are the
    attempts that did not come to a score that means anything, with the reason; in no hash, as the statuses say it.
    `supposed` are the rules of side-cars that no rubric says (a row key, the columns, the order), each with how many
    tasks stand on it; in no hash, as the side-cars say it. `part_of`: how many tasks the set has of which the run takes
    some only (`--only`, `--limit`), None for the whole; the certificate has it as a member of its own. `unjudged` are
    the attempts of which a judge said something that can't be read, with what; their scores say so, too. `failures` are
    the tool calls that failed as they had while recording, which are no misses.
    """

    owed: int
    statuses: dict[str, int]
    ends: dict[str, int]
    means: dict[str, Mean]
    tool_calls: int
    misses: int
    tokens: int
    cost: float | None
    measured: dict[str, Mean] = field(default_factory=dict)
    failed: tuple[tuple[str, str], ...] = ()
    supposed: dict[str, int] = field(default_factory=dict)
    part_of: int | None = None
    unjudged: tuple[tuple[str, str], ...] = ()
    failures: int = 0

    def to_json(self, *, measured: bool = False) -> dict[str, Any]:
        """A JSON object; without what was measured it is part of the certificate."""
        means = {
            name: {"mean": mean.value, "mean_of_all": mean.all, "scored": mean.scored, "of": mean.of}
            for name, mean in self.means.items()
        }
        return {
            "attempts": self.owed,
            "statuses": self.statuses,
            "ends": self.ends,
            "metrics": means,
            "tool_calls": self.tool_calls,
            "misses": self.misses,
            **({"failures": self.failures} if self.failures else {}),
            "tokens": self.tokens,
            "cost": self.cost,
            **(
                {
                    "measured": {name: asdict(mean) for name, mean in self.measured.items()},
                    "supposed": dict(sorted(self.supposed.items())),
                    "part_of": self.part_of,
                    "unjudged": [list(one) for one in self.unjudged],
                }
                if measured
                else {}
            ),
        }


def summarise(path: Path, *, on_trace: Callable[[Trace], None] | None = None) -> Summary:
    """Reads every trace of a run once (one at a time); `on_trace` sees each."""
    owed = misses = failures = calls = tokens = 0
    cost: float | None = 0.0
    statuses: Counter[str] = Counter(dict.fromkeys((*STATUSES, UNFINISHED), 0))
    ends: Counter[str] = Counter()
    values: dict[tuple[str, str], list[float]] = defaultdict(list)  # by metric and scorer
    names: dict[str, None] = {}  # in the order in which they come up
    scorers: Counter[str] = Counter()  # attempts owed to each
    gives: dict[str, set[str]] = defaultdict(set)  # the metrics of each scorer
    failed: list[tuple[str, str]] = []
    unread: list[tuple[str, str]] = []
    supposed: dict[str, set[str]] = defaultdict(set)  # the tasks by what of their side-cars no rubric says
    files = RunFiles(path)
    for task, number, trace in files.attempts():
        owed += 1
        scorers[task.scorer] += 1
        if trace is None:
            statuses[UNFINISHED] += 1
            continue
        if on_trace:
            on_trace(trace)
        score, answer = trace.last("score"), trace.last("answer")
        assert score is not None
        if why := failure(trace):
            failed.append((f"{task.id}.{number}", why))
        elif why := unjudged(trace):
            unread.append((f"{task.id}.{number}", why))
        if task.scorer == "table":
            for rule in score["detail"].get("assumed", ()):
                supposed[rule].add(task.id)
        statuses[score["status"]] += 1
        ends[answer["end"] if answer else "none"] += 1
        for name, value in Score.from_json(score).metrics.items():
            names.setdefault(name)
            gives[task.scorer].add(name)
            if value is not None:
                values[name, task.scorer].append(value)
        for event in trace.events:
            if event["event"] == "tool_call":
                calls += 1
                misses += event["verdict"] == "miss"
                failures += str(event["verdict"]).startswith("failed:")
            elif event["event"] == "model":
                tokens += event["usage"]["input"] + event["usage"]["output"]
                price = event.get("cost")
                cost = None if cost is None or price is None else cost + price
    every: dict[str, Mean] = {}
    for name in names:
        giving = [scorer for scorer in scorers if name in gives[scorer]]
        for shown, group in _groups(name, giving):
            found = [value for scorer in group for value in values[name, scorer]]
            every[shown] = _mean(found, sum(scorers[scorer] for scorer in group))
    means = {name: mean for name, mean in every.items() if name not in MEASURED}
    measured = {name: replace(mean, all=None) for name, mean in every.items() if name in MEASURED}
    return Summary(
        owed,
        dict(statuses),
        dict(sorted(ends.items())),
        means,
        calls,
        misses,
        tokens,
        cost,
        measured,
        tuple(failed),
        {rule: len(tasks) for rule, tasks in supposed.items()},
        files.manifest()[1].get("part_of"),
        tuple(unread),
        failures,
    )


def _groups(name: str, scorers: list[str]) -> list[tuple[str, list[str]]]:
    """The scorers whose values of a metric make one mean, each group with its name: 0.8 of 1 and 80 of 100 make none."""
    if len({scale_of(scorer) for scorer in scorers}) == 1:
        return [(name, scorers)]
    return [(f"{name} ({scorer})", [scorer]) for scorer in scorers]


def value_of(metrics: Mapping[str, float | None], scorer: str, name: str) -> float | None:
    """What an attempt has of the metric that a summary calls `name`."""
    return metrics.get(name.removesuffix(f" ({scorer})"))


def _mean(values: list[float], owed: int) -> Mean:
    total = fsum(values)  # exact, so that the order in which attempts are read can't change a digit
    value = total / len(values) if values else None
    return Mean(value, total / owed if owed else 0.0, len(values), owed)


@dataclass(frozen=True, slots=True)
class Rescored:
    """A trace whose score, computed anew, is not the one it holds. `before` and `after` are the first events that differ."""

    trace: Path
    before: Event
    after: Event


def score_run(path: Path, *, write: bool = False, embedder: Any = None) -> list[Rescored]:
    """Computes every score anew from the traces alone; [] when all agree. `write` puts the new ones in place.

    When what lies there is what these scorers give, run.json says so.
    Scorers that embed get the packaged model where none is given (MissingCapability without it).
    """
    files = RunFiles(path)
    settings, stands_on = files.manifest()
    look_in(settings.directory)
    tasks = files.tasks()
    embedder = embedder or embedder_for({task.scorer for task in tasks}, settings.env)
    evaluator = Evaluator(
        read_rubrics(files),
        None,
        embedder,
        settings.mode,
        settings.fold_case,
        settings.env,
        settings.allow_unconfined,
    )
    different: list[Rescored] = []
    for _task, _number, trace in files.attempts():
        if trace is None:
            continue
        lines = rescore(trace, evaluator)
        for old, new in zip(trace.events, lines[1:], strict=True):
            if canonical(hashed_part(old)) != canonical(hashed_part(new)):
                different.append(Rescored(trace.path, old, new))
                if write:
                    replace_events(trace.path, lines)
                break
    now = {**stands_on, **scoring_hashes(tasks)}
    if (write or not different) and now != stands_on:
        files.write_manifest(settings, now)
    return different
