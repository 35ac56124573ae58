"""Starts programs of stillweb as forks of a process that has loaded it: nine tenths of what a command costs are imports.

A fork runs the program of a real start to its end, with streams, directory, environment, limits and signals of its own.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import inspect
import io
import json
import os
import resource
import select
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

PROGRAM = "from stillweb.harness.cli import run; run()"
SERVER = "import tests.support.fork_server as server; program = server.serve({}); del server\nexec(program)"
REPETITION = ["-P", "-m", "stillweb.harness.results.certificate"]
TESTS = ["-mpytest"]  # by pytester
MARK = "STILLWEB_TEST_MARK"
BLANK = "-" * 36  # as long as a UUID
# What Python, SQLite and other libraries read from the environment when they are loaded.
READ_AT_START = (
    "PYTHON",
    "LC_",
    "LANG",
    "LD_",
    "MALLOC_",
    "OPENSSL_",
    "SQLITE_",
    "TMPDIR",
    "XML_",
    "FSSPEC_",
)
Variables = tuple[tuple[str, str], ...]
OURS = dict(os.environ)  # the server's, whichever test comes first
LIMITS = sorted(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
LOADED = (
    "openai",
    "pytest",
    "stillweb.api",
    "stillweb.harness.pytest_plugin",
    "stillweb.harness.runs.display",
    "stillweb.harness.runs.engine",
    "stillweb.harness.runs.runner",
    "stillweb.proxy.browser.capture_view",
    "stillweb.proxy.check.check",
    "stillweb.proxy.record.recorder",
    "stillweb.proxy.replay.gateway",
    "trafilatura",
)


class Forked(subprocess.Popen[str]):
    """A command started as a fork. Popen's own ways to start a program and to wait for it are replaced."""

    def _execute_child(self, *given: Any) -> None:
        named = _signature.bind(self, *given).arguments
        environment = dict(os.environ if named["env"] is None else named["env"])
        order = {
            "argv": [os.fspath(word) for word in named["args"]],
            "cwd": os.path.abspath(named["cwd"] or "."),
            "environment": environment,
            "session": named["start_new_session"],
            "limits": [resource.getrlimit(limit) for limit in LIMITS],
        }
        self._told, theirs = socket.socketpair()
        with theirs:
            streams = [named["p2cread"], named["c2pwrite"], named["errwrite"]]
            streams = [number if stream == -1 else stream for number, stream in enumerate(streams)]
            server = _server(_read_at_start(environment))
            socket.send_fds(server, [json.dumps(order).encode()], [*streams, theirs.fileno()])
        self._child_created = True
        self.pid = self._number()
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(named[pipe] for pipe in pipes))  # type: ignore[attr-defined]

    def _number(self) -> int:
        """Return the next number that the server tells: first of the process, then how it ended."""
        data = self._told.recv(4)
        if not data:
            raise ConnectionError("the fork server ended")
        return int(struct.unpack("i", data)[0])

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if flags & os.WNOHANG and not select.select([self._told], [], [], 0)[0]:
            return 0, 0
        with self._told:
            return self.pid, self._number()

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and (ended := self._try_wait(os.WNOHANG))[0]:
            self._handle_exitstatus(ended[1])  # type: ignore[attr-defined]
        return self.returncode


_start = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_signature = inspect.signature(_start)
_asked: Counter[Variables] = Counter()


def fork_programs() -> None:
    """Let pytester's runs, and the repetitions of `certify`, be forks.

    Of repetitions only from the second on in each environment, as a server for it costs a start.
    """

    def execute_child(process: subprocess.Popen[str], *given: Any) -> None:
        named = _signature.bind(process, *given).arguments
        environment = named["env"]
        words = list(named["args"]) if isinstance(named["args"], list | tuple) else []
        if words[1:4] == REPETITION:
            found = _read_at_start(environment)
            _asked[found] += 1
            fork = _asked[found] > 1
        else:
            fork = words[1:2] == TESTS and can_fork(environment)
        if fork:
            process.__class__ = Forked
            return Forked._execute_child(process, *given)  # type: ignore[arg-type]
        return _start(process, *given)

    if sys.platform == "linux":
        subprocess.Popen._execute_child = execute_child  # type: ignore[attr-defined]


