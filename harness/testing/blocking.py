"""No network from this process: sockets connect to named addresses only, and names are not looked up.

The interpreter's audit events tell of every connection and look-up that Python's sockets make, also those of code that
imported a function of `socket` before, or that uses `_socket`. Every refused attempt is kept, so that code which swallows
the error can't hide it. A library in C that connects by itself is not kept from it: only a connection to another machine that
it still has when the test is looked at counts as an attempt. `guard` stops those that heed a proxy, a network namespace all.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import ssl
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

_LOCAL_NAMES = {"localhost", "localhost.localdomain", "ip6-localhost", ""}


class NetworkBlocked(ConnectionError):
    """A connection that a test marked `snapshot` may not make."""


class Blocked:
    """A context manager; while it is entered only `allowed` addresses can be connected to.

    `allowed`: "host:port", "host", or "loopback" for all of this machine; what a name among them is found to stand for
    is allowed with it. Unix sockets are free. A connection to another machine that was open before is not to be sent on.
    """

    _lock = threading.Lock()
    _active: list[Blocked] = []  # noqa: RUF012 - one for the process: sockets are
    _real: dict[tuple[Any, str], Callable[..., Any]] = {}  # noqa: RUF012

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self.allowed = {address.lower() for address in allowed}
        self._found: set[str] = set()  # what the names among them stand for
        self._attempts: list[str] = []
        self._process = os.getpid()
        self._of_children: Any = None  # a file, to which processes forked off write theirs
        self.before: set[tuple[int, Any]] = set()  # connections to other machines that were open

    def __enter__(self) -> Self:
        self._of_children = tempfile.TemporaryFile("a+", encoding="utf-8")
        self.before = set(_connections(self))
        with Blocked._lock:
            _listen_to_the_interpreter()
            if not Blocked._active:
                _install()
            Blocked._active.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with Blocked._lock:
            Blocked._active.remove(self)
            if not Blocked._active:
                _restore()
        self._attempts = self.attempts
        self._of_children.close()
        self._of_children = None

    @property
    def attempts(self) -> list[str]:
        """What was refused, here and in processes forked off, and connections that were made past Python."""
        if self._of_children is None:
            return self._attempts
        if os.getpid() == self._process:
            self._see_connections()
        self._of_children.seek(0)
        told: str = self._of_children.read()
        return self._attempts + told.splitlines()

    def permits(self, host: str, port: int) -> bool:
        """Whether an address may be connected to."""
        host = host.strip("[]").lower()
        if (self.allowed | self._found) & {host, f"{host}:{port}"}:
            return True
        return "loopback" in self.allowed and is_loopback(host)

    def permits_name(self, name: str) -> bool:
        """Whether a name may be looked up."""
        return name.lower() in {allowed.rpartition(":")[0] or allowed for allowed in self.allowed}

    def found(self, name: str, addresses: Iterable[str]) -> None:
        """A name was looked up: where it is allowed, so are the addresses that it stands for."""
        for allowed in list(self.allowed):
            host, _, port = allowed.rpartition(":")
            if allowed == name:
                self._found |= set(addresses)
            elif host == name:
                self._found |= {f"{address}:{port}" for address in addresses}

    def tried(self, what: str) -> None:
        """Keeps an attempt."""
        if os.getpid() == self._process:
            self._attempts.append(what)
        else:
            self._of_children.write(what.replace("\n", " ") + "\n")
            self._of_children.flush()

    def _see_connections(self) -> None:
        """Keep what is connected to another machine that was not, and that no name in `allowed` stands for."""
        if not set(_connections(self)) - self.before:
            return
        for allowed in self.allowed:  # a driver of a database looks its host up by itself
            with contextlib.suppress(OSError):
                socket.getaddrinfo(allowed.rpartition(":")[0] or allowed, None)
        for _, peer in sorted(set(_connections(self)) - self.before):
            what = f"connecting to {peer[0]}:{peer[1]}, past Python's sockets"
            if what not in self._attempts:
                self._attempts.append(what)

    def refuse(self, what: str) -> NetworkBlocked:
        """Keeps an attempt and gives the error for it."""
        self.tried(what)
        return NetworkBlocked(
            f"the network is blocked in this test: {what}; go through the stillweb fixtures, or name the address "
            "in the marker: allow=('host:port',) or allow=('loopback',)"
        )


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by address or by its usual names."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in _LOCAL_NAMES


def _name(host: Any) -> str:
    return host.decode("ascii", "replace") if isinstance(host, bytes | bytearray) else str(host or "")


def _check_address(address: Any) -> None:
    if not isinstance(address, tuple) or len(address) < 2:
        return  # unix, netlink and the like lead to no other machine
    text, port = _name(address[0]), address[1]
    for blocked in Blocked._active:
        if not blocked.permits(text, port):
            raise blocked.refuse(f"connecting to {text}:{port}")


def _check_name(host: Any) -> None:
    text = _name(host)
    try:
        ipaddress.ip_address(text.strip("[]").partition("%")[0])
        return
    except ValueError:
        pass
    if text.lower() in _LOCAL_NAMES:
        return
    for blocked in Blocked._active:
        if not blocked.permits_name(text):
            raise blocked.refuse(f"looking up {text}")


def _check_owner(host: Any) -> None:
    """The name that belongs to an address is asked of the network, too; servers ask for their own."""
    text = _name(host)
    if is_loopback(text.lower()) or text in ("0.0.0.0", "::", socket.gethostname()):
        return
    for blocked in Blocked._active:
        if not blocked.permits_name(text):
            raise blocked.refuse(f"looking up {text}")


_as_number = (
    threading.local()
)  # whether this thread asks `getnameinfo` for no name, which its event does not tell


def _check_nameinfo(address: Any) -> None:
    if not getattr(_as_number, "asked", False):
        _check_owner(address[0])


_EVENTS: dict[str, Callable[..., None]] = {  # of the interpreter -> what checks its arguments
    "socket.connect": lambda sock, address: _check_address(address),
    "socket.sendto": lambda sock, address: _check_address(address),
    "socket.sendmsg": lambda sock, address: (
        _check_address(address) if address is not None else _check_old(sock)
    ),
    "socket.getaddrinfo": lambda host, *rest: _check_name(host),
    "socket.gethostbyname": _check_name,
    "socket.gethostbyaddr": _check_owner,
    "socket.getnameinfo": _check_nameinfo,
}
_listening = False


def _listen_to_the_interpreter() -> None:
    global _listening
    if _listening:
        return

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if Blocked._active and event in _EVENTS:
            _EVENTS[event](*arguments)

    sys.addaudithook(heard)  # for as long as the process lives: there is no way to take one back
    _listening = True


def _connections(blocked: Blocked) -> Iterator[tuple[int, Any]]:
    """Descriptors that are connected to another machine, with the address, where the system lists them."""
    with contextlib.suppress(OSError):
        for entry in os.listdir("/dev/fd"):
            with contextlib.suppress(OSError):
                peer = _peer(int(entry))
                if peer is not None and not is_loopback(peer[0]) and not blocked.permits(*peer[:2]):
                    yield int(entry), peer


def _peer(descriptor: int) -> Any:
    """The internet address that a descriptor is connected to. OSError where it is no such socket."""
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return None
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        return sock.getpeername() if sock.family in (socket.AF_INET, socket.AF_INET6) else None


def _check_old(sock: socket.socket) -> None:
    """No event tells of what is sent on an open connection: a client may have kept one of an earlier test."""
    for blocked in Blocked._active:
        if not blocked.before:
            continue
        try:
            here = (sock.fileno(), sock.getpeername())
        except OSError:  # not connected: the caller will hear of it
            continue
        if here in blocked.before:
            raise blocked.refuse(
                "sending to {}:{}, on a connection that was open before".format(*here[1][:2])
            )


_SENDS = [(kind, name) for kind in (socket.socket, ssl.SSLSocket) for name in ("send", "sendall")]
_ADDRESSES: dict[str, Callable[[Any], list[str]]] = {  # function -> the addresses in what it gives
    "getaddrinfo": lambda answer: [str(entry[4][0]) for entry in answer],
    "gethostbyname": lambda answer: [answer],
    "gethostbyname_ex": lambda answer: list(answer[2]),
}


def _install() -> None:
    real = Blocked._real
    for owner, name in (*_SENDS, *((socket, name) for name in (*_ADDRESSES, "getnameinfo"))):
        real[owner, name] = getattr(owner, name)

    def sending(send: Callable[..., Any]) -> Callable[..., Any]:
        def checked(self: socket.socket, *given: Any, **more: Any) -> Any:
            _check_old(self)
            return send(self, *given, **more)

        return checked

    def looking(name: str) -> Callable[..., Any]:
        def look_up(host: Any, *rest: Any, **more: Any) -> Any:
            answer = real[socket, name](host, *rest, **more)
            for blocked in Blocked._active:
                blocked.found(_name(host).lower(), _ADDRESSES[name](answer))
            return answer

        return look_up

    def getnameinfo(address: Any, flags: int) -> Any:
        _as_number.asked = bool(flags & socket.NI_NUMERICHOST)
        try:
            return real[socket, "getnameinfo"](address, flags)
        finally:
            _as_number.asked = False

    for owner, name in _SENDS:
        setattr(owner, name, sending(real[owner, name]))
    for name in _ADDRESSES:
        setattr(socket, name, looking(name))
    socket.getnameinfo = getnameinfo


def _restore() -> None:
    for (owner, name), function in Blocked._real.items():
        setattr(owner, name, function)
    # The class inherits these from _socket; deleting ours uncovers them, unless someone else had put theirs there.
    for name in ("send", "sendall"):
        delattr(socket.socket, name)
        if getattr(socket.socket, name) is not Blocked._real[socket.socket, name]:
            setattr(socket.socket, name, Blocked._real[socket.socket, name])
