"""Redirects, followed as by httpx, the real tools' client."""

from __future__ import annotations

from urllib.parse import urljoin

from stillweb.snapshots.request import Headers, signed_in

AUTHORIZATION = "authorization"


def redirected(url: str, location: str, headers: Headers) -> tuple[str, Headers]:
    """Return the target of a redirect from `url` and the header fields sent there; "" if httpx refuses the target.

    Authorization is sent to the same server only. User and password in a `Location` are dropped.
    """
    import httpx

    try:
        there = httpx.URL(location)
        if there.scheme and not there.host:  # httpx then uses the old host, without its port
            location = str(there.copy_with(host=httpx.URL(url).host))
        following, _ = signed_in(urljoin(url, location), ())
        return following, headers if _same_server(url, following) else _without(headers)
    except (httpx.InvalidURL, ValueError):
        return "", headers


def _same_server(one: str, other: str) -> bool:
    """Return True if scheme, host and port are equal, or if a host upgrades from HTTP (80) to HTTPS (443)."""
    import httpx

    a, b = httpx.URL(one), httpx.URL(other)
    ports = {"http": 80, "https": 443}
    places = [(u.scheme, u.host, u.port or ports.get(u.scheme)) for u in (a, b)]
    secured = a.host == b.host and places[0][::2] == ("http", 80) and places[1][::2] == ("https", 443)
    return places[0] == places[1] or secured


def _without(headers: Headers) -> Headers:
    return tuple((name, value) for name, value in headers if name.lower() != AUTHORIZATION)


def wrong_location(location: str) -> str | None:
    """Return httpx's error for a `Location` that it does not follow, or None."""
    import httpx

    try:
        url = httpx.URL(location)
    except httpx.InvalidURL as error:
        return repr(httpx.RemoteProtocolError(f"Invalid URL in location header: {error}."))
    if url.scheme and url.host and url.scheme not in ("http", "https"):
        return repr(httpx.UnsupportedProtocol(f"Request URL has an unsupported protocol '{url.scheme}://'."))
    return None
