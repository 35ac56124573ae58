"""Agent that is Python code, `module:object` or a copied function: it runs in a confined process of its own.

    agent: package.module:Reader
    pass_env: [NAME]                  # variables of this environment that it gets; no others
    direct: [api.openai.com]          # hosts that it reaches directly, past the snapshot
    files: [prompts.txt]              # further files that it reads, beside its package and what that imports
    …                                 # all other members are arguments of the object

The process (stillweb.harness.runs.agent_process) is confined as a `command:` agent's is. It has an `Attempt` of
its own, whose tools and models are here: it asks for them in lines of JSON on a socket, which also bring the events
of the trace. An event of a call that was not made here ends the attempt.

A function that no other process can import (a closure, a lambda, one of a notebook) is copied into the process by
value, with the values that it refers to.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib.util
import json
import os
import pickletools
import shutil
import socket
import sys
import tempfile
import time
import weakref
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from stillweb.harness._parsing import look_for_module
from stillweb.harness.agents.attempt import Attempt, AttemptEnded, LimitReached
from stillweb.harness.agents.command import Allowed, CommandAgent, without_places
from stillweb.harness.agents.function import COPIED, FunctionAgent
from stillweb.harness.agents.retrieval import Standing
from stillweb.harness.agents.tool_event import MOST_SAID, call_members
from stillweb.harness.models.tape import CallInProgress
from stillweb.harness.sandbox.running import Limits, Start, program_folder, run_start
from stillweb.harness.trace import Event, canonical, digest, hashed_part
from stillweb.snapshots.errors import MissingCapability, UsageError
from stillweb.snapshots.shapes import convert

MOST_LINE = 64 << 20  # bytes of one message
_MOST_CALLS = 1 << 30
_MOST_ERRORS = 4000  # characters of standard error shown when the process fails
# seconds after its time in which an agent may tell how its attempt ended, and after that in which its process may end
GRACE = 5.0
_BEGINS = 120.0  # seconds in which the process must have imported the agent
_ENDS = {"answered", "none", "error", "seconds", "steps", "calls", "tokens", "money"}
# method of a model client -> the API that it asks, and the member of a request that holds the conversation
_METHODS = {
    "chat": ("chat", "messages"),
    "respond": ("responses", "input"),
    "messages": ("messages", "messages"),
    "generate": ("generate", "contents"),
}
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from stillweb.harness.runs.agent_process import main; main()"
)
_described: dict[str, dict[str, Any]] = {}  # descriptions of agents, by their code and options


@dataclass(slots=True, weakref_slot=True)
class ModuleAgent(CommandAgent):
    """Agent that imports an object and runs it, once per attempt, in a confined process.

    `keeps_time` says that this process ends the attempt when its time is over.
    """

    spec: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    code: tuple[str, ...] = ()  # files and folders of its code, beside the installation
    description: dict[str, Any] = field(default_factory=dict)  # what it says of itself: name, identity, …
    keeps_time: bool = True

    @classmethod
    def load(cls, spec: str, options: Mapping[str, Any], *, allow_unconfined: bool = False) -> ModuleAgent:
        """Return the agent. Raise UsageError if it can't be imported or is not an agent."""
        own = {name: options[name] for name in Allowed.__struct_fields__ if name in options}
        try:
            allowed = convert(own, Allowed).members()
        except (ValueError, UsageError) as error:
            raise UsageError(f"agent {spec}: {error}") from None
        code = code_of(spec)
        agent = cls(
            [sys.executable, "-c", _START, json.dumps([os.path.abspath(place) for place in sys.path])],
            **allowed,
            spec=spec,
            options={name: value for name, value in options.items() if name not in allowed},
            code=code,
        )
        agent.description = agent._describe(allow_unconfined=allow_unconfined)
        agent.name = str(agent.description["name"])
        return agent

    @classmethod
    def of_function(cls, function: FunctionAgent, *, allow_unconfined: bool = False) -> ModuleAgent:
        """Return the agent that runs a copy of a function of this process.

        Raise UsageError if the function, or a value that it refers to, can't be copied into another process.
        """
        import cloudpickle

        spec = f"function:{function.name}"
        try:
            copied = cloudpickle.dumps(function.function)
        except Exception as error:  # of the values' own code
            raise UsageError(f"{spec}: can't be copied: {type(error).__name__}: {error}") from error
        folder = Path(tempfile.mkdtemp(prefix="stillweb-function-"))
        file = folder / "function.pickle"
        file.write_bytes(copied)
        code = dict.fromkeys(place for name in _names(copied) for place in code_of(name))
        agent = cls(
            [sys.executable, "-c", _START, json.dumps([os.path.abspath(place) for place in sys.path])],
            files=(str(file),),
            spec=spec,
            options={COPIED: str(file)},
            code=tuple(code),
        )
        weakref.finalize(agent, shutil.rmtree, folder, ignore_errors=True)
        agent.description = {
            **agent._describe(allow_unconfined=allow_unconfined),
            "identity": function.identity(),
        }
        agent.name = function.name
        return agent

    @property
    def needs_gateway(self) -> bool:  # type: ignore[override]
        """Return True if the agent wants the environment of a program."""
        return bool(self.description["needs_gateway"])

    @property
    def model_options(self) -> Any:
        """Return the method that names the agent's model client, or None if it asks no model."""
        return self._model_options if self.description["asks"] else None

    def _model_options(self, env: Mapping[str, str]) -> dict[str, Any]:
        from stillweb.harness.models.transport import Retry

        options: dict[str, Any] = self._describe(env=dict(env))["model_options"]
        return {name: Retry(**value) if name == "retry" else value for name, value in options.items()}

    def identity(self) -> dict[str, Any]:
        """Return the agent's description of itself, and what it gets from this machine."""
        return {
            **self.description["identity"],
            **({"pass_env": sorted(self.pass_env)} if self.pass_env else {}),
            **({"direct": list(self.direct)} if self.direct else {}),
        }

    def network(self, *, web: bool) -> Literal["own", "shared"]:
        """Return "own", also without a snapshot."""
        return "own"

    def _describe(self, *, allow_unconfined: bool = False, **more: Any) -> dict[str, Any]:
        """Import the agent in a process and return its description of itself. Raise UsageError if that fails."""
        order = json.dumps({"spec": self.spec, "options": self.options, **more})
        environment = self._environment()
        states = [_state(file) for place in self.code for file in _python_files(Path(place))]
        key = digest([order, self.command, environment, states])
        if key in _described:
            return _described[key]
        limits = Limits(seconds=_BEGINS, memory=None)
        with program_folder("agent") as folder:
            start = Start(
                [*self.command, order],
                folder,
                environment,
                readable=self._readable(()),
                limits=limits,
                allow_unconfined=allow_unconfined,
            )
            done = run_start(start, limits)
        try:
            description: dict[str, Any] = json.loads(done.stdout)
        except (ValueError, RecursionError):
            tail = without_places(done.stderr.strip()).splitlines()[-1:] or [f"code {done.returncode}"]
            raise UsageError(f"agent {self.spec}: its process ended before it was made: {tail[0]}") from None
        if error := description.get("error"):
            raise UsageError(error)
        _described[key] = description
        return description

    def _readable(self, hidden: Iterable[Path | str]) -> list[Path]:
        spec = importlib.util.find_spec("stillweb")
        assert spec is not None
        assert spec.origin is not None
        package = Path(spec.origin).parent
        links = [place for place in package.iterdir() if place.is_symlink()]  # in a checkout
        secrets = [Path(place).resolve() for place in hidden]
        code = [part for place in self.code for part in _without(Path(place).resolve(), secrets)]
        return [package, *links, *code, *CommandAgent._readable(self, hidden)]

    async def run(self, attempt: Attempt) -> str | None:
        """Run the agent in a process and return its answer. Raise AttemptEnded if it has none."""
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as stack:
            stack.callback(ours.close)
            stack.callback(theirs.close)
            start = await self._start(attempt, stack)
            start = replace(start, argv=[*start.argv, str(theirs.fileno())])
            served = _Served(self, attempt)

            async def talk(transport: Any) -> None:
                theirs.close()
                await served.serve(ours)

            _, errors, code = await self._confined(start, talk, attempt, theirs.fileno(), within=GRACE)
        if served.played is None:
            tail = without_places(errors.decode("utf-8", "replace").strip())[-_MOST_ERRORS:]
            raise UsageError(f"{self.spec}: its process ended with code {code}: {tail or 'no message'}")
        text, end, error = served.played
        if end not in ("answered", "none"):
            raise AttemptEnded(end, error)
        return text


