"""Validation of foreign JSON against the types that its readers rely on, once, on input."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_LONE = re.compile("[\ud800-\udfff]")


def shaped(value: Any, kind: type[T]) -> T:
    """Convert the value to `kind`: a msgspec Struct, a dataclass, or a type such as `dict[str, int]`.

    Raises ValueError if it does not fit.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error).replace("`", "")) from None


def must_be_known(value: Any, kind: type) -> None:
    """Raise ValueError if an object has a member that the dataclass `kind` lacks; `shaped` passes those over."""
    fields = {field.name for field in dataclasses.fields(kind)}
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
