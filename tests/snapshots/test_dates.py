"""Dates of records and header fields, whatever stands there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.snapshots.dates import UNDATED, not_after, parse_timestamp, seconds_of, timestamp_of

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


@pytest.mark.parametrize(
    ("date", "timestamp", "moment"),
    [
        ("2025-01-04T14:13:20Z", "20250104141320", "2025-01-04T14:13:20+00:00"),
        ("2025-01-04T14:13:20.1234Z", "20250104141320123", "2025-01-04T14:13:20.123400+00:00"),
        ("2024-02-29T14:13:20Z", "20240229141320", "2024-02-29T14:13:20+00:00"),
        ("2025-01-04T14:13:60Z", "20250104141360", "2025-01-04T14:14:00+00:00"),  # a leap second
        ("20250104141320", "20250104141320", "2025-01-04T14:13:20+00:00"),  # of an ARC
        ("2025-01", "20250101000000", "2025-01-01T00:00:00+00:00"),  # as WARC 1.1 allows
        ("2025-01-04T14:13:20+02:00", "20250104121320", "2025-01-04T12:13:20+00:00"),
    ],
)
def test_a_date_is_its_digits_and_a_moment(date: str, timestamp: str, moment: str) -> None:
    assert timestamp_of(date) == timestamp
    found = parse_timestamp(date)
    assert found is not None
    assert found.isoformat() == moment


@pytest.mark.parametrize(
    "odd",
    [
        "", "now", "2025-13-04T14:13:20Z", "2025-02-30T10:00:00Z", "2025-02-29T10:00:00Z", "0000-01-01T00:00:00Z",
        "2025-01-04T24:00:00Z", "2025-01-04T14:60:00Z", "2025-01-04T14:13:61Z", "２０２５-01-04T10:13:20Z", "9" * 5000,
        "0001-01-01T00:00:00+14:00", "00000000000000",
    ],
)  # fmt: skip
def test_a_date_that_no_calendar_has_is_none(odd: str) -> None:
    assert timestamp_of(odd) == UNDATED
    assert parse_timestamp(odd) is None
    assert seconds_of(timestamp_of(odd)) is None


@given(
    st.text(max_size=30)
    | st.from_regex(r"\d{1,4}-?\d{1,2}-?\d{1,2}[T ]?[\d:.]{0,12}[Z+-]?[\d:]{0,5}", fullmatch=True)
)
def test_every_date_has_a_timestamp_of_digits(text: str) -> None:
    assert set(timestamp_of(text)) <= set("0123456789")
    assert len(timestamp_of(text)) in (14, 17)
    parse_timestamp(text)
