"""Preflight checks: this machine has all that a run needs, before anything is asked or paid for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from stillweb.harness.agents import Agent, identity_of
from stillweb.harness.agents.command import CommandAgent
from stillweb.harness.benchmark import benchmarks, function_at
from stillweb.harness.runs.resources import agent_of
from stillweb.harness.runs.run_files import Settings
from stillweb.harness.sandbox.running import can_confine
from stillweb.harness.scoring import GRADED, JUDGED, find_scorer, score
from stillweb.harness.scoring.judging import judge_endpoints
from stillweb.harness.task import Task
from stillweb.snapshots.errors import MissingCapability, UsageError
from stillweb.snapshots.secrets.redact import mask_value

# These scorers check their options first, and return at once when there is no answer.
_OPTIONS_FIRST = ("exact", "judge", "page")


def check_ready(tasks: Iterable[Task], settings: Settings, tape: Path) -> None:
    """Raise an error for the first thing that the tasks need and this machine lacks.

    MissingCapability: the environment or a fixture of a dry experiment, a means to confine its code or the
    agent's program (unless the settings allow unconfined programs), a judge's key (unless there is a tape
    that may answer).

    UsageError: an unknown scorer or wrong options, a missing program, a judge without a named model, a wrong
    limit, or a limit of money without the model's price.
    """
    tasks = list(tasks)
    _scorers(tasks)
    if settings.agent:
        agent = agent_of(settings)
        _program(agent, settings)
        _prices(agent, settings)
    taped = settings.tape in ("replay", "auto") and tape.exists()
    check_judges(tasks, settings, taped=taped)
    for benchmark in benchmarks().values():
        if benchmark.check and (own := [task for task in tasks if task.scorer in benchmark.scorers]):
            function_at(benchmark.check)(own, settings.env, settings.allow_unconfined)


def _scorers(tasks: list[Task]) -> None:
    for task in tasks:
        try:
            find_scorer(task.scorer)
            if task.scorer in _OPTIONS_FIRST:
                score(task, None)
        except UsageError as error:
            whose = f"task {task.id}: "
            raise UsageError(whose + str(error).removeprefix(whose)) from error


def _program(agent: Agent, settings: Settings) -> None:
    if not isinstance(agent, CommandAgent):
        return
    if not shutil.which(agent.command[0], path=agent.env.get("PATH")):
        raise UsageError(f"{settings.agent}: there is no program {agent.command[0]!r}")
    for name in agent.files:
        if not Path(name).expanduser().exists():
            raise UsageError(f"{settings.agent}: files: there is no {name!r} here")
    if not settings.allow_unconfined:
        network = agent.network(web=bool(settings.snapshots))
        if reason := can_confine(network=network, limits=None):
            raise MissingCapability(f"{settings.agent}: {reason}")


def _prices(agent: Agent, settings: Settings) -> None:
    if settings.limits.money is not None:
        model = identity_of(agent).get("model")
        if model is not None and model not in settings.prices:
            raise UsageError(f"--max-cost: --prices has none for {model!r}, so that no limit could be kept")


def check_judges(tasks: Sequence[Task], settings: Settings, *, taped: bool) -> None:
    """Check the judges alone, as `check_ready` does: their models and, unless `taped`, their keys.

    `taped` says that a tape may hold the judges' answers.
    """
    if (task := unnamed_judge(tasks, settings)) is not None:
        raise UsageError(f"task {task.id}: scorer {task.scorer!r} needs options.model or GRADER_MODEL")
    if taped:
        return
    scorers = {task.scorer for task in tasks}
    for model, endpoint in judge_endpoints(settings.env, tasks).items():
        key = endpoint["key_variable"]
        if key and not os.environ.get(key):
            who = (
                f"the judge {model}"
                if model
                else f"the judge that scores by {', '.join(sorted(scorers & JUDGED))}"
            )
            raise MissingCapability(
                f"{who}: the variable {key} holds no key for {mask_value(endpoint['base_url'])}; set it, or replay a tape"
            )


def unnamed_judge(tasks: Iterable[Task], settings: Settings) -> Task | None:
    """Return the first task whose judge is named neither by its options nor by GRADER_MODEL, or None."""
    for task in tasks:
        named = task.options.get("model") or settings.env.get("GRADER_MODEL")
        if task.scorer in GRADED and not named:
            return task
    return None
