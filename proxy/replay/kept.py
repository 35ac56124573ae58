"""The gateway's caches: captures within a bound of bytes, and whole requests with their answers."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING

from stillweb.proxy.replay.replies import Hot, Line, Memo
from stillweb.proxy.replay.response import with_ages

if TYPE_CHECKING:
    from stillweb.snapshots.capture import Capture
    from stillweb.snapshots.snapshot import Snapshot

MOST_MEMOS = 64  # variants of a request remembered for one capture
MOST_TUNNELS = 1024


class Kept:
    """A cache of captures and of settled requests.

    `bytes` counts the captures in memory, at most `bound` unless there is only one.
    """

    def __init__(self, snapshot: Snapshot, bound: int) -> None:
        self.bytes = 0
        self.memos: dict[str, dict[bytes, Memo]] = {}  # by tunnel base, and by the bytes of the request
        self._snapshot = snapshot
        self._bound = bound
        self._hot: OrderedDict[tuple[str, int], Hot] = OrderedDict()

    def memos_of(self, base: str) -> dict[bytes, Memo]:
        """Return the settled requests of a tunnel base ("" outside tunnels) by their bytes.

        Requests come and go in the returned dictionary.
        """
        return self.memos.setdefault(base, {})

    def remember(self, key: tuple[str, bytes], memo: Memo, hot: Hot) -> None:
        """Keep a settled request as long as its capture, unless that has MOST_MEMOS already."""
        if len(hot.memos) < MOST_MEMOS:
            self.memos_of(key[0])[key[1]] = memo
            hot.memos.append(key)
            if memo.line is not None:
                memo.line.memos.append((hot, key))

    def forget_line(self, line: Line) -> None:
        """Forget the settled requests whose bytes name a session."""
        for hot, key in line.memos:
            if self.memos_of(key[0]).pop(key[1], None) is not None:
                hot.memos.remove(key)
        line.memos.clear()

    def tidy(self) -> None:
        """Forget tunnels without settled requests when there are more than MOST_TUNNELS."""
        if len(self.memos) > MOST_TUNNELS:  # a connection may hold on to one, which then stays empty
            self.memos = {base: known for base, known in self.memos.items() if known or not base}

    def forget_memos(self) -> None:
        """Forget all settled requests."""
        for known in self.memos.values():  # connections hold on to these dictionaries
            known.clear()
        for hot in self._hot.values():
            hot.memos.clear()

    def load(self, capture: Capture) -> Hot:
        """Return a capture, from memory if it is cached. Raises DamagedInput."""
        place = capture.place
        hot = self._hot.get(place)
        if hot is not None:
            self._hot.move_to_end(place)
            return hot
        response = self._snapshot.read(capture)
        headers = with_ages(response.headers, capture.timestamp)
        aged = headers is not response.headers
        hot = self._hot[place] = Hot(replace(response, headers=headers) if aged else response, aged)
        self._count(hot.size)
        return hot

    def grow(self, hot: Hot, by: int) -> None:
        """Count bytes that were derived from a capture and are cached with it."""
        hot.size += by
        self._count(by)

    def _count(self, by: int) -> None:
        """Count bytes, and evict the least recently used captures above the bound."""
        self.bytes += by
        while self.bytes > self._bound and len(self._hot) > 1:
            _, old = self._hot.popitem(last=False)
            self.bytes -= old.size
            for base, raw in old.memos:
                self.memos[base].pop(raw, None)
