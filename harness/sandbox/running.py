"""Confined programs: code that a model wrote, and programs that are agents.

Both start in `stillweb.harness.sandbox.launcher`, which gives up all that the program must not have and reports which
means hold. `run` is for model-written code: it has limits and no network. `Start` is for a program that its caller drives
(`stillweb.harness.agents.command`). Where the machine lacks a means, both refuse, unless `allow_unconfined`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from stillweb.proxy.net.addresses import on_this_machine
from stillweb.snapshots import errors
from stillweb.snapshots.errors import MissingCapability, StillwebError, UsageError

_ROOT = str(Path(errors.__file__).parents[2])
# -I: neither our working folder nor PYTHON* variables decide what the launcher is. -S: it needs no installed package.
_LAUNCHER = "import sys; sys.path.insert(0, sys.argv.pop(1)); from stillweb.harness.sandbox.launcher import main; main()"
_HOW_TO_ALLOW = "--allow-unconfined goes on without it"
_GRACE = 30.0  # seconds beyond the limit in which the supervisor must have ended the program itself

# Of the folder that a program's bin/ lies in: what the program may need. The rest may be a home, and hold keys.
_PARTS = (
    *("bin", "sbin", "lib", "lib32", "lib64", "libexec", "include", "etc", "share", "ssl"),
    *("pyvenv.cfg", "conda-meta", "versions", "shims", "version"),
)
_PARTS_OF_A_HOME = ("bin", "lib", "lib64", "libexec")
_NAMED = "127.83"  # begins the addresses at which a program's own network has hosts elsewhere
_LINKS = 40  # of a chain, as the kernel has it


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a run. Each but the wall clock and `output` may be None, for no limit.

    `seconds` of wall clock; bytes of `memory` (resident, of all processes together; also the address space of each),
    of one file and of all files that it adds on `disk` (four of the largest, unless said), of kept `output`; open files of
    a process; `processes` with their threads.
    """

    seconds: float = 300.0
    memory: int | None = 8 << 30
    file_size: int | None = 1 << 30
    open_files: int | None = 256
    output: int = 10 << 20
    disk: int | None = None
    # libraries start a thread for each processor
    processes: int | None = max(256, 16 * (os.cpu_count() or 1))


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """End of a run. `returncode` is None on a timeout, negative for a signal. `seconds` is wall clock, measured.

    `held` names the means that confined the program, `missing` each that could not be applied, with the reason;
    `exceeded` is the limit of the whole tree that ended it ("memory", "processes"), or "". `not_kept` says why its files
    were not brought back, or is "". `folder` is where the program found its working folder. Text is UTF-8, wrong bytes
    replaced, cut at `Limits.output`.
    """

    returncode: int | None
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool
    missing: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    exceeded: str = ""
    not_kept: str = ""
    folder: str = ""


