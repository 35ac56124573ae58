"""Ports of this machine forwarded into a namespace that has only loopback: for example a local model's.

A socket belongs to the namespace in which it was made. So listeners are made inside and passed to a helper
that stayed outside: it forwards each connection to the same port outside. The helper knows only these ports,
and ends with the process that started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence

from stillweb.proxy.net.addresses import host_port
from stillweb.snapshots.errors import MissingCapability

PR_SET_PDEATHSIG = 1  # linux/prctl.h
Port = tuple[str, int]  # on this machine: a loopback address or localhost
_LOCALHOST = ("127.0.0.1", "::1")  # without asking a resolver
_READY = b"+"


class Relay:
    """The inner end of the helper. Make it before entering the namespace; call `listen` inside.

    As a context manager it ends the helper on exit. Otherwise the helper ends with the process that started
    it, which never waits for it.
    """

    def __init__(self, ports: Sequence[Port]) -> None:
        self._ports = ports
        self._control, theirs = socket.socketpair()
        with theirs:
            # -I: ignore the current folder and Python's variables, which belong to the command
            command = [
                sys.executable,
                "-I",
                "-m",
                "stillweb.proxy.net.relaying",
                str(os.getpid()),
                str(theirs.fileno()),
            ]
            command += [part for host, port in ports for part in (host, str(port))]
            self._helper: subprocess.Popen[bytes] | None = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )

    @classmethod
    def inherited(cls, control: int, ports: Sequence[Port]) -> Relay:
        """Rebuild the relay from the control socket inherited from the parent process."""
        relay = cls.__new__(cls)
        relay._ports, relay._control, relay._helper = ports, socket.socket(fileno=control), None
        return relay

    @property
    def control(self) -> int:
        """Return the descriptor of the socket by which the helper gets the listeners."""
        return self._control.fileno()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self._control.close()
        if self._helper is not None:
            self._helper.kill()
            self._helper.wait()

    def listen(self) -> None:
        """Listen on the ports inside and pass the listeners to the helper.

        Raises MissingCapability if a port is taken inside, or the helper has ended.
        """
        with self._control as control:
            for host, port in self._ports:
                address = _LOCALHOST[0] if host == "localhost" else host
                family = socket.AF_INET6 if ":" in address else socket.AF_INET
                try:
                    with socket.create_server((address, port), family=family) as listener:
                        socket.send_fds(control, [b"."], [listener.fileno()])
                except OSError as error:
                    raise MissingCapability(
                        f"isolation: {host_port(host, port)} can't be let in ({error.strerror or error})"
                    ) from error
            if control.recv(1) != _READY:
                raise MissingCapability("isolation: the helper that forwards ports has ended")


async def _serve(control: socket.socket, ports: Sequence[Port]) -> None:
    servers = []
    for port in ports:
        _, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        inside = socket.socket(fileno=descriptors[0])
        servers.append(await asyncio.start_server(functools.partial(lead, port), sock=inside))
    control.sendall(_READY)
    control.close()
    await asyncio.gather(*(server.serve_forever() for server in servers))


async def lead(port: Port, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward a connection to a port of this machine, in both directions."""
    there = await _connect(port)
    if there is None:
        writer.transport.abort()  # nothing listens outside: the client gets a reset
        return
    try:
        await asyncio.gather(_pass_on(reader, there[1]), _pass_on(there[0], writer))
    except OSError:
        writer.transport.abort()
        there[1].transport.abort()
    finally:
        for one in (writer, there[1]):
            one.close()


async def _connect(port: Port) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    for address in _LOCALHOST if port[0] == "localhost" else port[:1]:
        with contextlib.suppress(OSError):
            return await asyncio.open_connection(address, port[1])
    return None


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(1 << 16):
        writer.write(piece)
        await writer.drain()
    writer.write_eof()


def _main(parent: int, control: int, *places: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    # the terminal's signals are for the parent, with which the helper ends
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ports = [(host, int(port)) for host, port in zip(places[::2], places[1::2], strict=True)]
    asyncio.run(_serve(socket.socket(fileno=control), ports))


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
