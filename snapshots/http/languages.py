"""What an `Accept-Language` asks for first, and how near two of them are (RFC 9110, 12.5.4; tags of RFC 5646)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from stillweb.snapshots.http.weighted import items_of

EQUAL, SAME, NEAR, OTHER = 3, 2, 1, 0

_TRADITIONAL = ("au", "bn", "gb", "gf", "hk", "id", "mo", "pa", "pf", "ph", "sr", "th", "tw", "us", "vn")
# Languages that are written in several scripts: the usual one, and of regions where it is another (CLDR 48, likely
# subtags).
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


# What the name of a group of languages is said for, and an old prefix of it (RFC 5646, 3.1.11; CLDR 48, aliases).
_GROUPS = {"cmn": "zh", "arb": "ar", "zsm": "ms"}


class Tag(NamedTuple):
    """A language, with its script and region, "" where neither is said nor known; all in lower case."""

    language: str
    script: str = ""
    region: str = ""
    variants: tuple[str, ...] = ()
    bare: bool = True  # whether nothing but the language is said


@lru_cache(maxsize=4096)
def wanted(field: str) -> tuple[Tag, ...]:
    """The tags of a field, the most wanted first; none for one that says nothing (empty, or `*`)."""
    told = [item for item in items_of(field) if item.name != "*" and item.weight > 0]
    return tuple(_tag(item.name) for item in sorted(told, key=lambda item: -item.weight))


def _tag(name: str) -> Tag:
    language, *more = name.replace("_", "-").split("-")
    if len(language) == 1:
        return Tag(name)  # private (x-) or from before all rules (i-): of no parts
    while more and len(more[0]) == 3 and more[0].isalpha():
        language = more.pop(0)  # an extended one names it more narrowly: zh-yue is yue
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
    bare = not (script or region or variants)
    if not script and language in _SCRIPTS:
        usual, elsewhere = _SCRIPTS[language]
        script = elsewhere.get(region, usual)
    return Tag(language, script, region, tuple(sorted(variants)), bare)


def nearness(one: str, other: str) -> int:
    """How near two fields are: SAME in other words (`fr`, `fr-CA`), NEAR (`en-US`, `en-GB`) or OTHER (`zh-TW`, `zh-CN`).

    EQUAL are those that are the same whatever region decides (`en-US`, `en-US,en;q=0.9`). A bare `zh` has its usual
    script, and is near to the other. What is wanted after the first counts: a server may not have that.
    """
    mine, theirs = wanted(one), wanted(other)
    if not mine or not theirs:
        return EQUAL if mine == theirs else OTHER
    first, second = mine[0], theirs[0]
    if first.language != second.language:
        return OTHER
    if first.script != second.script:
        known = first.script and second.script
        return OTHER if known and not (first.bare or second.bare) else NEAR
    if first.variants != second.variants or (
        first.region and second.region and first.region != second.region
    ):
        return NEAR
    after = [list(dict.fromkeys(tag.language for tag in tags)) for tags in (mine, theirs)]
    if after[0] != after[1]:
        return NEAR
    return EQUAL if first == second else SAME


def shown(asked: str, seen: Iterable[str]) -> bool:
    """Whether fields that were answered alike show what another one gets.

    Each language that it wants was asked for so by one of them that wanted no other. What wants none gets what a site
    says by itself, which two languages show: it has not both.
    """
    told = [tags for field in seen if (tags := wanted(field)) and len({tag.language for tag in tags}) == 1]
    alone = {tags[0] for tags in told}
    mine = {tag.language: tag for tag in reversed(wanted(asked))}  # the first of each
    if not mine:
        return len({tag.language for tag in alone}) > 1
    return alone.issuperset(mine.values())
