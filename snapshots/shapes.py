"""JSON that others wrote, held against the types that its readers count on, once, where it comes in."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_LONE = re.compile("[\ud800-\udfff]")


def shaped(value: Any, kind: type[T]) -> T:
    """Return the value as `kind`: a msgspec Struct, a dataclass, or types such as `dict[str, int]`. Raises ValueError."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error).replace("`", "")) from None


def well_formed(text: str) -> str:
    """Return the text with U+FFFD for half surrogate pairs, which JSON can hold and UTF-8 can't."""
    return text if text.isascii() else _LONE.sub("\ufffd", text)


def must_be_well_formed(*texts: str) -> None:
    """Raise ValueError where a text holds half a surrogate pair that stands for no byte (as `surrogateescape` has them)."""
    for text in texts:
        if not text.isascii():
            text.encode(errors="surrogateescape")
