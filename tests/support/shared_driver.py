"""A Playwright driver that the tests of a worker share with the commands that they fork. To start a driver takes .4 s of processor time."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright._impl._driver import compute_driver_executable, get_driver_env
from playwright._impl.transport import PipeTransport

from tests.support.fork_server import DRIVER

SCRIPT = Path(__file__).with_suffix(".cjs")
NETWORK = Path("/proc/self/ns/net")  # its browsers are of no use to a command that has entered another one
_start = PipeTransport.connect
_network = NETWORK.readlink() if NETWORK.is_symlink() else None


class SharedDriver:
    """A driver that is started when first asked for, and again once it has ended."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="stillweb-driver-")
        self.place = Path(self._folder.name) / "socket"
        self.process: subprocess.Popen[bytes] | None = None

    def lend(self) -> None:
        """Let Playwright connect to it, here and in forked commands."""
        if _network is None:
            return
        if self.process is None or self.process.poll() is not None:
            self.place.unlink(missing_ok=True)
            node, program = compute_driver_executable()
            library = Path(program).parent / "lib" / "coreBundle.js"
            # its own setting, as in stillweb.proxy.browser.browser: the driver, not its client, reads it
            variables = {**get_driver_env(), "PW_TEST_SCREENSHOT_NO_FONTS_READY": "1"}
            self.process = subprocess.Popen(
                [node, SCRIPT, self.place, library],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=variables,
                start_new_session=True,
            )
            assert self.process.stdout is not None
            assert self.process.stdout.readline() == b"ready\n"
        os.environ[DRIVER] = str(self.place)

    def close(self) -> None:
        """End the driver and its browsers."""
        os.environ.pop(DRIVER, None)
        if self.process is not None:
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            self.process.stdin.close()
            self.process.wait()
            self.process.stdout.close()
        self._folder.cleanup()


@dataclass
class Connection:
    """A connection to the shared driver, with the parts of a driver's process that Playwright uses."""

    stdout: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def stdin(self) -> Connection:
        return self

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def close(self) -> None:
        """Tell the driver that nothing more comes."""
        if not self.writer.is_closing():
            self.writer.write_eof()

    async def communicate(self) -> None:
        """Wait until the driver has ended the browsers."""
        await self.stdout.read()
        self.writer.close()


async def _connect(transport: PipeTransport) -> None:
    place = os.environ.get(DRIVER)
    if place is None or NETWORK.readlink() != _network:
        await _start(transport)
        return
    transport._stopped_future = asyncio.Future()
    connection: Any = Connection(*await asyncio.open_unix_connection(place))
    environment = [{"name": name, "value": value} for name, value in os.environ.items() if name != DRIVER]
    data = json.dumps(environment).encode()
    connection.write(len(data).to_bytes(4, "little") + data)
    transport._proc = transport._output = connection


def use_shared_drivers() -> None:
    """Let Playwright connect to the shared driver that the environment names instead of starting one."""
    PipeTransport.connect = _connect  # type: ignore[method-assign]
