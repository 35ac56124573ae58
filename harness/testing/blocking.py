"""Block the network for Python's sockets in this process, except for allowed addresses and names.

The interpreter's audit events report every connection and look-up by Python's sockets, also in code that imported a
function of `socket` earlier or uses `_socket`. Every refused attempt is recorded, so that code which swallows the
error can't hide it. A library in C that connects by itself is not blocked. Its connection to another machine counts
as an attempt only if it is still open when `attempts` is read. `guard` stops libraries that obey a proxy; a network
namespace stops all.
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
    """Error for a connection or look-up that a test marked `snapshot` may not make."""


class NetworkBlock:
    """Context manager that blocks connections to all but the `allowed` addresses.

    `allowed` holds "host:port", "host", or "loopback" for this machine. The addresses that an allowed name resolves to
    are allowed, too. Unix sockets are not blocked. Sending on a connection to another machine that was open before
    is refused.
    """

    _lock = threading.Lock()
    _active: list[NetworkBlock] = []  # noqa: RUF012 - shared by the process, as sockets are
    _real: dict[tuple[Any, str], Callable[..., Any]] = {}  # noqa: RUF012

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self.allowed = {address.lower() for address in allowed}
        self._found: set[str] = set()  # addresses that allowed names resolved to
        self._attempts: list[str] = []
        self._process = os.getpid()
        self._of_children: Any = None  # file to which forked processes write their attempts
        self.before: set[tuple[int, Any]] = set()  # connections to other machines that were open at the start

    def __enter__(self) -> Self:
        self._of_children = tempfile.TemporaryFile("a+", encoding="utf-8")
        self.before = set(_connections(self))
        with NetworkBlock._lock:
            _listen_to_the_interpreter()
            if not NetworkBlock._active:
                _install()
            NetworkBlock._active.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with NetworkBlock._lock:
            NetworkBlock._active.remove(self)
            if not NetworkBlock._active:
                _restore()
        self._attempts = self.attempts
        self._of_children.close()
        self._of_children = None

    @property
    def attempts(self) -> list[str]:
        """Refused attempts of this and forked processes, and connections that bypassed Python's sockets."""
        if self._of_children is None:
            return self._attempts
        if os.getpid() == self._process:
            self._see_connections()
        self._of_children.seek(0)
        told: str = self._of_children.read()
        return self._attempts + told.splitlines()

    def permits(self, host: str, port: int) -> bool:
        """Return True if a connection to this address is allowed."""
        host = host.strip("[]").lower()
        if (self.allowed | self._found) & {host, f"{host}:{port}"}:
            return True
        return "loopback" in self.allowed and is_loopback(host)

    def permits_name(self, name: str) -> bool:
        return name.lower() in {allowed.rpartition(":")[0] or allowed for allowed in self.allowed}

    def allow_addresses(self, name: str, addresses: Iterable[str]) -> None:
        """Allow the addresses that an allowed name resolved to."""
        for allowed in list(self.allowed):
            host, _, port = allowed.rpartition(":")
            if allowed == name:
                self._found |= set(addresses)
            elif host == name:
                self._found |= {f"{address}:{port}" for address in addresses}

    def note_attempt(self, what: str) -> None:
        if os.getpid() == self._process:
            self._attempts.append(what)
        else:
            self._of_children.write(what.replace("\n", " ") + "\n")
            self._of_children.flush()

    def _see_connections(self) -> None:
        """Record new connections to other machines, except to addresses of allowed names."""
        if not set(_connections(self)) - self.before:
            return
        for allowed in self.allowed:  # a library in C (a database driver) resolves names by itself
            with contextlib.suppress(OSError):
                socket.getaddrinfo(allowed.rpartition(":")[0] or allowed, None)
        for _, peer in sorted(set(_connections(self)) - self.before):
            what = f"connecting to {peer[0]}:{peer[1]}, past Python's sockets"
            if what not in self._attempts:
                self._attempts.append(what)

    def refuse(self, what: str) -> NetworkBlocked:
        """Record an attempt and return the error to raise for it."""
        self.note_attempt(what)
        return NetworkBlocked(
            f"the network is blocked in this test: {what}; go through the stillweb fixtures, or name the address "
            "in the marker: allow=('host:port',) or allow=('loopback',)"
        )


