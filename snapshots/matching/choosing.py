"""The choice among several captures of one request: a line of steps, each of which leaves fewer.

A step takes the captures and the situation and gives those that it lets through; it may call the choice unsure
or name the header field that differs. The steps are in `STEPS`, in order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.http.languages import EQUAL, NEAR, OTHER
from stillweb.snapshots.identity.repeating import repeated_pairs
from stillweb.snapshots.evidence.conditional import same_conditions, same_preconditions, whole_or_asked
from stillweb.snapshots.evidence.doubts import doubtful
from stillweb.snapshots.matching.kinship import kinship, known_alike
from stillweb.snapshots.matching.layers import layer_of
from stillweb.snapshots.evidence.peeking import Place
from stillweb.snapshots.evidence.situation import Situation
from stillweb.snapshots.evidence.varying import ORIGIN, Fields, asked_of, counted, made_anew, other_value
from stillweb.snapshots.request import Request
from stillweb.snapshots.states.conditions import ANY_WRITE, ONCE, Conditions, Effect, read, short
from stillweb.snapshots.states.fitting import FAILS, FITS, UNSURE, fits
from stillweb.snapshots.states.slots import CREDENTIALS, MADE_ANEW, SAFE_METHODS, choices_of


def in_state(captures: list[Capture], now: Situation) -> list[Capture]:
    """Those recorded in the state that the session is in now; those that surely fit before the others."""
    sure: list[Capture] = []
    unsure: list[Capture] = []
    judged: dict[str, int] = {}
    for capture in captures:
        found = judged.get(capture.state)
        if found is None:
            found = judged[capture.state] = _fits(read(capture.state), now)
        if found == FITS and now.followed_all(capture):
            sure.append(capture)
        elif found != FAILS:
            unsure.append(capture)
    if not sure and unsure:
        now.unsure = True
        # of those that are not sure, rather one for clients of its kind
        return [c for c in unsure if read(c.state).brought in (None, now.signed_in)] or unsure
    now.unsure = now.loose
    now.aside = bool(unsure) or len(sure) == 1
    if not sure:
        now.why.append("state")
    return sure


def _fits(conditions: Conditions, now: Situation) -> int:
    """Whether what captures were recorded under holds now, but for what was asked before: FITS, UNSURE or FAILS."""
    told = conditions.cookies or conditions.not_other or conditions.carried or conditions.chosen
    stranger = conditions.keyed and now.known and not now.identified
    found = fits(conditions, None if stranger else now.state, now.cookies if told else {})
    if found == FITS and conditions.brought not in (None, now.signed_in):
        return UNSURE  # a server that knows the client may have said something else
    return found


def same_headers(captures: list[Capture], now: Situation) -> list[Capture]:
    """Those made with the same values of the fields that count; else near ones, said so."""
    told = counted(captures, now.request, now.peek)
    if not any(told):
        return captures
    fields = {c.place: sent for c, sent in zip(captures, told, strict=True)}
    compared: list[tuple[Capture, list[tuple[str, str, str]]]] = []
    for capture in captures:
        apart = []
        for name, value in fields[capture.place]:
            asked = asked_of(now.request.headers, name)
            if name == CREDENTIALS and asked.partition(" ")[0] == value and not now.stranger(capture):
                continue
            if other_value(asked, value):
                apart.append((name, value, asked))
        compared.append((capture, apart))
    equal = [c for c, apart in compared if not apart]
    if equal:
        return equal
    near = [(c, apart) for c, apart in compared if not any(now.bars(*one) for one in apart)]
    if not now.varies or not near:
        now.why.append("header")
        return []
    likewise = [c for c, apart in near if all(made_anew(*one) for one in apart)]
    # their answers are told apart by what was written, if at all by something
    told_apart = any(value not in MADE_ANEW for _, apart in near for _, value, _ in apart)
    if likewise and (not told_apart or len(set(map(now.said, likewise))) == 1):
        now.header, now.loose = CREDENTIALS, True
        return likewise
    if any(now.stranger(c) for c, _ in near):
        said: dict[str, set[str]] = {}
        for capture, _ in near:
            said.setdefault(now.who(capture), set()).add(now.said(capture))
        if len({frozenset(answers) for answers in said.values()}) > 1:
            now.why.append("header")  # it is none of those who were answered differently
            return []
    seen = captures  # what tells whether a value decides
    if _decides(captures, fields, now):
        # The values seen did decide. Only one that asks for the same in other words may stand in; unsure is one of
        # another region, where it was not seen that regions decide.
        graded = [(min(kinship(n, a, b) for n, a, b in apart), c, apart) for c, apart in near]
        best = max(grade for grade, _, _ in graded)
        near = [(c, apart) for grade, c, apart in graded if grade == best != OTHER]
        seen = [c for grade, c, _ in graded if grade >= (EQUAL if best == EQUAL else NEAR)]
        now.loose = _decides(seen, fields, now)
        if not near or (best == NEAR and now.loose):
            now.why.append("header")
            return []
    fewest = min(len(apart) for _, apart in near)
    near = [(c, apart) for c, apart in near if len(apart) == fewest]
    now.header = near[0][1][0][0]
    near = [(c, apart) for c, apart in near if apart[0][0] == now.header]
    # Whether a server that was told who asks would have said the same to nobody, or to another, was not seen;
    # nor what it says for a value that asks for something else, unless one as far from it was answered alike.
    values: dict[str, set[str]] = {}
    for name, value in {pair for c in seen for pair in fields[c.place]}:
        values.setdefault(name, set()).add(value)
    ways = {tuple(apart) for _, apart in near}
    differs = {name for way in ways for name, _, _ in way}
    now.loose = (
        now.loose
        or CREDENTIALS in differs
        or (ORIGIN in differs and len(set(map(now.peek.readers, seen))) > 1)
        or not any(all(known_alike(n, a, b, values[n]) for n, a, b in way) for way in ways)
    )
    return [c for c, _ in near]


def _decides(captures: list[Capture], fields: Mapping[Place, Fields], now: Situation) -> bool:
    """Whether captures with different values of the fields that count differ in their answers."""
    seen: dict[Fields, set[str]] = {}
    for capture in captures:
        seen.setdefault(fields[capture.place], set()).add(now.said(capture))
    return len({frozenset(digests) for digests in seen.values()}) > 1


def highest_layer(captures: list[Capture], now: Situation) -> list[Capture]:
    """Those of the snapshot that lies over the others."""
    if len(captures) < 2:
        return captures
    layers = [layer_of(c.filename) for c in captures]
    return [c for c, layer in zip(captures, layers, strict=True) if layer == max(layers)]


def same_text(captures: list[Capture], now: Situation) -> list[Capture]:
    """The very same request before one that only means the same."""
    exact = [c for c in captures if c.exact == now.key.exact]
    if exact:
        return exact
    loose = [c for c in captures if not read(c.state).literal]
    if not loose:
        now.why.append("text")
    return loose


def same_order(captures: list[Capture], now: Situation) -> list[Capture]:
    """Of requests that repeat a name, those with its values in the same order; another order is unsure."""
    if captures[0].exact == now.key.exact:
        return captures
    wanted = repeated_pairs(now.request)
    if not wanted:
        return captures
    ask = now.read_request if now.request.body else _bodiless
    found = [repeated_pairs(ask(c)) for c in captures]
    same = [c for c, pairs in zip(captures, found, strict=True) if pairs == wanted]
    if not same and any(sorted(pairs) == sorted(wanted) for pairs in found):
        now.unsure = True
    return same or captures


def _bodiless(capture: Capture) -> Request:
    return Request(capture.method, capture.url)


def same_acquaintance(captures: list[Capture], now: Situation) -> list[Capture]:
    """To a client that the server doesn't know yet, an answer that makes it known; to others none of those."""
    if not any(read(c.state).keyed for c in captures):
        return captures
    return [c for c in captures if read(c.state).begins != now.identified] or captures


