"""An HTTP request as the client sent it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

from stillweb.snapshots.errors import UsageError

T = TypeVar("T")
Headers = tuple[tuple[str, str], ...]

# Precondition fields (RFC 9110, 13.1); and all fields that make a response partial or a refusal, so that two requests
# for one URL get different responses.
CONDITIONS = ("if-match", "if-none-match", "if-modified-since", "if-unmodified-since")
CONDITIONAL = ("range", "if-range", *CONDITIONS)
_CONDITIONAL = frozenset(CONDITIONAL)
# Methods that only read (RFC 9110, 9.2.1; QUERY, and those of WebDAV)
SAFE_METHODS = frozenset(
    {"GET", "HEAD", "OPTIONS", "TRACE", "QUERY", "SEARCH", "PROPFIND", "REPORT", "CONNECT"}
)


def must_be_url(address: str) -> str:
    """Return an address of a page or view. Raises UsageError if it is not a URL."""
    if not isinstance(address, str) or ("://" not in address and not address.startswith("urn:")):
        raise UsageError(f"{address!r} is not a URL; it begins with http:// or https://")
    return address


@dataclass(frozen=True, slots=True)
class Remembering:
    """A value that may keep what functions without side effects made of it, so that each is computed once.

    The gateway uses this for large requests: a worker thread computes, the event loop looks up.
    """

    _derived: dict[Hashable, Any] | None = field(default=None, init=False, compare=False, repr=False)

    def remembering(self) -> Self:
        """Cache the results of `derived` from now on; return the object itself."""
        if self._derived is None:
            object.__setattr__(self, "_derived", {})
        return self

    def forgetting(self) -> list[Any]:
        """Stop caching, and return the cached values of the object and of the objects derived from it."""
        kept = [*(self._derived or {}).values()]
        object.__setattr__(self, "_derived", None)
        return sum([one.forgetting() for one in kept if isinstance(one, Remembering)], kept)

    @property
    def remembers(self) -> bool:
        """True if the object caches what is computed from it."""
        return self._derived is not None

    def derived(self, name: Hashable, compute: Callable[[Self], T]) -> T:
        """Return `compute(self)`, computed once if the object is `remembering`.

        A result that can remember does so, too.
        """
        known = self._derived
        if known is None:
            return compute(self)
        if name not in known:
            made = compute(self)
            known[name] = made.remembering() if isinstance(made, Remembering) else made
        found: T = known[name]
        return found


@dataclass(frozen=True, slots=True)
class Request(Remembering):
    """One HTTP request.

    `method` is upper case; `url` is absolute and without fragment, as it was sent; `headers` keep order and
    repetition (latin-1 text); `body` is transfer-decoded.
    """

    method: str
    url: str
    headers: Headers = ()
    body: bytes = b""

    @classmethod
    def of(cls, given: Request | str) -> Request:
        """Return a request, or that of a URL by GET, without fragment. Raises UsageError for a member that no request has."""
        request = given if isinstance(given, Request) else cls("GET", given)
        must_be_url(request.url)
        if not isinstance(request.body, bytes):
            raise UsageError(f"the body of {request.url}: must be bytes, not {type(request.body).__name__}")
        pairs = request.headers
        if not isinstance(pairs, tuple) or not all(isinstance(one, tuple) and len(one) == 2 for one in pairs):
            raise UsageError(f"the headers of {request.url}: must be a tuple of (name, value)")
        return replace(request, url=request.url.partition("#")[0])

    def header(self, name: str) -> str | None:
        """Return the first value of a field, by case-insensitive name; None if the field is absent."""
        wanted = name.lower()
        return next((v for n, v in self.headers if n.lower() == wanted), None)

    def combined(self, name: str) -> str | None:
        """Join all values of a list field (RFC 9110, 5.3); return None if the field is absent."""
        wanted = name.lower()
        return ", ".join([v for n, v in self.headers if n.lower() == wanted]) or self.header(name)

    def signed_in(self) -> Request:
        """Return the request as clients send it: user and password of its URL in an Authorization field."""
        if "@" not in self.url:
            return self
        url, headers = with_authorization(self.url, self.headers)
        return self if url == self.url else replace(self, url=url, headers=headers)

    def conditional(self) -> tuple[str | None, ...]:
        """Return the values of the `CONDITIONAL` fields, in that order; empty if none is sent."""
        if not _CONDITIONAL.intersection([n.lower() for n, _ in self.headers]):
            return ()
        return tuple([self.combined(name) for name in CONDITIONAL])


def with_authorization(url: str, headers: Headers) -> tuple[str, Headers]:
    """Move user and password of a URL into an Authorization field (RFC 9110, 4.2.4); return the URL and the fields."""
    try:
        parts = urlsplit(url)
    except ValueError:  # no address at all, such as http://[x
        return url, headers
    who, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, headers
    user, _, password = who.partition(":")
    if (user or password) and not any(name.lower() == "authorization" for name, _ in headers):
        credentials = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
        headers = (*headers, ("Authorization", f"Basic {credentials}"))
    return urlunsplit(parts._replace(netloc=host)), headers