def is_loopback(host: str) -> bool:
    """Return True if a host is this machine, by a loopback address or a usual name."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in _LOCAL_NAMES


def _name(host: Any) -> str:
    return host.decode("ascii", "replace") if isinstance(host, bytes | bytearray) else str(host or "")


def _check_address(address: Any) -> None:
    if not isinstance(address, tuple) or len(address) < 2:
        return  # Unix, netlink and similar sockets reach no other machine
    text, port = _name(address[0]), address[1]
    for blocked in NetworkBlock._active:
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
    for blocked in NetworkBlock._active:
        if not blocked.permits_name(text):
            raise blocked.refuse(f"looking up {text}")


def _check_owner(host: Any) -> None:
    """Refuse a reverse look-up, which asks the network; servers may look up this machine's own addresses."""
    text = _name(host)
    if is_loopback(text.lower()) or text in ("0.0.0.0", "::", socket.gethostname()):
        return
    for blocked in NetworkBlock._active:
        if not blocked.permits_name(text):
            raise blocked.refuse(f"looking up {text}")


# per thread: True during `getnameinfo` with NI_NUMERICHOST, because the audit event has no flags
_as_number = threading.local()


def _check_nameinfo(address: Any) -> None:
    if not getattr(_as_number, "asked", False):
        _check_owner(address[0])


_EVENTS: dict[str, Callable[..., None]] = {  # audit event -> check of its arguments
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
        if NetworkBlock._active and event in _EVENTS:
            _EVENTS[event](*arguments)

    sys.addaudithook(heard)  # an audit hook can't be removed
    _listening = True


def _connections(blocked: NetworkBlock) -> Iterator[tuple[int, Any]]:
    """Yield each descriptor connected to another machine, with the address; empty if /dev/fd is missing."""
    with contextlib.suppress(OSError):
        for entry in os.listdir("/dev/fd"):
            with contextlib.suppress(OSError):
                peer = _peer(int(entry))
                if peer is not None and not is_loopback(peer[0]) and not blocked.permits(*peer[:2]):
                    yield int(entry), peer


def _peer(descriptor: int) -> Any:
    """Return the internet address that a descriptor is connected to. Raise OSError if it is not connected."""
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return None
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        return sock.getpeername() if sock.family in (socket.AF_INET, socket.AF_INET6) else None


def _check_old(sock: socket.socket) -> None:
    """Refuse to send on a connection of an earlier test, which a client kept open: sending has no audit event."""
    for blocked in NetworkBlock._active:
        if not blocked.before:
            continue
        try:
            here = (sock.fileno(), sock.getpeername())
        except OSError:  # not connected: send will raise
            continue
        if here in blocked.before:
            raise blocked.refuse(
                "sending to {}:{}, on a connection that was open before".format(*here[1][:2])
            )


_SENDS = [(kind, name) for kind in (socket.socket, ssl.SSLSocket) for name in ("send", "sendall")]
_ADDRESSES: dict[str, Callable[[Any], list[str]]] = {  # function -> the addresses in its result
    "getaddrinfo": lambda answer: [str(entry[4][0]) for entry in answer],
    "gethostbyname": lambda answer: [answer],
    "gethostbyname_ex": lambda answer: list(answer[2]),
}


def _install() -> None:
    real = NetworkBlock._real
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
            for blocked in NetworkBlock._active:
                blocked.allow_addresses(_name(host).lower(), _ADDRESSES[name](answer))
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
    for (owner, name), function in NetworkBlock._real.items():
        setattr(owner, name, function)
    # The class inherits these from _socket; deleting ours restores them, unless another library had patched them.
    for name in ("send", "sendall"):
        delattr(socket.socket, name)
        if getattr(socket.socket, name) is not NetworkBlock._real[socket.socket, name]:
            setattr(socket.socket, name, NetworkBlock._real[socket.socket, name])