class StopSwitch:
    """A switch that ends, from another thread, what runs in sandboxes for one piece of work; see `end_with_context`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self.ended = False

    def begin(self, process: subprocess.Popen[bytes]) -> None:
        """Take in a process that was started."""
        with self._lock:
            self._running.add(process)
            if self.ended:
                _kill(process)

    def done(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._running.discard(process)

    def end(self) -> None:
        """Kill what runs; what is started later ends at once."""
        with self._lock:
            self.ended = True
            for process in self._running:
                _kill(process)


_ENDING: ContextVar[StopSwitch | None] = ContextVar("stillweb_sandbox_ending", default=None)


@contextlib.contextmanager
def end_with_context() -> Iterator[StopSwitch]:
    """End, with the context, all that `run` starts in it (threads of asyncio.to_thread, too)."""
    ending = StopSwitch()
    token = _ENDING.set(ending)
    try:
        yield ending
    finally:
        _ENDING.reset(token)


@dataclass(frozen=True, slots=True)
class Start:
    """A program to be started confined.

    `folder` is its working folder: it sees it as `launcher.FOLDER`. Beside that it sees the system, its own installation
    and the paths in `readable`, of which none may be, hold or lie in one of `hidden`. `environment` is all that it gets,
    but for HOME and TMPDIR, which are its folder. `network` is "own" for one with loopback alone, into which `ports`
    (host and port) are let, which it finds under their own names and addresses, or "shared". Without `limits` its folder is not copied, but mounted.
    """

    argv: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    readable: Iterable[Path | str] = ()
    hidden: Iterable[Path | str] = ()
    network: Literal["own", "shared"] = "own"
    ports: Sequence[tuple[str, int]] = ()
    limits: Limits | None = None
    allow_unconfined: bool = False

    @contextlib.contextmanager
    def prepared(self) -> Iterator[PreparedCommand]:
        """Open what the launcher is given; the caller starts `command` with `files` inherited, within this context.

        Raises UsageError where a readable path is a hidden one, or holds one, or lies in one.
        """
        ours, theirs = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET if sys.platform == "linux" else socket.SOCK_DGRAM
        )
        with theirs, tempfile.TemporaryFile() as order, contextlib.ExitStack() as stack:
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, folder)
            order.write(json.dumps(self._order(folder)).encode())
            order.flush()
            command = [
                sys.executable,
                "-I",
                "-S",
                "-c",
                _LAUNCHER,
                _ROOT,
                str(theirs.fileno()),
                str(order.fileno()),
            ]
            try:
                yield PreparedCommand(command, (theirs.fileno(), order.fileno(), folder), Channel(ours))
            except BaseException:
                ours.close()
                raise

    def _order(self, folder: int) -> dict[str, Any]:
        hidden = _places(self.hidden)
        path = self.environment.get("PATH", os.defpath)
        readable = _places(self.readable)
        for place in readable:
            for secret in hidden:
                if _within(place, secret) or _within(secret, place):
                    raise UsageError(
                        f"{place}: the program would see {secret}, which no program may; name the program's own files one by one"
                    )
        installed = [
            one
            for one in _places(_installation(self.argv[0], path))
            if not any(_within(one, s) for s in hidden)
        ]
        for one in installed:
            hidden_inside = [secret for secret in hidden if _within(secret, one)]
            if hidden_inside:
                raise UsageError(
                    f"{hidden_inside[0]}: lies in {one}, with the program {self.argv[0]}; move one of the two"
                )
        if self.network == "shared" and (names := os.path.realpath("/etc/resolv.conf")) != "/etc/resolv.conf":
            readable.append(names)
        return {
            "argv": list(self.argv),
            "folder": str(self.folder.absolute()),
            "folder_descriptor": folder,
            "parent": os.getpid(),
            "environment": dict(self.environment),
            # a folder before what lies in it, which is then seen already
            "readable": _outermost([*readable, *installed]),
            "covered": sorted({*hidden, os.path.realpath(os.getcwd())}),
            "network": self.network,
            **_inside(self.ports),
            "limits": asdict(self.limits)
            | {
                "disk": self.limits.disk
                or (self.limits.file_size and max(4 * self.limits.file_size, 1 << 20))
            }
            if self.limits
            else None,
            "allow_unconfined": self.allow_unconfined,
        }


@dataclass(frozen=True, slots=True)
class PreparedCommand:
    """The command of a launcher, the files that it must inherit, and the channel on which it reports."""

    command: list[str]
    files: tuple[int, ...]
    channel: Channel


@dataclass(slots=True)
class Channel:
    """Reports of one launcher, folded as they come."""

    connection: socket.socket
    report: dict[str, Any] = field(default_factory=dict)
    # of the program's network, for the order's ports
    listeners: list[socket.socket] = field(default_factory=list)

    def receive(self) -> bool:
        """Take in the next report; return False when there will be none."""
        try:
            data, files, _, _ = socket.recv_fds(self.connection, 1 << 16, 64)
        except ConnectionResetError:
            data, files = b"", []
        self.listeners += [socket.socket(fileno=file) for file in files]
        if data:
            self.report |= json.loads(data)
        return bool(data)

    def check(self, program: str) -> None:
        """Raise MissingCapability where the launcher refused, UsageError where the program could not be executed."""
        if reason := self.report.get("refused"):
            raise MissingCapability(f"{program}: can't be confined here: {reason}; {_HOW_TO_ALLOW}")
        if reason := self.report.get("not_started"):
            raise UsageError(f"{program}: can't be started: {reason}")
        if "folder" not in self.report:
            raise StillwebError(f"{program}: was not started: its launcher ended without a report")

    def close(self) -> None:
        """Close the channel and the listeners that it brought."""
        for one in (self.connection, *self.listeners):
            one.close()


def _inside(ports: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Return where a network of loopback alone shows ports: listening places, further addresses, and lines of /etc/hosts."""
    places, addresses, names = [], [], dict[str, str]()
    for host, port in ports:
        address = host
        if not on_this_machine(host):
            try:
                addresses.append(str(ipaddress.ip_address(host)))
            except ValueError:
                number = len(names)
                address = names.setdefault(host, f"{_NAMED}.{number >> 8 & 255}.{number & 255}")
        places.append((address, port))
    lines = [f"{address} {name}\n" for name, address in {"localhost": "127.0.0.1", **names}.items()]
    return {
        "ports": places,
        "addresses": list(dict.fromkeys(addresses)),
        "hosts": "".join(lines) if names else "",
    }


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    limits: Limits | None = None,
    environment: Mapping[str, str] | None = None,
    readable: Sequence[Path] = (),
    allow_unconfined: bool = False,
) -> SandboxResult:
    """Run a program on a copy of `cwd`, bring its files back, and kill all it left behind.

    It may read `readable`, the system's folders and the installation that the program belongs to. The environment is
    `environment` and the few variables every program needs; nothing else of ours is passed on.
    MissingCapability: a means can't be applied, and `allow_unconfined` is not set. UsageError: the program doesn't
    exist. StillwebError: it was ended from another thread (see `end_with_context`).
    """
    limits = limits or Limits()
    variables = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PYTHONIOENCODING": "utf-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        **(environment or {}),
    }
    return run_start(
        Start(argv, cwd, variables, readable, limits=limits, allow_unconfined=allow_unconfined), limits
    )


