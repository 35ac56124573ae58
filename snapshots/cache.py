"""Caches for texts that clients choose: bounded in entries and in characters, so that no client can fill the memory."""

from __future__ import annotations

import marshal
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

ENTRIES = 1 << 12  # of a cache
# characters of its keys, by default; what is made of a key takes up to some forty bytes for each
ROOM = 1 << 19

K = TypeVar("K")
V = TypeVar("V")
P = ParamSpec("P")


class Cache(dict[K, V]):
    """A dictionary that is emptied when it is full, of `room` characters. The newest entry stays, however large it is.

    `cache[key]` computes a value that is not known by `compute`.
    """

    __slots__ = ("_compute", "_held", "_room")

    def __init__(self, compute: Callable[[K], V] | None = None, room: int = ROOM) -> None:
        self._compute = compute
        self._held = 0
        self._room = room

    def __missing__(self, key: K) -> V:
        if self._compute is None:
            raise KeyError(key)
        return self.keep(key, self._compute(key))

    def keep(self, key: K, value: V, size: int | None = None) -> V:
        """Add an entry of a size in characters, by default that of its key, and return its value."""
        if size is None:
            size = _size(key)
        self._held += size
        if self._held > self._room or len(self) >= ENTRIES:
            self.clear()
            self._held = size
        self[key] = value
        return value


_last: tuple[object, int] = None, 0  # several caches measure the same header fields in a row


def _size(key: object) -> int:
    """Return about how many characters the texts of a key have."""
    global _last
    if isinstance(key, (str, bytes)):
        return len(key)
    known, size = _last
    if known is not key:
        size = len(marshal.dumps(cast(Any, key), 2))
        _last = key, size
    return size


def cached(function: Callable[P, V]) -> Callable[P, V]:
    """Decorate a function of hashable positional arguments: its results are kept in a `Cache`.

    As quick as `functools.lru_cache`.
    """
    code = getattr(function, "__code__", None)
    if code is not None and code.co_argcount == 1:
        return cast(Callable[P, V], Cache(cast(Callable[[Any], V], function)).__getitem__)
    get = Cache[tuple[Any, ...], V](lambda key: function(*key)).__getitem__  # type: ignore[call-arg]
    return cast(Callable[P, V], lambda *key: get(key))
