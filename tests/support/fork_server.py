"""Starts programs of stillweb as forks of a process that has loaded it: nine tenths of what a command costs are imports.

A fork runs the program of a real start to its end, with streams, directory, environment, limits and signals of its own.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import inspect
import io
import json
import os
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

from stillweb.snapshots._os.processes import _START as START_WORKER

PROGRAM = "from stillweb.harness.cli import run; run()"
SERVER = "import tests.support.fork_server as server; program = server.serve({}, server.{}); del server\nexec(program)"
CONFINED = ["-I", "-S", "-c"]  # the launcher of confined programs
PDF = "from stillweb.snapshots.text import pdf_text as m; "  # how the program starts that reads one, with little memory
REPETITION = ["-P", "-m", "stillweb.harness.results.certificate"]
WORKER = ["-P", "-c", START_WORKER]  # of `seal`, which extracts texts
STILLWEB = (
    [sys.executable, "-m", "stillweb"],
    [sys.executable, "-c", "from stillweb.harness.cli import main; main()"],
)
TESTS = ["-mpytest"]  # by pytester
TESTER = ["-u", "-c", "import sys;exec(eval(sys.stdin.readline()))"]  # a worker of pytest-xdist
MARK = "STILLWEB_TEST_MARK"
DRIVER = "STILLWEB_TEST_DRIVER"  # the socket of Playwright's driver; without it Playwright starts one
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
HEEDED = ("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")  # by a fork, all the same
Variables = tuple[tuple[str, str], ...]
OURS = dict(os.environ)  # the server's, whichever test comes first
LIMITS = sorted(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
FOR_PDFS = ("pypdf", "pypdfium2", "stillweb.snapshots.text.pdf_text")
LIBC = ctypes.PyDLL(None, use_errno=True)  # whose calls keep the interpreter's lock
forks_agents = True  # but in tests that are marked `own_process`
FOR_REPETITIONS = (
    "anyio._backends._asyncio",
    "concurrent.futures.thread",
    "openai.resources",
    "stillweb.harness.agents.module",
    "stillweb.harness.agents.openai",
    "stillweb.harness.agents.script",
    "stillweb.harness.models.client",
    "stillweb.harness.results.certificate",
    "stillweb.harness.runs.agent_process",
    "stillweb.harness.runs.engine",
    "stillweb.harness.runs.tool_setup",
    "stillweb.harness.runs.runner",
    "stillweb.harness.sandbox.launcher",
    "stillweb.harness.scoring.simple",
    "stillweb.harness.servers.program",
    "stillweb.harness.tools.browser",
    "stillweb.harness.tools.serper",
    "stillweb.harness.tools.service_hosts",
    "stillweb.harness.tools.toolset",
    "stillweb.proxy.replay.gateway",
    "stillweb.snapshots.evidence.matcher",
)
LOADED = (
    *FOR_REPETITIONS,
    "_pytest.helpconfig",
    "_pytest.junitxml",
    "_pytest.unittest",
    "bs4",
    "cryptography.fernet",
    "fsspec",
    "httpcore",
    "platformdirs.unix",
    "pytest",
    "mcp.server.lowlevel",
    "protego",
    "pypdf",
    "requests",
    "stillweb.api",
    "stillweb.harness.curation.drift",
    "stillweb.harness.curation.needs",
    "stillweb.harness.curation.refreshing",
    "stillweb.harness.export.publication",
    "stillweb.harness.pytest_plugin",
    "stillweb.harness.results.summary",
    "stillweb.harness.runs.display",
    "stillweb.harness.servers.mcp",
    "stillweb.harness.testing.pytest_case",
    "stillweb.proxy.browser.capture_view",
    "stillweb.proxy.check.check",
    "stillweb.proxy.record.recorder",
    "stillweb.snapshots.operations.importing",
    "stillweb.snapshots.operations.upgrading",
    "stillweb.snapshots.text.freezing",
    "trafilatura",
    "urllib.request",
)


class Forked(subprocess.Popen[str]):
    """A command started as a fork. It is a child of this process, as Popen's own way to start it would make it.

    `limits` are those of resources that are other than this process's.
    """

    limits: Mapping[int, tuple[int, int]] = {}

    def __init__(self, *given: Any, limits: Mapping[int, tuple[int, int]], **options: Any) -> None:
        self.limits = limits
        super().__init__(*given, **options)

    def _execute_child(self, *given: Any) -> None:
        named = _signature.bind(self, *given).arguments
        environment = dict(os.environ if named["env"] is None else named["env"])
        order = {
            "argv": [os.fspath(word) for word in named["args"]],
            "cwd": os.path.abspath(named["cwd"] or "."),
            "environment": environment,
            "session": named["start_new_session"],
            "limits": [self.limits.get(limit) or resource.getrlimit(limit) for limit in LIMITS],
            "files": list(named["pass_fds"]),
        }
        told, theirs = socket.socketpair()
        with told, theirs:
            streams = [named["p2cread"], named["c2pwrite"], named["errwrite"]]
            streams = [number if stream == -1 else stream for number, stream in enumerate(streams)]
            confined = order["argv"][1:4] == CONFINED
            loaded = "FOR_REPETITIONS" if order["argv"][1:4] == REPETITION else "LOADED"
            if " ".join(order["argv"][2:3]).startswith(PDF):
                loaded = "FOR_PDFS"
            server = _server(_read_at_start(OURS if confined else environment), loaded)
            socket.send_fds(
                server, [json.dumps(order).encode()], [*streams, theirs.fileno(), *named["pass_fds"]]
            )
            theirs.close()
            data = told.recv(4)
        if not data:
            raise ConnectionError("the fork server ended")
        self._child_created = True
        self.pid = int(struct.unpack("i", data)[0])
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(named[pipe] for pipe in pipes))  # type: ignore[attr-defined]


_start = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_signature = inspect.signature(_start)
_servers: dict[tuple[Variables, str], socket.socket] = {}


def fork_programs() -> None:
    """Let the workers of tests, pytester's runs, stillweb's own, workers of `seal`, readers of PDFs, the processes of Python agents and the repetitions of `certify` be forks.

    Repetitions have a server of their own for their agents, and `seal` for its workers; so have the workers of tests,
    which thus load stillweb no second time.
    """

    def execute_child(process: subprocess.Popen[str], *given: Any) -> None:
        named = _signature.bind(process, *given).arguments
        environment = os.environ if named["env"] is None else named["env"]
        words = list(named["args"]) if isinstance(named["args"], list | tuple) else []
        if words[1:4] == REPETITION:
            fork = True
        elif words[1:4] == CONFINED:
            fork = forks_agents and _starts_agent(words)
        else:
            way = words[1:2] == TESTS or (words[:3] in STILLWEB and _without_more(environment))
            way = (
                way
                or (words[1:2] == ["-c"] and str(words[2]).startswith(PDF))
                or words[1:4] in (WORKER, TESTER)
            )
            fork = way and named["preexec_fn"] is None and can_fork(environment)
        if fork:
            process.__class__ = Forked
            return Forked._execute_child(process, *given)  # type: ignore[arg-type]
        return _start(process, *given)

    if sys.platform == "linux":
        subprocess.Popen._execute_child = execute_child  # type: ignore[attr-defined]


def _without_more(environment: Mapping[str, str]) -> bool:
    """Return True if modules are looked for where these tests look: a fork has loaded them."""
    return _folders(environment) == _folders(OURS)


def _starts_agent(words: list[str]) -> bool:
    """Return True if these are a launcher's, ordered to start an agent in Python as the tests themselves run Python."""
    from stillweb.harness.agents.module import _START
    from stillweb.harness.sandbox.running import _LAUNCHER

    if words[4] != _LAUNCHER:
        return False
    number = int(words[-1])
    order = json.loads(os.pread(number, os.fstat(number).st_size, 0))
    return order["argv"][2:3] == [_START] and can_fork(order["environment"])


