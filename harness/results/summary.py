"""Summary of a run, from its traces alone.

Every attempt has exactly one status, and the parts sum to the whole.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import fsum
from pathlib import Path
from typing import Any

from stillweb.harness._parsing import look_in
from stillweb.harness.runs.display import one_line
from stillweb.harness.runs.hashes import scoring_hashes
from stillweb.harness.runs.resources import read_rubrics
from stillweb.harness.runs.run_files import RunFiles
from stillweb.harness.scoring import MEASURED, STATUSES, Score, scale_of
from stillweb.harness.scoring.embeddings import embedder_for
from stillweb.harness.scoring.judging import (
    Evaluator,
    failure,
    rescore,
    unreadable_judgement,
    why_judge_failed,
)
from stillweb.harness.trace import Counts, Event, Trace, canonical, hashed_part, replace_events, sum_counts
from stillweb.snapshots.words import pluralize

UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True)
class Mean:
    """Mean of a metric over a run: `scored` of the `of` attempts that should have the metric have a value.

    `mean_of_all` counts missing values as 0; it is None for measured metrics, of which 0 would be the best.
    """

    mean: float | None
    mean_of_all: float | None
    scored: int
    of: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts of attempts and statuses, means, and usage. `cost` is None without prices.

    `means` are by metric; a metric that scorers give on different scales has a mean per scorer, `NAME
    (SCORER)`.

    `measured` are means of metrics that differ between machines (seconds): shown, but in no hash. `failed`
    are the attempts without a meaningful score, with the reason. `supposed` are rules of side-cars that no
    rubric states (a row key, the columns, the order), each with the number of tasks that depend on it.
    Neither is in a hash, as the statuses and side-cars say the same. `part_of` is the size of the task set if
    the run takes only a part of it (`--only`, `--limit`), else None; the certificate has its own member for
    it. `unjudged` are the attempts for which a judge gave no answer that can be read, with the answer; their scores
    say so, too. `failures` counts tool calls that failed as they had while recording, which are no misses.
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
    cut_off: int = 0  # answers of the model that its limit of tokens cut off
    presumed: int = 0  # answers of tools that are less than sure
    expected_wrong: float = 0.0  # the sum of 1 - confidence
    unpriced: tuple[str, ...] = ()  # models whose calls have no cost
    given_by: dict[str, list[str]] = field(default_factory=dict)  # the scorers of each mean

    def to_json(self, *, measured: bool = False) -> dict[str, Any]:
        """Return a JSON object; without the `measured` members it is part of the certificate."""
        means = {name: asdict(mean) for name, mean in self.means.items()}
        return {
            "attempts": self.owed,
            "statuses": self.statuses,
            "ends": self.ends,
            "metrics": means,
            "tool_calls": self.tool_calls,
            "misses": self.misses,
            **({"failures": self.failures} if self.failures else {}),
            **({"cut_off": self.cut_off} if self.cut_off else {}),
            "tokens": self.tokens,
            "cost": self.cost,
            **(
                {
                    "measured": {name: asdict(mean) for name, mean in self.measured.items()},
                    "supposed": dict(sorted(self.supposed.items())),
                    "part_of": self.part_of,
                    "presumed": self.presumed,
                    "expected_wrong": self.expected_wrong,
                    "unjudged": [list(one) for one in self.unjudged],
                }
                if measured
                else {}
            ),
        }


def summarise(path: Path, *, on_trace: Callable[[Trace], None] | None = None) -> Summary:
    """Read every trace of a run once (one at a time); `on_trace` gets each."""
    owed = 0
    counts: list[Counts] = []
    unpriced: set[str] = set()
    statuses: Counter[str] = Counter(dict.fromkeys((*STATUSES, UNFINISHED), 0))
    ends: Counter[str] = Counter()
    values: dict[tuple[str, str], list[float]] = defaultdict(list)  # by metric and scorer
    names: dict[str, None] = {}  # in order of appearance
    scorers: Counter[str] = Counter()  # attempts of each scorer
    gives: dict[str, set[str]] = defaultdict(set)  # the metrics of each scorer
    without: Counter[str] = Counter()  # attempts of a scorer of unknown metrics that earned nothing
    failed: list[tuple[str, str]] = []
    unread: list[tuple[str, str]] = []
    supposed: dict[str, set[str]] = defaultdict(set)  # rule that no rubric states -> tasks
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
        elif why := unreadable_judgement(trace):
            # a judge that is down must not look like one that was misread: the attempt counts as failed
            (failed if why_judge_failed(trace) else unread).append((f"{task.id}.{number}", why))
        if task.scorer == "table":
            for rule in score["detail"].get("assumed", ()):
                supposed[rule].add(task.id)
        statuses[score["status"]] += 1
        ends[answer["end"] if answer else "none"] += 1
        without[task.scorer] += score["status"] in ("zero", "timeout") and not score["metrics"]
        for name, value in Score.from_json(score).metrics.items():
            names.setdefault(name)
            gives[task.scorer].add(name)
            if value is not None:
                values[name, task.scorer].append(value)
        counts.append(trace.counts)
        unpriced |= {event["model"] for event in trace.of("model") if event.get("cost") is None}
    for scorer, metrics in gives.items():
        for name in metrics - MEASURED:
            values[name, scorer] += [0.0] * without[scorer]
    spent = Counts(**sum_counts(counts))
    every: dict[str, Mean] = {}
    given_by: dict[str, list[str]] = {}
    for name in names:
        giving = [scorer for scorer in scorers if name in gives[scorer]]
        for shown, group in _groups(name, giving):
            given_by[shown] = group
            found = [value for scorer in group for value in values[name, scorer]]
            every[shown] = _mean(found, sum(scorers[scorer] for scorer in group))
    means = {name: mean for name, mean in every.items() if name not in MEASURED}
    measured = {name: replace(mean, mean_of_all=None) for name, mean in every.items() if name in MEASURED}
    return Summary(
        owed,
        dict(statuses),
        dict(sorted(ends.items())),
        means,
        spent.calls,
        spent.misses,
        spent.tokens,
        spent.cost,
        measured,
        tuple(failed),
        {rule: len(tasks) for rule, tasks in supposed.items()},
        files.manifest()[1].get("part_of"),
        tuple(unread),
        spent.failures,
        spent.cut_off,
        spent.presumed,
        round(spent.doubt, 6),
        tuple(sorted(unpriced)),
        given_by,
    )


def _groups(name: str, scorers: list[str]) -> list[tuple[str, list[str]]]:
    """Return the groups of scorers that share a mean, with its name: 0.8 of 1 and 80 of 100 have no mean."""
    if len({scale_of(scorer) for scorer in scorers}) == 1:
        return [(name, scorers)]
    return [(f"{name} ({scorer})", [scorer]) for scorer in scorers]


def value_of(metrics: Mapping[str, float | None], scorer: str, name: str) -> float | None:
    """Return an attempt's value of the metric that a summary calls `name`."""
    return metrics.get(name.removesuffix(f" ({scorer})"))


