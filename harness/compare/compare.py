"""Comparison of two runs, paired by task and clustered by base task.

The forms of one base task (goal and constraint, two languages) are not independent, so tests and intervals
move whole clusters. Nothing here depends on a clock. Sampling is seeded, and the result names the seed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from stillweb.harness.compare.statistics import (
    LEAST_CLUSTERS,
    bootstrap_interval,
    exact,
    permutation_test,
    sign_test,
)
from stillweb.harness.console import decimals, table
from stillweb.harness.results.kept_certificate import check_kept
from stillweb.harness.runs.display import one_line
from stillweb.harness.scoring import FAULTS, INFOS, MEASURED, Score, scale_of
from stillweb.harness.task import Task
from stillweb.harness.trace import Trace, canonical, digest, read_trace
from stillweb.snapshots.errors import StillwebError, UsageError
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from stillweb.harness.drills import Drill

MOST_LEFT_OUT = 5  # named tasks per reason
MOST_TOLD = 10  # tasks that got worse and are shown with their differing answers and requests
UNJUDGED = "unscored: its judge failed"
ONLY_FIRST, ONLY_THERE, SCORED_BY = "only in the first run", ", in the second run only", "is scored by "


class Outcome(msgspec.Struct, frozen=True):
    """Score of one attempt. `status` is a score's or "unfinished"; `trace` is the path of its trace."""

    task_id: str
    base: str
    attempt: int
    metrics: dict[str, float | None]
    status: str
    variant: str = ""
    trace: str = ""
    language: str = ""
    best: float = 1.0  # highest value of its scorer's metrics
    rules: Rules = ()  # what decided the score besides the answer
    own: str = ""  # the scorer, if it has a scale of its own (stillweb.harness.scoring.scale_of)
    fault: str = ""  # reason for a missing value that is not the agent's fault (see FAULTS)