def can_fork(environment: Mapping[str, str]) -> bool:
    """Return True if a fork would heed the whole environment."""
    return sys.platform == "linux" and _read_at_start(environment) == _read_at_start(OURS)


def _read_at_start(environment: Mapping[str, str]) -> Variables:
    found = {name for name in environment if name.startswith(READ_AT_START)} - {*HEEDED}
    return tuple((name, environment[name]) for name in sorted(found))


def _server(variables: Variables, loaded: str) -> socket.socket:
    """Return where a server of this process takes orders. Start it first: in an environment with these variables, with these modules."""
    if (variables, loaded) in _servers:
        return _servers[variables, loaded]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {name: value for name, value in OURS.items() if not name.startswith(READ_AT_START)}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER.format(theirs.fileno(), loaded)],
            env={**environment, **dict(variables), MARK: BLANK},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    atexit.register(process.wait)
    atexit.register(ours.close)  # called first; ends the server
    return _servers.setdefault((variables, loaded), ours)


def serve(number: int, loaded: tuple[str, ...]) -> str:
    """Fork for each order that arrives, until the orders' socket is closed. Return, in the fork, the program to run."""
    gc.disable()  # modules stay: looking for garbage among them is a tenth of loading them
    for name in loaded:
        importlib.import_module(name)
    os.fsync = lambda descriptor: None  # as in the tests themselves
    if "playwright" in sys.modules:
        importlib.import_module("tests.support.shared_driver").use_shared_drivers()
    if anyio := sys.modules.get("anyio"):
        anyio.__doc__ = "PYTEST_DONT_REWRITE"  # else pytest warns that it is loaded before its plugin
    if loaded in (LOADED, FOR_REPETITIONS):
        _fill_caches()
    if loaded is LOADED:
        _prepare_commands()
    # looked for here once: the names of some thousand modules lie in as many pages, which a fork would copy
    ours = [name for name in sys.modules if name.split(".")[0] == "tests"]
    gc.freeze()
    gc.enable()
    orders = socket.socket(fileno=number)
    while True:
        data, files, *_ = socket.recv_fds(orders, 1 << 20, 64)
        if not data:
            os._exit(0)
        pid = _fork_sibling()
        if pid == 0:
            orders.close()
            return _become(json.loads(data), files, ours)
        with socket.socket(fileno=files.pop(3)) as teller:
            teller.send(struct.pack("i", pid))
        for file in files:
            os.close(file)


