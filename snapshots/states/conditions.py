"""When a capture is an answer: the state it was recorded in and what it changes, as one line of text.

`Capture.state` is a line of items separated by spaces; "" means: nothing had been changed. A slot is a place
that requests write to (`stillweb.snapshots.states.slots`), named by 8 hex digits, as are the values.

    S=V       slot S held V
    S/H       all that was written to S, as a hash: if something else was, then this is only presumed to be the answer
    S:V|W     this answer was the same for these values of S ("-" is: never written), others are not known
    S~V|W     likewise, and it may be given for others too, as ambiguous
    S*        whatever S holds
    c.N=V     the request had cookie N with value V ("-": did not have it); N and V as 8 hex digits
    c.N~V     the request had cookie N with value V, and may not have it with another value
    c.N?V     likewise, and its client came with it: without it, it is only presumed
    c.N:V|W   likewise, with one of these values: with another it is only presumed
    !N        its answer sets cookie N
    @         the order in which the `S=V` were written counts; they are listed oldest first
    #K.n/S    the n-th answer (from 0) to key K, which changes by itself, since S was last written ("*": anything; "-": ever)
    #K.0/.    the answer to key K, which was never asked twice and may then have said something else
    %H:K|L    after what was asked before, as a hash, without K and L (the first 8 digits of keys); after else only presumed
    %*H:K|L   likewise, but since anything was written
    %+H:K|L   likewise, but of nothing but K and L
    &+K|L.2   after K, and L at least twice, were asked for (named likewise); if not, it is only presumed
    &-K|L.2   likewise, but before they were
    &*K|L.2   likewise, but before they were, since anything was written
    $P:N      the value named N in place P (query, form, json, part) was issued by the site and changes at every visit
    ?         recorded while a change was under way
    any       the same in every state;    never   this is an answer in no state
    literal   only to the very same text: the order of the pairs mattered
    k         the server knows its clients by a cookie: without it nothing has been changed
    n         this answer gave a client without such a cookie one
    b, u      its request had, or had not, a login's cookie that no recorded answer gave

    >S=V  writes V to S   >S~V  likewise, presumed from one occurrence only   >S+V  adds V to what S holds
    >S-V  writes V to S; what it does where S holds V already was not seen
    >S!   forgets all slots of the site      a leading w (>wS~V) says that it may not matter
    >oS~V likewise, and to nothing but answers that name S
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

UNSET = "-"
ANY, NEVER, LITERAL, DURING = "any", "never", "literal", "?"
ONCE = "."  # of a sequence: nothing begins it anew
ANY_WRITE = "*"  # whatever is written does
KEYED, BEGINS = "k", "n"
BROUGHT, UNBROUGHT = "b", "u"


def short(*texts: str) -> str:
    """8 hex digits for texts: names and values of slots."""
    return hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:8]


class Held(NamedTuple):
    """What a slot holds. `strong`: it surely matters; `doubtful`: that only the last value counts is presumed.

    `history` is a hash of all values that were written to it, in order; `own`: it matters only to those that name it;
    `lost`: something was written to it that nobody recorded.
    """

    value: str
    strong: bool = True
    doubtful: bool = False
    history: str = UNSET
    own: bool = False
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Effect:
    """What an exchange does to the state. `op` is one of `= ~ - + !`."""

    slot: str
    op: str
    value: str = ""
    weak: bool = False
    own: bool = False

    def __str__(self) -> str:
        return f">{'o' if self.own else 'w' if self.weak else ''}{self.slot}{self.op}{self.value}"


class Sequence(NamedTuple):
    """The place of an answer among those to a key that changes by itself; `since` is the slot that begins it anew."""

    key: str
    place: int
    since: str = "*"


class Past(NamedTuple):
    """What was asked before: a hash, without what is spared; `anew`: since anything was written.

    `only`: of just those that are named, instead of all but those.
    """

    told: str
    named: frozenset[str] = frozenset()
    anew: bool = False
    only: bool = False


class Asked(NamedTuple):
    """The requests that must have been made before, and those that must not have been: names, with how often (`times`).

    `since`: those that must not, since anything was written.
    """

    before: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()
    since: frozenset[str] = frozenset()

    def both(self, other: Asked) -> Asked:
        """What must hold for both."""
        return Asked(*(one | two for one, two in zip(self, other, strict=True)))


_NOTHING = Asked()


def times(name: str, count: int) -> str:
    """What a request is called that was made so often."""
    return name if count == 1 else f"{name}.{count}"


@dataclass(frozen=True, slots=True)
class Conditions:
    """A `Capture.state`, read."""

    held: tuple[tuple[str, str], ...] = ()  # oldest first
    histories: tuple[tuple[str, str], ...] = ()
    ordered: bool = False
    one_of: tuple[tuple[str, frozenset[str]], ...] = ()
    mostly: tuple[tuple[str, frozenset[str]], ...] = ()
    free: frozenset[str] = frozenset()
    cookies: tuple[tuple[str, str], ...] = ()
    not_other: tuple[tuple[str, str], ...] = ()  # cookies that may be missing, but not have another value
    carried: tuple[tuple[str, str], ...] = ()  # likewise, though it is not sure then
    chosen: tuple[tuple[str, frozenset[str]], ...] = ()  # cookies that make no difference with these values
    sets: frozenset[str] = frozenset()
    sequence: Sequence | None = None
    past: Past | None = None
    asked: Asked = _NOTHING
    issued: frozenset[str] = frozenset()
    during: bool = False
    any: bool = False
    never: bool = False
    literal: bool = False
    keyed: bool = False
    begins: bool = False
    brought: bool | None = None
    effect: Effect | None = None
    named: frozenset[str] = field(default=frozenset())  # every slot that is mentioned

    @property
    def lasting(self) -> bool:
        """Whether nothing that a session does can matter to this answer, nor this answer to the session."""
        return self.any and self.effect is None and self.sequence is None


_PLAIN = Conditions()
_ASKED = ("&+", "&-", "&*")  # in the order of what is asked


def write(conditions: Conditions) -> str:
    """The text of conditions; inverse of `read`."""
    items: list[str] = []
    if conditions.any:
        items.append(ANY)
    if conditions.never:
        items.append(NEVER)
    if conditions.literal:
        items.append(LITERAL)
    if conditions.keyed:
        items.append(KEYED)
    if conditions.begins:
        items.append(BEGINS)
    if conditions.brought is not None:
        items.append(BROUGHT if conditions.brought else UNBROUGHT)
    items += [f"{slot}={value}" for slot, value in conditions.held]
    items += [f"{slot}/{history}" for slot, history in conditions.histories]
    items += [f"{slot}:{'|'.join(sorted(values))}" for slot, values in sorted(conditions.one_of)]
    items += [f"{slot}~{'|'.join(sorted(values))}" for slot, values in sorted(conditions.mostly)]
    items += [f"{slot}*" for slot in sorted(conditions.free)]
    items += [f"c.{name}={value}" for name, value in sorted(conditions.cookies)]
    items += [f"c.{name}~{value}" for name, value in sorted(conditions.not_other)]
    items += [f"c.{name}?{value}" for name, value in sorted(conditions.carried)]
    items += [f"c.{name}:{'|'.join(sorted(values))}" for name, values in sorted(conditions.chosen)]
    items += [f"!{name}" for name in sorted(conditions.sets)]
    if conditions.ordered and len(conditions.held) > 1:
        items.append("@")
    if conditions.sequence:
        items.append("#{}.{}/{}".format(*conditions.sequence))
    if conditions.past is not None:
        told, names, anew, only = conditions.past
        scope = ("*" if anew else "") + ("+" if only else "")
        items.append(f"%{scope}{told}:{'|'.join(sorted(names))}".removesuffix(":"))
    items += [
        f"{sign}{'|'.join(sorted(names))}"
        for sign, names in zip(_ASKED, conditions.asked, strict=True)
        if names
    ]
    items += [f"${quote(item, safe=':')}" for item in sorted(conditions.issued)]
    if conditions.during:
        items.append(DURING)
    if conditions.effect:
        items.append(str(conditions.effect))
    return " ".join(items)


@lru_cache(maxsize=1 << 15)
def read(text: str) -> Conditions:
    """Conditions from their text. What it can't make sense of fits never."""
    if not text:
        return _PLAIN
    held: list[tuple[str, str]] = []
    histories: list[tuple[str, str]] = []
    one_of: list[tuple[str, frozenset[str]]] = []
    mostly: list[tuple[str, frozenset[str]]] = []
    free: set[str] = set()
    cookies: list[tuple[str, str]] = []
    not_other: list[tuple[str, str]] = []
    carried: list[tuple[str, str]] = []
    chosen: list[tuple[str, frozenset[str]]] = []
    sets: set[str] = set()
    issued: set[str] = set()
    flags = dict.fromkeys(("@", DURING, ANY, NEVER, LITERAL, KEYED, BEGINS, BROUGHT, UNBROUGHT), False)
    sequence: Sequence | None = None
    effect: Effect | None = None
    past: Past | None = None
    asked = dict.fromkeys(_ASKED, frozenset[str]())
    for item in text.split(" "):
        kind = item[8:9]
        if item in flags:
            flags[item] = True
        elif item.startswith("c.") and item[10:11] == ":":
            chosen.append((item[2:10], frozenset(item[11:].split("|"))))
        elif item.startswith("c."):
            kept = {"=": cookies, "?": carried}.get(item[10:11], not_other)
            kept.append((item[2:10], item[11:]))
        elif item.startswith("#"):
            place, _, since = item[10:].partition("/")
            sequence = Sequence(item[1:9], int(place) if place.isdecimal() else 0, since)
        elif item.startswith("%"):
            told, _, listed = item[1:].partition(":")
            names = frozenset(listed.split("|")) if listed else frozenset[str]()
            past = Past(told.lstrip("*+"), names, told.startswith("*"), "+" in told[:2])
        elif item.startswith("&"):
            asked[item[:2]] = frozenset(item[2:].split("|"))
        elif item.startswith("!"):
            sets.add(item[1:])
        elif item.startswith("$"):
            issued.add(unquote(item[1:]))
        elif item.startswith(">"):
            weak = item[1:2] in ("w", "o")
            rest = item[2 if weak else 1 :]
            effect = Effect(rest[:8], rest[8:9], rest[9:], weak, item[1:2] == "o")
        elif kind == "=":
            held.append((item[:8], item[9:]))
        elif kind == "/":
            histories.append((item[:8], item[9:]))
        elif kind == ":":
            one_of.append((item[:8], frozenset(item[9:].split("|"))))
        elif kind == "~":
            mostly.append((item[:8], frozenset(item[9:].split("|"))))
        elif kind == "*":
            free.add(item[:8])
        else:
            flags[NEVER] = True
    named = frozenset([s for s, _ in held] + [s for s, _ in one_of] + [s for s, _ in mostly]) | free
    return Conditions(
        tuple(held),
        tuple(histories),
        flags["@"],
        tuple(one_of),
        tuple(mostly),
        frozenset(free),
        tuple(cookies),
        tuple(not_other),
        tuple(carried),
        tuple(chosen),
        frozenset(sets),
        sequence,
        past,
        Asked(*(asked[sign] for sign in _ASKED)),
        frozenset(issued),
        flags[DURING],
        flags[ANY],
        flags[NEVER],
        flags[LITERAL],
        flags[KEYED],
        flags[BEGINS],
        flags[BROUGHT] if flags[BROUGHT] or flags[UNBROUGHT] else None,
        effect,
        named,
    )


