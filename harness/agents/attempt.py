"""An attempt: one agent at one task, with its tools, its limits and its trace."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from stillweb.harness.agents.concurrency import Call, Lanes, Sent, Traced, rearranged
from stillweb.harness.agents.retrieval import Standing
from stillweb.harness.agents.threads import Behind
from stillweb.harness.agents.tool_event import Part, ToolResult, call_members
from stillweb.harness.task import Task
from stillweb.harness.trace import TraceWriter
from stillweb.snapshots.errors import MissingCapability, UsageError


class ToolSpec(Protocol):
    """What a model is told of a tool."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> dict[str, Any]: ...
    @property
    def contract(self) -> str: ...


class ToolSession(Protocol):
    """One client's tools (stillweb.harness.tools); independent of every other session."""

    def list(self) -> Sequence[ToolSpec]: ...
    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """What an attempt may use; None is no limit. `money` is in the currency of the price list.

    A `seconds` limit depends on the clock: where it strikes, a repetition may end elsewhere.
    """

    steps: int | None = 50  # model calls
    calls: int | None = 200  # tool calls
    tokens: int | None = None
    seconds: float | None = None
    money: float | None = None


class LimitReached(Exception):
    """An attempt used up a limit; `limit` names it as the `end` of an answer event does."""

    def __init__(self, limit: str, value: float) -> None:
        super().__init__(f"the limit of {value:g} {limit} is used up")
        self.limit = limit


@dataclass(frozen=True, slots=True)
class Stop:
    """Where an attempt ended: after how many model and tool calls, and how."""

    steps: int
    calls: int
    end: str
    error: str


