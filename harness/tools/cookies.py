"""Cookie jar of one tool call: cookies that a redirect sets are sent with the requests after it.

The real tools begin each call without cookies. No cookie expires by this machine's clock, because the recording is
of an earlier day.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from stillweb.snapshots.request import Headers
from stillweb.snapshots.warc.messages import set_cookies

_TAKEN_BACK = re.compile(r"max-age=\s*(?:0|-\d+)\s*|expires=.*\b19\d\d\b.*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Scope:
    """Scope of a cookie. `domain` is a host; with `below` its subdomains are included."""

    name: str
    domain: str
    path: str
    below: bool
    secure: bool

    def holds(self, url: str) -> bool:
        parts = urlsplit(url)
        host, path = (parts.hostname or "").lower(), parts.path or "/"
        near = host == self.domain or (self.below and host.endswith(f".{self.domain}"))
        within = path == self.path or path.startswith(self.path.rstrip("/") + "/")
        return near and within and (parts.scheme == "https" or not self.secure)


class Cookies:
    """Cookie jar that begins empty."""

    def __init__(self) -> None:
        self._values: dict[_Scope, str] = {}

    def take(self, url: str, headers: Headers) -> None:
        """Store the cookies that an answer sets, and drop those that it deletes."""
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
        for field in set_cookies(headers):
            pair, *attributes = field.split(";")
            name, _, value = pair.strip().partition("=")
            told = {k.strip().lower(): v.strip() for k, _, v in (one.partition("=") for one in attributes)}
            domain = told.get("domain", "").lower().removeprefix(".")
            if domain and host != domain and not host.endswith(f".{domain}"):
                continue  # a cookie of another host
            path = told.get("path", "")
            if not path.startswith("/"):
                path = (parts.path or "/").rpartition("/")[0] or "/"
            scope = _Scope(name.strip(), domain or host, path, bool(domain), "secure" in told)
            own = scope.name, scope.domain, scope.path
            self._values = {
                one: kept for one, kept in self._values.items() if (one.name, one.domain, one.path) != own
            }
            if not any(_TAKEN_BACK.fullmatch(one.strip()) for one in attributes):
                self._values[scope] = value.strip()

    def fields(self, url: str) -> Headers:
        """Return the Cookie field of a request to `url`; empty if no cookie matches."""
        pairs = [f"{scope.name}={value}" for scope, value in self._values.items() if scope.holds(url)]
        return (("Cookie", "; ".join(pairs)),) if pairs else ()
