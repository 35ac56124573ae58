"""Access control and security headers of Stillweb's own pages (status, ledger, reviews, tools).

A browser lets any page send requests to any server of this machine. With DNS rebinding, a page under a name
that its owner points here could read the answers as its own. Its requests give it away: Host and Origin name
that page's site.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from stillweb.proxy.net.addresses import AUTHORITY, on_this_machine
from stillweb.snapshots.request import Headers

NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'"  # policy of a page without one of its own


def why_refused(host: str | None, origin: str | None, names: Collection[str] = ()) -> str:
    """Return why a request with these Host and Origin fields is refused (403); "" if it is allowed.

    Host must be an IP address, `localhost` or one of `names`, since foreign names may lead here, too. Origin,
    which browsers send with the requests of scripts and forms, must be this machine or that host.
    """
    if host is not None and not _own(host, names):
        return "the Host field names another server. Use the address of this one"
    if origin is not None:
        asks = _authority(origin)
        if asks is None or (asks != host and not on_this_machine(_bare(asks))):
            return "the Origin field names another site, which may not read this page. Open it in a tab of its own"
    return ""


def _own(host: str, names: Collection[str]) -> bool:
    match = AUTHORITY.fullmatch(host)
    if match is None or (match[2] and int(match[2]) > 65535):
        return False
    name = match[1].strip("[]").lower()
    if name == "localhost" or name in names:
        return True
    try:
        return "%" not in str(ipaddress.ip_address(name))  # no zone: any text may be its name
    except ValueError:
        return False


def _authority(origin: str) -> str | None:
    try:
        parts = urlsplit(origin)
        parts.port  # noqa: B018 -- raises where it is none
    except ValueError:
        return None
    return parts.netloc if parts.scheme in ("http", "https") and "@" not in parts.netloc else None


def _bare(authority: str) -> str:
    return urlsplit(f"//{authority}").hostname or ""


def page_fields(policy: str = NOTHING) -> Headers:
    """Return the header fields of every answer: no framing, sniffing or caching, `policy` as CSP."""
    return (
        ("Content-Security-Policy", f"{policy}; frame-ancestors 'none'"),
        ("X-Frame-Options", "DENY"),
        ("X-Content-Type-Options", "nosniff"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Referrer-Policy", "same-origin"),
        ("Cache-Control", "no-store"),
    )


def same_token(given: str, token: str) -> bool:
    """Return True if a token is the right one, in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), token.encode())
