"""Dates of header fields against each other, whatever stands there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.snapshots.dates import not_after

MONDAY, FRIDAY = "Mon, 03 Mar 2025 00:00:00 GMT", "Fri, 07 Mar 2025 00:00:00 GMT"


def test_the_earlier_is_not_after() -> None:
    assert not_after(MONDAY, FRIDAY)
    assert not_after(MONDAY, "Monday, 03-Mar-25 00:00:00 GMT")  # as of RFC 850
    assert not not_after(FRIDAY, MONDAY)
    assert not_after("never", "never")
    assert not not_after(None, None)


@pytest.mark.parametrize(
    "odd",
    [
        "",
        " ",
        "never",
        "Mon, 03 Mar 2025 00:00:00 -0000",  # says no zone
        "Mon, 03 Mar 2025 00:00:00 +99999999999999",
        "Mon, 03 Mar 2025 99999999999999999999:00:00 GMT",
        "Mon, 03 Mar 99999999 00:00:00 GMT",
    ],
)
def test_what_is_no_date_is_neither_before_nor_after(odd: str) -> None:
    assert not not_after(odd, MONDAY)
    assert not not_after(MONDAY, odd)


@given(
    st.text(max_size=30)
    | st.from_regex(r"Mon, \d{1,25} Mar \d{1,25} \d{1,25}:\d\d:\d\d [+-]\d{1,25}", fullmatch=True)
)
def test_no_text_is_an_error(text: str) -> None:
    not_after(text, MONDAY)
    not_after(MONDAY, text)