def _mean(values: list[float], owed: int) -> Mean:
    total = fsum(values)  # exact, so that the order of reading can't change a digit
    value = total / len(values) if values else None
    return Mean(value, total / owed if owed else 0.0, len(values), owed)


@dataclass(frozen=True, slots=True)
class RescoredAttempt:
    """An attempt (TASK.NUMBER) whose score changed when computed again.

    `before` and `after` are the first events that differ.
    """

    attempt: str
    before: Event
    after: Event


def score_run(
    path: Path, *, write: bool = False, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[RescoredAttempt]:
    """Compute every score again from the traces alone; return the differences.

    `write` replaces the old scores.

    If the scores then are those of the present scorers, their hashes are written to run.json. Raise
    MissingCapability without the model of scorers that embed.
    """
    files = RunFiles(path)
    settings, stands_on = files.manifest()
    look_in(settings.directory)
    tasks = files.tasks()
    embedder = embedder_for({task.scorer for task in tasks}, settings.env)
    evaluator = Evaluator(
        read_rubrics(files),
        None,
        embedder,
        settings.mode,
        settings.fold_case,
        settings.env,
        settings.allow_unconfined,
    )
    different: list[RescoredAttempt] = []
    for done, (task, number, trace) in enumerate(files.attempts(), 1):
        progress(done, len(tasks) * settings.epochs)
        if trace is None:
            continue
        lines = rescore(trace, evaluator)
        for old, new in zip(trace.events, lines[1:], strict=True):
            if canonical(hashed_part(old)) != canonical(hashed_part(new)):
                different.append(RescoredAttempt(f"{task.id}.{number}", old, new))
                if write:
                    replace_events(trace.path, lines)
                break
    now = {**stands_on, **scoring_hashes(tasks)}
    if (write or not different) and now != stands_on:
        files.write_manifest(settings, now)
    return different


def describe_left_out(files: RunFiles, summary: Summary) -> list[str]:
    """Return the remarks as sentences without a full stop. Failures are reported by `failed_attempts`."""
    phrases = []
    settings = files.manifest()[0]
    if settings.prices and summary.unpriced:
        lacking = [one for one in summary.unpriced if one not in settings.prices]
        phrases.append(
            f"the cost is unknown: --prices has none for {', '.join(lacking)}"
            if lacking
            else f"the cost is unknown: an answer of {', '.join(summary.unpriced)} does not say what it used"
        )
    if fork := settings.fork:
        phrases.append(
            f"forked from attempt {fork['attempt']} at {fork['task']} of the run {fork['certificate'][:12]}: "
            f"{fork['model']} went on from step {fork['step']}"
        )
    if summary.part_of:
        phrases.append(f"the figures are of {part(len(files.tasks()), summary.part_of)}")
    if unread := unread_records(files):
        phrases.append(f"{unread}: not in these figures")
    if again := files.made_again():
        phrases.append(
            f"{pluralize(again, 'failed attempt')} made again; what failed is kept in the run's folder failed"
        )
    if summary.cut_off:
        phrases.append(f"{pluralize(summary.cut_off, 'answer')} of the model cut off by the token limit")
    if summary.supposed:
        rules = ", ".join(f"{name} of {pluralize(n, 'task')}" for name, n in sorted(summary.supposed.items()))
        phrases.append(
            f"assumed, since the rubric does not say it: {rules} (`stillweb rubric lint` names them)"
        )
    if summary.unjudged:
        name, why = summary.unjudged[0]
        of = f"{len(summary.unjudged)} of {pluralize(summary.owed, 'attempt')}"
        phrases.append(
            f"in {of} the judge gave no answer that can be read ({name}: {one_line(why)}); `run --retry-failed` asks it again"
        )
    return phrases


def unread_records(files: RunFiles) -> str:
    """Return how many records of a run's task set could not be read, as a phrase; "" if none."""
    refused: int = files.manifest()[1].get("refused", 0)
    return f"{pluralize(refused, 'record')} of the task set could not be read" if refused else ""


def part(taken: int, of: int) -> str:
    """Return the phrase for the part of its task set that a run takes."""
    return f"{taken} of the {pluralize(of, 'task')} of the set (--only, --limit)"


def failed_attempts(summary: Summary) -> str:
    """Return how many attempts failed, with the first of them; "" if none."""
    if not summary.failed:
        return ""
    name, why = summary.failed[0]
    return f"{len(summary.failed)} of {pluralize(summary.owed, 'attempt')} failed ({name}: {one_line(why)})"
