"""The process of an agent in Python: imports it, or loads its copy, and runs it with an `Attempt` whose tools and models lie elsewhere.

`stillweb.harness.agents.module` starts it confined. With an order it says what the agent is, in a line of JSON; with the
number of a socket it makes an attempt.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import itertools
import json
import os
import pickle
import socket
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, NoReturn

from stillweb.harness.agents import Agent, identity_of, import_agent
from stillweb.harness.agents.attempt import Attempt, LimitReached, Limits, Stop
from stillweb.harness.agents.function import COPIED, FunctionAgent
from stillweb.harness.models.tape import CallInProgress
from stillweb.harness.runs.playing import play
from stillweb.harness.task import Task
from stillweb.harness.tools.contract import ToolResult, ToolSpec
from stillweb.harness.trace import Event, checked_line
from stillweb.snapshots import errors
from stillweb.snapshots.errors import StillwebError, UsageError


def main() -> NoReturn:
    """Do what the last argument says, and end with all threads that the agent began."""
    out = os.dup(1)
    os.dup2(2, 1)  # what the agent prints is no answer
    word, code, connection = sys.argv[-1], 0, None
    if word.isdigit():
        connection = _Connection(socket.socket(fileno=int(word)))
        try:
            asyncio.run(_run(connection))
        except BaseException as error:  # noqa: BLE001 -- a task that exits ends the loop, and the attempt
            connection.send("played", played=[None, "error", f"{type(error).__name__}: {error}"], given_up=0)
    else:
        os.write(out, json.dumps(_described(json.loads(word)), default=_plain).encode())
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    if connection is not None:
        connection.wait()
    os._exit(code)


def _agent(order: Mapping[str, Any]) -> Agent:
    options = order["options"]
    if not order["spec"].startswith("function:"):
        return import_agent(order["spec"], options)
    return FunctionAgent(pickle.loads(Path(options[COPIED]).read_bytes()))  # written by the run


def _described(order: Mapping[str, Any]) -> dict[str, Any]:
    spec = order["spec"]
    try:
        agent: Any = _agent(order)
        if "env" in order:
            return {"model_options": agent.model_options(order["env"])}
        return {
            "name": agent.name,
            "identity": identity_of(agent),
            "needs_gateway": bool(getattr(agent, "needs_gateway", False)),
            "asks": hasattr(agent, "model_options"),
        }
    except StillwebError as error:
        return {"error": str(error)}
    except BaseException as error:  # noqa: BLE001 -- code of the agent's, which may exit, too
        frames = traceback.extract_tb(error.__traceback__)
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
        return {"error": f"agent {spec}: can't be made: {type(error).__name__}: {error} ({where})"}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"no JSON, but {type(value).__name__}")


class _Connection:
    """Messages to and from the run, one line each. A thread receives; any thread sends."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lines = connection.makefile("rb")
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[str, asyncio.Future[Any]]] = {}
        self.order: dict[str, Any] = json.loads(self._lines.readline())
        self._receiver = threading.Thread(target=self._receive, name="stillweb-connection", daemon=True)
        self._receiver.start()

    def send(self, kind: str, **members: Any) -> None:
        """Send a message. Raise UsageError for what is not JSON."""
        try:
            line = json.dumps({"kind": kind, **members}).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"{kind}: is not JSON: {error}") from error
        with self._sending:
            self._socket.sendall(line)

    async def ask(self, kind: str, **members: Any) -> Any:
        """Send a request and return its result. Raise the error that the run tells."""
        number, future = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number] = kind, future
        try:
            self.send(kind, id=number, **members)
            return await future
        except asyncio.CancelledError:
            self.send("cancel", id=number)
            raise
        finally:
            self._waiting.pop(number, None)

    def wait(self) -> None:
        """Wait until the run closes the connection: messages that it has not read would be lost."""
        self._receiver.join()

    def give_up(self, kind: str, error: BaseException) -> None:
        """Raise `error` in all who wait for results of a kind."""
        for number, (asked, future) in list(self._waiting.items()):
            if asked == kind and not future.done():
                future.set_exception(error)
                self.send("cancel", id=number)

    def _receive(self) -> None:
        for line in self._lines:
            message = json.loads(line)
            _, future = self._waiting.get(message["id"], ("", None))
            if future is not None:
                with contextlib.suppress(RuntimeError):  # the agent has ended, and its loop is closed
                    future.get_loop().call_soon_threadsafe(_resolve, future, message)
        os._exit(1)  # the run is gone


