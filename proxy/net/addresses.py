"""Addresses: session names in proxy credentials, request targets, host:port, URLs for logs, and listening sockets."""

from __future__ import annotations

import base64
import errno
import ipaddress
import re
import socket
from typing import Protocol
from urllib.parse import quote, unquote

from stillweb.snapshots.errors import MissingCapability, UsageError

OWN_HOST = "stillweb.local"
DEFAULT_SESSION = "default"
# allows the zone of an IPv6 address, escaped (RFC 6874) or not
AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+(?:%[^\s/?#@\\:\[\]]+)?\]|[^\s/?#@\\:\[\]]+)(?::([0-9]{1,5}))?")


class UrlRedactor(Protocol):
    """The part of `stillweb.snapshots.secrets.redact.Redactor` that is used here."""

    def url(self, url: str) -> str:
        """Return a URL with its secrets replaced."""


def public(url: str, redactor: UrlRedactor | None) -> str:
    """Return a URL for storage and logs: its secrets replaced, unless there is no redactor."""
    return url if redactor is None else redactor.url(url)


def session_name(field: str | None) -> str | None:
    """Return the session name: the percent-decoded user of a Basic Proxy-Authorization, or None.

    Any password will do.
    """
    scheme, _, credentials = (field or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user = base64.b64decode(credentials.strip()).decode().partition(":")[0]
    except ValueError:  # no base64, no ASCII, no UTF-8
        return None
    name = unquote(user)
    return name if name and name.isprintable() and name == name.strip() else None


def with_session(url: str, session: str) -> str:
    """Return a proxy's address with a session's name as its user.

    Raises UsageError if the name is not printable, or contains ':' or '%'.
    """
    if not session or not session.isprintable() or session != session.strip():
        raise UsageError(f"{session!r} can't be a session's name: printable text is needed")
    if ":" in session or "%" in session:  # ':' ends a user name; only some clients decode '%'
        raise UsageError(f"{session!r} can't be a session's name: it may not contain ':' or '%'")
    return url.replace("://", f"://{quote(session, safe='')}:x@", 1)


def on_this_machine(host: str) -> bool:
    """Return True if a host is a loopback address or localhost."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_port(host: str, port: int) -> str:
    """Return "host:port", with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def target_text(raw: bytes) -> str:
    """Decode a request target; if it is no UTF-8, its non-ASCII bytes are percent-encoded.

    Decoded as Latin-1, those bytes would later be encoded as UTF-8, which are other bytes to a server.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "".join(chr(byte) if byte < 0x80 else f"%{byte:02X}" for byte in raw)


def is_absolute(target: str) -> bool:
    """Return True if a request target is a URL. A path may contain one (`/go?to=https://…`)."""
    return "://" in target and not target.startswith("/")


def http_for_ws(url: str) -> str:
    """Replace `ws:` by `http:` in a URL: aiohttp sends `ws:` to a proxy, the recorder stores `http:`."""
    return f"http{url[2:]}" if url[:5].lower() == "ws://" else url


def site_named(host: str | None, own_port: int) -> str:
    """Return the site that a request to a proxy for a mere path is for, by its Host field.

    It is "" if the request is for the proxy itself: Host names this machine, or our port. Java sends a mere
    path for a web socket on a connection that it has used before.
    """
    if not host or (match := AUTHORITY.fullmatch(host)) is None:
        return ""
    name, port = match[1].lower(), int(match[2] or 80)
    near = name in (OWN_HOST, "localhost", "[::1]") or name.startswith("127.")
    return "" if near or port == own_port else host


def without_user(url: str) -> str:
    """Return an absolute URL without user and password, which don't change where it leads."""
    if "@" not in url:
        return url
    scheme, _, rest = url.partition("://")
    end = _end(rest)
    return f"{scheme}://{rest[:end].rpartition('@')[2]}{rest[end:]}"


def _end(rest: str) -> int:
    """Return the index at which an authority ends."""
    return min((i for i in map(rest.find, "/?\\") if i >= 0), default=len(rest))


def with_host_field(url: str, host: str | None) -> str:
    """Return the URL of a proxy request, with the Host field's host if it is another.

    A server answers by that field: with `curl -H Host:` one address serves the pages of several sites. If
    only the port differs, the target's counts.
    """
    if not host or AUTHORITY.fullmatch(host) is None or OWN_HOST in (host_of(url), host_of(f"://{host}")):
        return url
    if host_of(url).rstrip(".") == host_of(f"://{host}").rstrip("."):
        return url  # if only the port differs, the target's counts
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{host}{rest[_end(rest) :]}"


def host_of(url: str) -> str:
    """Return the host of an absolute URL, in lower case and without its port."""
    rest = url.partition("://")[2]
    authority = rest[: _end(rest)].rpartition("@")[2]
    match = AUTHORITY.fullmatch(authority)
    return match[1].lower() if match else authority.lower()


BACKLOG = 1024  # connections that wait to be accepted


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises MissingCapability (port in use) and UsageError (no such port or address)."""
    if not (isinstance(port, int) and 0 <= port < 1 << 16):
        raise UsageError(f"port {port!r}: must be a whole number from 0 to 65535; 0 takes a free one")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(f"can't listen on {host}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise MissingCapability(
                f"port {port} on {host} is in use; choose another, or 0 for any free one"
            ) from error
        raise MissingCapability(f"can't listen on {host}:{port}: {error.strerror}") from error
    listener.setblocking(False)
    return listener