@dataclass(frozen=True, slots=True)
class Pair:
    """Task in both runs: means `a` and `b` over its attempts, and the paths of their traces."""

    task_id: str
    base: str
    a: float
    b: float
    traces_a: tuple[str, ...] = ()
    traces_b: tuple[str, ...] = ()

    @property
    def delta(self) -> float:
        """Difference b - a; 0 if it is only rounding (as floats, 0.1 + 0.2 is not 0.3)."""
        return _plain(self.b - self.a)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of two sides over the pairs they share.

    `interval` is the 95 % bootstrap interval of `difference` (b - a), None for fewer than LEAST_CLUSTERS
    clusters. `p` is the two-sided p of the permutation test that `test` describes; `sign_p` that of the exact
    sign test over clusters. `left_out` names the tasks that could not be paired, and why. `part_judged` names
    the tasks whose means are of fewer attempts, since a judge failed in the others. `at_worst` is the
    comparison under the assumption that the second run earned nothing in the attempts whose judge failed; None
    if there are none, or for a time.
    """

    metric: str
    pairs: tuple[Pair, ...]
    clusters: int
    mean_a: float
    mean_b: float
    difference: float
    interval: tuple[float, float] | None
    p: float
    test: str
    sign_p: float
    seed: int
    left_out: tuple[tuple[str, str], ...] = ()
    part_judged: tuple[tuple[str, str], ...] = ()
    at_worst: Comparison | None = None

    @property
    def worse(self) -> tuple[Pair, ...]:
        """Tasks that got worse, the largest change first."""
        return self._moved(-1.0)

    @property
    def better(self) -> tuple[Pair, ...]:
        """Tasks that got better, the largest change first."""
        return self._moved(1.0)

    @property
    def sense(self) -> float:
        """Factor that is 1 if more of the metric is better, -1 if less is (a time)."""
        return -1.0 if self.metric in MEASURED else 1.0

    def _moved(self, way: float) -> tuple[Pair, ...]:
        way *= self.sense
        found = [pair for pair in self.pairs if pair.delta * way > 0]
        return tuple(sorted(found, key=lambda pair: (-pair.delta * way, pair.task_id)))

    @property
    def no_interval(self) -> str:
        """Text shown instead of an interval."""
        return f"no interval: it takes {LEAST_CLUSTERS} clusters, and there are {self.clusters}"

    @property
    def left_out_lines(self) -> list[str]:
        """Messages on the tasks that were not paired."""
        return _messages(self.left_out)

    @property
    def part_judged_lines(self) -> list[str]:
        """Messages on the tasks whose means are of the judged attempts alone."""
        return _messages(self.part_judged)

    def to_json(self) -> dict[str, Any]:
        members = {name: member for name, member in asdict(self).items() if name != "at_worst"}
        return members | {
            "pairs": [asdict(pair) | {"delta": pair.delta} for pair in self.pairs],
            "worse": [pair.task_id for pair in self.worse],
            "better": [pair.task_id for pair in self.better],
        }


def read_outcomes(run: str | Path) -> list[Outcome]:
    """Return the outcomes of a run from its traces; an attempt without a trace is `unfinished`.

    Raise DamagedInput if the run's certificate was made of other traces.
    """
    from stillweb.harness.runs.run_files import RunFiles

    outcomes = []
    hashes: dict[str, str] = {}
    for task, attempt, trace in RunFiles(Path(run)).attempts():
        outcomes.append(outcome_of(task, attempt, trace))
        if trace:
            hashes[f"{task.id}/{attempt}"] = trace.hash
    check_kept(Path(run), hashes)
    return outcomes


def outcome_of(task: Task, attempt: int, trace: Trace | None) -> Outcome:
    """Return the outcome of an attempt: `unfinished` without a trace that has a score."""
    event = trace.last("score") if trace else None
    score = Score.from_json(event) if event else Score({}, "zero")
    best, own = scale_of(task.scorer)
    return Outcome(
        task_id=task.id,
        base=task.base or task.id,
        attempt=attempt,
        metrics=score.metrics,
        status=score.status if event else "unfinished",
        variant=str(task.meta.get("variant", "")),
        trace=str(trace.path) if trace and event else "",
        language=str(task.meta.get("language", "")),
        best=best,
        rules=rules_of(task, trace.header) if trace else (),
        own=own,
        fault=next((name for name in FAULTS if name == score.detail.get("fault")), ""),
    )


def main_metric(outcomes: Iterable[Outcome]) -> str:
    """Return the metric that ranks a run: the first of its first scored attempt.

    Raise UsageError if nothing was scored.
    """
    for outcome in outcomes:
        for name in outcome.metrics:
            return name
    raise UsageError("no attempt of the run has a score")


@dataclass(frozen=True, slots=True)
class MetricGroup:
    """Tasks of one run, or of two, that are ranked by one metric on one scale; `name` is unique."""

    name: str
    metric: str
    a: tuple[Outcome, ...]
    b: tuple[Outcome, ...]


def parts_of(a: Sequence[Outcome], b: Sequence[Outcome] = (), metric: str | None = None) -> list[MetricGroup]:
    """Split the runs by the metric that ranks each task of the first; with `metric`, return them as one part.

    Tasks without a metric go into the first part, where they are left out by name. Raise UsageError if
    nothing was scored.
    """
    if metric is not None:
        return [MetricGroup(metric, metric, tuple(a), tuple(b))]
    ranks: dict[str, tuple[str, float, str]] = {}
    for outcome in a:
        if outcome.metrics:
            ranks.setdefault(outcome.task_id, (main_metric([outcome]), outcome.best, outcome.own))
    kinds = list(dict.fromkeys(ranks.values())) or [(main_metric(a), 1.0, "")]
    by_own = {kind[2]: kind for kind in reversed(kinds) if kind[2]}
    for outcome in a:
        if outcome.own in by_own:  # an attempt without metrics belongs to its custom scorer's part
            ranks.setdefault(outcome.task_id, by_own[outcome.own])
    names = [name for name, _, _ in kinds]
    return [
        MetricGroup(
            kind[0] if names.count(kind[0]) == 1 else f"{kind[0]} of {kind[2] or f'{kind[1]:g}'}",
            kind[0],
            tuple(o for o in a if ranks.get(o.task_id, kinds[0]) == kind),
            tuple(o for o in b if ranks.get(o.task_id, kinds[0]) == kind),
        )
        for kind in kinds
    ]


def compare(
    a: Sequence[Outcome], b: Sequence[Outcome], metric: str | None = None, *, seed: int = 0
) -> Comparison:
    """Compare two runs on the tasks they share. Raise UsageError if none of these can be compared.

    An attempt without a readable answer counts 0 (it earned nothing). An attempt whose judge failed is in no
    mean, which is of the task's other attempts. Tasks with `unsolvable` or `unfinished` attempts, or whose
    scorer failed, are left out, by name; so are tasks without a judged attempt, or scored by other rules.
    """
    metric = metric or main_metric(a)
    known = _knowing((*a, *b), metric)
    _check_named(metric, known, (*a, *b))
    scale = _scale((*a, *b), metric)
    left, left_out = _by_task(a, metric, known, scale)
    right, right_out = _by_task(b, metric, known, scale)
    lacking = {
        task_id: f"{why}{ONLY_THERE}" if task_id in left and why.startswith("unsolvable") else why
        for task_id, why in right_out.items()
    }
    out = {**left_out, **lacking, **_scored_otherwise(a, b)}
    for task_id in (left.keys() | left_out.keys()) ^ (right.keys() | right_out.keys()):
        out[task_id] = ONLY_FIRST if task_id in left or task_id in left_out else "only in the second run"
    pairs = [_pair(task_id, left[task_id], right[task_id]) for task_id in left if task_id not in out]
    part_judged = [
        (task_id, f"{value.unjudged} in {side}")
        for side, values in (("A", left), ("B", right))
        for task_id, value in values.items()
        if value.unjudged and task_id not in out
    ]
    found = replace(_compared(metric, pairs, out, seed), part_judged=tuple(sorted(part_judged)))
    worst = {
        task_id: value.worst for task_id, value in right.items() if task_id not in out and value.unjudged
    }
    worst |= {task_id: 0.0 for task_id in left if out.get(task_id, "").startswith(UNJUDGED)}
    if not worst or metric in MEASURED:
        return found
    rest = [pair for pair in pairs if pair.task_id not in worst]
    doubted = [Pair(task_id, left[task_id].base, left[task_id].mean, b) for task_id, b in worst.items()]
    return replace(found, at_worst=_compared(metric, [*rest, *doubted], out, seed))


def compare_variants(outcomes: Sequence[Outcome], metric: str | None = None, *, seed: int = 0) -> Comparison:
    """Compare two forms of the same base tasks within one run, `goal` against `constraint`, per language."""
    first, second = "constraint", "goal"
    metric = metric or main_metric(outcomes)
    known = _knowing(outcomes, metric)
    _check_named(metric, known, outcomes)
    values, out = _by_task(outcomes, metric, known, _scale(outcomes, metric))
    forms: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    languages: dict[str, set[str]] = defaultdict(set)
    for outcome in outcomes:
        languages[outcome.base].add(outcome.language)
        there = forms[outcome.base, outcome.language].setdefault(outcome.variant, outcome.task_id)
        if there != outcome.task_id:
            out[outcome.task_id] = f"has the same form as {there}"
    pairs = []
    for (base, language), ids in forms.items():
        if first in ids and second in ids:
            one, two = values.get(ids[first]), values.get(ids[second])
            name = base if len(languages[base]) == 1 else f"{base} ({language})"
            if one and two:
                pairs.append(_pair(name, one, two))
            elif one or two:
                out[ids[first if one else second]] = "its other form is left out"
            for variant in ids.keys() - {first, second}:
                out[ids[variant]] = f"is neither {first} nor {second}"
        else:
            out.update((task_id, "its other form is not in the run") for task_id in ids.values())
    part_judged = sorted((task_id, one.unjudged) for task_id, one in values.items() if one.unjudged)
    return replace(_compared(metric, pairs, out, seed), part_judged=tuple(part_judged))


class _Value(NamedTuple):
    """Mean of a task over its judged attempts, and their traces.

    `worst` is the mean if the other attempts, which `unjudged` counts in words, earned nothing.
    """

    base: str
    mean: float
    traces: tuple[str, ...]
    worst: float
    unjudged: str


def _pair(name: str, a: _Value, b: _Value) -> Pair:
    return Pair(name, a.base, a.mean, b.mean, a.traces, b.traces)


def _messages(reasons: Iterable[tuple[str, str]]) -> list[str]:
    """Return a message for each task, or for many tasks with one reason."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for task_id, why in reasons:
        by_reason[why].append(task_id)
    described = []
    for why, ids in by_reason.items():
        if len(ids) <= MOST_LEFT_OUT:
            described += [f"{task_id}: {why}" for task_id in ids]
        else:
            described.append(f"{ids[0]} and {len(ids) - 1} more: {why}")
    return described


