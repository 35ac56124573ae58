"""What was not recorded, as it is told to people: without secrets, a browser's own errands aside."""

from __future__ import annotations

from stillweb.proxy.wire.addresses import public
from stillweb.snapshots.identity.irrelevant import errand
from stillweb.snapshots.secrets.redact import Redactor

Entry = tuple[str, str]


class Lost:
    """(URL, reason) of what failed, in two lists."""

    def __init__(self, redactor: Redactor | None) -> None:
        self.failures: list[Entry] = []
        self.errands: list[Entry] = []  # what a browser asked for of its own accord
        self.given_up: list[str] = []  # URLs of what the client left before the answer was complete
        self._redactor = redactor

    def add(self, url: str, reason: str) -> Entry:
        """Something failed; what was told of it."""
        # a reason may quote addresses, and logs keep it
        entry = public(url, self._redactor), public(reason, self._redactor)
        (self.errands if errand(url) else self.failures).append(entry)
        return entry

    def leave(self, url: str) -> None:
        """The client gave something up."""
        self.given_up.append(public(url, self._redactor))

    def settle(self, entry: Entry) -> None:
        """What was told to have failed came about after all."""
        # not by its URL: with a secret learned since then it would be told otherwise now
        (self.failures if entry in self.failures else self.errands).remove(entry)
