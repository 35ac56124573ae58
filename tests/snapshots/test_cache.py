"""No client can fill the memory by texts of its own."""

import tracemalloc
from collections.abc import Callable

import pytest

from stillweb.snapshots.cache import ENTRIES, ROOM, Cache, cached
from stillweb.snapshots.http.header_values import items_of
from stillweb.snapshots.identity.cookies import choices_of
from stillweb.snapshots.identity.header_fields import bearing, own_of
from stillweb.snapshots.identity.irrelevant import irrelevant_url
from stillweb.snapshots.identity.urlkeys import surt


def test_what_is_known_is_not_computed_again_until_the_cache_is_full() -> None:
    asked = []

    @cached
    def doubled(text: str, times: int) -> str:
        asked.append(text)
        return text * times

    assert [doubled("a", 2), doubled("a", 2), doubled("a", 3)] == ["aa", "aa", "aaa"]
    assert asked == ["a", "a"]
    for number in range(ENTRIES):
        doubled(str(number), 1)
    doubled("a", 2)
    assert asked.count("a") == 3


def test_the_newest_entry_stays_however_large() -> None:
    cache = Cache[str, int](len)
    for letter in "abc":
        assert cache[letter * 2 * ROOM] == 2 * ROOM
        assert list(cache) == [letter * 2 * ROOM]


LONG = "x" * 40_000


@pytest.mark.parametrize(
    "ask",
    [
        lambda n: surt(f"http://a.test/{n}{LONG}"),
        lambda n: irrelevant_url(f"http://a.test/{n}{LONG}"),
        lambda n: items_of(f"a/{n}{LONG}"),
        lambda n: bearing((("User-Agent", f"{n}{LONG}"),)),
        lambda n: own_of((("X-Own", f"{n} {LONG}"),)),
        lambda n: choices_of((("Cookie", f"a={n}{LONG}"),)),
    ],
)
def test_long_texts_leave_memory(ask: Callable[[int], object]) -> None:
    tracemalloc.start()
    try:
        for number in range(100):
            ask(number)
        assert tracemalloc.get_traced_memory()[0] < 4 * ROOM
    finally:
        tracemalloc.stop()