def _scored_otherwise(a: Sequence[Outcome], b: Sequence[Outcome]) -> dict[str, str]:
    """Return the tasks that the runs scored by different rules, with these rules."""
    mine = {outcome.task_id: outcome.rules for outcome in a if outcome.rules}
    found = {o.task_id: other_rules(mine.get(o.task_id, ()), o.rules) for o in b}
    return {
        task_id: f"{SCORED_BY}{', '.join(map(_other, names))} in the second run"
        for task_id, names in found.items()
        if names
    }


def _other(rule: str) -> str:
    return f"{'other' if rule.endswith('s') else 'another'} {rule}"


def _knowing(outcomes: Iterable[Outcome], metric: str) -> set[str]:
    """Return the base tasks and the custom scorers that give the metric; a failed attempt has no metrics."""
    giving = [outcome for outcome in outcomes if metric in outcome.metrics]
    return {one.base for one in giving} | {f"scorer {one.own}" for one in giving if one.own}


def _check_named(metric: str, known: Set[str], outcomes: Iterable[Outcome]) -> None:
    """Raise UsageError, listing the metrics, if no task has this one."""
    there = dict.fromkeys(name for outcome in outcomes for name in outcome.metrics)
    if there and not known:
        raise UsageError(
            f"nothing to compare by {metric!r}: no task has that metric (they have {', '.join(there)})"
        )