def can_fork(environment: Mapping[str, str]) -> bool:
    """Return True if a fork would heed the whole environment."""
    return sys.platform == "linux" and _read_at_start(environment) == _read_at_start(OURS)


def _read_at_start(environment: Mapping[str, str]) -> Variables:
    found = {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}
    found.pop("PYTHONPATH", None)  # a fork heeds it
    return tuple(sorted(found.items()))


@cache
def _server(variables: Variables) -> socket.socket:
    """Start the server of this process for an environment with these variables. Return where it takes orders."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {name: value for name, value in OURS.items() if not name.startswith(READ_AT_START)}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER.format(theirs.fileno())],
            env={**environment, **dict(variables), MARK: BLANK},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    atexit.register(process.wait)
    atexit.register(ours.close)  # called first; ends the server
    return ours


def serve(number: int) -> str:
    """Fork for each order that arrives, until the orders' socket is closed. Return, in the fork, the program to run."""
    for name in LOADED:
        importlib.import_module(name)
    os.fsync = lambda descriptor: None  # as in the tests themselves
    sys.modules[
        "anyio"
    ].__doc__ = "PYTEST_DONT_REWRITE"  # else pytest warns that it is loaded before its plugin
    gc.freeze()
    orders = socket.socket(fileno=number)
    running: dict[int, tuple[int, socket.socket]] = {}  # by a file that is ready once the process has ended
    while True:
        for ready in select.select([orders, *running], [], [])[0]:
            if ready is orders:
                data, streams, *_ = socket.recv_fds(orders, 1 << 20, 4)
                if not data:
                    os._exit(0)
                pid = os.fork()
                if pid == 0:
                    for place in (orders, *(teller for _, teller in running.values())):
                        place.close()
                    return _become(json.loads(data), streams)
                teller = socket.socket(fileno=streams.pop())
                for stream in streams:
                    os.close(stream)
                teller.send(struct.pack("i", pid))
                running[os.pidfd_open(pid)] = pid, teller
            else:
                os.close(ready)
                pid, teller = running.pop(ready)
                with teller, suppress(BrokenPipeError):  # a test may have lost interest
                    teller.send(struct.pack("i", os.waitpid(pid, 0)[1]))


def _become(order: dict[str, Any], streams: list[int]) -> str:
    """Make this fork what a started program would be. Return the program."""
    if order["session"]:
        os.setsid()
    for number, stream in enumerate(streams[:3]):
        os.dup2(stream, number)
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        binary = open(number, "wb" if number else "rb", 0 if old.write_through else -1, closefd=False)  # noqa: SIM115
        lines = binary.isatty() or name == "stderr"
        new = io.TextIOWrapper(binary, old.encoding, old.errors, "\n", lines, old.write_through)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    os.chdir(order["cwd"])
    if MARK in order["environment"]:
        _mark(order["environment"][MARK])
    os.environ.clear()
    os.environ.update(order["environment"])
    time.tzset()
    for limit, values in zip(LIMITS, order["limits"], strict=True):
        if resource.getrlimit(limit) != tuple(values):
            resource.setrlimit(limit, tuple(values))
    for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
        del sys.modules[name]
    sys.orig_argv = order["argv"]
    way, *words = order["argv"][1:]
    first = os.getcwd() if way.startswith("-m") else ""
    rest = [place for place in sys.path[1:] if place not in _folders(OURS)]
    sys.path[:] = [*([first] if way != "-P" else []), *_folders(order["environment"]), *rest]
    if way == "-P":
        way, *words = words
    program, *words = words if way in ("-c", "-m") else [way[2:], *words]
    sys.argv = [way[:2], *words]
    if way == "-c":
        return str(program)
    if not hasattr(sys.modules.get(program), "__path__"):  # a package runs its `__main__`
        sys.modules.pop(program, None)
    return f"import runpy; runpy.run_module({program!r}, run_name='__main__', alter_sys=True)"


def _folders(environment: Mapping[str, str]) -> list[str]:
    return [place for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place]


def _mark(mark: str) -> None:
    """Write the mark of a command over the server's, into the memory that /proc shows as its environment."""
    with open("/proc/self/stat") as file:
        start, end = map(int, file.read().rpartition(")")[2].split()[47:49])
    place = ctypes.string_at(start, end - start).index(f"{MARK}={BLANK}".encode()) + len(MARK) + 1
    ctypes.memmove(start + place, mark.encode(), len(mark))
