"""One agent's attempt at one task, with its tools, limits and trace."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from stillweb.harness.agents.concurrency import Call, Lanes, SentMessages, TracedCall, sort_by_lane
from stillweb.harness.agents.retrieval import Standing
from stillweb.harness.agents.tool_event import Part, call_members
from stillweb.harness.models.tape import CallInProgress
from stillweb.harness.models.tape_order import PATIENCE
from stillweb.harness.task import Limits as Limits  # part of this module's API
from stillweb.harness.task import Task
from stillweb.harness.tools.contract import ToolResult, ToolSpec
from stillweb.harness.trace import TraceWriter, digest
from stillweb.snapshots.errors import MissingCapability, UsageError


class ToolSession(Protocol):
    """Tools of one client (stillweb.harness.tools), independent of all other sessions."""

    def list(self) -> Sequence[ToolSpec]: ...
    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult: ...
    async def close(self) -> None: ...


ENDPOINT_FAILED = "the model's endpoint did not answer"  # note that marks such an attempt in its trace


def tool_key(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the SHA-256 (hex) that tells a tool call from others of its attempt."""
    return digest([name, dict(arguments)])


class LimitReached(Exception):
    """Error raised when an attempt has used up a limit; `limit` is the `end` of its answer event."""

    def __init__(self, limit: str, value: float) -> None:
        super().__init__(f"the limit of {value:g} {limit} is used up")
        self.limit, self.value = limit, value


@dataclass(frozen=True, slots=True)
class Stop:
    """Point at which an attempt ended: after how many model and tool calls, and how.

    `tools` counts its tool calls by `tool_key`; None if they are not known.
    """

    steps: int
    calls: int
    end: str
    error: str
    tools: Mapping[str, int] | None = None


class AttemptStopped(BaseException):
    """Exception that ends a repeated attempt where its first run ended. Agents must not catch it."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.error)
        self.stop = stop


class AttemptEnded(Exception):
    """Exception that tells how an attempt ended in the agent's own process, without an answer."""

    def __init__(self, end: str, error: str | None) -> None:
        super().__init__(error or end)
        self.end, self.error = end, error


@dataclass(slots=True)
class AttemptUsage:
    """Usage of an attempt so far.

    `cost` is None once a call had no price; `uncounted` is the number of calls that reported no tokens.
    """

    steps: int = 0
    calls: int = 0
    tokens: int = 0
    cost: float | None = 0.0
    misses: int = 0
    uncounted: int = 0


