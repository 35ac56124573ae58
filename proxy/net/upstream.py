"""The proxy through which this machine reaches the web, if it needs one."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping
from contextvars import ContextVar
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies_environment

from stillweb.snapshots.errors import MissingCapability, UsageError

NONE_THERE = "no upstream proxy at "  # begins the reason of what failed before it reached the proxy
SCHEMES = ("http", "socks4", "socks5", "socks5h")
CONNECT_SECONDS = 30.0
_PLACE = re.compile(r"(?:\[(?P<ip6>.+)\]|(?P<name>[^:]+|[^:]*:.*:[^:]*))(?::(?P<port>\d+))?")
# of the connection to an origin that this task opens: it decides between HTTP_PROXY and HTTPS_PROXY
scheme_asked: ContextVar[str] = ContextVar("scheme_asked", default="https")


class UpstreamError(OSError):
    """The upstream proxy can't be reached, or refuses a connection."""


class UpstreamProxy:
    """The proxy to reach origins by: `http`, `socks4`, `socks5` or `socks5h` with an optional user and password.

    `proxies` maps "http", "https" and "all" to its address; "no" lists hosts that are reached without it, by commas
    or blanks: names with all under them, addresses, networks (10.0.0.0/8), each with a port or without, and * for
    all. This machine itself is never reached through it. Raises UsageError for an address of another form.
    """

    def __init__(self, proxies: Mapping[str, str]) -> None:
        self._proxies = {scheme: url for scheme, url in proxies.items() if url}
        for scheme in ("http", "https", "all"):
            if url := self._proxies.get(scheme):
                self._proxies[scheme] = _checked(url)
        self._without = re.split(r"[,\s]+", self._proxies.get("no", "").strip().lower())

    @classmethod
    def of(cls, url: str | None) -> UpstreamProxy:
        """Return the proxy at `url`; None takes HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, "" takes none."""
        return cls(getproxies_environment() if url is None else {"all": url})

    def __bool__(self) -> bool:
        return any(scheme in self._proxies for scheme in ("http", "https", "all"))

    def _proxy(self, scheme: str) -> str | None:
        return self._proxies.get(scheme) or self._proxies.get("all")

    def address(self, scheme: str, host: str, port: int) -> str | None:
        """Return the proxy's address for a host, None where it is reached without."""
        url = self._proxy(scheme)
        name = host.strip("[]").rstrip(".").lower()
        if url is None or _is_this_machine(name) or any(_names(one, name, port) for one in self._without):
            return None
        return url

    def forward_address(self, host: str, port: int) -> tuple[str, int] | None:
        """Return where a plain http request for a host is sent whole, None where a tunnel or no proxy is used.

        Many proxies refuse a tunnel to port 80. One with a password gets a tunnel all the same, so that no recorded
        request holds it.
        """
        url = self.address("http", host, port)
        parts = urlsplit(url) if url else None
        if parts is None or not _takes_whole(parts):
            return None
        return parts.hostname or "", parts.port or 80

    def is_proxy(self, host: str, port: int) -> bool:
        """Return True if a place is the proxy that plain requests are sent to."""
        url = self._proxy("http")
        parts = urlsplit(url) if url else None
        return parts is not None and (parts.hostname, parts.port or 80) == (host, port)

    async def tunnel(self, url: str, host: str, port: int) -> socket.socket:
        """Connect to a host through the proxy at `url`, or raise UpstreamError."""
        try:
            from python_socks import ProxyConnectionError, ProxyError
            from python_socks.async_.asyncio import Proxy
        except ImportError:
            raise MissingCapability(
                "an upstream proxy needs python-socks: pip install 'stillweb[record]'"
            ) from None
        shown = _shown(url)
        rdns = None if shown.startswith("http") else not shown.startswith("socks5:")
        proxy = Proxy.from_url(url.replace("socks5h:", "socks5:", 1), rdns=rdns)
        try:
            return await proxy.connect(host, port, timeout=CONNECT_SECONDS)
        except ProxyConnectionError as error:
            raise UpstreamError(f"{NONE_THERE}{shown}: {error}") from None
        except (ProxyError, OSError) as error:
            raise UpstreamError(f"upstream proxy {shown}: {str(error) or type(error).__name__}") from None

    def none_there(self, error: OSError) -> UpstreamError:
        """Return the error of a plain request for which the proxy could not be connected to."""
        return UpstreamError(f"{NONE_THERE}{_shown(self._proxy('http') or '')}: {error}")


def _shown(url: str) -> str:
    return urlsplit(url)._replace(netloc=urlsplit(url).netloc.rpartition("@")[2]).geturl()


def _takes_whole(proxy: SplitResult) -> bool:
    return proxy.scheme == "http" and proxy.username is None


def _checked(url: str) -> str:
    url = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(url)
        right = parts.scheme in SCHEMES and parts.hostname and parts.port != 0
    except ValueError:
        right = False
    if not right:
        shown = url.rpartition("@")[2] if "@" in url else url
        raise UsageError(
            f"upstream proxy {shown!r}: write SCHEME://HOST:PORT, SCHEME one of {', '.join(SCHEMES)}"
        )
    return url


def _is_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _names(entry: str, host: str, port: int) -> bool:
    """Return True if an entry of NO_PROXY stands for a host and port."""
    place = _PLACE.fullmatch(entry)
    if place is None or place["port"] not in (None, str(port)):
        return False
    name = (place["ip6"] or place["name"]).removeprefix("*").removeprefix(".").rstrip(".")
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(name, strict=False)
    except ValueError:
        return (host == name or host.endswith(f".{name}")) if name else entry.startswith("*")
