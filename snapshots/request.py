"""A request, as it was sent."""

from __future__ import annotations

from dataclasses import dataclass

Headers = tuple[tuple[str, str], ...]

# Fields of conditions (RFC 9110, 13.1); and all by which one request of a URL asks for another thing than the next
# one, and gets a part, or a refusal.
CONDITIONS = ("if-match", "if-none-match", "if-modified-since", "if-unmodified-since")
CONDITIONAL = ("range", "if-range", *CONDITIONS)
_CONDITIONAL = frozenset(CONDITIONAL)


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
        """The first value of a field, by case-insensitive name."""
        wanted = name.lower()
        return next((v for n, v in self.headers if n.lower() == wanted), None)

    def combined(self, name: str) -> str | None:
        """All values of a list field, as if they had come in one line (RFC 9110, 5.3); None where there is none."""
        wanted = name.lower()
        return ", ".join([v for n, v in self.headers if n.lower() == wanted]) or self.header(name)

    def conditional(self) -> tuple[str | None, ...]:
        """The values of the `CONDITIONAL` fields, in that order; empty where none is sent."""
        if not _CONDITIONAL.intersection([n.lower() for n, _ in self.headers]):
            return ()
        return tuple([self.combined(name) for name in CONDITIONAL])
