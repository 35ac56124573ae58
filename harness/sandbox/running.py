"""Running code that a model wrote: in a process of its own, with no network and with limits.

What holds on Linux: a network namespace with nothing but loopback, a process namespace that dies as a whole,
Landlock (writes only below the working folder; reads there, of the system and of the program's own installation), and rlimits on memory, CPU time, file size and open files. What
this machine can't do is named in the result (`missing`); a missing network limit is refused unless allowed.
Nothing is ever evaluated in this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from stillweb.snapshots.errors import MissingCapability, StillwebError, UsageError

_LAUNCHER = "from stillweb.harness.sandbox.launcher import main; main()"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use: seconds of wall clock, bytes of address space, of one file, of kept output; open files."""

    seconds: float = 300.0
    memory: int = 8 << 30
    file_size: int = 1 << 30
    open_files: int = 256
    output: int = 10 << 20


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """How a run ended. `returncode` is None on a timeout, negative for a signal. `seconds` is wall clock, measured.

    `missing` names each limit that could not be applied, with the reason. Text is UTF-8, wrong bytes replaced, cut
    at `Limits.output`.
    """

    returncode: int | None
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool
    missing: tuple[str, ...] = ()


class Ending:
    """Ends, from another thread, what runs in sandboxes for one piece of work; see `ended_together`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self.ended = False

    def begin(self, process: subprocess.Popen[bytes]) -> None:
        """Takes in a process that was started."""
        with self._lock:
            self._running.add(process)
            if self.ended:
                _kill(process)

    def done(self, process: subprocess.Popen[bytes]) -> None:
        """It has ended."""
        with self._lock:
            self._running.discard(process)

    def end(self) -> None:
        """Kills what runs; what is started later ends at once."""
        with self._lock:
            self.ended = True
            for process in self._running:
                _kill(process)


_ENDING: ContextVar[Ending | None] = ContextVar("stillweb_sandbox_ending", default=None)


@contextlib.contextmanager
def ended_together() -> Iterator[Ending]:
    """While it is entered, all that `run` starts in this context (threads of asyncio.to_thread, too) ends with it."""
    ending = Ending()
    token = _ENDING.set(ending)
    try:
        yield ending
    finally:
        _ENDING.reset(token)


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    limits: Limits | None = None,
    environment: Mapping[str, str] | None = None,
    readable: Sequence[Path] = (),
    allow_missing: Collection[str] = ("processes", "files", "memory"),
) -> SandboxResult:
    """Runs a program in `cwd`, to which its writes are confined, and kills all it left behind.

    It may read `cwd`, `readable`, the system's folders and the installation that the program belongs to.

    The environment is `environment` and the few variables every program needs; nothing else of ours is passed on.
    MissingCapability: a limit (network, processes, files, memory) can't be applied and isn't in `allow_missing`.
    UsageError: the program doesn't exist. StillwebError: it was ended from another thread (see `ended_together`).
    """
    if os.name != "posix":
        raise MissingCapability("the sandbox for model-written code needs a POSIX system")
    limits = limits or Limits()
    order = {
        "argv": list(argv),
        "cwd": str(cwd),
        "parent": os.getpid(),
        "limits": asdict(limits),
        "allow": sorted(allow_missing),
        "readable": [*map(str, readable), *_installation(argv[0])],
    }
    variables = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(cwd),
        "TMPDIR": str(cwd),
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PYTHONIOENCODING": "utf-8",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        **(environment or {}),
    }
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.monotonic()
        try:
            process = subprocess.Popen(
                # -I: neither our working folder nor PYTHON* variables decide what the launcher is.
                [
                    sys.executable,
                    "-I",
                    "-c",
                    _LAUNCHER,
                    str(writer),
                    json.dumps(order | {"environment": variables}),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                pass_fds=(writer,),
                start_new_session=True,
                env={"PATH": variables["PATH"]},
            )
        finally:
            os.close(writer)
        timed_out = False
        ending = _ENDING.get()
        try:
            if ending is not None:
                ending.begin(process)
            process.wait(limits.seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            if ending is not None:
                ending.done(process)
            _kill_group(process)
        seconds = time.monotonic() - started
        with open(reader, "rb") as pipe:
            report: dict[str, Any] = {}
            for line in pipe.read().splitlines():
                report |= json.loads(line)
        if ending is not None and ending.ended:
            raise StillwebError("sandbox: ended with the run")
        if report.get("refused"):
            raise MissingCapability(f"sandbox: {report['refused']}")
        if report.get("not_started"):
            raise UsageError(f"sandbox: {argv[0]}: {report['not_started']}")
        return SandboxResult(
            returncode=None if timed_out else report.get("status", -signal.SIGKILL),
            stdout=_text(out, limits.output),
            stderr=_text(err, limits.output),
            seconds=limits.seconds if timed_out else seconds,
            timed_out=timed_out,
            missing=tuple(report.get("missing", ())),
        )


def _installation(program: str) -> list[str]:
    """The folder that holds bin/PROGRAM, and that of the file it links to (a virtual environment's base)."""
    found = shutil.which(program)
    if found is None:
        return []
    places = {Path(found).absolute().parent.parent, Path(found).resolve().parent.parent}
    # A program that lies near the root would open everything.
    return sorted(str(place) for place in places if len(place.parts) > 2)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Ends the launcher and all of its session's group; its process namespace dies with it."""
    _kill(process)
    process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _text(file: IO[bytes], most: int) -> str:
    file.seek(0)
    return file.read(most).decode("utf-8", "replace")
