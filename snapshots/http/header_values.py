"""Weighted lists and language tags in header fields (RFC 9110, 12.4.2 and 12.5.4; RFC 5646), and trailers (6.5).

A capture stores trailers, the fields after the body, in its head, marked. In a gRPC call they hold the status.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from stillweb.snapshots.cache import cached
from stillweb.snapshots.request import Headers

MOST = 200  # items of a field that are heeded: 100 kB of them took 3 MB, and were remembered


class WeightedValue(NamedTuple):
    """A name with its weight and its other parameters, in lower case and without spaces."""

    name: str
    parameters: tuple[str, ...]
    weight: float


@cached
def items_of(field: str) -> tuple[WeightedValue, ...]:
    """Parse the first `MOST` items of a field, in order."""
    found = []
    for text in field.lower().split(",", MOST)[:MOST]:
        name, *parameters = ("".join(part.split()) for part in text.split(";"))
        weight = next((_quality(p[2:]) for p in parameters if p.startswith("q=")), 1.0)
        if name:
            found.append(WeightedValue(name, tuple(p for p in parameters if not p.startswith("q=")), weight))
    return tuple(found)


def _quality(text: str) -> float:
    """Return the weight in a `q` parameter, or 0 if it is not a number."""
    try:
        return float(text)
    except ValueError:
        return 0.0


_TRADITIONAL = ("au", "bn", "gb", "gf", "hk", "id", "mo", "pa", "pf", "ph", "sr", "th", "tw", "us", "vn")
# Languages that are written in several scripts: the default script, and regions with another one (CLDR 48,
# likely subtags).
_SCRIPTS: dict[str, tuple[str, dict[str, str]]] = {
    "az": ("latn", {"iq": "arab", "ir": "arab", "ru": "cyrl"}),
    "bs": ("latn", {}),
    "ff": ("latn", {}),
    "kk": ("cyrl", dict.fromkeys(("af", "cn", "ir", "mn"), "arab")),
    "ku": (
        "latn",
        dict.fromkeys(("iq", "ir", "lb"), "arab") | dict.fromkeys(("am", "az", "ge", "tm"), "cyrl"),
    ),
    "ky": ("cyrl", {"cn": "arab", "tr": "latn"}),
    "mn": ("cyrl", {"cn": "mong"}),
    "pa": ("guru", {"pk": "arab"}),
    "sd": ("arab", {"in": "deva"}),
    "sr": ("cyrl", dict.fromkeys(("me", "ro", "tr"), "latn")),
    "tg": ("cyrl", {"pk": "arab"}),
    "ug": ("arab", {"kz": "cyrl", "mn": "cyrl"}),
    "uz": ("latn", {"af": "arab", "cn": "cyrl"}),
    "yue": ("hant", {"cn": "hans"}),
    "zh": ("hans", dict.fromkeys(_TRADITIONAL, "hant")),
}
# Codes that stand for another language code: `cmn` for `zh` (RFC 5646, 3.1.11; CLDR 48, aliases).
_GROUPS = {"cmn": "zh", "arb": "ar", "zsm": "ms"}


class Tag(NamedTuple):
    """A language tag in lower case. Script and region are "" if neither stated nor known."""

    language: str
    script: str = ""
    region: str = ""
    variants: tuple[str, ...] = ()


@cached
def sorted_languages(field: str) -> tuple[Tag, ...]:
    """Return the tags of a field, the most wanted first; () for an empty field or `*`."""
    items = [item for item in items_of(field) if item.name != "*" and item.weight > 0]
    return tuple(_tag(item.name) for item in sorted(items, key=lambda item: -item.weight))


def _tag(name: str) -> Tag:
    language, *more = name.replace("_", "-").split("-")
    if len(language) == 1:
        return Tag(name)  # private use (x-) and grandfathered (i-) tags have no parts
    while more and len(more[0]) == 3 and more[0].isalpha():
        language = more.pop(0)  # an extended language is more specific: zh-yue is yue
    language = _GROUPS.get(language, language)
    script = region = ""
    variants = []
    for part in more:
        if len(part) == 1:
            break  # an extension, or private use
        if len(part) == 4 and part.isalpha() and not region:
            script = script or part
        elif len(part) == 2 or (len(part) == 3 and part.isdigit()):
            region = region or part
        else:
            variants.append(part)
    if not script and language in _SCRIPTS:
        usual, elsewhere = _SCRIPTS[language]
        script = elsewhere.get(region, usual)
    return Tag(language, script, region, tuple(sorted(variants)))


TRAILER = "trailer"

# https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
_GRPC = frozenset({"grpc-status", "grpc-message", "grpc-status-details-bin"})
# Fields of framing, routing and content format, which must not be trailers (RFC 9110, 6.5.1).
_NEVER = frozenset(
    {"connection", "content-encoding", "content-length", "content-range", "content-type", "host"}
    | {"keep-alive", "location", "set-cookie", "te", "trailer", "transfer-encoding", "upgrade"}
)


def is_grpc(fields: Iterable[tuple[str, str]]) -> bool:
    """Return True if a response with these fields is gRPC.

    gRPC-Web has its trailers in the body and doesn't count.
    """
    kind = next((value.lower() for name, value in fields if name.lower() == "content-type"), "")
    return kind.startswith("application/grpc") and not kind.startswith("application/grpc-web")


def merge_trailers(fields: Headers, trailers: Headers) -> Headers:
    """Return one head with both; a Trailer field between them names the trailers."""
    kept = tuple((name, value) for name, value in trailers if name.lower() not in _NEVER)
    if not kept:
        return fields
    return (*fields, ("Trailer", ", ".join(dict.fromkeys(name for name, _ in kept))), *kept)


def split_trailers(fields: Headers, size: int | None) -> tuple[Headers, Headers]:
    """Split a merged head into head and trailers, for a body of `size` bytes (None: unknown).

    A head is merged if it ends with a Trailer field and exactly the fields it names, apart from a length. In
    gRPC responses of older and foreign archives the Trailer field may be missing; a gRPC call without a body
    has its status in the head.
    """
    at = max((n for n, (name, _) in enumerate(fields) if name.lower() == TRAILER), default=-1)
    if at >= 0:
        named = {name.strip().lower() for name in fields[at][1].split(",")}
        length = tuple(field for field in fields[at + 1 :] if field[0].lower() == "content-length")
        behind = tuple(field for field in fields[at + 1 :] if field not in length)
        if named == {name.lower() for name, _ in behind}:
            return (*fields[:at], *length), behind
    if size != 0 and is_grpc(fields):
        behind = tuple(field for field in fields if field[0].lower() in _GRPC)
        return tuple(field for field in fields if field[0].lower() not in _GRPC), behind
    return fields, ()
