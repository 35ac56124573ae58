"""Whether two values of a request field ask for the same in other words: `fr` and `fr-CA`, one browser and the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stillweb.snapshots.http.languages import EQUAL, OTHER, SAME, nearness, shown
from stillweb.snapshots.secrets.detect import PSEUDONYM_TEXT
from stillweb.snapshots.secrets.keystore import split
from stillweb.snapshots.secrets.redact import MASK
from stillweb.snapshots.states.acceptance import first_kind
from stillweb.snapshots.states.header_fields import is_secret, own_name
from stillweb.snapshots.states.slots import CREDENTIALS


def kinship(name: str, one: str, other: str) -> int:
    """How near two values of a request field are, recorded and asked: EQUAL to SAME in other words, NEAR (another region) or OTHER."""
    if found := PSEUDONYM_TEXT.search(one):
        # a secret that was replaced can't be compared, unless it proves to be another one
        return SAME if other != "" and not (MASK in other and split(found[0])) else OTHER
    if name == "accept-language":
        return nearness(one, other)
    plain = _KIN.get(name)
    return SAME if plain is not None and plain(one) == plain(other) else OTHER


def known_alike(name: str, recorded: str, asked: str, seen: Iterable[str]) -> bool:
    """Whether two values of a request field are known to get the same, where those seen did.

    They ask for the same in other words, or one that was seen is as far from the recorded one; none says nothing.
    Languages are less alike: see `languages.shown`. Of a secret no other one is known to be good, also where it was not
    replaced (in archives of other programs), and none is no value of an application's field.
    """
    if is_secret(name, recorded) or is_secret(name, asked) or (not asked and own_name(name)):
        return False
    grade = kinship(name, recorded, asked)
    if name == "accept-language":
        return grade == EQUAL or shown(asked, seen)
    return grade >= SAME or any(
        "" != value != recorded != "" and kinship(name, recorded, value) <= grade for value in seen
    )


def _agent(value: str) -> str:
    if "Mobi" in value:
        return "mobile"
    return "desktop" if value.startswith("Mozilla/") else "program"


def _scheme(value: str) -> str:
    return value.partition(" ")[0]


_KIN: dict[str, Callable[[str], str]] = {
    "accept": first_kind,
    "user-agent": _agent,
    CREDENTIALS: _scheme,
}