class SiteState:
    """What one session has told one site, as far as it was recorded."""

    __slots__ = ("counts", "held", "unknown")

    def __init__(self) -> None:
        self.held: dict[str, Held] = {}  # oldest change first
        self.unknown: set[str] = set()  # cookies that an answer which was not recorded would have set
        self.counts: dict[str, Sequence] = {}  # by key of changing answers: how many were given

    def copy(self) -> SiteState:
        """What was told so far, which stays as it is."""
        other = SiteState()
        other.held, other.unknown, other.counts = dict(self.held), set(self.unknown), dict(self.counts)
        return other

    def apply(self, effect: Effect, *, doubted: bool = False) -> None:
        """What follows from an exchange; if that was `doubted`, only presumably."""
        self._begin_anew(effect.slot, weak=effect.weak)
        slot = effect.slot
        if effect.op == "!":
            self.held.clear()
            return
        before = self.held.pop(slot, None) or Held(UNSET)
        history = added(before.history, f"?{effect.value}" if doubted else effect.value)
        if effect.op == "+":
            value = added(before.value, effect.value)
            self.held[slot] = Held(value, not effect.weak, before.doubtful or doubted, history)
        else:
            # that nothing else counts but the last value is as little known where a capture had more before it
            again = effect.op == "-" and (before.doubtful or before.value == effect.value)
            doubtful = doubted or effect.op == "~" or again
            # of what is weak only the value is compared
            value = f"?{effect.value}" if doubted and effect.weak else effect.value
            self.held[slot] = Held(value, not effect.weak, doubtful, history, effect.own, before.lost)

    def may_apply(self, effect: Effect) -> None:
        """What follows if an exchange was answered otherwise than it seems."""
        slot = effect.slot
        before = self.held.get(slot)
        if before is None:
            self.held[slot] = Held(f"?{effect.value}", strong=False, own=effect.own)
        else:
            history = added(before.history, f"?{effect.value}")
            self.held[slot] = before._replace(doubtful=True, history=history)

    def _begin_anew(self, slot: str, *, weak: bool = False) -> None:
        for key, sequence in list(self.counts.items()):
            # what is only suspected to matter begins none, as in the recording
            if sequence.since == slot or (sequence.since == ANY_WRITE and not weak):
                del self.counts[key]

    def given(self, sequence: Sequence, conditions: Conditions) -> None:
        """One more answer of a key that changes by itself was given: where nothing was written that was each time its order
        went on, it has not begun.
        """
        unheld = any(slot not in self.held and UNSET not in values for slot, values in conditions.mostly)
        if unheld and sequence.since not in (ANY_WRITE, ONCE):
            return
        before = self.counts.get(sequence.key)
        self.counts[sequence.key] = sequence._replace(place=(before.place if before else 0) + 1)

    def asked(self, sequence: Sequence) -> int:
        """How many answers of such a key were given so far."""
        before = self.counts.get(sequence.key)
        return before.place if before else 0

    def lose(self, slot: str, held: Held) -> None:
        """Nothing is known any more of what a slot holds."""
        before = self.held.pop(slot, None) or Held(UNSET)
        self.held[slot] = held._replace(history=added(before.history, held.value), lost=True)
        self._begin_anew(slot)

    def __str__(self) -> str:
        return " ".join(f"{slot}={h.value}" for slot, h in self.held.items())


@lru_cache(maxsize=1 << 16)
def added(before: str, value: str) -> str:
    """What a slot holds after one more value was added to it."""
    return short("add", before, value)