def _fill_caches() -> None:
    """Compute once what each fork would compute for itself: a third of what a command costs when all is imported."""
    from stillweb.harness.runs.hashes import code_hash
    from stillweb.snapshots.identity.irrelevant import irrelevant_url
    from stillweb.snapshots.identity.rules import builtin
    from stillweb.snapshots.identity.sites import site_of

    builtin()
    code_hash()
    irrelevant_url("https://a.example/")
    site_of("https://a.example/")


def _prepare_commands() -> None:
    """Load all commands, and compute what only they use."""
    from stillweb.harness.cli import COMMANDS
    from stillweb.harness.view.library import Library
    from stillweb.proxy.net.client_env import usual_authorities
    from stillweb.proxy.record.mitmproxy_compat._patch import check_versions

    for module, _ in COMMANDS.values():
        importlib.import_module(f"stillweb.harness.commands.{module}")
    check_versions()
    for page in ("attempt.html", "figures.html", "run.html"):  # of a report
        Library()._environment.get_template(page)
    usual_authorities(None)


def _fork_sibling() -> int:
    """Fork as os.fork does, but into a child of this process's parent, which then waits for it as for its own."""
    address = ctypes.c_void_p()
    LIBC.prctl(40, ctypes.byref(address), 0, 0, 0)  # PR_GET_TID_ADDRESS: where libc keeps a thread's number
    flags = 0x8000 | 0x01000000 | 0x00200000  # CLONE_PARENT, CLONE_CHILD_SETTID, CLONE_CHILD_CLEARTID
    arguments = struct.pack("=8Q", flags, 0, address.value or 0, 0, 0, 0, 0, 0)  # struct clone_args
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = LIBC.syscall(435, arguments, len(arguments))  # clone3
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone3")
    return int(pid)


