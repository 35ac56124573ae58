"""The command line as a person meets it: processes of its own, watched until all of them are gone."""

from __future__ import annotations

import ast
import os
import resource
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

from tests.support.fork_server import MARK, PROGRAM, STILLWEB, Forked, can_fork
from tests.support.waiting import STARTS, until


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """The lines on standard error that are stillweb's own."""
        return "\n".join(line for line in self.err.splitlines() if line.startswith("stillweb: "))


class Started:
    """A running command, in a session of its own as in a terminal."""

    def __init__(
        self,
        *words: str | Path,
        env: Mapping[str, str] | None = None,
        limits: Mapping[int, tuple[int, int]] | None = None,
        **options: Any,
    ) -> None:
        value = str(uuid.uuid4())
        self.mark = f"{MARK}={value}"
        environment = {**os.environ, **(env or {}), MARK: value}
        arguments = [str(word) for word in words]
        start: Any = subprocess.Popen
        if not options.keys() - {"cwd", "stdin"} and can_fork(environment):
            start = partial(Forked, limits=limits or {})
        elif limits:
            options["preexec_fn"] = lambda: [resource.setrlimit(*limit) for limit in limits.items()]
        self.process: subprocess.Popen[str] = start(
            [sys.executable, "-c", PROGRAM, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=environment,
            **options,
        )

    def line(self) -> str:
        """The next line of its output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def interrupt(self) -> None:
        """Ctrl-C: the terminal sends the signal to all that run in the foreground."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self, timeout: float = STARTS, *, told: str | None = None) -> Done:
        """Waits for the end, `told` on its standard input, and sees that nothing is left and that there was no traceback."""
        try:
            out, err = self.process.communicate(told, timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            out, err = self.process.communicate()
            raise AssertionError(f"it did not end: {out}\n{err}") from None
        assert until(lambda: not self._left()), self._left()
        assert "Traceback" not in err, err
        return Done(self.process.returncode, out, err)

    def _left(self) -> list[str]:
        """Return the processes that the command started and that still run, in whatever group or session."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_text().replace("\0", " ")[:200])
            except (OSError, UnicodeDecodeError):
                continue  # gone meanwhile, or nobody may look
        return found


def stillweb(*words: str | Path, env: Mapping[str, str] | None = None, **options: Any) -> Done:
    """Runs a command to its end."""
    return Started(*words, env=env, **options).end()


ASKING = """#!{python} -IS
import _socket, os, sys
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
server.connect({place!r})
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
order = repr((sys.argv[1:], os.getcwd(), dict(os.environ))).encode()
server.sendmsg([order], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
sys.exit(int(server.recv(16)))
"""


@contextmanager
def commands_on_path(folder: Path) -> Iterator[str]:
    """A PATH for shell scripts: its `stillweb` asks this process to start the command, which makes it a fork if it can."""
    script, place = folder / "stillweb", folder / "asked"
    script.write_text(ASKING.format(python=sys.executable, place=str(place)))
    script.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(place))
        listener.listen()
        Thread(target=_answer, args=(listener,), daemon=True).start()
        yield os.pathsep.join((str(folder), str(Path(sys.executable).parent), os.environ["PATH"]))
        listener.shutdown(socket.SHUT_RDWR)


def _answer(listener: socket.socket) -> None:
    """Start a command for each script that connects, until the listener is shut."""
    while True:
        try:
            asked, _ = listener.accept()
        except OSError:
            return
        Thread(target=_run, args=(asked,), daemon=True).start()


def _run(asked: socket.socket) -> None:
    """Run the command that a script asks for, with the script's streams, directory and environment, and tell its code."""
    with asked:
        data, files, *_ = socket.recv_fds(asked, 1 << 20, 3)
        words, folder, environment = ast.literal_eval(data.decode())
        streams = dict(zip(("stdin", "stdout", "stderr"), files, strict=True))
        with subprocess.Popen([*STILLWEB[0], *words], cwd=folder, env=environment, **streams) as command:
            for file in files:
                os.close(file)
            code = command.wait()
        with suppress(BrokenPipeError):  # the script was killed, as clients of MCP do
            asked.send(str(code if code >= 0 else 128 - code).encode())
