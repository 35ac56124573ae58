"""Ids that a client draws for what it says over a web socket (the `msgid` of a message, the `id` of a subscription), or makes.

They are drawn anew in each replay, and the server names them in what it answers. So a message that differs from a recorded one
in such ids alone is that one, though not for sure, and what follows is said with the client's own. Only UUIDs that hold chance
or a time count (versions 1, 4 and 7): one that is a digest (3, 5) tells what is asked for, as any other hash does. In the address
of what a client made, other words of chance count, too, and in a message those that its answers repeat.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import overload
from urllib.parse import urlsplit

from stillweb.snapshots.identity.packets import Payload, payload_text
from stillweb.snapshots.secrets.detect import surely_drawn
from stillweb.snapshots.yielding import matches

DRAWN = re.compile(
    r"(?<![0-9A-Za-z])(?:[0-9a-f]{8}(-?)[0-9a-f]{4}\1[147][0-9a-f]{3}\1[89ab][0-9a-f]{3}\1[0-9a-f]{12}"
    r"|[0-9A-F]{8}(-?)[0-9A-F]{4}\2[147][0-9A-F]{3}\2[89AB][0-9A-F]{3}\2[0-9A-F]{12})(?![0-9A-Za-z])"
)
REACH = 37  # characters of an id, and the one after it

_ANY = re.compile(r"[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}", re.IGNORECASE)
# Any id of an address: a UUID, or another word of chance (a ULID, an ObjectId of MongoDB, a nanoid).
_UUID = re.compile(rf"(?<![0-9A-Za-z]){_ANY.pattern}(?![0-9A-Za-z])", re.IGNORECASE)
WORD = re.compile(r"(?<![\w-])[0-9A-Za-z_-]{16,64}(?![\w-])", re.ASCII)
# A word that may be an id if its client sent it again and again: `Math.random().toString(36)` gives about eleven characters.
TOKEN = re.compile(r"(?<![\w-])[0-9A-Za-z_-]{7,64}(?![\w-])", re.ASCII)
LONGEST = 65  # characters of a word, and the one after it
# What may be a digest: UUIDs of versions 3 and 5, and hex of the length of one.
_DIGEST = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?[35][0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}|(?:[0-9a-f]{8}){4,}",
    re.IGNORECASE,
)


def ids_in(message: Payload) -> list[str]:
    """Return the ids in a message, in order."""
    return [match[0] for match in matches(DRAWN, payload_text(message), REACH)]


def ids_of(address: str) -> list[str]:
    """Return the values in the path of an address that a client may have drawn, in order."""
    return words_in(urlsplit(address).path)


def words_in(message: Payload) -> list[str]:
    """Return the ids in a text, and its other words of chance, in order."""
    text = payload_text(message)
    found = {match.start(): match[0] for match in matches(DRAWN, text, REACH)}
    for match in matches(WORD, text, LONGEST):
        word = match[0]
        if surely_drawn(word) and not _DIGEST.fullmatch(word) and DRAWN.search(word) is None:
            found[match.start()] = word
    return [one for _, one in sorted(found.items())]


def tokens_in(message: Payload) -> list[str]:
    """Return the different words of a text that may be ids if their client sent them again and again, in order."""
    return list(dict.fromkeys(match[0] for match in matches(TOKEN, payload_text(message), LONGEST)))


def ids_in_text(text: str) -> set[str]:
    """Return the ids that a text holds, wherever they stand (`\\u0022` may come before one), as `plain_id` writes them."""
    return {plain_id(match[0]) for match in _ANY.finditer(text)}


def plain_id(one: str) -> str:
    """Return an id without its hyphens, in lower case."""
    return one.replace("-", "").lower()


@overload
def renumbered(message: str, ids: Mapping[str, str]) -> str: ...
@overload
def renumbered(message: bytes, ids: Mapping[str, str]) -> bytes: ...
def renumbered(message: Payload, ids: Mapping[str, str]) -> Payload:
    """Return a message with some ids replaced by others."""
    text = payload_text(message)
    if not any(one in text for one in ids):
        return message
    text = _UUID.sub(lambda match: ids.get(match[0], match[0]), text)
    if not all(map(_UUID.fullmatch, ids)):
        text = TOKEN.sub(lambda match: ids.get(match[0], match[0]), text)
    return text if isinstance(message, str) else text.encode("latin-1")


def match_drawn_ids(
    stored: Payload, message: Payload, ids_of: Callable[[Payload], list[str]] = ids_in
) -> dict[str, str] | None:
    """Return the ids of a recorded message by those of a client's that differ; None if the two differ in more."""
    if isinstance(stored, str) is not isinstance(message, str):
        return None
    ids = ids_apart(ids_of(stored), ids_of(message))
    return None if ids is None or renumbered(stored, ids) != message else ids


def ids_apart(theirs: Sequence[str], mine: Sequence[str]) -> dict[str, str] | None:
    """Return the recorded ids by those of a client's that differ; None if they don't stand for each other one for one."""
    if [*map(len, theirs)] != [*map(len, mine)]:
        return None
    ids: dict[str, str] = {}
    if any(ids.setdefault(one, other) != other for one, other in zip(theirs, mine, strict=True)):
        return None
    if len(set(ids.values())) != len(ids):
        return None
    return {one: other for one, other in ids.items() if one != other}
