"""Where a client goes, as httpx, that of the real tools, does: user and password of an address, and redirects."""

from __future__ import annotations

import base64
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from stillweb.snapshots.request import Headers

AUTHORIZATION = "authorization"


def signed_in(url: str, headers: Headers) -> tuple[str, Headers]:
    """An address without its user and password, which are sent as a field."""
    parts = urlsplit(url)
    who, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, headers
    user, _, password = who.partition(":")
    said = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
    field = () if not (user or password) else (("Authorization", f"Basic {said}"),)
    return urlunsplit(parts._replace(netloc=host)), (*headers, *field)


def redirected(url: str, location: str, headers: Headers) -> tuple[str, Headers]:
    """Where a redirect from `url` leads, and what is sent there; "" for an address with no host's name.

    Who has signed in stays so with the same server only, and a user in a `Location` is not signed in.
    """
    import httpx

    try:
        there = httpx.URL(location)
        if there.scheme and not there.host:  # httpx takes the host of before, without its port
            location = str(there.copy_with(host=httpx.URL(url).host))
        following, _ = signed_in(urljoin(url, location), ())
        return following, headers if _same_server(url, following) else _without(headers)
    except (httpx.InvalidURL, ValueError):
        return "", headers


def _same_server(one: str, other: str) -> bool:
    """Also the same host once it asks for HTTPS, at the ports that need no name."""
    import httpx

    a, b = httpx.URL(one), httpx.URL(other)
    ports = {"http": 80, "https": 443}
    places = [(u.scheme, u.host, u.port or ports.get(u.scheme)) for u in (a, b)]
    secured = a.host == b.host and places[0][::2] == ("http", 80) and places[1][::2] == ("https", 443)
    return places[0] == places[1] or secured


def _without(headers: Headers) -> Headers:
    return tuple((name, value) for name, value in headers if name.lower() != AUTHORIZATION)


def wrong_location(location: str) -> str | None:
    """Why a client goes no further, as httpx says it."""
    import httpx

    try:
        url = httpx.URL(location)
    except httpx.InvalidURL as error:
        return repr(httpx.RemoteProtocolError(f"Invalid URL in location header: {error}."))
    if url.scheme and url.host and url.scheme not in ("http", "https"):
        return repr(httpx.UnsupportedProtocol(f"Request URL has an unsupported protocol '{url.scheme}://'."))
    return None
