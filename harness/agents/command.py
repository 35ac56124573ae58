"""Agent that runs any program: the question goes to its standard input, the answer is its standard output.

    agent: command
    command: python agent.py          # or a list of words
    stdin: text                       # text: the question; json: the task's id, question, start_url and meta
    env: {NAME: value}                # further variables
    answer: all                       # all: the whole output; last-line: its last line that isn't blank
    direct: [api.openai.com]          # hosts that it reaches directly, past the snapshot (a live model)
    files: [lib, prompts.txt]         # further files it reads, beside those that `command` names
    clock: '2026-11-24T10:00:00Z'     # its clock's time when an attempt begins (stillweb.proxy.net.clock)

The program's environment has the proxy and the certificates (stillweb.proxy.net.client_env), so that all its
requests are answered from the snapshot in the attempt's own session. It also has STILLWEB_MCP_URL (the run's
tools, streamable HTTP), STILLWEB_TASK_ID and STILLWEB_ATTEMPT. The trace holds both the requests and the
tool calls. An attempt is done when its program has ended. Then all processes that it started are ended, too;
those that still hold its output get LEFT_SECONDS.

The program is confined (stillweb.harness.sandbox): it starts in an empty folder of its own, and sees the
system, its own installation, the files that `command` and `files` name, and nothing else of the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from stillweb.harness.agents.attempt import Attempt
from stillweb.harness.sandbox.running import Channel, PreparedCommand, Start, program_folder
from stillweb.harness.trace import digest
from stillweb.proxy.net.addresses import on_this_machine
from stillweb.proxy.net.client_env import add_no_proxy, client_files, direct_hosts, ports_to_let_in
from stillweb.proxy.net.clock import moment_of, with_clock
from stillweb.proxy.net.relaying import lead
from stillweb.snapshots.dates import iso_date
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.secrets.redact import EVERYWHERE, MASK, Redactor
from stillweb.snapshots.shapes import convert

# Variables of our own environment that a program needs to start. No other is passed on, above all no key.
PASSED = ("PATH", "USER", "LANG", "LC_ALL", "VIRTUAL_ENV", "PYTHONHASHSEED", "TZ")
LEFT_SECONDS = 5.0  # how long a program's children may hold its output after it has ended
LEFT = "the program ended and left another one holding its output; the answer is what was written until then"
WEB_PORTS = (443, 80)  # of a host that is named without one
PAST = "asked directly, past the snapshot; their answers are in no trace"
_MOST_ERRORS = 4000  # bytes of standard error shown when the program fails
MOST_OUTPUT = 64 << 20  # bytes of an answer; endless output would exhaust memory before the time limit


# absolute folders before a last name; not the path of a URL
_FOLDERS = re.compile(r"(?<![\w.:/~%-])/(?:[^\s/:'\"<>|]+/)+(?=[^\s/:'\"<>|])")


class Allowed(Struct, kw_only=True, forbid_unknown_fields=True):
    """Members of a YAML file: the variables, hosts and files that a program may have."""

    pass_env: str | list[str] | None = None
    direct: str | list[str] | None = None
    files: str | list[str] | None = None

    def members(self) -> dict[str, Any]:
        """Return the arguments of an agent. Raise UsageError for what is no host."""
        pass_env, direct, files = (
            [one] if isinstance(one, str) else one or [] for one in (self.pass_env, self.direct, self.files)
        )
        try:
            return {"pass_env": pass_env, "direct": direct_hosts(direct), "files": tuple(files)}
        except UsageError as error:
            raise UsageError(f"direct: {error}") from None


class _Options(Allowed):
    command: str | Annotated[list[str], Meta(min_length=1)]
    stdin: Literal["text", "json"] = "text"
    answer: Literal["all", "last-line"] = "all"
    env: dict[str, str | float | bool | None] | None = None
    clock: str | int | None = None


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:  # an unclosed quote
        raise UsageError(f"command: {error}") from None


@dataclass(slots=True)
class CommandAgent:
    """Agent that runs a program once per attempt, confined.

    All processes that it starts end with the attempt.
    """

    command: list[str]
    stdin: str = "text"
    answer: str = "all"
    env: dict[str, str] = field(default_factory=dict)
    pass_env: list[str] = field(default_factory=list)
    direct: tuple[str, ...] = ()
    clock: datetime | None = None
    files: tuple[str, ...] = ()
    name: str = "command"
    needs_gateway = True

    @classmethod
    def from_options(cls, options: dict[str, Any], source: str) -> CommandAgent:
        """Make the agent from a YAML file's members. Raise UsageError naming a wrong member."""
        try:
            given = convert(options, _Options)
            words = given.command if isinstance(given.command, list) else _words(given.command)
            if not words:
                raise UsageError("command: must be a program with its arguments")
            clock = moment_of(str(given.clock)) if given.clock is not None else None
            env = {name: str(value) for name, value in (given.env or {}).items()}
            return cls(words, given.stdin, given.answer, env, clock=clock, **given.members())
        except (ValueError, UsageError) as error:
            raise UsageError(f"{source}: {error}") from None

    def identity(self) -> dict[str, Any]:
        """Return the kind and the digests of the command, the local files it names, and the variables."""
        variables = {name: _placeless(value) for name, value in self.env.items()}
        return {
            "kind": "command",
            "command": [_placeless(word) for word in self.command],
            "files": self._files(),
            "prompts": digest([self.stdin, self.answer]),
            **({"env": digest(variables)} if variables else {}),
            **({"pass_env": sorted(self.pass_env)} if self.pass_env else {}),
            **({"direct": list(self.direct)} if self.direct else {}),
            **({"clock": iso_date(self.clock)} if self.clock else {}),
        }

    def let_in(self) -> list[tuple[str, int]]:
        """Return the host and port of services of this machine that the program calls directly.

        Raise UsageError for a host elsewhere.
        """
        return ports_to_let_in(self.direct)

    def _files(self) -> dict[str, str]:
        """Return file name -> SHA-256 (hex) of the files that the command and `files` name.

        The program itself is included only if it is a script, without its first line, which names a path.
        """
        found: dict[str, str] = {}
        for number, word in enumerate(self.command):
            path = Path(word)
            if not os.path.isfile(word) or (number == 0 and os.sep not in word):
                continue
            data = path.read_bytes()
            if number == 0:
                if not data.startswith(b"#!"):
                    continue
                data = data.partition(b"\n")[2]
            name = path.name if path.name not in found else f"{path.name} {number}"
            found[name] = sha256(data).hexdigest()
        for listed in map(Path, self.files):
            top = listed.expanduser()
            for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
                if path.is_file():
                    name = path.relative_to(top.parent).as_posix()
                    found[name] = sha256(path.read_bytes()).hexdigest()
        return found

    def network(self, *, web: bool) -> Literal["own", "shared"]:
        """Return "own" for a network of loopback and the ports that are let in, or "shared" for this machine's.

        `web` says that the attempt has a snapshot.
        """
        return "own" if web else "shared"

    def _ports(self) -> list[tuple[str, int]]:
        """Return the ports of the hosts that the program reaches itself.

        A name of this machine without a port means the program's own loopback.
        """
        places = [(at.hostname or "", at.port) for at in (urlsplit(f"//{host}") for host in self.direct)]
        named = [
            (host, [port] if port else () if on_this_machine(host) else WEB_PORTS) for host, port in places
        ]
        return [(host, port) for host, ports in named for port in ports]

    async def run(self, attempt: Attempt) -> str | None:
        """Run the program. Raise UsageError if it can't be started or ends with a code other than 0."""
        task = attempt.task
        text = task.question if self.stdin == "text" else json.dumps(task.to_agent(), ensure_ascii=False)
        with contextlib.ExitStack() as stack:
            start = await self._start(attempt, stack)
            output, errors, code = await self._confined(
                start, partial(_tell, text.encode("utf-8", "surrogatepass")), attempt
            )
        if code:
            tail = self._without_secrets(
                without_places(errors[-_MOST_ERRORS:].decode("utf-8", "replace").strip())
            )
            raise UsageError(f"{self._program} ended with code {code}: {tail or 'no message'}")
        answer = output.decode("utf-8", "replace").strip()
        if self.answer == "last-line":
            answer = answer.splitlines()[-1] if answer else ""
        return answer or None

    def _without_secrets(self, text: str) -> str:
        """Return a program's output without the secrets that it was started with."""
        given = Redactor(b"")
        given.value([self.command, self.env])
        for secret in given.secrets:
            text = text.replace(secret, MASK) if len(secret) >= EVERYWHERE else text
        return text

    @property
    def _program(self) -> str:
        return _placeless(self.command[0])

    async def _start(self, attempt: Attempt, stack: contextlib.ExitStack) -> Start:
        """Return the start of an attempt's program; its folder lasts as long as `stack`, if the run has none."""
        environment = self._environment() | add_no_proxy(attempt.environment, self.direct)
        if self.direct:
            attempt.trace.write("evidence", kind="note", text=f"{PAST}: {', '.join(self.direct)}")
        if self.clock is not None:
            environment = await asyncio.to_thread(with_clock, environment, self.clock)
        environment |= {
            "STILLWEB_TASK_ID": attempt.task.id,
            "STILLWEB_ATTEMPT": str(attempt.number),
            **self.env,
        }
        network = self.network(web=bool(attempt.environment))
        # a program named without a folder is looked up in PATH, even if a file of that name lies here
        words = [
            os.path.abspath(word) if (number or os.sep in word) and os.path.isfile(word) else word
            for number, word in enumerate(self.command)
        ]
        given = (attempt.environment.get(name) for name in ("HTTP_PROXY", "STILLWEB_MCP_URL"))
        places = [urlsplit(address) for address in given if address]
        ports = [(place.hostname or "", place.port or 0) for place in places]
        return Start(
            words,
            attempt.workspace or stack.enter_context(program_folder("attempt")),
            environment,
            readable=[
                *(word for word in words[1:] if os.path.isabs(word) and os.path.isfile(word)),
                *self._readable(attempt.hidden_paths),
                *client_files(environment),
            ],
            hidden=attempt.hidden_paths,
            network=network,
            ports=[*ports, *self._ports()] if network == "own" else (),
            allow_unconfined=attempt.allow_unconfined,
        )

    def _environment(self) -> dict[str, str]:
        return {name: os.environ[name] for name in (*PASSED, *self.pass_env) if name in os.environ}

    def _readable(self, hidden: Iterable[Path | str]) -> list[Path]:
        return [Path(name).expanduser() for name in self.files]

    async def _confined(
        self,
        start: Start,
        talk: Callable[[asyncio.SubprocessTransport], Awaitable[None]],
        attempt: Attempt,
        *given: int,
        within: float | None = None,
    ) -> tuple[bytes, bytes, int]:
        """Run a program to its end and return its output, errors and exit code.

        `talk` is awaited once it has started; the program inherits the file descriptors `given`. It is ended if it has not
        ended `within` so many seconds after the talk: it may be stopped, or have become another program.
        """
        with start.prepared() as prepared:
            transport, program = await _spawn(prepared, *given)
        channel = prepared.channel
        reports = asyncio.ensure_future(_follow(channel, start.ports, program))
        try:
            await talk(transport)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(program.done.wait(), within)
            if reports.done():
                reports.result()
            channel.check(self._program)
            attempt.confinement = {name: channel.report.get(name, []) for name in ("held", "missing")}
            # its children may still write its output (`> >(tee log)`), or be servers that never end
            ended = program.done.is_set()
            wait = LEFT_SECONDS if ended and not program.too_much else 0
            _, left = await asyncio.wait([program.closed], timeout=wait)
            if program.too_much:
                raise UsageError(
                    f"{self._program} wrote more than {MOST_OUTPUT >> 20} MB, which is no answer"
                )
            if left and ended:
                attempt.trace.write("evidence", kind="note", text=LEFT)
        finally:
            await _end(transport, program)  # its children end with it in any case
            reports.cancel()
            await asyncio.wait([reports])
            channel.close()
            self._trace_requests(attempt)
        return (
            bytes(program.written[1]),
            bytes(program.written[2]),
            channel.report.get("status", -signal.SIGKILL),
        )

    def _trace_requests(self, attempt: Attempt) -> None:
        for members in attempt.requests() if attempt.requests else ():
            attempt.tool_called(**members)


