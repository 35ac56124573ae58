"""Environment for reinforcement learning and for agents' own loops: reset, step, reward, on a frozen snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from stillweb.harness.runs.playing import final_page
from stillweb.harness.scoring import METRICS, Context, Score, scale_of, score
from stillweb.harness.task import Task
from stillweb.harness.tools.toolset import ToolSession, ToolThread
from stillweb.snapshots.errors import UsageError

_ACTION = 'an action is {"tool": NAME, "arguments": {…}} or {"answer": TEXT}'


@dataclass(frozen=True, slots=True)
class Observation:
    """Result of a step: text and content of a tool's result, its verdict and evidence in `meta`."""

    text: str
    content: Sequence[Mapping[str, Any]] = ()
    is_error: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """Outcome of a step. `reward` is 0 until the answer, then the first metric of the task's scorer, from 0 to 1."""

    observation: Observation
    reward: float = 0.0
    terminated: bool = False  # the task was answered
    truncated: bool = False  # the limit of steps is reached
    score: Score | None = None


class Environment:
    """One session at a task. `reset` begins it anew, `step` calls a tool or answers. Made by `stillweb.env`.

    Environments made by `another` share snapshot, index and browser, and nothing else; each may be used by its own
    thread. An action is `{"tool": NAME, "arguments": {…}}` or `{"answer": TEXT}`.
    """

    def __init__(self, shared: ToolThread, task: Task, steps: int | None, context: Context) -> None:
        self.task, self.steps = task, steps
        self._shared, self._context = shared, context
        self._session: ToolSession | None = None
        self._done = True
        self.taken = 0  # steps since the last reset
        self._calls: list[tuple[str, Any]] = []  # the same

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools as name, description and input schema."""
        return [
            {"name": one.name, "description": one.description, "input_schema": one.input_schema}
            for one in self._shared.toolset.specs
        ]

    def another(self, task: Task | None = None) -> Environment:
        """Return an environment of its own session on the same snapshot."""
        return Environment(self._shared, task or self.task, self.steps, self._context)

    def reset(self) -> Observation:
        """Begin the task in a new session, in which nothing has happened; return the question."""
        self._end()
        self._session = self._shared.toolset.session(f"env-{next(self._shared.numbers)}")
        self._done, self.taken, self._calls = False, 0, []
        meta = {"start_url": self.task.start_url} if self.task.start_url else {}
        return Observation(self.task.question, meta=meta)

    def step(self, action: Mapping[str, Any]) -> Step:
        """Call a tool or give the answer. Raises UsageError for another action, and after the end."""
        session = self._session
        if session is None or self._done:
            raise UsageError("the episode is over; call reset()")
        match action:
            case {"answer": str() | None as answer} if len(action) == 1:
                return self._answered(session, answer)
            case {"tool": str() as tool, **rest} if not rest.keys() - {"arguments"}:
                arguments = rest.get("arguments")
            case _:
                raise UsageError(_ACTION)
        if not isinstance(arguments, Mapping | None):
            raise UsageError(_ACTION)
        result = self._shared.run(session.call(tool, dict(arguments or {})))
        self._calls.append((tool, dict(arguments or {})))
        self.taken += 1
        seen = Observation(result.text, result.content, result.is_error, result.meta)
        self._done = self.steps is not None and self.taken >= self.steps
        return Step(seen, truncated=self._done)

    def _answered(self, session: ToolSession, answer: str | None) -> Step:
        self._done = True
        page = final_page(session, self._shared.loop, self._calls) if self.task.scorer == "page" else None
        found = score(self.task, answer, replace(self._context, page=page))
        first = METRICS.get(self.task.scorer) or tuple(found.metrics)
        value = found.metrics.get(first[0]) if first else None
        reward = 0.0 if value is None else value / scale_of(self.task.scorer)[0]
        return Step(Observation(""), reward, terminated=True, score=found)

    def _end(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            self._shared.run(session.close())

    def close(self) -> None:
        """End the session. What environments share stays open until `close_all`."""
        self._end()
        self._done = True

    def close_all(self) -> None:
        """End the session, the shared browser and the loop. The snapshot stays open."""
        self.close()
        self._shared.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_all()
