"""What could not be recorded, as it is told to people: without secrets, a browser's own errands aside."""

from __future__ import annotations

from proxy.wire.addresses import public
from snapshots.identity.irrelevant import errand
from snapshots.secrets.redact import Redactor


class Lost:
    """(URL, reason) of what failed, in two lists."""

    def __init__(self, redactor: Redactor | None) -> None:
        self.failures: list[tuple[str, str]] = []
        self.errands: list[tuple[str, str]] = []  # what a browser asked for of its own accord
        self._redactor = redactor

    def add(self, url: str, reason: str) -> None:
        """Something failed."""
        self._list(url).append(self._told(url, reason))

    def settle(self, url: str, reason: str) -> None:
        """What was said to have failed came about after all."""
        self._list(url).remove(self._told(url, reason))

    def _list(self, url: str) -> list[tuple[str, str]]:
        return self.errands if errand(url) else self.failures

    def _told(self, url: str, reason: str) -> tuple[str, str]:
        # a reason may quote addresses, and logs keep it
        return public(url, self._redactor), public(reason, self._redactor)
