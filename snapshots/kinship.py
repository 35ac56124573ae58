"""Whether two values of a request field ask for the same in other words: `fr` and `fr-CA`, one browser and the next."""

from __future__ import annotations

from collections.abc import Callable

from snapshots.credentials import PSEUDONYM_TEXT
from snapshots.proofs import split
from snapshots.redact import MASK
from snapshots.slots import CREDENTIALS


def akin(name: str, one: str, other: str) -> bool:
    """Whether two values of a request field, recorded and asked, ask for the same in other words."""
    if found := PSEUDONYM_TEXT.search(one):
        # a secret that was replaced can't be compared, unless it proves to be another one
        return other != "" and not (MASK in other and split(found[0]))
    plain = _KIN.get(name)
    return plain is not None and plain(one) == plain(other)


def _language(value: str) -> str:
    return value.partition(",")[0].partition(";")[0].partition("-")[0].strip().lower()


def _kind(value: str) -> str:
    first = value.partition(",")[0].partition(";")[0].strip().lower()
    return "json" if "json" in first else first or "*/*"


def _agent(value: str) -> str:
    if "Mobi" in value:
        return "mobile"
    return "desktop" if value.startswith("Mozilla/") else "program"


def _scheme(value: str) -> str:
    return value.partition(" ")[0]


_KIN: dict[str, Callable[[str], str]] = {
    "accept-language": _language,
    "accept": _kind,
    "user-agent": _agent,
    CREDENTIALS: _scheme,
}
