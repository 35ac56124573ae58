"""Validation of foreign JSON against the types that its readers rely on, once, on input."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, TypeVar

import msgspec
from msgspec.inspect import type_info

T = TypeVar("T")
_STEP = re.compile(r"\.(\w+)|\[[^]]*\]")
_LONE = re.compile("[\ud800-\udfff]")


def convert(value: Any, kind: type[T]) -> T:
    """Convert the value to `kind`: a msgspec Struct, a dataclass, or a type such as `dict[str, int]`.

    Raises ValueError if it does not fit.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message, at, place = str(error).replace("`", "").partition(" - at ")
        if message.startswith("Invalid enum value"):
            message += f", none of {', '.join(map(str, _choices(kind, place)))}"
        raise ValueError(f"{message}{at}{place}") from None


def _choices(kind: Any, place: str) -> list[object]:
    """Return the values that `kind` allows at a place such as `$.models[0].name` or `key in $.prices`."""
    found = [type_info(kind)]
    for name in _STEP.findall(place):
        inner: list[Any] = []
        for one in found:
            if hasattr(one, "fields"):
                inner += [field.type for field in one.fields if field.encode_name == name]
            else:  # of an object without fields, or of a list
                inner += [getattr(one, of) for of in ("value_type", "item_type") if hasattr(one, of)]
        found = [one for each in inner for one in getattr(each, "types", (each,))]
    if place.startswith("key in "):
        found = [getattr(one, "key_type", one) for one in found]
    return [value for one in found for value in getattr(one, "values", ())]


def must_be_known(value: Any, kind: type) -> None:
    """Raise ValueError if an object has a member that the dataclass `kind` lacks; `convert` passes those over."""
    fields = {field.name for field in dataclasses.fields(kind) if field.init}
    if isinstance(value, dict) and (unknown := [name for name in value if name not in fields]):
        raise ValueError(f"unknown member {unknown[0]!r}")


def well_formed(text: str) -> str:
    """Replace lone surrogates, which JSON can hold and UTF-8 can't, by U+FFFD."""
    return text if text.isascii() else _LONE.sub("\ufffd", text)


def must_be_unicode(value: Any) -> None:
    """Raise ValueError if a JSON value holds a lone surrogate."""
    json.dumps(value, ensure_ascii=False).encode()


def must_be_well_formed(*texts: str) -> None:
    """Raise ValueError if a text holds a lone surrogate, unless it stands for a byte (`surrogateescape`)."""
    for text in texts:
        if not text.isascii():
            text.encode(errors="surrogateescape")
