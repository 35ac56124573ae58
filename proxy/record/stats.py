"""What a recorder has done so far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecorderStats:
    """Counts since the start. `bytes` are those of response records as archived (compressed)."""

    requests: int
    under_way: int
    queued: int  # complete, not yet on disk
    captures: int
    failures: int
    aborted: int  # given up by the client
    bytes: int

    def line(self) -> str:
        """The status line."""
        size = f"{self.bytes / 1e6:.1f} MB" if self.bytes >= 1e6 else f"{self.bytes / 1e3:.0f} kB"
        parts = [f"{self.captures} captured", size, f"{self.under_way} under way", f"{self.queued} queued"]
        if self.failures:
            parts.append(f"{self.failures} failed")
        if self.aborted:
            parts.append(f"{self.aborted} given up by the client")
        return ", ".join(parts)
