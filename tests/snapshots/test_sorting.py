"""Long lists are sorted as short ones are."""

import random

from stillweb.snapshots.sorting import RUN, in_order


def test_long_lists_are_in_the_order_of_sorted() -> None:
    chance = random.Random(1)
    names = [str(chance.randrange(10**4)) for _ in range(3 * RUN + 5)]
    assert in_order(names) == sorted(names)
    pairs = [(name, str(number)) for number, name in enumerate(names)]
    assert in_order(iter(pairs)) == sorted(pairs)
    assert in_order(pairs, key=lambda pair: pair[0]) == sorted(pairs, key=lambda pair: pair[0])  # stable
