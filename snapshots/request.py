"""An HTTP request as the client sent it."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request.

    `method` is upper case; `url` is absolute and without fragment, as it was sent; `headers` keep order and
    repetition (latin-1 text); `body` is transfer-decoded.
    """

    method: str
    url: str
    headers: Headers = ()
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """Return the first value of a field, by case-insensitive name; None if the field is absent."""
        wanted = name.lower()
        return next((v for n, v in self.headers if n.lower() == wanted), None)

    def combined(self, name: str) -> str | None:
        """Join all values of a list field (RFC 9110, 5.3); return None if the field is absent."""
        wanted = name.lower()
        return ", ".join([v for n, v in self.headers if n.lower() == wanted]) or self.header(name)

    def conditional(self) -> tuple[str | None, ...]:
        """Return the values of the `CONDITIONAL` fields, in that order; empty if none is sent."""
        if not _CONDITIONAL.intersection([n.lower() for n, _ in self.headers]):
            return ()
        return tuple([self.combined(name) for name in CONDITIONAL])