async def _spawn(prepared: PreparedCommand, *given: int) -> tuple[asyncio.SubprocessTransport, Program]:
    starting = asyncio.ensure_future(
        asyncio.get_running_loop().subprocess_exec(
            Program, *prepared.command, env={}, pass_fds=(*prepared.files, *given), start_new_session=True
        )
    )
    try:
        # shielded: a cancelled asyncio kills the process that it is starting, but not its children
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with contextlib.suppress(OSError):
            await _end(*await starting)
        raise


async def _tell(text: bytes, transport: asyncio.SubprocessTransport) -> None:
    """Write a program's standard input and close it."""
    if (stdin := transport.get_pipe_transport(0)) is not None:
        stdin.write(text)  # type: ignore[attr-defined]  # it is for writing
        stdin.close()


async def _follow(channel: Channel, ports: Sequence[tuple[str, int]], program: Program) -> None:
    """Receive a launcher's reports until the program ends, and forward its ports to this machine's."""
    servers: list[asyncio.Server] = []
    channel.connection.setblocking(False)
    try:
        async for _ in _readable(channel.connection):
            try:
                more = channel.receive()
            except BlockingIOError:  # nothing new since the last read
                continue
            while len(servers) < len(channel.listeners):
                number = len(servers)
                led = partial(lead, ports[number])
                servers.append(await asyncio.start_server(led, sock=channel.listeners[number]))
            if not more or "status" in channel.report:
                program.done.set()
            if not more:
                return
    finally:
        program.done.set()
        for server in servers:
            server.close()