def _scale(outcomes: Iterable[Outcome], metric: str) -> tuple[float, str]:
    """Return the metric's highest value and its custom scorer, from the first attempt that has it."""
    return next(((one.best, one.own) for one in outcomes if metric in one.metrics), (1.0, ""))


def _by_task(
    outcomes: Sequence[Outcome], metric: str, known: Set[str], scale: tuple[float, str]
) -> tuple[dict[str, _Value], dict[str, str]]:
    """Return the values of tasks, and the tasks left out with the reason.

    `known` is the result of `_knowing`, `scale` the scale of the tasks that are compared.
    """
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.task_id].append(outcome)
    values: dict[str, _Value] = {}
    out: dict[str, str] = {}
    for task_id, group in groups.items():
        judged = [o for o in group if no_evidence(o, metric) != UNJUDGED]
        lost = sorted(why for o in judged or group if (why := no_evidence(o, metric)))
        if lost:
            out[task_id] = f"{lost[0]} ({lost.count(lost[0])} of {pluralize(len(group), 'attempt')})"
        elif not {group[0].base, f"scorer {group[0].own}"} & known or any(
            o.metrics and metric not in o.metrics for o in group
        ):
            out[task_id] = f"has no metric {metric!r}"
        elif any(metric in o.metrics and (o.best, o.own) != scale for o in group):
            out[task_id] = f"has {metric} on another scale"  # 80 of 100 and 0.8 have no common mean
        elif metric in MEASURED and any(o.metrics.get(metric) is None for o in judged):
            out[task_id] = f"{metric} was not measured"  # as 0 it would count as the best time
        else:
            total, failed = fsum(o.metrics.get(metric) or 0.0 for o in judged), len(group) - len(judged)
            values[task_id] = _Value(
                group[0].base,
                total / len(judged),
                tuple(o.trace for o in sorted(judged, key=lambda o: o.attempt)),
                total / len(group),
                f"{failed} of {pluralize(len(group), 'attempt')}" if failed else "",
            )
    return values, out


def no_evidence(outcome: Outcome, metric: str) -> str:
    """Return why an attempt says nothing about its agent, else "".

    A task's message is the first of these texts in alphabetical order.
    """
    if outcome.status in ("unfinished", "unsolvable"):
        return outcome.status
    if outcome.fault and outcome.metrics.get(metric) is None:
        return f"unscored: its {outcome.fault} failed"
    return ""


def _plain(value: float) -> float:
    return value if exact(value) else 0.0


