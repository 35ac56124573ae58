"""An application that we did not write, with walks through it, served on loopback with fresh data."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Act = Callable[[Any, str], None]  # on a page, with the application's address


@dataclass(frozen=True)
class Application:
    """An application on a port of its own, and walks through it.

    `packages` are installed by pip. `prepare(work)` makes its data, `command(work)` is what serves it, with its environment and folder.
    `drawn` matches the names of cookies and form fields whose values are drawn; `moving` what else differs between two equal pages.
    """

    name: str
    port: int
    start: str
    packages: tuple[str, ...]
    prepare: Callable[[Path], None]
    command: Callable[[Path], tuple[list[str], dict[str, str], Path]]
    acts: dict[str, Act]
    walks: dict[str, list[str]]
    drawn: str = r"csrf\w*"
    moving: tuple[str, ...] = ()
    warm: float = 1.0

    @property
    def address(self) -> str:
        """The address that its walks begin with."""
        return f"http://127.0.0.1:{self.port}{self.start}"


def python(work: Path) -> str:
    """Return the Python of the applications' virtual environment."""
    return str(work.parent / "venv" / "bin" / "python")


def install(app: Application, work: Path) -> None:
    """Install the packages that an application needs, once."""
    environment = work.parent / "venv"
    if not environment.exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    mark = environment / f"installed-{app.name}"
    if app.packages and not mark.exists():
        subprocess.run([python(work), "-m", "pip", "install", "-q", *app.packages], check=True)
        mark.touch()


@contextmanager
def serving(app: Application, work: Path) -> Iterator[None]:
    """Serve an application with fresh data while the block runs."""
    data = work / "data"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    app.prepare(data)
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", app.port)) == 0:
            raise RuntimeError(f"{app.name}: port {app.port} is taken. End the program that listens there")
    words, environment, folder = app.command(data)
    with (work / "log.txt").open("ab") as log:
        process = subprocess.Popen(
            words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=os.environ | environment, cwd=folder, start_new_session=True
        )  # fmt: skip
        try:
            _wait(app, process, work)
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _wait(app: Application, process: subprocess.Popen[bytes], work: Path) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", app.port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            time.sleep(app.warm)
            return
    raise RuntimeError(f"{app.name}: it did not start. Read {work / 'log.txt'}")