def _resolve(future: asyncio.Future[Any], message: Mapping[str, Any]) -> None:
    if future.done():
        return
    if "error" not in message:
        future.set_result(message["result"])
    elif message["limit"] is not None:
        future.set_exception(LimitReached(*message["limit"]))
    else:
        future.set_exception(_error(message["error"], message["text"]))


def _error(name: str, text: str) -> BaseException:
    """Return an exception of the named kind."""
    from stillweb.harness.models.tape import ModelError, TapeMiss

    kind = {"ModelError": ModelError, "TapeMiss": TapeMiss}.get(name) or getattr(errors, name, None)
    kind = kind or getattr(builtins, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)) or issubclass(kind, UnicodeError):
        kind = type(name, (Exception,), {})
    error: BaseException = kind(text)
    return error


class _Tools:
    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._specs = [ToolSpec(*members) for members in connection.order["tools"]]

    def list(self) -> Sequence[ToolSpec]:
        return self._specs

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        result = await self._connection.ask("tool", name=name, arguments=arguments)
        return ToolResult(result["content"], result["is_error"], result["meta"])

    async def close(self) -> None:
        pass


class _Models:
    """Model client whose methods (`chat`, `respond`, …) ask the run's."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def __getattr__(self, method: str) -> Any:
        from stillweb.harness.models.client import Reply, ToolRequest, Usage

        async def ask(session: str, body: Mapping[str, Any]) -> Reply:
            reply = await self._connection.ask("model", method=method, body=dict(body))
            reply["tool_calls"] = tuple(ToolRequest(**one) for one in reply["tool_calls"])
            reply["items"], reply["hosted"] = tuple(reply["items"]), tuple(reply["hosted"])
            return Reply(**{**reply, "usage": Usage(**reply["usage"])})

        return ask

    def begin(self, session: str) -> CallInProgress:
        return CallInProgress()  # the run numbers the call when it is told of it

    async def wait_until_idle(self, session: str) -> None:
        await self._connection.ask("rest")

    def stop(self, session: str, error: BaseException) -> None:
        self._connection.give_up("model", error)

    def end(self, session: str) -> None:
        pass  # the run ends it


class _Trace:
    """Trace whose events are sent to the run as they come."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self.events: list[Event] = []

    def write(self, kind: str, /, **members: Any) -> int:
        event = {"event": kind, "n": len(self.events) + 1, **members}
        checked_line(event)
        self.events.append(event)
        self._connection.send("write", event=kind, members=members)
        return len(self.events)

    def rearrange(self, events: list[Event]) -> None:
        self.events = events
        self._connection.send("rearranged", events=events)


async def _run(connection: _Connection) -> None:
    """Make the attempt and tell how it ended."""
    order = connection.order
    agent = _agent(order)
    attempt = Attempt(
        Task(**order["task"]),
        order["number"],
        order["session"],
        _Tools(connection),
        _Trace(connection),  # type: ignore[arg-type]  # all that agents use of it
        Limits(**order["limits"]),
        models=_Models(connection) if order["asks"] else None,
        environment=order["environment"],
        stop=Stop(**order["stop"]) if order["stop"] else None,
        is_repetition=order["repeating"],
        workspace=Path.cwd(),
        fork=order["fork"],
        seconds=order["seconds"],
    )
    connection.send("begun")
    connection.send("played", played=await play(agent, attempt), given_up=attempt.given_up)
    sys.stderr.flush()
    connection.wait()
    os._exit(0)  # what the agent left at work ends here