def _become(order: dict[str, Any], files: list[int], modules: list[str]) -> str:
    """Make this fork what a started program would be, without these modules. Return the program."""
    if order["session"]:
        os.setsid()
    numbers = [0, 1, 2, *order["files"]]
    del files[3]  # where its number is told
    above = 1 + max(numbers)
    moved = [fcntl.fcntl(file, fcntl.F_DUPFD, above) for file in files]
    os.closerange(3, above)
    for file, target in zip(moved, numbers, strict=True):
        os.dup2(file, target)
    os.closerange(above, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        at_once = bool(number and order["environment"].get("PYTHONUNBUFFERED"))
        binary = open(number, "wb" if number else "rb", 0 if at_once else -1, closefd=False)  # noqa: SIM115
        lines = binary.isatty() or name == "stderr"
        new = io.TextIOWrapper(binary, old.encoding, old.errors, "\n", lines, at_once)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    os.chdir(order["cwd"])
    if MARK in order["environment"]:
        _mark(order["environment"][MARK])
    _set_environment(order["environment"])
    for limit, values in zip(LIMITS, order["limits"], strict=True):
        if resource.getrlimit(limit) != tuple(values):
            resource.setrlimit(limit, tuple(values))
    tests = order["argv"][1:4] == TESTER
    for name in modules if not tests else ():
        del sys.modules[name]
    if tests or order["argv"][1:4] == REPETITION or order["argv"][3:4] == ["seal"]:
        OURS.clear()
        OURS.update(os.environ)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            ours.close()
            os.setsid()
            with open(os.devnull, "r+") as nothing:
                for number in range(3):
                    os.dup2(nothing.fileno(), number)
            return serve(theirs.detach(), ())  # what this process has loaded
        theirs.close()
        _servers[_read_at_start(OURS), "LOADED"] = ours
        if not tests:  # whose conftest does it
            fork_programs()
    return _program(order["argv"], order["environment"])


def _program(argv: list[str], environment: Mapping[str, str]) -> str:
    """Set the arguments and the path of modules as Python does for a command line. Return the program that it names."""
    sys.orig_argv = argv
    confined = argv[1:4] == CONFINED
    way, *words = argv[3 if confined else 1 + (argv[1] == "-u") :]
    first = os.getcwd() if way.startswith("-m") else ""
    rest = [place for place in sys.path[1:] if place not in _folders(OURS)]
    sys.path[:] = [*([first] if way != "-P" and not confined else []), *_folders(environment), *rest]
    if way == "-P":
        way, *words = words
    program, *words = words if way in ("-c", "-m") else [way[2:], *words]
    sys.argv = [way[:2], *words]
    if confined:
        os.execvpe = _go_on
    if way == "-c":
        return str(program)
    if not hasattr(sys.modules.get(program), "__path__"):  # a package runs its `__main__`
        sys.modules.pop(program, None)
    return f"import runpy; runpy.run_module({program!r}, run_name='__main__', alter_sys=True)"


def _go_on(file: str, argv: list[str], environment: dict[str, str]) -> NoReturn:
    """Run the agent's program in this process, which the launcher has confined, instead of executing Python for it."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the list's own
            if not os.get_inheritable(int(name)):
                os.close(int(name))
    environment.pop(DRIVER, None)  # whose browsers nothing confines
    _set_environment(environment)
    tempfile.tempdir = None
    try:
        exec(_program(argv, environment), {"__name__": "__main__"})
    except BaseException:  # noqa: BLE001 -- as Python ends
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(1)


def _set_environment(variables: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)
    sys.dont_write_bytecode = bool(variables.get("PYTHONDONTWRITEBYTECODE"))
    time.tzset()


def _folders(environment: Mapping[str, str]) -> list[str]:
    return [place for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place]


def _mark(mark: str) -> None:
    """Write the mark of a command over the server's, into the memory that /proc shows as its environment."""
    with open("/proc/self/stat") as file:
        start, end = map(int, file.read().rpartition(")")[2].split()[47:49])
    place = ctypes.string_at(start, end - start).index(f"{MARK}=".encode()) + len(MARK) + 1
    ctypes.memmove(start + place, mark.encode(), len(mark))
