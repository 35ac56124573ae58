"""Normalisation of cells for comparison: the clean-up of `spelling`, then the typed rules of a side-car.

Normalisation may only join spellings of the same value. It never corrects a fact.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Context, Decimal, InvalidOperation
from fractions import Fraction

from stillweb.harness.rubric.sidecar import FieldRule
from stillweb.harness.rubric.spelling import fold, normalise_text

LONGEST_NUMBER = 1000  # characters; longer runs of digits are text
_EXACT = Context(prec=20_000)  # products keep every digit
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(?:([ ,'])[0-9]{3})(?:\1[0-9]{3})*(?:\.[0-9]+)?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
# A number must not continue: 1.50.2 is a version, not 1.50 of something. The atomic group keeps hostile cells
# from taking quadratic time.
_QUANTITY = re.compile(
    r"((?>[+\-\u2212]?(?:(?:[0-9]{1,3}(?:[ '][0-9]{3})+(?![0-9])|[0-9][0-9,]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?))"
    r"(?:\s++(?=\S)|(?=[^\s0-9.,]))(.*)"
)


def normalise_cell(text: str, rule: FieldRule | None, fold_case: bool) -> str:
    """Return a cell normalised by its column's rule. Values that the rule's type can't parse stay text."""
    value = normalise_text(text)
    if rule is not None and value:
        value = _aliased(value, rule, fold_case)
        if rule.units:
            value = _in_unit(value, rule, fold_case)
        if rule.uppercase:
            value = value.upper()
        value = _TYPES[rule.type](value)
    return fold(value) if fold_case else value


def _aliased(value: str, rule: FieldRule, fold_case: bool) -> str:
    table = rule.alias_table(fold_case)
    return table.get(rule.as_key(value, fold_case), value) if table else value


def _in_unit(value: str, rule: FieldRule, fold_case: bool) -> str:
    """Return `5 mg/L` in the unit that the side-car names, a bare unit renamed, any other value unchanged."""
    table = rule.unit_table(fold_case)
    if (whole := table.get(rule.as_key(value, fold_case))) is not None:
        return whole[0]
    found = _QUANTITY.fullmatch(value)
    if found is None or (target := table.get(rule.as_key(found[2], fold_case))) is None:
        return value
    unit, factor, offset = target
    number = found[1]
    if factor is not None:
        if (exact := as_decimal(number)) is None:
            return value  # 1,5 may be 1.5 or a slip for 15; it is not converted
        converted = _terminating((Fraction(exact) - offset) * factor)
        if converted is None:  # 5/9 of a number may have no end, and so equals no cell
            return value
        number = decimal_text(converted)
    return f"{number} {unit}".strip()


def _terminating(value: Fraction) -> Decimal | None:
    """Return a fraction as an exact decimal, None if its digits have no end."""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return None if rest != 1 else _EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))


def decimal_text(value: Decimal) -> str:
    """Return the shortest plain spelling of an exact decimal: 1.50 -> 1.5, 1E+2 -> 100, -0 -> 0."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return str(value)
    number = int("".join(map(str, digits)))
    if number == 0:
        return "0"
    text = str(number)
    if exponent >= 0:
        text += "0" * exponent
    else:
        text = text.rjust(1 - exponent, "0")
        text = f"{text[:exponent]}.{text[exponent:]}".rstrip("0").rstrip(".")
    return f"-{text}" if sign else text


def as_decimal(value: str) -> Decimal | None:
    """Return the exact number that a text states, or None. Commas, blanks or apostrophes may group thousands."""
    text = value.replace("\u2212", "-")
    if len(text) > LONGEST_NUMBER:
        return None
    if found := _GROUPED.fullmatch(text):
        text = text.replace(found[1], "")
    if not _NUMBER.fullmatch(text):
        return None
    try:
        return Decimal(text)
    except InvalidOperation:  # pragma: no cover - the pattern allows only what Decimal reads
        return None


def _number(value: str) -> str:
    if (whole := as_decimal(value)) is not None:
        return decimal_text(whole)
    found = _QUANTITY.fullmatch(value)  # a number with a unit: only the number is rewritten
    if found and (number := as_decimal(found[1])) is not None:
        return f"{decimal_text(number)} {found[2]}"
    return value


_MONTHS = {
    name: index
    for index, names in enumerate(
        [
            "january jan",
            "february feb",
            "march mar",
            "april apr",
            "may",
            "june jun",
            "july jul",
            "august aug",
            "september sep sept",
            "october oct",
            "november nov",
            "december dec",
        ],
        1,
    )
    for name in names.split()
}
_YMD = re.compile(
    r"([0-9]{4})[-/.]([0-9]{1,2})[-/.]([0-9]{1,2})(?:[T ]00:00(?::00(?:\.0+)?)?(?:Z|\+00:00)?)?"
)
_CJK = re.compile(r"([0-9]{4})\s?年\s?([0-9]{1,2})\s?月\s?([0-9]{1,2})\s?日")
_MDY = re.compile(r"([A-Za-z]{3,9})\.? ([0-9]{1,2})(?:st|nd|rd|th)?,? ([0-9]{4})")
_DMY = re.compile(r"([0-9]{1,2})(?:st|nd|rd|th)?[ -]([A-Za-z]{3,9})\.?,?[ -]([0-9]{4})")


def _date(value: str) -> str:
    """Return unambiguous dates as ISO 8601, other text (e.g. 03/04/2024) unchanged."""
    if found := _YMD.fullmatch(value) or _CJK.fullmatch(value):
        year, month, day = int(found[1]), int(found[2]), int(found[3])
    elif found := _MDY.fullmatch(value):
        year, month, day = int(found[3]), _MONTHS.get(found[1].lower(), 0), int(found[2])
    elif found := _DMY.fullmatch(value):
        year, month, day = int(found[3]), _MONTHS.get(found[2].lower(), 0), int(found[1])
    else:
        return value
    try:
        return date(year, month, day).isoformat()
    except ValueError:
        return value


def _id_list(value: str) -> str:
    """Return identifiers as a sorted set: separators `,` and `;`, order and repetition don't matter."""
    parts = {part.strip() for part in re.split(r"[,;]", value)}
    return "; ".join(sorted(parts - {""}))


_TYPES: dict[str, Callable[[str], str]] = {
    "string": str,
    "integer": _number,
    "decimal": _number,
    "date": _date,
    "id_list": _id_list,
}


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