@dataclass(slots=True)
class Attempt:
    """Everything that an agent is given for a task.

    `environment` is for programs: proxy, certificates, MCP address. Use `call` for tools and `ask` for
    models: both write the trace and enforce the limits.
    """

    task: Task
    number: int
    session: str
    tools: ToolSession
    trace: TraceWriter
    limits: Limits = field(default_factory=Limits)
    models: Any = None  # stillweb.harness.models.client.ModelClient, if the run has one
    environment: Mapping[str, str] = field(default_factory=dict)
    # tool_call members for a program's requests to the gateway
    requests: Callable[[], list[Part]] | None = None
    usage: AttemptUsage = field(default_factory=AttemptUsage)
    on_change: Callable[[Attempt], None] | None = None
    seconds: float | None = None  # time that the agent has; in a repetition more than the limit
    workspace: Path | None = None  # the attempt's folder, with copies of the run's uploads
    stop: Stop | None = None  # where the first run of a repeated attempt ended
    is_repetition: bool = (
        False  # the tape and `stop` say which calls the limits let pass, whatever the timing now
    )
    given_up: int = 0  # model calls abandoned by the agent while under way
    ended: bool = False  # calls of code that the agent left running are refused
    # what the machine lacks: the attempt fails even if the agent catches the error
    machine_error: Exception | None = None
    fork: Mapping[str, Any] = field(default_factory=dict)  # `step` from which `model` makes the model calls
    # places hidden from programs: the run's directory, tasks, snapshots, tape
    hidden_paths: Sequence[str] = ()
    allow_unconfined: bool = False  # start a program even if the machine lacks a means to confine it
    # which means held its program: held, missing
    confinement: dict[str, list[str]] = field(default_factory=dict)
    _standing: Standing = field(default_factory=Standing)
    _contracts: dict[str, str] | None = None
    _sent: SentMessages = field(default_factory=SentMessages)
    _tool_calls: int = 0  # concurrent tool calls
    _excess_calls: int = 0  # tool calls that wait, since the first run did not make them
    _repetitions: Counter[str] = field(default_factory=Counter)  # tool calls by their keys
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _model_calls: int = 0  # concurrent model calls
    lanes: Lanes = field(default_factory=Lanes)  # the agent's tasks and threads
    _traced: dict[int, TracedCall] = field(default_factory=dict)  # the agent's calls by their event number

    def call(
        self, name: str, arguments: dict[str, Any], *, call_id: str | None = None
    ) -> Coroutine[Any, Any, ToolResult]:
        """Call a tool and trace the call. Raise LimitReached if the limit of calls is used up."""
        return self._call(name, arguments, call_id, threading.current_thread())

    async def _call(
        self, name: str, arguments: dict[str, Any], call_id: str | None, thread: threading.Thread
    ) -> ToolResult:
        self.stop_as_before()
        if self.stop is not None and self.stop.tools is not None:
            await self._as_before(self.stop, tool_key(name, arguments))
        elif self.limits.calls is not None and self.usage.calls + self._tool_calls >= self.limits.calls:
            raise LimitReached("calls", self.limits.calls)
        place = self.lanes.begin(thread)
        self._tool_calls += 1
        try:
            # calls begun together must count as under way even if this tool returns at once
            await asyncio.sleep(0)
            begin = time.perf_counter()
            with self._seen_lacking():
                result = await self.tools.call(name, arguments)
        finally:
            self._tool_calls -= 1
            self.lanes.end(place)
        seconds = time.perf_counter() - begin
        if self._contracts is None:
            self._contracts = {spec.name: spec.contract for spec in self.tools.list()}
        members = call_members(name, self._contracts.get(name), arguments, result, seconds)
        self.tool_called(id=call_id, place=place, **members)
        self._stop_if_over()
        return result

    async def _as_before(self, stop: Stop, key: str) -> None:
        """Hold a tool call that the first run did not trace until the others have come to its end.

        Raise AttemptStopped there. A call that nothing else is under way with goes on: the agent does something else now.
        """
        self._repetitions[key] += 1
        if self._repetitions[key] <= (stop.tools or {}).get(key, 0):
            return
        self._excess_calls += 1
        try:
            while self._tool_calls + self._model_calls:
                before = self.usage.steps, self.usage.calls
                with suppress(TimeoutError):
                    async with asyncio.timeout(PATIENCE):
                        await self._stopping.wait()
                self.stop_as_before()
                if self._stopping.is_set():
                    raise AttemptStopped(stop)
                if before == (self.usage.steps, self.usage.calls):
                    return
        finally:
            self._excess_calls -= 1

    @contextmanager
    def _seen_lacking(self) -> Iterator[None]:
        try:
            yield
        except MissingCapability as error:
            self.machine_error = error
            raise

    def _check_under_way(self) -> None:
        if self.ended:
            raise UsageError(f"attempt {self.session} is over")

    def _write(self, kind: str, **members: Any) -> int:
        with self._seen_lacking():  # e.g. a full disk
            return self.trace.write(kind, **members)

    def tool_called(self, *, place: Call | None = None, **members: Any) -> int:
        """Write a tool call, and the retrieval state if it changed; return the call's event number.

        `place` gives the call its position among overlapping calls; without it the call begins and ends now.
        """
        self._check_under_way()
        if place is None:
            self.lanes.end(place := self.lanes.begin(threading.current_thread()))
        n = self._write("tool_call", **members)
        self._note(n, place)
        if changed := self._standing.state_after(members):
            self._write("state", after=n, **changed)
        self.count("tool_call", members)
        return n

    def count(self, kind: str, members: Mapping[str, Any]) -> None:
        """Add a traced call to what the attempt has spent."""
        spent = self.usage
        if kind == "tool_call":
            spent.calls += 1
            spent.misses += members["verdict"] == "miss"
        elif kind == "model":
            tokens, cost = members["usage"]["input"] + members["usage"]["output"], members.get("cost")
            spent.steps += 1
            spent.tokens += tokens
            spent.uncounted += not tokens
            spent.cost = None if cost is None or spent.cost is None else round(spent.cost + cost, 9)
        if self.on_change:
            self.on_change(self)

    def _note(self, n: int, place: Call, **said: Any) -> None:
        place.n = n
        self._traced[n] = TracedCall(self.trace.events[n - 1], **said)

    def before_model(self, *, begun: int = 0) -> None:
        """Raise LimitReached if no further model call is allowed, UsageError if a limit can't be enforced.

        `begun` is 1 for a call that is already counted as under way.
        """
        self.stop_as_before()
        if not self.is_repetition:
            self.check_limits(self._model_calls - begun)

    def check_limits(self, asking: int) -> None:
        """Raise as `before_model` does; `asking` is the number of model calls under way."""
        limits, spent = self.limits, self.usage
        if limits.steps is not None and spent.steps + asking >= limits.steps:
            raise LimitReached("steps", limits.steps)
        if limits.tokens is not None:
            if spent.uncounted:
                raise UsageError("the limit of tokens can't be enforced: a call does not report its usage")
            if spent.tokens >= limits.tokens:
                raise LimitReached("tokens", limits.tokens)
        if limits.money is not None:
            if spent.cost is None:
                raise UsageError("the limit of money can't be enforced: a call has no price")
            if spent.cost >= limits.money:
                raise LimitReached("money", limits.money)

    def ask(self, body: Mapping[str, Any]) -> Coroutine[Any, Any, Any]:
        """Make one model call (a Chat Completions request), taped, traced and within the limits.

        Returns a stillweb.harness.models.client.Reply. Raise UsageError if the agent has no
        `model_options(env)`, so that the run has no model client.
        """
        return self._ask(body, threading.current_thread())

    async def _ask(self, body: Mapping[str, Any], thread: threading.Thread) -> Any:
        if self.models is None:
            raise UsageError("an agent that asks a model needs `model_options(env)` (docs/runs.md)")
        self.before_model()
        return await self.ask_model(self.models.chat, "chat", body, body.get("messages", ()), thread=thread)

    async def ask_model(
        self,
        ask: Callable[[str, Mapping[str, Any]], Awaitable[Any]],
        api: str,
        body: Mapping[str, Any],
        messages: Sequence[Any],
        *,
        new: Sequence[Any] | None = None,
        thread: threading.Thread | None = None,
    ) -> Any:
        """Make a model call by a method of the client and trace it. Call `before_model` first.

        `messages` are those of the body. The trace gets `new`, the messages of a conversation that were not
        sent before; without it, those that the previous call did not send.
        """
        from stillweb.harness.models.tape import TapeMiss

        place = self.lanes.begin(thread or threading.current_thread())
        if self.fork and self.usage.steps + 1 >= self.fork["step"]:
            body = {**body, "model": self.fork["model"]}
        sent, asked = self._sent.copy(messages), digest(dict(body))
        try:
            reply, taking = await self._reply(ask, body, place)
        except TapeMiss:
            await self._refused_before()
            raise
        items = deepcopy(list(reply.items))
        request = {
            "digest": asked,
            "messages": len(sent),
            "new": self._sent.added(sent, items) if new is None else [*new],
        }
        n = self.model_called(
            purpose="agent", api=api, model=body.get("model"), request=request, **reply.members()
        )
        taking.take()
        self._note(n, place, messages=sent, items=items, follows=new is None)
        self._stop_if_over()
        return reply

    async def _reply(
        self, ask: Callable[[str, Mapping[str, Any]], Awaitable[Any]], body: Mapping[str, Any], place: Call
    ) -> tuple[Any, CallInProgress]:
        self._model_calls += 1
        taking = None
        try:
            await asyncio.sleep(0)  # as above: a tape answers at once
            # checked again: a call that has just ended counts, as it does in replay
            self.before_model(begun=1)
            taking = self.models.begin(self.session)
            with self._seen_lacking(), taking.as_current():
                return await ask(self.session, body), taking
        except asyncio.CancelledError:
            self.given_up += not self.ended
            if taking is not None:
                taking.drop()
            raise
        except BaseException:
            if taking is not None:
                taking.take()  # the agent has its error
            raise
        finally:
            self._model_calls -= 1
            self.lanes.end(place)

    async def _refused_before(self) -> None:
        """Check the limits after a tape miss, once the session's other calls are made and answered.

        In a repetition the limits let pass what the first run made, and refuse the rest: any other order of the
        lanes would have another call refused.
        """
        self.stop_as_before()
        if self.lanes.overlapped and (self.stop or self.limits.tokens or self.limits.money):
            await self.models.wait_until_idle(self.session)
            self.stop_as_before()
        if self.is_repetition:
            self.check_limits(self._model_calls)

    def stop_as_before(self) -> None:
        """Raise AttemptStopped where the first run of this attempt ended.

        Raise UsageError if the attempt is over.
        """
        self._check_under_way()
        if self.stop and (self.stop.steps, self.stop.calls) == (self.usage.steps, self.usage.calls):
            self._stopping.set()
            raise AttemptStopped(self.stop)

    def _stop_if_over(self) -> None:
        """Raise AttemptStopped, also in waiting model calls, if the first run ended here with calls under way."""
        stop = self.stop
        if (
            stop
            and self._tool_calls + self._model_calls + self._excess_calls
            and stop.steps <= self.usage.steps
            and stop.calls <= self.usage.calls
        ):
            if self.models is not None:
                self.models.stop(self.session, AttemptStopped(stop))
            self._stopping.set()
            raise AttemptStopped(stop)

    def settle(self) -> None:
        """End the agent's part. If calls could have overlapped, sort its trace independently of the clock."""
        self.ended = True
        if self.models is not None:
            self.models.end(self.session)
        if self.lanes.overlapped:
            self.trace.rearrange(sort_by_lane(self.trace.events, self.lanes.root, self._traced))

    def model_called(self, **members: Any) -> int:
        """Write a model call, count its usage and return its event number."""
        self._check_under_way()
        n = self._write("model", **members)
        self.count("model", members)
        return n