def _compared(metric: str, pairs: list[Pair], out: dict[str, str], seed: int) -> Comparison:
    if not pairs:
        task_id, reason = next(iter(sorted(out.items())), ("", "no tasks"))
        remedy = f"; {ALIKE}" if reason.startswith(SCORED_BY) else ""
        where = f"{pluralize(len(out), 'task')} left out, {task_id} among them: " if out else ""
        raise UsageError(f"nothing to compare by {metric!r}: {where}{reason}{remedy}")
    pairs.sort(key=lambda pair: pair.task_id)
    clusters: dict[str, list[float]] = defaultdict(list)
    for pair in pairs:
        clusters[pair.base].append(pair.delta)
    groups = [clusters[base] for base in sorted(clusters)]
    enough = len(groups) >= LEAST_CLUSTERS
    interval = bootstrap_interval(groups, seed=seed) if enough else None
    p, test = permutation_test([fsum(group) for group in groups], seed=seed)
    return Comparison(
        metric=metric,
        pairs=tuple(pairs),
        clusters=len(groups),
        mean_a=fsum(pair.a for pair in pairs) / len(pairs),
        mean_b=fsum(pair.b for pair in pairs) / len(pairs),
        difference=_plain(fsum(pair.delta for pair in pairs) / len(pairs)),
        interval=interval and (_plain(interval[0]), _plain(interval[1])),
        p=p,
        test=test,
        sign_p=sign_test([fsum(group) for group in groups]),
        seed=seed,
        left_out=tuple(sorted(out.items())),
    )


Rules = tuple[tuple[str, str], ...]  # names of what decides a score, each with a digest
ALIKE = "`stillweb score A -o NEW` scores the first run alike, by the same --tasks, --rubrics or --mode"

_STANDS_ON = ("snapshot", "tasks", "rubrics", "contracts", "evaluator", "scorers", "code")
_OF_THE_AGENT = ("agent_options", "prices")


def rules_of(task: Task, header: Mapping[str, Any]) -> Rules:
    """Return the inputs of an attempt's score besides its answer. `header` is its trace's."""
    scoring = header["scoring"]
    known = {**scoring, "GRADER_MODEL": scoring["models"].get("GRADER_MODEL")}
    parts = {
        "scorer": task.scorer,
        "reference": task.reference,
        "options": task.options,
        "rubric": header.get("rubric") or task.meta.get("rubric"),
        **{name: known[name] for name in _settings_of(task.scorer)},
    }
    return tuple((name, digest(value)) for name, value in parts.items())


def _settings_of(scorer: str) -> tuple[str, ...]:
    """Return the scoring settings (members of a trace's header) that a scorer's scores depend on."""
    info = INFOS.get(scorer)
    known = info.settings if info is not None else None
    return ("mode", "fold_case", "models", "embedder") if known is None else known


def other_rules(a: Rules, b: Rules) -> list[str]:
    """Return the names of the rules that differ; [] if a side has no rules (no trace)."""
    return sorted({name for name, _ in set(a) ^ set(b)}) if a and b else []


def parts_of_sets(a: Path, b: Path | None = None) -> tuple[str, ...]:
    """Return remarks on the runs: a missing certificate, a partial task set, unreadable records."""
    from stillweb.harness.results.kept_certificate import read_kept
    from stillweb.harness.results.summary import part, unread_records
    from stillweb.harness.runs.run_files import RunFiles

    found = []
    for name, path in (("A", a), ("B", b)):
        if path is not None and read_kept(path) is None:
            which = name if b is not None else "the run"
            found.append(f"{which} has no certificate, so that nothing shows an edited trace")
        if path is not None and (of := RunFiles(path).manifest()[1].get("part_of")):
            words = part(len(RunFiles(path).tasks()), of)
            both = "; compared are the tasks that both have"
            found.append(f"{name} has {words}{both}" if b is not None else f"the run has {words}")
        if path is not None and (unread := unread_records(RunFiles(path))):
            found.append(f"of {name if b is not None else 'the run'}, {unread}")
    return tuple(found)


def changed_questions(a: Path, b: Path) -> tuple[str, ...]:
    """Return a message if tasks of both runs have another question or start URL in the second, else ()."""
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
    return (f"B asks {pluralize(len(found), 'task')} in other words or from another start URL{more}",)


def differences(a: Path, b: Path) -> dict[str, list[str]]:
    """Return the differences between the runs' inputs and settings, without the agent: name -> the changes."""
    from stillweb.harness.runs.run_files import RunFiles, changes

    (one, stood_on), (two, stands_on) = RunFiles(a).manifest(), RunFiles(b).manifest()
    names = dict.fromkeys(
        name for name in (*one.certified_members(), *two.certified_members()) if name not in _OF_THE_AGENT
    )
    # with what is as by default
    old, new = ({**run.to_json(), **run.certified_members()} for run in (one, two))
    found = {name: changes(name, stood_on.get(name), stands_on.get(name)) for name in _STANDS_ON}
    found |= {name: changes(name, old.get(name), new.get(name)) for name in names if name not in _STANDS_ON}
    return {name: told for name, told in found.items() if told}