def same_cookies(captures: list[Capture], now: Situation) -> list[Capture]:
    """Those asked for with the same choices in cookies."""
    if len({c.cookies for c in captures}) < 2:
        return captures
    orders = [read(c.state).sequence for c in captures]
    if all(order is not None and order.since not in (ANY_WRITE, ONCE) for order in orders):
        return captures  # their order was the same whatever the cookies
    choices = choices_of(now.request.headers)
    mine = short(*sorted(f"{n}={v}" for n, v in choices.items())) if choices else ""
    return [c for c in captures if c.cookies == mine] or captures


def same_words(captures: list[Capture], now: Situation) -> list[Capture]:
    """Of answers that differ, those that were given after the session had said the same over web sockets."""
    if now.spoken is None or len(set(map(now.said, captures))) < 2:
        return captures
    found = [c for c in captures if now.spoken.before(c) == now.told()]
    now.worded = bool(found) and len(found) < len(captures) and len(set(map(now.said, found))) == 1
    return found or captures


def next_in_order(captures: list[Capture], now: Situation) -> list[Capture]:
    """Of answers that change by themselves the next, and when there is none any more, the last."""
    orders = [order for c in captures if (order := read(c.state).sequence) is not None]
    if not orders or now.worded or _past_tells(captures, now):
        return captures
    if len(captures) < 2 and orders[0].since != ONCE:
        # asked for again: with this past it was recorded once, though with another it had changed by then
        if now.aside and now.state is not None and now.state.asked(orders[0]) > orders[0].place:
            now.unsure = True
        return captures
    found: list[tuple[int, Capture]] = []
    for capture in captures:
        sequence = read(capture.state).sequence
        if sequence is not None:
            asked = now.state.asked(sequence) if now.state is not None else 0
            found.append((sequence.place - asked, capture))
    due = [c for place, c in found if place == 0]
    if now.guessed:  # it may be following another session, that was answered otherwise
        so_far: dict[int, set[str]] = defaultdict(set)
        for place, c in found:
            so_far[min(place, 1)].add(now.said(c))
        now.unsure = now.unsure or any(len(s) > 1 for place, s in so_far.items() if place <= 0)
    if now.followed is not None:
        mine = now.own(captures)
        own = [(place, c) for place, c in found if c.session == mine]
        if own and not any(place == 0 for place, _ in own):
            # Another session went on where this one ended; it may speak for it if both saw the same so far.
            seen = {place: now.said(c) for place, c in own}
            agreeing = {
                c.session
                for c in due
                if all(seen.get(p, now.said(x)) == now.said(x) for p, x in found if x.session == c.session)
            }
            due = [c for c in due if c.session in agreeing]
            found = own
    if due:
        in_turn = {now.said(c) for c in due if not _out_of_turn(c, captures, now)}
        now.unsure = now.unsure or any(now.said(c) not in in_turn for c in due)
        return due
    passed = [place for place, _ in found if place < 0]
    if not passed:  # what was recorded comes later in the order: a beginning that nobody saw
        now.why.append("order")
        return []
    now.unsure = True
    return [c for place, c in found if place == max(passed)]


