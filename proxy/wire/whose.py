"""A web socket whose address holds a secret: which recorded one it is, and what its messages are without it.

The address was stored with a pseudonym, and so was what was said: JupyterLab's session id is in both, and in messages
of bytes whose lengths are counted. A client that has the secret is told it again as it was said; one that has another is told
that one in its place, though what it is told is not sure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from stillweb.proxy.wire.conversations import Conversation, Said, alike, conversations
from stillweb.snapshots.matching.recognising import Recogniser, pseudonyms_in
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.detect import PSEUDONYM_TEXT, surely_drawn
from stillweb.snapshots.secrets.redact import mask

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Secrets:
    """Pseudonyms of a recording, and what they stand for in this replay."""

    known: Mapping[str, str] = field(default_factory=dict)

    def hidden(self, said: Said) -> Said:
        """A client's message as it would have been stored."""
        for name, secret in self.known.items():
            said = _replaced(said, secret, name)
        return said

    def shown(self, said: Said) -> Said:
        """A stored message as it was said."""
        for name, secret in self.known.items():
            said = _replaced(said, name, secret)
        return said


@dataclass(frozen=True, slots=True)
class Found:
    """What was recorded at an address. Not `sure`: with another secret than the one that is asked with."""

    conversations: list[Conversation]
    sure: bool = True
    secrets: Secrets = field(default_factory=Secrets)
    rule: str = "redacted"  # what joins them with the address, where that is not sure


def found_at(snapshot: Snapshot, url: str, given: Callable[[str], bool] = lambda value: True) -> Found:
    """The conversations of an address, also if it was stored with pseudonyms; not sure where it differs in nothing but ids
    that the client drew itself. `given` says whether a value may come from the site.
    """
    plain = conversations(snapshot, url)
    if plain or "?" not in url:
        return Found(plain)
    asked = Request("GET", url)
    masked = mask(asked)
    others: list[Conversation] = []
    names: dict[str, str] = {}  # by field of the query, the pseudonym that stands for what is asked with
    drawn: list[Conversation] = []
    for address in snapshot.metadata_addresses(url.partition("?")[0]):
        stored = Request("GET", address)
        if PSEUDONYM_TEXT.search(address) is None:
            if (own := _drawn_apart(address, url)) and not any(map(given, own)):
                drawn += conversations(snapshot, address)
            continue
        recogniser = Recogniser()
        recogniser.know(dict.fromkeys(pseudonyms_in(stored, headers=False), 1))
        # One that is a secret by another place, as a header, has a name here that may say nothing.
        for value in _asked_for(address, url):
            recogniser.learn(value)
        told = recogniser.request(asked)
        if alike(told, stored):
            return Found(conversations(snapshot, address), True, Secrets(_values(told.url, url)))
        if masked is not asked and alike(mask(stored), masked):
            others += [_as(one, names, dict(_pairs(address))) for one in conversations(snapshot, address)]
    if drawn and not others:
        return Found(drawn, False, rule="visit-id")
    others.sort(key=lambda one: (one.session, one.begin))
    values = dict(_pairs(url))
    return Found(others, not others, Secrets({name: values[place] for place, name in names.items()}))


def _as(one: Conversation, names: dict[str, str], own: Mapping[str, str]) -> Conversation:
    """A conversation with the pseudonyms that the first of several has in their places; they are named by it if it is the first."""
    for place, name in own.items():
        if PSEUDONYM_TEXT.fullmatch(name):
            first = names.setdefault(place, name)
            said = tuple((mine, _replaced(what, name, first)) for mine, what in one.messages)
            one = replace(one, messages=said)
    return one


def _pairs(url: str) -> list[tuple[str, str]]:
    pairs = (one.partition("=") for one in urlsplit(url).query.split("&"))
    return [(name, unquote(value)) for name, _, value in pairs]


def _drawn_apart(stored: str, asked: str) -> list[str]:
    """The asked values in which two queries differ, if all of them, and the stored ones, were drawn at random; else none."""
    theirs, mine = _pairs(stored), _pairs(asked)
    if [name for name, _ in theirs] != [name for name, _ in mine]:
        return []
    apart = [(one, other) for (_, one), (_, other) in zip(theirs, mine, strict=True) if one != other]
    return [other for _, other in apart] if all(surely_drawn(v) for pair in apart for v in pair) else []


def _asked_for(stored: str, asked: str) -> list[str]:
    """The values in a query where the stored one has pseudonyms, if all names are the same."""
    theirs, mine = _pairs(stored), _pairs(asked)
    if sorted(name for name, _ in theirs) != sorted(name for name, _ in mine):
        return []
    names = {name for name, value in theirs if PSEUDONYM_TEXT.fullmatch(value)}
    return [value for name, value in mine if name in names]


def _values(stored: str, asked: str) -> dict[str, str]:
    """The pseudonyms in a query, and what stands in their places."""
    both = zip(urlsplit(stored).query.split("&"), urlsplit(asked).query.split("&"), strict=True)
    pairs = ((one.partition("=")[2], other.partition("=")[2]) for one, other in both)
    return {name: unquote(secret) for name, secret in pairs if PSEUDONYM_TEXT.fullmatch(name)}


def _replaced(said: Said, one: str, other: str) -> Said:
    if isinstance(said, str):
        return said.replace(one, other)
    return said.replace(one.encode(), other.encode())