async def _readable(waited: socket.socket) -> AsyncIterator[None]:
    """Yield each time that a socket can be read."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(waited, ready.set)
    try:
        while True:
            await ready.wait()
            ready.clear()
            yield
    finally:
        loop.remove_reader(waited)


def unset_notes(agent: str, names: Iterable[str]) -> Iterator[str]:
    """Yield a note for each variable that a program is to get (`pass_env`) and that is not set here."""
    for name in names:
        if name not in os.environ:
            yield f"{agent}: pass_env: {name} is not set here, so the program does not get it"


def _placeless(word: str) -> str:
    """Return a word without its folder, which is specific to this machine."""
    return Path(word).name if os.sep in word else word


def without_places(text: str) -> str:
    """Return a program's output without the folders of files, e.g. in a traceback.

    Folders are specific to this machine, and an attempt's error is hashed. The path of a URL, which is no
    folder here, stays.
    """
    return _FOLDERS.sub(lambda found: "" if os.path.isdir(found[0]) else found[0], text)


class Program(asyncio.SubprocessProtocol):
    """Output of a program by file descriptor, with events for its end.

    `done` is set when its launcher reported the end or it wrote too much, `ended` when the launcher has
    ended, `closed` when all its pipes are closed. Only the last errors are kept.
    """

    def __init__(self) -> None:
        self.written: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}
        self.too_much = False
        self.done = asyncio.Event()
        self.ended = asyncio.Event()
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if self.too_much:
            return
        self.written[fd] += data
        if fd == 2:
            del self.written[fd][:-_MOST_ERRORS]
        elif len(self.written[fd]) > MOST_OUTPUT:
            self.too_much = True
            self.written[fd].clear()
            self.done.set()

    def process_exited(self) -> None:
        self.ended.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


async def _end(transport: asyncio.SubprocessTransport, program: Program) -> None:
    """End a launcher, whose process namespace ends with it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(transport.get_pid(), signal.SIGKILL)
    if transport.get_returncode() is None:
        await program.ended.wait()
    transport.close()
