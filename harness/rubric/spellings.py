"""Common spellings of a number or a date, for finding a value in a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from decimal import Decimal

from stillweb.harness.rubric.normalise import as_decimal, decimal_text
from stillweb.harness.rubric.spelling import normalise_text

MONTHS = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December"
]  # fmt: skip

# an amount and its sign or unit: $5, 5%, 20 °C, 5kg, 60 km/h
_SIGNED = re.compile(r"([$€£¥₹]?)\s?(\d[\d.,]*)\s?((?:[%‰°$€£¥₹][^\W\d_]?|[^\W\d_]+(?:/[^\W\d_]+)?)?)")


def spellings(value: str) -> Iterator[str]:
    """Yield a value and other common spellings of the same number or date; never another value."""
    text = normalise_text(value)
    yield text
    number = as_decimal(text)
    if number is not None:
        plain = decimal_text(number)
        whole, dot, rest = plain.partition(".")
        written = [plain]
        if whole.lstrip("-").isdecimal() and len(whole.lstrip("-")) > 3:
            written.append(f"{Decimal(whole):,f}{dot}{rest}")
        for one in written:
            yield from (one, f"{one}0") if dot else (one, f"{one}.0", f"{one}.00")  # a price of 61 is 61.00
    if found := _SIGNED.fullmatch(text):
        before, amount, after = found.groups()
        amounts = spellings(amount) if before or after else [amount]
        for one in amounts:
            yield from (f"{before}{one}{after}", f"{before} {one} {after}".strip())
        if after == "%" and not before:
            yield from (f"{amount} percent", f"{amount} per cent")
    if found := re.fullmatch(r"(\d{4})-(\d{2})-(\d{2})", text):
        try:
            day = date.fromisoformat(text)
        except ValueError:
            return
        name, short = MONTHS[day.month - 1], MONTHS[day.month - 1][:3]
        year, d = found[1], day.day
        yield from (
            f"{name} {d}, {year}",
            f"{short} {d}, {year}",
            f"{d} {name} {year}",
            f"{d} {short} {year}",
        )
        yield from (f"{short}. {d}, {year}", f"{name} {d:02d}, {year}", f"{short} {d:02d}, {year}")
        yield from (f"{year}/{found[2]}/{found[3]}", f"{year}年{day.month}月{d}日")
        if d > 12 or d == day.month:  # otherwise half of the readers take it for another day
            yield from (
                f"{day.month}/{d}/{year}",
                f"{found[2]}/{found[3]}/{year}",
                f"{found[3]}/{found[2]}/{year}",
            )
        yield f"{found[3]}.{found[2]}.{year}"
