"""Who asks for what: the session in a proxy request's credentials, the host in an address, what of it may be told."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from typing import Protocol
from urllib.parse import quote, unquote

from stillweb.snapshots.errors import UsageError

OWN_HOST = "stillweb.local"
DEFAULT_SESSION = "default"
# with the zone of an address of version 6, escaped (RFC 6874) or as it is
AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+(?:%[^\s/?#@\\:\[\]]+)?\]|[^\s/?#@\\:\[\]]+)(?::([0-9]{1,5}))?")


class Redacts(Protocol):
    """What is needed of stillweb.snapshots.secrets.redact.Redactor."""

    def url(self, url: str) -> str:
        """A URL with its secrets replaced."""


def public(url: str, redactor: Redacts | None) -> str:
    """A URL as it may be kept and told: without its secrets, unless they are recorded as they are (no redactor)."""
    return url if redactor is None else redactor.url(url)


def session_name(field: str | None) -> str | None:
    """The user name in a Basic Proxy-Authorization, percent-decoded: a session's name. Any password will do."""
    scheme, _, credentials = (field or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user = base64.b64decode(credentials.strip()).decode().partition(":")[0]
    except (binascii.Error, UnicodeDecodeError):
        return None
    name = unquote(user)
    return name if name and name.isprintable() and name == name.strip() else None


def with_session(url: str, session: str) -> str:
    """A proxy's address with a session's name as its user. Raises UsageError for a name that can't be one."""
    if not session or not session.isprintable() or session != session.strip():
        raise UsageError(f"{session!r} can't be a session's name: printable text is needed")
    if ":" in session or "%" in session:  # what ends a user name, and what clients decode or don't
        raise UsageError(f"{session!r} can't be a session's name: it may not contain ':' or '%'")
    return url.replace("://", f"://{quote(session, safe='')}:x@", 1)


def on_this_machine(host: str) -> bool:
    """Whether a host is this machine, by its address or as localhost."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_port(host: str, port: int) -> str:
    """A host and a port as they stand in an address, where one of IPv6 has brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def target_text(raw: bytes) -> str:
    """A request's target as text; bytes that are no UTF-8 percent-encoded, as they would be asked for elsewhere.

    Read as Latin-1 they would be taken for the same characters in UTF-8, which are other bytes to a server.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "".join(chr(byte) if byte < 0x80 else f"%{byte:02X}" for byte in raw)


def is_absolute(target: str) -> bool:
    """Whether a request's target is a URL; a path may hold one (`/go?to=https://…`)."""
    return "://" in target and not target.startswith("/")


def spelled_for_sockets(url: str) -> str:
    """A URL with `http` where a client (aiohttp) asks a proxy for a web socket by `ws`, as the recorder has it."""
    return f"http{url[2:]}" if url[:5].lower() == "ws://" else url


def site_named(host: str | None, own_port: int) -> str:
    """The site that a request to a proxy for a mere path is for, by its Host field; "" where it is for the proxy itself.

    Java asks so for a web socket on a connection that it has used before. Whoever names this machine, or our port, wants
    our pages.
    """
    if not host or (match := AUTHORITY.fullmatch(host)) is None:
        return ""
    name, port = match[1].lower(), int(match[2] or 80)
    near = name in (OWN_HOST, "localhost", "[::1]") or name.startswith("127.")
    return "" if near or port == own_port else host


def without_user(url: str) -> str:
    """An absolute URL without the user and password in its authority, which say nothing of where it leads."""
    if "@" not in url:
        return url
    scheme, _, rest = url.partition("://")
    end = _end(rest)
    return f"{scheme}://{rest[:end].rpartition('@')[2]}{rest[end:]}"


def _end(rest: str) -> int:
    """Where an authority ends."""
    return min((i for i in map(rest.find, "/?\\") if i >= 0), default=len(rest))


def named_by_host(url: str, host: str | None) -> str:
    """The URL of a request to a proxy: that of its target, under the name in its Host field where that is another's.

    A server answers by that field: what `curl -H Host:` asks of one address are pages of several sites.
    """
    if not host or AUTHORITY.fullmatch(host) is None or OWN_HOST in (host_of(url), host_of(f"://{host}")):
        return url
    if host_of(url).rstrip(".") == host_of(f"://{host}").rstrip("."):
        return url  # with another port, or none: the target's counts
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{host}{rest[_end(rest) :]}"


def host_of(url: str) -> str:
    """The host of an absolute URL, lower case, without its port."""
    rest = url.partition("://")[2]
    authority = rest[: _end(rest)].rpartition("@")[2]
    match = AUTHORITY.fullmatch(authority)
    return match[1].lower() if match else authority.lower()