def run_start(start: Start, limits: Limits) -> SandboxResult:
    """Run a program to its end, or until `limits.seconds` are over, and keep its output. Raises as `run`."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with start.prepared() as prepared:
            process = subprocess.Popen(
                prepared.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                pass_fds=prepared.files,
                start_new_session=True,
                env={},
            )
        channel = prepared.channel
        ending = _ENDING.get()
        try:
            if ending is not None:
                ending.begin(process)
            channel.connection.settimeout(limits.seconds + _GRACE)
            while channel.receive():
                pass
        except TimeoutError:
            channel.report["timed_out"] = True
        finally:
            if ending is not None:
                ending.done(process)
            _kill(process)
            process.wait()
            channel.close()
        if ending is not None and ending.ended:
            raise StillwebError("sandbox: ended with the run")
        channel.check(start.argv[0])
        report = channel.report
        timed_out = report.get("timed_out", False)
        return SandboxResult(
            returncode=None if timed_out else report.get("status", -signal.SIGKILL),
            stdout=_text(out, limits.output),
            stderr=_text(err, limits.output),
            seconds=limits.seconds if timed_out else report.get("seconds", 0.0),
            timed_out=timed_out,
            missing=tuple(report.get("missing", ())),
            held=tuple(report.get("held", ())),
            exceeded=report.get("exceeded", ""),
            not_kept=report.get("not_kept", ""),
            folder=report.get("folder", ""),
        )


@contextlib.contextmanager
def program_folder(name: str) -> Iterator[Path]:
    """Make a folder for a program and yield it; remove it at the end, with all that the program left."""
    folder = Path(tempfile.mkdtemp(prefix=f"stillweb-{name}-"))
    try:
        yield folder
    finally:
        remove_folder(folder)


def remove_folder(folder: Path) -> None:
    """Remove a folder that a program wrote in, however deep and locked; what can't be removed stays.

    `shutil.rmtree` fails on paths that are too long or too deep for it. So each folder inside is emptied in a flat one.
    """
    flat = tempfile.mkdtemp(dir=folder.parent, prefix=f"{folder.name}-")
    moved: list[str] = []

    def move(path: str) -> None:
        with contextlib.suppress(OSError):
            os.chmod(path, 0o700)
        with contextlib.suppress(OSError):
            os.rename(path, to := os.path.join(flat, str(len(moved))))
            moved.append(to)

    move(str(folder))
    for place in moved:  # it grows
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    move(entry.path)
                else:
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)
    for place in [*moved, flat]:
        with contextlib.suppress(OSError):
            os.rmdir(place)


_TRY = Limits(seconds=60)


def can_confine(*, network: Literal["own", "shared"] = "own", limits: Limits | None = _TRY) -> str | None:
    """Return None where this machine can confine such a program, else what is missing. Tries it."""
    with program_folder("try") as folder:
        try:
            run_start(Start([sys.executable, "-c", "pass"], folder, {}, network=network, limits=limits), _TRY)
        except MissingCapability as error:
            return str(error)
    return None


def _places(paths: Iterable[Path | str]) -> list[str]:
    """Return paths and what they lead to, absolute, without those that aren't there or that we can't reach."""
    found: dict[str, None] = {}
    for path in map(os.path.abspath, paths):
        if os.path.exists(path):
            found |= dict.fromkeys((path, os.path.realpath(path)))
    return list(found)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _outermost(paths: Iterable[str]) -> list[str]:
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not any(_within(path, one) for one in kept):
            kept.append(path)
    return kept


def _installation(program: str, path: str) -> list[str]:
    """Return the paths of a program: itself, its interpreter, and the parts of their installations.

    Each link on the way counts (a virtual environment's python leads to its base), and each folder of PATH, whose
    programs it may start.
    """
    found: list[str] = [folder for folder in path.split(os.pathsep) if os.path.isabs(folder)]
    places = [Path(folder).parent for folder in found if Path(folder).name in ("bin", "sbin", "shims")]
    start = shutil.which(program, path=path)
    while start is not None:
        step: str = os.path.abspath(start)
        for _ in range(_LINKS):
            found.append(step)
            places.append(Path(step).parent.parent)
            if not os.path.islink(step):
                break
            step = os.path.normpath(os.path.join(os.path.dirname(step), os.readlink(step)))
        start = _interpreter(step, path)
    home = Path.home()
    for place in dict.fromkeys(places):
        if len(place.parts) < 2 or _is_system(place):
            continue
        parts = (
            _PARTS_OF_A_HOME if place in (home, home / ".local") or _within(str(home), str(place)) else _PARTS
        )
        found += [str(place / part) for part in parts]
    return [one for one in found if not _is_system(Path(one))]


def _is_system(place: Path) -> bool:
    return any(_within(str(place), folder) for folder in ("/usr", "/bin", "/sbin", "/etc")) or place == Path(
        "/"
    )


def _interpreter(script: str, path: str) -> str | None:
    """Return the program that a script's first line names, or None for what is not a script."""
    try:
        with open(script, "rb") as file:
            line = file.readline(512)
    except OSError:
        return None
    words = line[2:].decode("utf-8", "surrogateescape").split() if line.startswith(b"#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        return shutil.which(words[0], path=path) if words else None
    return words[0] if words and os.path.exists(words[0]) and words[0] != script else None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a launcher and its group; its process namespace dies with it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _text(file: IO[bytes], most: int) -> str:
    file.seek(0)
    return file.read(most).decode("utf-8", "replace")
