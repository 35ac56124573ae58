"""What a Range field asks, and whether it lies in a recorded part."""

from __future__ import annotations

import pytest

from stillweb.snapshots.http.spans import inside, is_whole


@pytest.mark.parametrize(
    ("asked", "told", "expected"),
    [
        ("bytes=2-3", "bytes 2-5/10", (2, 4)),
        ("bytes=2-5", "bytes 2-5/10", (2, 6)),
        ("bytes=1-3", "bytes 2-5/10", None),
        ("bytes=4-6", "bytes 2-5/10", None),
        ("bytes=8-", "bytes 2-9/10", (8, 10)),
        ("bytes=8-99", "bytes 2-9/10", (8, 10)),
        ("bytes=-2", "bytes 2-9/10", (8, 10)),
        ("bytes=-2", "bytes 2-9/*", None),  # nobody knows where it ends
        ("bytes=8-", "bytes 2-9/*", None),
        ("bytes=8-9", "bytes 2-9/*", (8, 10)),
        ("bytes=2-3,5-5", "bytes 2-5/10", None),
        ("bytes=10-", "bytes 2-9/10", None),
        ("lines=2-3", "bytes 2-5/10", None),
        ("bytes=2-3", "bytes */10", None),
        ("bytes=2-3", None, None),
    ],
)
def test_inside(asked: str, told: str | None, expected: tuple[int, int] | None) -> None:
    assert inside(asked, told) == expected


@pytest.mark.parametrize(
    ("told", "length", "expected"),
    [
        ("bytes 0-9/10", "10", True),
        ("bytes 0-9/10", "9", False),  # cut short
        ("bytes 0-9/10", None, False),
        ("bytes 0-9/*", "10", False),
        ("bytes 0-8/10", "9", False),
        ("bytes 1-9/10", "9", False),
        (None, "10", False),
    ],
)
def test_a_part_may_be_the_whole(told: str | None, length: str | None, expected: bool) -> None:
    assert is_whole(told, length) is expected
