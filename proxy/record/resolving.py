"""Where the recorder connects to: other places for chosen names, and no private address where that is forbidden.

Host, SNI and the archive keep the name: an origin on a loopback port may be recorded as `https://demo.example/`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import socket
from collections.abc import Callable, Mapping
from typing import Any

try:
    import uvloop

    class FastLoop(uvloop.Loop):
        """uvloop's, for task factories of every Python.

        uvloop 0.23 hands `eager_start=None` to them from Python 3.13 on; asyncio's own eager one, which mitmproxy 12
        sets, takes that argument only since 3.13.3.
        """

        def set_task_factory(self, factory: Any) -> None:
            super().set_task_factory(factory and _told_only(factory))

except ImportError:

    class FastLoop(asyncio.SelectorEventLoop):  # type: ignore[no-redef]
        """asyncio's own."""


Place = tuple[str, int]


def _told_only(factory: Callable[..., Any]) -> Callable[..., Any]:
    """The same task factory, given no argument that says nothing."""

    def make(loop: Any, coro: Any, **options: Any) -> Any:
        return factory(loop, coro, **{name: value for name, value in options.items() if value is not None})

    return make


def new_loop(
    resolve: Mapping[str, Place] | None = None, *, private: bool = True
) -> asyncio.AbstractEventLoop:
    """A new event loop (uvloop where installed).

    `resolve` maps "name" or "name:port" to the address to connect to instead; names without an entry are
    resolved as ever. Unless `private`, only public addresses and the places in `resolve` are connected to.
    `create_connection` is the one door through which mitmproxy reaches an origin.
    """
    places = {name.lower(): place for name, place in (resolve or {}).items()}
    if private and not places:
        return FastLoop()

    class ResolvingLoop(FastLoop):
        async def create_connection(
            self, protocol_factory: Any, host: str | None = None, port: int | None = None, **options: Any
        ) -> Any:
            name = (host or "").lower()
            target = places.get(f"{name}:{port}") or places.get(name)
            if target is not None:
                host, port = target
            hosts = [host] if private or target is not None else await _public_addresses(self, name, port)
            connect = super().create_connection
            for place in hosts[:-1]:
                with contextlib.suppress(OSError):  # the next one may answer
                    return await connect(protocol_factory, place, port, **options)  # type: ignore[arg-type]  # as below
            return await connect(protocol_factory, hosts[-1], port, **options)  # type: ignore[arg-type]  # its stub knows no connection over a given socket

    return ResolvingLoop()


# Names that stand for no host of the Internet: RFC 6761, 6762 and 8375, and ICANN's of 2024 for private use, which
# clouds give to their metadata servers (metadata.google.internal).
_OWN_NAMES = re.compile(r"(?:.*\.)?(?:localhost|local|internal|home\.arpa)")
# Networks that are not public: IANA's registries of special-purpose addresses (RFC 6890) and multicast. Not `is_global`
# of Python, which says otherwise from release to release.
_SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
            "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
            "224.0.0.0/3",
            "168.63.129.16/32",  # Azure's metadata server, which only its own machines reach
            "2001::/23", "2001:db8::/32", "3fff::/20",
        ),
    )
)  # fmt: skip
_UNICAST = ipaddress.ip_network("2000::/3")  # the part of IPv6 outside which no address is public
_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052: an address of IPv4 in the last 32 bits


def is_public(address: str) -> bool:
    """Return True if an IP address can be a host of the Internet, and is no metadata server of a cloud.

    An address of IPv6 that holds one of IPv4 (mapped, NAT64, 6to4) is what that is.
    """
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ipaddress.IPv4Address(ip.packed[-4:]) if ip in _NAT64 else ip.ipv4_mapped or ip.sixtofour
        if inner is not None:
            return is_public(str(inner))
        if ip not in _UNICAST:
            return False
    return not any(ip in network for network in _SPECIAL)


class PrivateAddress(OSError):
    """A host without a public address, where only those may be connected to."""

    def __init__(self, place: str) -> None:
        super().__init__(f"{place} is not a public address; --private (in Python private=True) lets it pass")


async def _public_addresses(loop: asyncio.AbstractEventLoop, host: str, port: int | None) -> list[str]:
    """Look a host up and return its public addresses, which are then connected to without another look-up.

    Raises PrivateAddress where it has none.
    """
    if _OWN_NAMES.fullmatch(host.rstrip(".")):
        raise PrivateAddress(host)
    found = [str(entry[4][0]) for entry in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    public = [address for address in dict.fromkeys(found) if is_public(address)]
    if not public:
        raise PrivateAddress(host if host in found else f"{host} ({', '.join(dict.fromkeys(found))})")
    return public


def cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Ends what a loop still has to do, in silence."""
    loop.set_exception_handler(lambda *_: None)  # what is cancelled complains of that, and of nothing else
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=2.0))