def _past_tells(captures: list[Capture], now: Situation) -> bool:
    """Whether they are what was said after just what this session has asked, however often that was."""
    if any((past := read(c.state).past) is None or past.only for c in captures):
        return False
    return len({now.said(c) for c in captures}) == 1


def _out_of_turn(capture: Capture, captures: list[Capture], now: Situation) -> bool:
    """Whether an answer of an order that was seen once came after other exchanges than in this replay: they may be why
    it changed, though nothing tells.
    """
    orders = [
        (c, order) for c in captures if (order := read(c.state).sequence) and c.session == capture.session
    ]
    own = next(order for c, order in orders if c is capture)
    if own.since != ANY_WRITE:
        return False
    for other, order in orders:
        apart = order.place - own.place
        if abs(apart) != 1 or now.said(other) == now.said(capture):
            continue
        first, last = (capture, other) if apart > 0 else (other, capture)
        between = [c for c in now.served if c.session == first.session and first.end < c.begin < last.begin]
        if between if apart > 0 else last.begin > first.end + 1 and not between:
            return True
    return False


def page_in_view(captures: list[Capture], now: Situation) -> list[Capture]:
    """Of those that say the same, the one that the page in view had: what it brings in is asked for in any order."""
    if len(captures) < 2:
        return captures
    now.shared = len({c.session for c in captures}) > 1
    if len(set(map(now.said, captures))) > 1:
        return captures
    mine, since = now.own(captures), now.page.timestamp if now.page is not None else ""
    own = [c for c in captures if c.session == mine] or captures
    after = [c for c in own if c.timestamp >= since] or own
    return [min(after, key=lambda c: (c.timestamp, c.begin, c.place))]


def own_session(captures: list[Capture], now: Situation) -> list[Capture]:
    """Those of the recorded session that this one follows."""
    mine = now.own(captures)
    return [c for c in captures if c.session == mine] or captures


def nearest_time(captures: list[Capture], now: Situation) -> list[Capture]:
    """The one recorded nearest to what was served last, or first of all."""
    if len(captures) < 2:
        return captures
    if any(read(c.state).sequence for c in captures) and len({now.said(c) for c in captures}) > 1:
        now.unsure = True  # several recorded sessions saw different things here
    if now.followed is not None:
        after = [c for c in captures if c.timestamp >= now.followed.timestamp]
        captures = after or captures
    return [min(captures, key=lambda c: (c.timestamp, c.begin, c.place))]


Step = Callable[[list[Capture], Situation], list[Capture]]

STEPS: list[Step] = [
    same_headers,
    in_state,
    same_preconditions,
    whole_or_asked,
    highest_layer,
    same_text,
    same_order,
    same_cookies,
    same_words,
    next_in_order,
    same_acquaintance,
    same_conditions,
    page_in_view,
    own_session,
    nearest_time,
]


def choose(captures: list[Capture], now: Situation) -> Capture | None:
    """The capture that answers, or None. What is known of the choice is left in `now`."""
    found = captures
    for step in STEPS:
        found = step(found, now)
        if not found:
            return None
    if doubtful(found[0], captures, now):
        now.unsure = True
    return found[0]


def effects_open(chosen: Capture, captures: list[Capture], now: Situation) -> tuple[Effect, ...]:
    """What a write may have done of which it is not sure that it was answered as by the chosen capture, which did nothing."""
    if not now.unsure or now.request.method in SAFE_METHODS or read(chosen.state).effect is not None:
        return ()
    others = (read(c.state).effect for c in captures if now.said(c) != now.said(chosen))
    return tuple(sorted({effect for effect in others if effect is not None}, key=str))
