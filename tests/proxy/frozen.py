"""Snapshots made by hand for the gateway's tests: exchanges in, an opened snapshot out."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from stillweb.snapshots.capture import Capture, Exchange
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer

START = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)


@dataclass
class Site:
    """Exchanges of a test's recording: `add` them, then `open`."""

    path: Path
    exchanges: list[Exchange] = field(default_factory=list)
    events: int = 0

    def add(
        self,
        url: str,
        body: bytes = b"",
        *,
        method: str = "GET",
        status: int = 200,
        reason: str = "OK",
        headers: tuple[tuple[str, str], ...] = (("Content-Type", "text/html"),),
        request_headers: tuple[tuple[str, str], ...] = (),
        request_body: bytes = b"",
        session: str = "default",
        protocol: str = "http/1.1",
    ) -> None:
        """Add a recorded exchange after those before it."""
        request = Request(method, url, request_headers, request_body)
        self.events += 2
        self.exchanges.append(
            Exchange(
                request,
                status,
                reason,
                headers,
                body,
                START + timedelta(seconds=self.events),
                session,
                self.events - 1,
                self.events,
                protocol,
            )
        )

    @contextmanager
    def open(self) -> Iterator[Snapshot]:
        """The recorded snapshot."""
        with Writer.open(self.path) as writer:
            for exchange in self.exchanges:
                writer.exchange(exchange)
        with Snapshot.open(self.path) as snapshot:
            yield snapshot


__all__ = ["Capture", "Site"]