class Stopped(BaseException):
    """Ends a repeated attempt where its first run ended: like a cancellation, no agent may catch it."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.error)
        self.stop = stop


@dataclass(slots=True)
class Spent:
    """What an attempt has used so far. `cost` is None once a call had no price; `uncounted` calls said no tokens."""

    steps: int = 0
    calls: int = 0
    input: int = 0
    output: int = 0
    cost: float | None = 0.0
    misses: int = 0
    uncounted: int = 0

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.input + self.output


@dataclass(slots=True)
class Attempt:
    """What an agent is given. `environment` is for programs: proxy, certificates, the MCP address.

    Use `call` for tools and `ask` for models; both write the trace and keep the limits.
    """

    task: Task
    number: int
    session: str
    tools: ToolSession
    trace: TraceWriter
    limits: Limits = field(default_factory=Limits)
    models: Any = None  # stillweb.harness.models.client.ModelClient, where the run has one
    environment: Mapping[str, str] = field(default_factory=dict)
    requests: Callable[[], list[Part]] | None = None  # tool_call members of what a program asked the gateway
    spent: Spent = field(default_factory=Spent)
    on_change: Callable[[Attempt], None] | None = None
    behind: Behind = field(default_factory=Behind)  # threads that ran on when it was over
    workspace: Path | None = None  # its own folder, with copies of the run's uploads
    stop: Stop | None = None  # repeating: where the first run of this attempt was ended
    given_up: int = 0  # model calls under way for which it waited no longer
    over: bool = False  # what its agent left at work has no part in it any more
    lacking: Exception | None = None  # what the machine lacked; no agent that catches it may go on without
    hidden: Sequence[str] = ()  # what no program may see: the run's directory, its tasks, snapshots and tape
    allow_unconfined: bool = False  # a program is started also where the machine lacks a means to confine it
    confinement: dict[str, list[str]] = field(
        default_factory=dict
    )  # which means held its program: held, missing
    _standing: Standing = field(default_factory=Standing)
    _contracts: dict[str, str] | None = None
    _sent: Sent = field(default_factory=Sent)
    _under_way: int = 0  # tool calls that an agent makes at once
    _asking: int = 0  # model calls that it makes at once
    lanes: Lanes = field(default_factory=Lanes)  # its tasks and threads
    _traced: dict[int, Traced] = field(default_factory=dict)  # its calls, by the number of their events

    def call(
        self, name: str, arguments: dict[str, Any], *, call_id: str | None = None
    ) -> Coroutine[Any, Any, ToolResult]:
        """Calls a tool and traces the call. LimitReached before a call over the limit."""
        return self._call(name, arguments, call_id, threading.current_thread())

    async def _call(
        self, name: str, arguments: dict[str, Any], call_id: str | None, thread: threading.Thread
    ) -> ToolResult:
        self.stop_as_before()
        if self.limits.calls is not None and self.spent.calls + self._under_way >= self.limits.calls:
            raise LimitReached("calls", self.limits.calls)
        place = self.lanes.begin(thread)
        self._under_way += 1
        try:
            await asyncio.sleep(0)  # what was begun with it is under way, too, however quick the tool
            begin = time.perf_counter()
            with self._seen_lacking():
                result = await self.tools.call(name, arguments)
        finally:
            self._under_way -= 1
            self.lanes.end(place)
        seconds = time.perf_counter() - begin
        if self._contracts is None:
            self._contracts = {spec.name: spec.contract for spec in self.tools.list()}
        members = call_members(name, self._contracts.get(name), arguments, result, seconds)
        self.tool_called(id=call_id, place=place, **members)
        self._stop_if_over()
        return result

    @contextmanager
    def _seen_lacking(self) -> Iterator[None]:
        try:
            yield
        except MissingCapability as error:
            self.lacking = error
            raise

    def _check_under_way(self) -> None:
        if self.over:
            raise UsageError(f"attempt {self.session} is over")

    def _write(self, kind: str, **members: Any) -> int:
        with self._seen_lacking():  # a full disk
            return self.trace.write(kind, **members)

    def tool_called(self, *, place: Call | None = None, **members: Any) -> int:
        """Writes a tool call, and the retrieval state where it changed; returns the call's number.

        `place` is where it belongs among calls that overlap; one without is made as it is told.
        """
        self._check_under_way()
        if place is None:
            self.lanes.end(place := self.lanes.begin(threading.current_thread()))
        n = self._write("tool_call", **members)
        self._note(n, place)
        self.spent.calls += 1
        self.spent.misses += members["verdict"] == "miss"
        if changed := self._standing.after(members):
            self._write("state", after=n, **changed)
        if self.on_change:
            self.on_change(self)
        return n

    def _note(self, n: int, place: Call, **said: Any) -> None:
        place.n = n
        self._traced[n] = Traced(self.trace.events[n - 1], **said)

    def before_model(self, *, begun: int = 0) -> None:
        """LimitReached when no further model call is allowed; UsageError when a limit can't be kept.

        `begun` is 1 for a call that is counted as under way already.
        """
        self.stop_as_before()
        limits, spent = self.limits, self.spent
        if limits.steps is not None and spent.steps + self._asking - begun >= limits.steps:
            raise LimitReached("steps", limits.steps)
        if limits.tokens is not None:
            if spent.uncounted:
                raise UsageError("the limit of tokens can't be kept: a call does not say what it used")
            if spent.tokens >= limits.tokens:
                raise LimitReached("tokens", limits.tokens)
        if limits.money is not None:
            if spent.cost is None:
                raise UsageError("the limit of money can't be kept: a call has no price")
            if spent.cost >= limits.money:
                raise LimitReached("money", limits.money)

    def ask(self, body: Mapping[str, Any]) -> Coroutine[Any, Any, Any]:
        """One model call (a Chat Completions request): taped, traced and within the limits. A stillweb.harness.models.client.Reply.

        UsageError where the agent has no `model_options(env)`, so that the run has no model client.
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
        """A model call by a method of the client, traced. `before_model` must have allowed it.

        `messages` are those of the body, of which `new` are traced: those of a conversation that had not been sent, else
        what the call before had not sent.
        """
        from stillweb.harness.models.client import request_digest
        from stillweb.harness.models.tape import TapeMiss

        place = self.lanes.begin(thread or threading.current_thread())
        said, digest = self._sent.copied(messages), request_digest(body)
        try:
            reply = await self._reply(ask, body, place)
        except TapeMiss:
            await self._refused_before()
            raise
        items = deepcopy(list(reply.items))
        request = {
            "digest": digest,
            "messages": len(said),
            "new": self._sent.new(said, items) if new is None else [*new],
        }
        n = self.model_called(
            purpose="agent", api=api, model=body.get("model"), request=request, **reply.members()
        )
        self._note(n, place, messages=said, items=items, follows=new is None)
        self._stop_if_over()
        return reply

    async def _reply(
        self, ask: Callable[[str, Mapping[str, Any]], Awaitable[Any]], body: Mapping[str, Any], place: Call
    ) -> Any:
        self._asking += 1
        try:
            await asyncio.sleep(0)  # as above: a tape answers at once
            # once more: an answer that has just come counts, as it does where the tape gives it
            self.before_model(begun=1)
            with self._seen_lacking():
                return await ask(self.session, body)
        except asyncio.CancelledError:
            self.given_up += not self.over
            raise
        finally:
            self._asking -= 1
            self.lanes.end(place)

    async def _refused_before(self) -> None:
        """A call is not on the tape, for which its lane may have been too slow the first time: refused after what came meanwhile."""
        if self.lanes.overlapped and (self.stop or self.limits.tokens or self.limits.money):
            await self.models.rest(self.session)
            self.before_model()

    def stop_as_before(self) -> None:
        """Stopped where the first run of this attempt was ended. UsageError when it is over."""
        self._check_under_way()
        if self.stop and (self.stop.steps, self.stop.calls) == (self.spent.steps, self.spent.calls):
            raise Stopped(self.stop)

    def _stop_if_over(self) -> None:
        """The same where calls are under way at once: nobody may make another one, and answer no more."""
        stop = self.stop
        if (
            stop
            and self._under_way + self._asking
            and stop.steps <= self.spent.steps
            and stop.calls <= self.spent.calls
        ):
            if self.models is not None:
                self.models.stop(self.session, Stopped(stop))
            raise Stopped(stop)

    def settle(self) -> None:
        """The agent's part is over. Where calls overlapped, or could have, its trace is put in an order that hangs on no clock."""
        self.over = True
        if self.models is not None:
            self.models.end(self.session)
        if self.lanes.overlapped:
            self.trace.rearrange(rearranged(self.trace.events, self.lanes.root, self._traced))

    def model_called(self, **members: Any) -> int:
        """Writes a model call and counts what it used; returns its number."""
        self._check_under_way()
        usage, cost = members["usage"], members.get("cost")
        self.spent.steps += 1
        self.spent.input += usage["input"]
        self.spent.output += usage["output"]
        self.spent.uncounted += not (usage["input"] or usage["output"])
        self.spent.cost = (
            None if cost is None or self.spent.cost is None else round(self.spent.cost + cost, 9)
        )
        n = self._write("model", **members)
        if self.on_change:
            self.on_change(self)
        return n
