"""Compiled side-car of a task, and the file format of side-cars.

File format (version 1, JSON):
{"version": 1, "rubrics": {base: {"columns": […], "row_key": […], "ordered": bool,
  "fields": {column: {"type": …, "uppercase": bool, "aliases": {variant: value},
                      "units": {variant: unit or {"to": unit, "factor": "1000", "offset": "32"}}}},
  "field_separator": "|", "record_separator": "\\n", "header": "forbidden|optional|required",
  "sources": {path of a rule: sentence it was read from}, "unread": [sentences], "assumed": [names],
  "origin": "rules|model|person"}}}
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from stillweb.harness._parsing import strict_json
from stillweb.harness.rubric.spelling import fold, normalise_text
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.shapes import convert, must_be_known
from stillweb.snapshots.warc.appending import write_text

FieldType = Literal["string", "integer", "decimal", "date", "id_list"]
FIELD_TYPES: tuple[FieldType, ...] = get_args(FieldType)
_MOST_DIGITS = 100  # of a unit's factor, before or after the point
_NUMBER = re.compile(
    r"[+-]?(?:\d{1,100}/\d{1,100}|(?:\d{1,100}(?:\.\d{0,100})?|\.\d{1,100})(?:[eE][+-]?\d{1,4})?)", re.ASCII
)
Unit = str | dict[str, Any]


@dataclass(frozen=True)
class FieldRule:
    """Rule for comparing the values of one column. Aliases and units map a variant to its value."""

    type: FieldType = "string"
    uppercase: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, Unit] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for variant, target in self.units.items():
            _check_unit(target, f"units[{variant!r}]")
        # The tables are normalised like the cells: NFKC turns U+00B5 into U+03BC on both sides.
        object.__setattr__(self, "_alias_tables", (_alias_table(self, False), _alias_table(self, True)))
        object.__setattr__(self, "_unit_tables", (_unit_table(self, False), _unit_table(self, True)))

    def alias_table(self, fold_case: bool) -> dict[str, str]:
        """Return normalised variant -> normalised value."""
        tables: tuple[dict[str, str], dict[str, str]] = self._alias_tables  # type: ignore[attr-defined]
        return tables[fold_case]

    def unit_table(self, fold_case: bool) -> dict[str, tuple[str, Fraction | None, Fraction]]:
        """Return normalised unit -> (unit, factor or None, offset taken from the number before)."""
        tables: tuple[Any, Any] = self._unit_tables  # type: ignore[attr-defined]
        found: dict[str, tuple[str, Fraction | None, Fraction]] = tables[fold_case]
        return found

    def as_key(self, text: str, fold_case: bool) -> str:
        """Return the key under which a normalised text is in the tables, upper case if the rule says so."""
        return fold(text) if fold_case else text.upper() if self.uppercase else text

    @classmethod
    def from_json(cls, value: Any, where: str) -> FieldRule:
        """Make a rule from its JSON object. Raise DamagedInput naming a wrong member."""
        with _named(where):
            must_be_known(value, cls)
            return convert(value, cls)


def _alias_table(rule: FieldRule, fold_case: bool) -> dict[str, str]:
    names = {normalise_text(k): normalise_text(v) for k, v in rule.aliases.items()}
    return {rule.as_key(k, fold_case): v for k, v in names.items()}


def _unit_table(rule: FieldRule, fold_case: bool) -> dict[str, tuple[str, Fraction | None, Fraction]]:
    table: dict[str, tuple[str, Fraction | None, Fraction]] = {}
    for variant, target in rule.units.items():
        key = rule.as_key(normalise_text(variant), fold_case)
        if isinstance(target, str):
            table[key] = (normalise_text(target), None, Fraction(0))
            continue
        offset = Fraction(target.get("offset", 0))
        factor = Fraction(target["factor"]) if "factor" in target else Fraction(1) if offset else None
        table[key] = (normalise_text(target["to"]), factor, offset)
    return table


def _check_unit(target: Any, where: str) -> None:
    if isinstance(target, str):
        return
    if (
        not isinstance(target, dict)
        or not isinstance(target.get("to"), str)
        or set(target) - {"to", "factor", "offset"}
    ):
        raise DamagedInput(
            f'{where}: must be a unit or {{"to": unit, "factor": number as text, "offset": number as text}}'
        )
    factor, offset = target.get("factor", "1"), target.get("offset", "0")
    if (found := _exact(factor)) is None or found <= 0:
        raise DamagedInput(
            f'{where}.factor: {factor!r} is not a number over 0 as text, such as "0.001" or "5/9"'
        )
    if _exact(offset) is None:
        raise DamagedInput(f'{where}.offset: {offset!r} is not a number as text, such as "32"')


def _exact(number: Any) -> Fraction | None:
    """Return a number given as text, or as a whole one; None for others, and for more than 100 digits.

    A JSON number with a point may have been rounded by its reader; as text it is exact.
    """
    if type(number) is int:
        number = str(number)
    if not isinstance(number, str) or not _NUMBER.fullmatch(number):
        return None
    if "/" not in number and abs(Decimal(number).adjusted()) > _MOST_DIGITS:
        return None
    try:
        return Fraction(number)
    except ZeroDivisionError:
        return None


@dataclass(frozen=True)
class Rubric:
    """Side-car: how a base task's table is read and compared. The module's docstring lists the members."""

    columns: tuple[str, ...]
    row_key: tuple[str, ...]
    ordered: bool = True
    fields: Mapping[str, FieldRule] = field(default_factory=dict)
    field_separator: str = "|"
    record_separator: str = "\n"
    header: Literal["forbidden", "optional", "required"] = "optional"
    sources: Mapping[str, str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    origin: str = "rules"

    def __post_init__(self) -> None:
        if not self.columns:
            raise DamagedInput("columns: a table needs at least one")
        if len(set(self.columns)) != len(self.columns):
            raise DamagedInput("columns: two have the same name")
        for name in self.row_key:
            if name not in self.columns:
                raise DamagedInput(f"row_key: {name!r} is not a column")
        if not self.row_key:
            raise DamagedInput("row_key: rows can't be aligned without one")
        for name in self.fields:
            if name not in self.columns:
                raise DamagedInput(f"fields: {name!r} is not a column")
        if (
            not self.field_separator
            or not self.record_separator
            or self.field_separator == self.record_separator
        ):
            raise DamagedInput("field_separator and record_separator: must be two different texts")

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the members that decide a score: all but sources, unread and origin."""
        value = self.to_json()
        for name in ("sources", "unread", "origin"):
            del value[name]
        text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; inverse of `from_json`."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value

    @classmethod
    def from_json(cls, value: Any, where: str = "rubric") -> Rubric:
        """Make a side-car from its JSON object.

        Raise DamagedInput naming a missing, unknown or wrong member.
        """
        with _named(where):
            must_be_known(value, cls)
            rules = convert(convert(value, dict[str, Any]).get("fields", {}), dict[str, Any])
        fields = {name: FieldRule.from_json(rule, f"{where}.fields.{name}") for name, rule in rules.items()}
        with _named(where):
            return replace(convert({**value, "fields": {}}, cls), fields=fields)


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Name the place of what is wrong with an object."""
    try:
        yield
    except DamagedInput as error:
        raise DamagedInput(f"{where}.{error}") from None
    except ValueError as error:
        raise DamagedInput(f"{where}: {error}") from None


@lru_cache(maxsize=512)
def _from_text(text: str) -> Rubric:
    return Rubric.from_json(json.loads(text))


def as_rubric(value: Rubric | Mapping[str, Any]) -> Rubric:
    """Return a side-car, given as Rubric or as its JSON object, as Rubric."""
    if isinstance(value, Rubric):
        return value
    return _from_text(json.dumps(value, sort_keys=True, ensure_ascii=False))


def load_rubrics(path: str | Path) -> dict[str, Rubric]:
    """Return the side-cars of a file, by base task. Raise DamagedInput naming file and member."""
    try:
        document = strict_json(Path(path).read_text("utf-8-sig"))
    except ValueError as error:
        raise DamagedInput(f"{path}: not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("version") != 1:
        raise DamagedInput(f'{path}: not a file of side-cars (it needs "version": 1)')
    rubrics = document.get("rubrics")
    if not isinstance(rubrics, dict):
        raise DamagedInput(f"{path}: rubrics: must be an object")
    return {base: Rubric.from_json(value, f"{path}: rubrics[{base!r}]") for base, value in rubrics.items()}


def save_rubrics(path: str | Path, rubrics: Mapping[str, Rubric]) -> None:
    """Write side-cars for `load_rubrics`, sorted by base task and indented for editing."""
    document = {"version": 1, "rubrics": {base: rubrics[base].to_json() for base in sorted(rubrics)}}
    text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
    write_text(Path(path), text)