_Event = dict[str, Any]


def best_and_worst(comparison: Comparison, pair: Pair) -> str:
    """Return a line on the best attempt of the first run at a task and the worst of the second."""

    def rank(trace: Trace) -> float:
        value = (trace.last("score") or {}).get("metrics", {}).get(comparison.metric)
        return 0.0 if value is None else value * comparison.sense

    one = max((read_trace(Path(path)) for path in pair.traces_a), key=rank)
    two = min((read_trace(Path(path)) for path in pair.traces_b), key=rank)
    return f"{pair.task_id}: answer {_answer(one)} -> {_answer(two)}; {_calls(one, two)}"


def _answer(trace: Trace) -> str:
    event = trace.last("answer") or {}
    if event.get("error"):
        return f"none ({one_line(event['error'])})"
    return "none" if event.get("text") is None else repr(one_line(event["text"], 80))


def _calls(one: Trace, two: Trace) -> str:
    at, _ = first_divergence(one, two)
    before, after = (
        calls[at] if at < len(calls) else None for calls in (one.of("tool_call"), two.of("tool_call"))
    )
    if before is None and after is None:
        return "the same calls, answered alike"
    if before and after and _asked(before) == _asked(after):
        return f"call {at + 1} was answered otherwise: {_told(after)}"
    return f"call {at + 1}: {_told(before)} -> {_told(after)}"


def first_divergence(a: Trace, b: Trace) -> tuple[int, str]:
    """Return the number, from 0, of the first tool call that differs, and how: in the call or in its result."""
    ones, twos = a.of("tool_call"), b.of("tool_call")
    for number, (one, two) in enumerate(zip(ones, twos, strict=False)):
        if _asked(one) != _asked(two):
            return number, "the agents called otherwise"
        if one["output"]["digest"] != two["output"]["digest"]:
            return number, "the same call was answered otherwise"
    if len(ones) != len(twos):
        return min(len(ones), len(twos)), "one agent went on, the other answered"
    same = (a.last("answer") or {}).get("text") == (b.last("answer") or {}).get("text")
    return len(ones), "" if same else "the same calls with the same results, another answer"


def _asked(call: _Event) -> tuple[str, bytes]:
    return call["tool"], canonical(call["arguments"])


def _told(call: _Event | None) -> str:
    if call is None:
        return "none"
    missed = " (miss)" if call["verdict"] == "miss" else ""
    return f"{call['tool']} {one_line(canonical(call['arguments']).decode(), 120)}{missed}"


def other_metrics_worse(comparison: Comparison, a: Sequence[Outcome], b: Sequence[Outcome]) -> list[str]:
    """Return a message for each other metric by which tasks fell that are not worse by the compared one.

    An answer that is not entirely right in either run has the same `em` of 0, even if less of it is right
    than before. Stricter and more lenient variants of a metric, and measured metrics, are skipped.
    """
    worse = {pair.task_id for pair in comparison.worse}
    ids = [pair.task_id for pair in comparison.pairs if pair.task_id not in worse]
    lines_found = []
    for name in dict.fromkeys(name for outcome in a for name in outcome.metrics):
        if name == comparison.metric or name in MEASURED or name.startswith(("raw_", "forgiven_")):
            continue
        before, after = _means(a, name), _means(b, name)
        both = before.keys() & after.keys()
        fell = [task_id for task_id in ids if task_id in both and before[task_id] > after[task_id]]
        if fell:
            first = f"{fell[0]} {decimals(before[fell[0]], 3)} to {decimals(after[fell[0]], 3)}"
            lines_found.append(
                f"not worse by {comparison.metric}, but by {name}: {pluralize(len(fell), 'task')} "
                f"({'the first: ' if fell[1:] else ''}{first}; --metric {name} compares by it)"
            )
    return lines_found


def _means(outcomes: Iterable[Outcome], name: str) -> dict[str, float]:
    """Return the mean of each task over its judged attempts; any other without a value earned nothing."""
    found: dict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        if no_evidence(outcome, name) != UNJUDGED:
            found[outcome.task_id].append(outcome.metrics.get(name) or 0.0)
    return {task_id: fsum(values) / len(values) for task_id, values in found.items()}


