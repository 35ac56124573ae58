"""Screenshots of views from the snapshot, each embedded once per page."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import ExitStack
from hashlib import sha256
from types import TracebackType
from typing import Any, Self

from stillweb.snapshots.errors import StillwebError

MOST_BYTES = 40_000_000  # of pictures in one page


class Screenshots:
    """Provider of screenshots: a data URI the first time, only the id afterwards."""

    def __init__(self, snapshot: Any, problems: list[str], stack: ExitStack) -> None:
        self.problems = problems
        self._snapshot, self._stack = snapshot, stack
        self._shown: dict[str, str] = {}
        self._bytes = 0

    @classmethod
    def of(cls, paths: Sequence[str], snapshot_id: str | None, at: str = "") -> Self:
        """Open the run's snapshot. If that fails, the page says so and has no pictures."""
        stack, problems = ExitStack(), list[str]()
        snapshot: Any = None
        if paths:
            from stillweb.snapshots.snapshot import Snapshot

            try:
                snapshot = stack.enter_context(Snapshot.open(*paths, at=at))
                if snapshot_id and snapshot.id != snapshot_id:
                    problems.append(
                        "The snapshot is not the one of the run any more; no screenshots are shown."
                    )
                    snapshot = None
            except (StillwebError, OSError) as error:
                problems.append(f"The snapshot can't be opened, so no screenshots are shown: {error}")
        return cls(snapshot, problems, stack)

    def find(self, *addresses: str | None) -> dict[str, str] | None:
        """Return the first address's screenshot as {id, address, data} (data "" if shown before), or None."""
        if self._snapshot is None:
            return None
        for address in addresses:
            data = self._snapshot.resource("view", address) if address else None
            if data:
                return self._picture(str(address), data)
        return None

    def _picture(self, address: str, data: bytes) -> dict[str, str] | None:
        name = f"view-{sha256(data).hexdigest()[:12]}"
        if name in self._shown:
            return {"id": name, "address": address, "data": ""}
        if self._bytes + len(data) > MOST_BYTES:
            if not any("left out" in problem for problem in self.problems):
                self.problems.append(f"Screenshots past {MOST_BYTES // 1_000_000} MB are left out.")
            return None
        self._bytes += len(data)
        self._shown[name] = address
        encoded = base64.b64encode(data).decode()
        return {"id": name, "address": address, "data": f"data:image/png;base64,{encoded}"}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
