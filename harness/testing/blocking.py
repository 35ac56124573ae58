"""No network from this process: sockets connect to named addresses only, and names are not looked up.

Every refused attempt is kept, so that code which swallows the error can't hide it. Programs started by a test are
not held by this; give them the gateway's environment, or run the whole under `stillweb replay --isolate`.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

_LOCAL_NAMES = {"localhost", "localhost.localdomain", "ip6-localhost", ""}


class NetworkBlocked(ConnectionError):
    """A connection that a test marked `snapshot` may not make."""


class Blocked:
    """A context manager; while it is entered only `allowed` addresses can be connected to.

    `allowed`: "host:port", "host", or "loopback" for all of this machine; what a name among them is found to stand for
    is allowed with it. Unix sockets are free.
    """

    _lock = threading.Lock()
    _active: list[Blocked] = []  # noqa: RUF012 - one for the process: sockets are
    _real: dict[str, Callable[..., Any]] = {}  # noqa: RUF012

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self.allowed = {address.lower() for address in allowed}
        self._found: set[str] = set()  # what the names among them stand for
        self.attempts: list[str] = []

    def __enter__(self) -> Self:
        with Blocked._lock:
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

    def permits(self, host: str, port: int) -> bool:
        """Whether an address may be connected to."""
        host = host.strip("[]").lower()
        if (self.allowed | self._found) & {host, f"{host}:{port}"}:
            return True
        return "loopback" in self.allowed and is_loopback(host)

    def found(self, name: str, addresses: Iterable[str]) -> None:
        """A name was looked up: where it is allowed, so are the addresses that it stands for."""
        for allowed in list(self.allowed):
            host, _, port = allowed.rpartition(":")
            if allowed == name:
                self._found |= set(addresses)
            elif host == name:
                self._found |= {f"{address}:{port}" for address in addresses}

    def refuse(self, what: str) -> NetworkBlocked:
        """Keeps an attempt and gives the error for it."""
        self.attempts.append(what)
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


def _check_address(address: Any) -> None:
    if not isinstance(address, tuple) or len(address) < 2:
        return  # unix, netlink and the like lead to no other machine
    host, port = address[0], address[1]
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    for blocked in Blocked._active:
        if not blocked.permits(text, port):
            raise blocked.refuse(f"connecting to {text}:{port}")


def _name(host: Any) -> str:
    return host.decode("ascii", "replace") if isinstance(host, bytes) else str(host or "")


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
        if text.lower() not in {allowed.rpartition(":")[0] or allowed for allowed in blocked.allowed}:
            raise blocked.refuse(f"looking up {text}")


def _check_owner(host: Any) -> None:
    """The name that belongs to an address is asked of the network, too; servers ask for their own."""
    text = str(host or "")
    if is_loopback(text.lower()) or text in ("0.0.0.0", "::", socket.gethostname()):
        return
    for blocked in Blocked._active:
        if text.lower() not in {allowed.rpartition(":")[0] or allowed for allowed in blocked.allowed}:
            raise blocked.refuse(f"looking up {text}")


_LOOK_UPS = {  # function of the module socket -> what its first argument is checked by
    "getaddrinfo": _check_name,
    "gethostbyname": _check_name,
    "gethostbyname_ex": _check_name,
    "gethostbyaddr": _check_owner,
    "getnameinfo": lambda address: _check_owner(address[0]),
}
_ADDRESSES: dict[str, Callable[[Any], list[str]]] = {  # function -> the addresses in what it gives
    "getaddrinfo": lambda answer: [str(entry[4][0]) for entry in answer],
    "gethostbyname": lambda answer: [answer],
    "gethostbyname_ex": lambda answer: list(answer[2]),
}


def _install() -> None:
    real = Blocked._real
    for name in ("connect", "connect_ex", "sendto", "sendmsg"):
        real[name] = getattr(socket.socket, name)
    for name in _LOOK_UPS:
        real[name] = getattr(socket, name)

    def connect(self: socket.socket, address: Any) -> Any:
        _check_address(address)
        return real["connect"](self, address)

    def connect_ex(self: socket.socket, address: Any) -> Any:
        _check_address(address)
        return real["connect_ex"](self, address)

    def sendto(self: socket.socket, data: Any, *rest: Any) -> Any:
        _check_address(rest[-1] if rest else None)
        return real["sendto"](self, data, *rest)

    def sendmsg(self: socket.socket, buffers: Any, *rest: Any) -> Any:
        _check_address(rest[2] if len(rest) > 2 else None)
        return real["sendmsg"](self, buffers, *rest)

    def looking(name: str, check: Callable[[Any], None]) -> Callable[..., Any]:
        def look_up(host: Any, *rest: Any, **more: Any) -> Any:
            if name != "getnameinfo" or not rest or not rest[0] & socket.NI_NUMERICHOST:
                check(host)
            answer = real[name](host, *rest, **more)
            if name in _ADDRESSES:
                for blocked in Blocked._active:
                    blocked.found(_name(host).lower(), _ADDRESSES[name](answer))
            return answer

        return look_up

    for function in (connect, connect_ex, sendto, sendmsg):
        setattr(socket.socket, function.__name__, function)
    for name, check in _LOOK_UPS.items():
        setattr(socket, name, looking(name, check))


def _restore() -> None:
    # The class inherits these from _socket; deleting ours uncovers them, unless someone else had put theirs there.
    for name in ("connect", "connect_ex", "sendto", "sendmsg"):
        delattr(socket.socket, name)
        if getattr(socket.socket, name) is not Blocked._real[name]:
            setattr(socket.socket, name, Blocked._real[name])
    for name in _LOOK_UPS:
        setattr(socket, name, Blocked._real[name])
