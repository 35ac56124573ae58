"""List of which only the newest items are kept, within bounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar, overload

T = TypeVar("T")
MOST_TEXT = 1 << 24  # characters that a list keeps


class Newest(Generic[T]):
    """The newest items of a list, at most `most` with `MOST_TEXT` characters, under their numbers in the whole list.

    `size` gives the characters of an item. A page may send requests, or start downloads, in an endless loop.
    """

    def __init__(self, most: int, size: Callable[[T], int]) -> None:
        self._most, self._size_of = most, size
        self._kept: deque[tuple[T, int]] = deque()
        self._size = 0
        self.left_out = 0  # items that were dropped

    def append(self, item: T) -> None:
        """Add an item, and drop the oldest ones beyond the bounds."""
        size = self._size_of(item)
        self._kept.append((item, size))
        self._size += size
        while len(self._kept) > self._most or (self._size > MOST_TEXT and len(self._kept) > 1):
            self._size -= self._kept.popleft()[1]
            self.left_out += 1

    def __len__(self) -> int:
        """Return the number of all items, kept or not."""
        return self.left_out + len(self._kept)

    def __iter__(self) -> Iterator[T]:
        return (item for item, _ in self._kept)

    @overload
    def __getitem__(self, number: int) -> T: ...
    @overload
    def __getitem__(self, number: slice) -> list[T]: ...
    def __getitem__(self, number: int | slice) -> T | list[T]:
        """Return the item of a number from 0 on, or the kept ones of a slice. Raises IndexError for a dropped one."""
        if isinstance(number, slice):
            chosen = range(*number.indices(len(self)))
            return [self._kept[n - self.left_out][0] for n in chosen if n >= self.left_out]
        if not self.left_out <= number < len(self):
            raise IndexError(number)
        return self._kept[number - self.left_out][0]