@dataclass(frozen=True, slots=True)
class Cluster:
    """Errors at a base task: attempts with less than the full score, of how many, and their statuses.

    Attempts whose judge failed are not counted.
    """

    base: str
    wrong: int
    attempts: int
    statuses: dict[str, int]


def errors_by_base(outcomes: Iterable[Outcome], metric: str) -> list[Cluster]:
    """Return the base tasks with errors, the highest share of errors first."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        # attempts with other metrics only are scored by another scorer
        if (metric in outcome.metrics or not outcome.metrics) and no_evidence(outcome, metric) != UNJUDGED:
            groups[outcome.base].append(outcome)
    clusters = []
    for base, group in groups.items():
        wrong = [o for o in group if _short(o, metric)]
        statuses: dict[str, int] = defaultdict(int)
        for outcome in wrong:
            statuses[outcome.status] += 1
        if wrong:
            clusters.append(Cluster(base, len(wrong), len(group), dict(sorted(statuses.items()))))
    return sorted(clusters, key=lambda c: (-c.wrong / c.attempts, -c.wrong, c.base))


def _short(outcome: Outcome, metric: str) -> bool:
    value = outcome.metrics.get(metric)
    return value is None or (metric not in MEASURED and value < outcome.best)


def flips(outcomes: Iterable[Outcome], metric: str) -> dict[str, list[float | None]]:
    """Return the tasks whose repeated attempts don't agree (an inconsistent judge or agent)."""
    values: dict[str, list[float | None]] = defaultdict(list)
    for outcome in sorted(outcomes, key=lambda o: (o.task_id, o.attempt)):
        if not no_evidence(outcome, metric):
            values[outcome.task_id].append(outcome.metrics.get(metric))
    return {task_id: found for task_id, found in values.items() if len(set(found)) > 1}


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Comparison of two runs, or of the forms within one run; `str()` of it is the report.

    `comparisons` has one for each part with a metric and scale of its own. `reasons` say why other parts could not
    be compared. `differs` names what the runs stand on that differs, `remarks` say what limits the comparison.
    `drill` says what became of each attempt if the second run met faults or changed pages.
    `repeated`, `flips` (task -> its differing values) and `errors_by_base` are of a single run.
    """

    metric: str
    comparisons: tuple[Comparison, ...]
    two: bool
    reasons: tuple[str, ...] = ()
    differs: Mapping[str, list[str]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    by_others: tuple[tuple[str, ...], ...] = ()  # for each comparison, what got worse by other metrics
    repeated: int = 0
    flips: Mapping[str, list[float | None]] = field(default_factory=dict)
    errors_by_base: tuple[Cluster, ...] = ()
    drill: Drill | None = None

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        if self.differs:
            told = (change for changes in self.differs.values() for change in changes)
            yield f"the runs differ in their inputs: {'; '.join(told)}"
        yield from self.remarks
        if self.drill is not None:
            yield str(self.drill)
        for one, others in zip(self.comparisons, self.by_others, strict=True):
            yield from _report(one, ("A", "B") if self.two else ("constraint", "goal"))
            yield from others
        if not self.comparisons:
            yield f"{self.metric}: no task has both a goal and a constraint form"
        for task_id, values in self.flips.items():
            shown = ", ".join("-" if value is None else f"{value:.3f}" for value in values)
            yield f"repeats differ: {task_id}: {shown}"
        if self.repeated:
            yield (
                f"repeats: {pluralize(self.repeated, 'task')} attempted again, "
                f"{len(self.flips)} with differing scores"
            )
        for cluster in self.errors_by_base:
            how = ", ".join(f"{count} {status}" for status, count in cluster.statuses.items())
            yield (
                f"errors: {cluster.base}: {cluster.wrong} of {pluralize(cluster.attempts, 'attempt')} ({how})"
            )

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object: the first comparison's members, and the other parts in `others`."""
        first, *others = self.comparisons or (None,)
        own: dict[str, Any] = (
            {"differs": list(self.differs)}
            if self.two
            else {
                "repeated": self.repeated,
                "flips": dict(self.flips),
                "errors_by_base": [asdict(one) for one in self.errors_by_base],
            }
        )
        return {
            **(first.to_json() if first else {"metric": self.metric}),
            **own,
            "parts": list(self.remarks),
            **({"drill": self.drill.to_json()} if self.drill is not None else {}),
            **({"others": [one.to_json() for one in others if one]} if others else {}),
        }


