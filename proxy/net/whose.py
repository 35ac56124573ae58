"""Web sockets whose address holds a secret: finding the recorded one, and translating its messages.

Address and messages were stored with a pseudonym. JupyterLab's session id, for example, is in both, also in
binary messages whose lengths count. A client with the recorded secret gets the messages with that secret. A
client with another secret gets its own in place of the pseudonym, but the replay is not sure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from stillweb.proxy.net.conversations import Conversation, Said, alike, conversations
from stillweb.snapshots.matching.recognising import Recogniser, pseudonyms_in
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.detect import PSEUDONYM_TEXT, surely_drawn
from stillweb.snapshots.secrets.redact import mask

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Secrets:
    """Pseudonyms of a recording, mapped to the secrets of this replay."""

    known: Mapping[str, str] = field(default_factory=dict)

    def hidden(self, said: Said) -> Said:
        """Return a client's message in its stored form."""
        for name, secret in self.known.items():
            said = _replaced(said, secret, name)
        return said

    def shown(self, said: Said) -> Said:
        """Return a stored message with its secrets put back."""
        for name, secret in self.known.items():
            said = _replaced(said, name, secret)
        return said


@dataclass(frozen=True, slots=True)
class Found:
    """The conversations recorded at an address. `sure` is False if the client's secret or ids differ."""

    conversations: list[Conversation]
    sure: bool = True
    secrets: Secrets = field(default_factory=Secrets)
    rule: str = "redacted"  # the rule that matched the address, if not `sure`


def found_at(snapshot: Snapshot, url: str, given: Callable[[str], bool] = lambda value: True) -> Found:
    """Find the conversations of an address, also if it was stored with pseudonyms.

    They are not sure if the address differs only in ids that the client drew itself. `given` returns True if
    a value may come from the site.
    """
    plain = conversations(snapshot, url)
    if plain or "?" not in url:
        return Found(plain)
    asked = Request("GET", url)
    masked = mask(asked)
    others: list[Conversation] = []
    names: dict[str, str] = {}  # query field -> pseudonym of the value in `url`
    drawn: list[Conversation] = []
    for address in snapshot.metadata_addresses(url.partition("?")[0]):
        stored = Request("GET", address)
        if PSEUDONYM_TEXT.search(address) is None:
            if (own := _drawn_apart(address, url)) and not any(map(given, own)):
                drawn += conversations(snapshot, address)
            continue
        recogniser = Recogniser()
        recogniser.know(dict.fromkeys(pseudonyms_in(stored, headers=False), 1))
        # A value may be a secret because of another place, such as a header; its query name may not show it.
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
    """Replace a conversation's pseudonyms by those of the first conversation, which fills `names`."""
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
    """Return the asked values that differ from the stored ones, if all of both look random; else none."""
    theirs, mine = _pairs(stored), _pairs(asked)
    if [name for name, _ in theirs] != [name for name, _ in mine]:
        return []
    apart = [(one, other) for (_, one), (_, other) in zip(theirs, mine, strict=True) if one != other]
    return [other for _, other in apart] if all(surely_drawn(v) for pair in apart for v in pair) else []


def _asked_for(stored: str, asked: str) -> list[str]:
    """Return the asked values where the stored query has pseudonyms, if both have the same names."""
    theirs, mine = _pairs(stored), _pairs(asked)
    if sorted(name for name, _ in theirs) != sorted(name for name, _ in mine):
        return []
    names = {name for name, value in theirs if PSEUDONYM_TEXT.fullmatch(value)}
    return [value for name, value in mine if name in names]


def _values(stored: str, asked: str) -> dict[str, str]:
    """Map the pseudonyms in a stored query to the values asked in their places."""
    both = zip(urlsplit(stored).query.split("&"), urlsplit(asked).query.split("&"), strict=True)
    pairs = ((one.partition("=")[2], other.partition("=")[2]) for one, other in both)
    return {name: unquote(secret) for name, secret in pairs if PSEUDONYM_TEXT.fullmatch(name)}


def _replaced(said: Said, one: str, other: str) -> Said:
    if isinstance(said, str):
        return said.replace(one, other)
    return said.replace(one.encode(), other.encode())
