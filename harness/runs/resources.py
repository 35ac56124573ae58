"""Resources that all attempts of a run share in one process, opened from the run's directory alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from stillweb.harness._parsing import look_in
from stillweb.harness.agents import Agent, load_agent
from stillweb.harness.agents.attempt import ToolSession
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.scoring.embeddings import embedder_for
from stillweb.harness.scoring.judging import Evaluator, judge_endpoints
from stillweb.harness.task import Task
from stillweb.snapshots.errors import DamagedInput

if TYPE_CHECKING:
    from stillweb.harness.models.client import ModelClient
    from stillweb.harness.models.tape import Tape


Requests = Callable[[], list[dict[str, Any]]]  # members of tool calls: a program's requests to the gateway


class Tools(Protocol):
    """Factory of tool sessions (stillweb.harness.tools.Toolset or a custom one)."""

    def session(self, name: str) -> ToolSession: ...


@dataclass(slots=True)
class RunResources:
    """Snapshot, tools, agent, models and evaluator of a run, as an async context manager."""

    files: RunFiles
    settings: Settings
    tasks: Mapping[str, Task]
    agent: Agent
    evaluator: Evaluator
    snapshot_id: str | None = None
    tools: Tools | None = None
    models: ModelClient | None = None
    tape: Tape | None = None
    snapshot: Any = None
    repeats: bool = False  # a repetition of an earlier run
    tape_part: Path | None = None  # where this process records, when others record too
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _task: asyncio.Task[Any] | None = None  # the task that opened it

    @classmethod
    def open(cls, run_path: Path, *, repeats: bool = False) -> RunResources:
        """Read the run's files. Entering the workshop opens everything else.

        Raise MissingCapability if a task needs an embedder and it is missing.
        """
        files = RunFiles(run_path)
        settings = files.with_secrets(files.manifest()[0])
        look_in(settings.directory)
        tasks = {task.id: task for task in files.tasks()}
        evaluator = Evaluator(
            rubrics=read_rubrics(files),
            embedder=embedder_for({task.scorer for task in tasks.values()}, settings.env),
            mode=settings.mode,
            fold_case=settings.fold_case,
            env=settings.env,
            allow_unconfined=settings.allow_unconfined,
        )
        agent = agent_of(settings)
        return cls(files, settings, tasks, agent, evaluator, repeats=repeats)

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        try:
            self._open_snapshot()
            await self._open_models()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def open_session(self, name: str, folder: Path) -> ToolSession | None:
        """Return the tools of an attempt (which read only files in `folder`), or None without tools."""
        from stillweb.harness.tools.toolset import Toolset

        if isinstance(self.tools, Toolset):
            return self.tools.session(name, folder)
        return self.tools.session(name) if self.tools else None

    def is_cancelled(self) -> bool:
        """Return True if another task than this one opened the workshop and is being cancelled.

        An attempt's own task can't tell: a TaskGroup of an agent's leaves its task counted as cancelled when
        it fails.
        """
        task = self._task
        return task is not None and task is not asyncio.current_task() and task.cancelling() > 0

    def _open_snapshot(self) -> None:
        if self.settings.snapshots:
            from stillweb.snapshots.snapshot import Snapshot

            self.snapshot = self._stack.enter_context(
                Snapshot.open(*self.settings.snapshots, at=self.settings.at)
            )
            self.snapshot_id = self.snapshot.id
        self.tools = open_tools(self.snapshot, self.settings)
        close = getattr(self.tools, "close", None)
        if close is not None:
            self._stack.push_async_callback(_maybe_await, close)

    async def _open_models(self) -> None:
        needs = getattr(self.agent, "model_options", None)
        judges = judge_endpoints(self.settings.env, self.tasks.values())
        if needs is None and not judges:
            return
        from stillweb.harness.models.client import Judge, client_of
        from stillweb.harness.models.tape import Tape

        path, forked = self.files.tape(self.settings), self.settings.fork
        tape = self._stack.enter_context(
            Tape(
                path,
                self.settings.tape,
                self.tape_part,
                anywhere=self.repeats or bool(forked),
                taken_over=forked.get("step", 1) - 1,
            )
        )
        self.tape = tape
        if needs is not None:
            options = {"provider": "openai", **needs(self.settings.env)}
            self.models = client_of(tape=tape, prices=self.settings.prices, **options)
            self._stack.push_async_callback(self.models.close)
        if judges:
            judge = Judge(tape, judges, prices=self.settings.prices)
            self._stack.callback(judge.close)
            self.evaluator = replace(self.evaluator, judge=judge)

    @asynccontextmanager
    async def program_access(
        self, session: str, tools: ToolSession | None = None
    ) -> AsyncIterator[tuple[Mapping[str, str], Requests | None]]:
        """Yield the environment and requests of an attempt's program; ({}, None) for other agents."""
        if self.snapshot is None or not getattr(self.agent, "needs_gateway", False):
            yield {}, None
            return
        from stillweb.harness.runs.tool_setup import program_access

        async with program_access(self.snapshot, self.settings, session, self.tools, tools) as access:
            yield access


async def _maybe_await(close: Callable[[], Any]) -> None:
    result = close()
    if hasattr(result, "__await__"):
        await result


def agent_of(settings: Settings) -> Agent:
    """Return the agent of a run. Raises UsageError as `load_agent` does."""
    return load_agent(settings.agent, allow_unconfined=settings.allow_unconfined, **settings.agent_options)


def open_tools(snapshot: Any, settings: Settings) -> Tools | None:
    """Return a run's tools: those of its contracts, or from `module:factory(snapshot, **options)`."""
    factory = _factory(settings)
    if factory is not None:
        made: Tools = factory(snapshot, **dict(settings.tool_options))
        return made
    if snapshot is None or not settings.contracts:
        return None
    from stillweb.harness.runs.tool_setup import make_toolset

    toolset: Tools = make_toolset(snapshot, settings)
    return toolset


def _factory(settings: Settings) -> Callable[..., Tools] | None:
    """Return the custom factory of all of a run's tools, or None if a toolset makes them.

    Such a factory is the only contract of its run. A custom tool for a toolset has a `contract` attribute.
    """
    alone = settings.contracts[0] if len(settings.contracts) == 1 else ""
    if ":" not in alone:
        return None
    from stillweb.harness.tools.toolset import find_own

    found: Callable[..., Tools] = find_own(alone)
    return None if hasattr(found, "contract") else found


def read_rubrics(files: RunFiles) -> dict[str, Any]:
    """Return the side-cars kept with a run (rubrics.json: name -> side-car), {} if there are none."""
    path = files.path / "rubrics.json"
    if not path.exists():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DamagedInput(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DamagedInput(f"{path}: must be a JSON object")
    return value