def compare_groups(
    groups: Iterable[MetricGroup], *, seed: int = 0, variants: bool = False
) -> tuple[tuple[Comparison, ...], tuple[UsageError, ...]]:
    """Return a comparison for each group that has one, and why the others have none.

    With `variants`, the goal of the first run is compared with its constraint forms.
    """
    found: list[Comparison] = []
    reasons: list[UsageError] = []
    for group in groups:
        try:
            if variants:
                one = compare_variants(group.a, group.metric, seed=seed)
            else:
                one = compare(group.a, group.b, group.metric, seed=seed)
            found.append(replace(one, metric=group.name))
        except UsageError as error:
            reasons.append(error)
    return tuple(found), tuple(reasons)


def compare_runs(
    a: Path, b: Path | None = None, *, metric: str | None = None, seed: int = 0, whole: bool = False
) -> RunComparison:
    """Compare run `b` with run `a`; of one run, its goal with its constraint forms.

    With `whole`, every part must be comparable. Raise UsageError if nothing is comparable.
    """
    first, second = read_outcomes(a), read_outcomes(b) if b is not None else []
    parts = parts_of(first, second, metric)
    found, reasons = compare_groups(parts, seed=seed, variants=b is None)
    remarks = (*parts_of_sets(a, b), *(changed_questions(a, b) if b is not None else ()))
    if b is not None:
        if reasons and (whole or not found):
            raise reasons[0]
        drill, missing = _drill(a, b) if found else (None, ())
        return RunComparison(
            parts[0].name,
            found,
            True,
            tuple(map(str, reasons)),
            differences(a, b),
            (*remarks, *missing),
            tuple(tuple(other_metrics_worse(one, first, second)) for one in found),
            drill=drill,
        )
    repeated = len({o.task_id for o in first if o.attempt > 1 and o.status != "unfinished"})
    if reasons and not found and (whole or not repeated):  # within one run, not every task needs two forms
        raise reasons[0]
    return RunComparison(
        parts[0].name,
        found,
        False,
        remarks=remarks,
        by_others=((),) * len(found),
        repeated=repeated,
        flips={task: values for part in parts for task, values in flips(part.a, part.metric).items()},
        errors_by_base=tuple(one for part in parts for one in errors_by_base(part.a, part.metric)),
    )


def _drill(a: Path, b: Path) -> tuple[Drill | None, tuple[str, ...]]:
    """Return the outcome of each attempt if `b` met faults or changed pages, or remarks why it is unknown."""
    from stillweb.harness.drills import UNTOUCHED, drill

    try:
        found = drill(a, b)
    except StillwebError as error:
        return None, (f"the outcomes of the attempts are not known: {error}",)
    return (found if found.outcomes.keys() - {UNTOUCHED} else None), ()


def _report(comparison: Comparison, sides: tuple[str, str]) -> Iterator[str]:
    rows = [
        [p.task_id, decimals(p.a, 3), decimals(p.b, 3), decimals(p.delta, 3, "+"), p.traces_b[0]]
        for p in comparison.worse
    ]
    if rows:
        yield table(["worse", *sides, "change", f"trace of {sides[1]}"], rows)
    if sides == ("A", "B"):  # two forms of a task differ in question and answer anyway
        for pair in comparison.worse[:MOST_TOLD]:
            yield best_and_worst(comparison, pair)
    interval = comparison.no_interval
    if comparison.interval:
        low, high = comparison.interval
        interval = f"95 % interval {decimals(low, 4, '+')} to {decimals(high, 4, '+')}"
    yield (
        f"{comparison.metric}: {decimals(comparison.mean_a, 4)} to {decimals(comparison.mean_b, 4)}, difference "
        f"{decimals(comparison.difference, 4, '+')} ({interval}), p {decimals(comparison.p, 4)} "
        f"({comparison.test}), sign test {decimals(comparison.sign_p, 4)}; {pluralize(len(comparison.pairs), 'task')} in "
        f"{pluralize(comparison.clusters, 'cluster')}, {len(comparison.worse)} worse, {len(comparison.better)} better"
    )
    for line in comparison.left_out_lines:
        yield f"left out of {comparison.metric}: {line}"
    for line in comparison.part_judged_lines:
        yield f"without the attempts whose judge failed: {line}"