@dataclass(slots=True)
class _Made:
    """A call that was made here: the members of its event, of which the process tells only `id` and `new` messages."""

    members: dict[str, Any]
    taking: CallInProgress = field(default_factory=CallInProgress)
    conversation: Sequence[str] = ()  # digests of the messages that a model was sent

    def event(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """Return the members for the trace. Raise ValueError for `new` messages that are not the request's last."""
        if "request" not in self.members:
            return {"id": told.get("id"), **self.members}
        new = told["request"]["new"]
        if [*map(digest, new)] != [*self.conversation[len(self.conversation) - len(new) :]]:
            raise ValueError("messages that the model was not sent")
        return {**self.members, "request": {**self.members["request"], "new": new}}


class _Served:
    """Tools, models and trace of one attempt, as its process asks for them."""

    def __init__(self, agent: ModuleAgent, attempt: Attempt) -> None:
        self.agent, self.attempt = agent, attempt
        self.played: tuple[str | None, str, str | None] | None = None
        # calls that were made and are not in the trace yet
        self._made: dict[str, deque[_Made]] = defaultdict(deque)
        self._traced: dict[int, _Made] = {}  # those in the trace, by their events' numbers
        self._answered: Counter[str] = Counter()  # calls by kind, traced or not
        # model calls by number, until the agent has their answers
        self._takings: dict[int, CallInProgress] = {}
        self._asked: dict[int, asyncio.Task[None]] = {}
        self._under_way: dict[int, str] = {}  # kinds of the calls under way, by number
        self._standing = Standing()
        self._said = 0  # bytes of notes and calls
        self._own = len(attempt.trace.events)  # events that were written here before the agent began
        self._writer: asyncio.StreamWriter

    async def serve(self, connection: socket.socket) -> None:
        """Answer the process until it has told how its attempt ended, or is gone."""
        attempt, seconds = self.attempt, self.attempt.seconds
        reader, writer = await asyncio.open_connection(sock=connection, limit=MOST_LINE)
        self._writer = writer
        self._send(self._order())
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_BEGINS) as timer:
                begun = False  # the agent was imported
                while self.played is None and (line := await reader.readline()):
                    message = json.loads(line)
                    kind = message["kind"]
                    if kind == "tool" or message.get("event") == "evidence":
                        self._said += len(line)
                    if self._said > MOST_SAID:
                        raise ValueError(f"more than {MOST_SAID >> 20} MB of notes and calls")
                    if (kind == "begun") == begun and kind != "played":
                        raise ValueError(f"{kind!r} {'after' if begun else 'before'} the beginning")
                    if begun or kind == "played":
                        self._take(kind, message)
                    else:
                        begun = True
                        timer.reschedule(None if seconds is None else loop.time() + seconds + GRACE)
                    # one that reads no answers is asked for no more, and each request begins before the next is read
                    await writer.drain()
                    await asyncio.sleep(0)
        except TimeoutError:
            limit = attempt.limits.seconds or 0
            self.played = (None, "seconds", f"the limit of {limit:g} seconds is used up")
        except ConnectionError:  # the process is gone; its exit code tells more
            return
        except (ArithmeticError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(f"{self.agent.spec}: its process sent what is not a message: {error}") from error
        finally:
            if attempt.models is not None:
                attempt.models.end(attempt.session)
            for task in self._asked.values():
                task.cancel()
            writer.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        if not self._writer.is_closing():
            self._writer.write(json.dumps(message, default=_plain).encode() + b"\n")

    def _order(self) -> dict[str, Any]:
        attempt = self.attempt
        tools = [
            [spec.name, spec.description, spec.input_schema, spec.contract] for spec in attempt.tools.list()
        ]
        return {
            "spec": self.agent.spec,
            "options": self.agent.options,
            "task": attempt.task.to_agent(),
            "number": attempt.number,
            "session": attempt.session,
            "seconds": attempt.seconds,
            "limits": asdict(attempt.limits),
            "stop": asdict(attempt.stop) if attempt.stop else None,
            "repeating": attempt.is_repetition,
            "fork": dict(attempt.fork),
            "environment": dict(attempt.environment),
            "tools": tools,
            "asks": attempt.models is not None,
        }

    def _take(self, kind: str, message: dict[str, Any]) -> None:
        if kind == "cancel":
            self._under_way.pop(message["id"], None)
            if taking := self._takings.pop(message["id"], None):
                taking.drop()
            if task := self._asked.get(message["id"]):
                task.cancel()
        elif kind == "write":
            self._write(message["event"], message["members"])
        elif kind == "rearranged":
            self._rearrange(message["events"])
        elif kind == "played":
            self._end(**message)
        else:
            work = {"tool": self._tool, "model": self._model, "rest": self._rest}[kind]
            number = int(message["id"])
            self._under_way[number] = kind
            if kind == "model" and self.attempt.models is not None:
                self._takings[number] = self.attempt.models.begin(self.attempt.session)
            self._asked[number] = asyncio.get_running_loop().create_task(self._answer(number, work, message))

    def _end(self, *, kind: str, played: list[Any], given_up: int) -> None:
        """Keep how the attempt ended. What the machine lacks is known here: the process is not asked for it."""
        text, end, error = played
        stops = {self.attempt.stop.end} if self.attempt.stop else set()
        if end not in _ENDS | stops or not isinstance(text, str | None) or not isinstance(error, str | None):
            raise ValueError(f"an end {end!r}")
        if not isinstance(given_up, int) or not 0 <= given_up <= _MOST_CALLS:
            raise ValueError("a count that is none")
        self.attempt.given_up = given_up
        self.played = (text, end, error)

    async def _answer(
        self, number: int, work: Callable[[Mapping[str, Any]], Awaitable[Any]], message: Mapping[str, Any]
    ) -> None:
        try:
            answer = {"id": number, "result": await work(message)}
            self._send(answer)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 -- told to the agent, which may go on after it
            if isinstance(error, MissingCapability):
                self.attempt.machine_error = error
            if taking := self._takings.pop(number, None):
                taking.take()  # the agent has its error
            limit = [error.limit, error.value] if isinstance(error, LimitReached) else None
            self._send({"id": number, "error": type(error).__name__, "text": str(error), "limit": limit})
        finally:
            self._under_way.pop(number, None)
            self._asked.pop(number, None)

    async def _tool(self, message: Mapping[str, Any]) -> dict[str, Any]:
        attempt, name, arguments = self.attempt, str(message["name"]), dict(message["arguments"])
        limit = attempt.limits.calls
        self._bound("tool", limit)
        if limit is not None and attempt.usage.calls + self._many("tool") > limit:
            raise UsageError(f"the limit of {limit} calls is used up")
        begin = time.perf_counter()
        result = await attempt.tools.call(name, arguments)
        seconds = time.perf_counter() - begin
        contract = next((spec.contract for spec in attempt.tools.list() if spec.name == name), None)
        self._answered["tool"] += 1
        members = call_members(name, contract, arguments, result, seconds)
        self._keep("tool_call", _Made(members))
        return {"content": result.content, "is_error": result.is_error, "meta": result.meta}

    async def _model(self, message: Mapping[str, Any]) -> dict[str, Any]:
        method, body = str(message["method"]), dict(message["body"])
        if method not in _METHODS:
            raise ValueError(f"a call {method!r} of a model")
        if self.attempt.models is None:
            raise UsageError("an agent that asks a model needs `model_options(env)` (docs/runs.md)")
        self._bound("model", self.attempt.limits.steps)
        if not self.attempt.is_repetition:
            self.attempt.check_limits(self._many("model") - 1)
        taking = self._takings[int(message["id"])]
        with taking.as_current():
            reply = await getattr(self.attempt.models, method)(self.attempt.session, body)
        self._answered["model"] += 1
        api, held = _METHODS[method]
        messages = body.get(held)
        # one text for each message, however many requests hold it
        conversation = [sys.intern(digest(one)) for one in (messages if isinstance(messages, list) else [])]
        members = {
            "purpose": "agent",
            "api": api,
            "model": body.get("model"),
            "request": {"digest": digest(body), "messages": len(conversation)},
            **reply.members(),
        }
        self._keep("model", _Made(members, taking, conversation))
        return asdict(reply)

    def _keep(self, kind: str, call: _Made) -> None:
        """Keep a call until the process tells where in the trace it stands."""
        self._said += len(canonical(call.members))
        self._made[_key(kind, call.members)].append(call)

    def _bound(self, kind: str, limit: int | None) -> None:
        """Raise UsageError for a process that leaves the calls that it makes out of the trace.

        An honest one leaves out only those that it gave up when their answers were on the way.
        """
        if limit is not None and self._answered[kind] > 2 * limit:
            raise UsageError(f"{self._answered[kind]} calls were made, and {limit} are allowed")

    def _many(self, kind: str) -> int:
        return sum(one == kind for one in self._under_way.values())

    async def _rest(self, message: Mapping[str, Any]) -> None:
        await self.attempt.models.wait_until_idle(self.attempt.session)

    def _write(self, kind: str, members: dict[str, Any]) -> None:
        """Write an event of the process. Raise ValueError unless it is a note, or a call that was made."""
        attempt, call = self.attempt, None
        if kind in ("tool_call", "model"):
            key = _key(kind, members)
            if not (made := self._made.get(key)):
                raise ValueError(f"a {kind} that was not made")
            call = made.popleft()
            if not made:
                del self._made[key]
            members = call.event(members)
        elif kind == "state":  # derived here
            return
        elif not _is_note({"event": kind, **members}):
            raise ValueError(f"an event {members.get('event', kind)!r}")
        try:
            n = attempt.trace.write(kind, **members)
            if kind == "tool_call" and (changed := self._standing.state_after(members)):
                attempt.trace.write("state", after=n, **changed)
        except MissingCapability as error:  # a full disk
            attempt.machine_error = error
            raise
        attempt.count(kind, members)
        if call is not None:
            self._traced[n] = call
            call.taking.take()

    def _rearrange(self, events: list[Event]) -> None:
        """Put the process's events in another order. Raise ValueError if they are others."""
        trace, standing, own = self.attempt.trace, Standing(), self._own
        before, after = (
            Counter(_key(event["event"], event) for event in some if event["event"] != "state")
            for some in (trace.events[own:], events)
        )
        states = [
            {"after": event["n"], **changed}
            for event in events
            if event["event"] == "tool_call" and (changed := standing.state_after(event))
        ]
        members = [
            {name: value for name, value in event.items() if name not in ("event", "n")}
            for event in events
            if event["event"] == "state"
        ]
        numbers = [event["n"] for event in events]
        if (
            before != after
            or canonical(states) != canonical(members)
            or numbers != list(range(1, len(events) + 1))
        ):
            raise ValueError("other events in another order")
        # of a call, the process tells its place, its id, and what of its conversation is new there
        calls: dict[str, deque[Event]] = defaultdict(deque)
        for event in trace.events[own:]:
            if event["n"] in self._traced:
                calls[_key(event["event"], event)].append(event)
        moved, traced = trace.events[:own], {}
        for event in events:
            n = len(moved) + 1
            if event["event"] in ("tool_call", "model"):
                before_it = calls[_key(event["event"], event)].popleft()
                call = traced[n] = self._traced[before_it["n"]]
                aside = {**before_it["aside"], "order": before_it["n"] - own}
                event = {**before_it, **call.event(event), "aside": aside}
            moved.append({**event, "n": n, **({"after": event["after"] + own} if "after" in event else {})})
        trace.rearrange(moved)
        self._traced = traced


def _is_note(event: Event) -> bool:
    return event["event"] == "evidence" and event.get("kind") == "note"


def _key(kind: str, members: Mapping[str, Any]) -> str:
    """Return a digest that tells a call from others, whoever holds it."""
    if kind == "model":
        known = {name: members.get(name) for name in ("served", "fingerprint", "reply", "usage", "cost")}
        return digest([kind, members["request"]["digest"], known])
    plain = hashed_part({"event": kind, **members})
    return digest({name: value for name, value in plain.items() if name not in ("n", "id")})


def _plain(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise UsageError(f"a tool's result is not JSON, but holds {type(value).__name__}")


def _names(copied: bytes) -> Iterator[str]:
    """Yield the modules that a copied function may import: its pickle has their names among its texts."""
    for _, word, _ in pickletools.genops(copied):
        if not isinstance(word, str):
            continue
        top = word.partition(".")[0]
        if not top.isidentifier() or top in ("__main__", "stillweb") or top in sys.stdlib_module_names:
            continue
        with contextlib.suppress(ValueError):  # a module without a specification
            if importlib.util.find_spec(top) is not None:
                yield word


def code_of(spec: str) -> tuple[str, ...]:
    """Return the files and packages that a module and what it imports lie in, without those that are installed.

    Raise UsageError if there is no such module. No code is run: `import` statements are read.
    """
    first = spec.partition(":")[0]
    look_for_module(first, f"agent {spec}")
    places: dict[str, None] = {}
    waiting, seen = [first], set[str]()
    while waiting:
        name = waiting.pop()
        top, _, rest = name.partition(".")
        if name in seen or top in sys.stdlib_module_names or top == "stillweb":
            continue
        seen.add(name)
        found = importlib.util.find_spec(top)
        folders = list((found and found.submodule_search_locations) or ())
        file = found.origin if found and found.origin and os.path.isfile(found.origin) else None
        for place in folders or ([file] if file else []):
            if any(Path(place).is_relative_to(prefix) for prefix in (sys.prefix, sys.base_prefix)):
                continue
            places[place] = None
            source = Path(place, *rest.split(".")) if rest else Path(place)
            for one in (source / "__init__.py", source.with_suffix(".py")):
                if one.is_file():
                    waiting += _imports(one, name if one.name == "__init__.py" else name.rpartition(".")[0])
    return tuple(places)


def _imports(file: Path, package: str) -> Iterator[str]:
    """Yield the dotted names that a file of `package` may import."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # reported when it is imported
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _python_files(place: Path) -> list[Path]:
    """Return a module's file, or those of a package, without folders that no import can name."""
    found = [place] if place.is_file() else []
    for folder, inner, names in os.walk(place):
        inner[:] = [name for name in inner if name.isidentifier()]
        found += [Path(folder, name) for name in names if name.endswith(".py")]
    return sorted(found)


def _state(file: Path) -> list[Any]:
    found = file.stat()
    return [str(file), found.st_mtime_ns, found.st_size]


def _without(place: Path, hidden: Sequence[Path]) -> list[Path]:
    """Return the parts of a folder that are, hold and lie in none of `hidden`."""
    if any(place.is_relative_to(secret) for secret in hidden):
        return []
    if not any(secret.is_relative_to(place) for secret in hidden):
        return [place]
    return [part for inner in sorted(place.iterdir()) for part in _without(inner, hidden)]
