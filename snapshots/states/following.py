"""What followed what: from one answer of a request to the next, with all that was asked between them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

# times that an answer was seen to change by itself, before its staying the same is put down to others
TESTS = 2
# answers that a request at the address of a changing one must not change, to make no difference
BEFORE = 2


@dataclass(frozen=True, slots=True)
class Step:
    """From one answer of a request (`before` is "" for the start of its session) to the next, and what came between."""

    before: str
    after: str
    own: str  # the request itself
    between: frozenset[str]
    fresh: frozenset[str]  # of those and itself, what had not been asked until then
    # whether to an answer that its session was given before, and that was not seen to follow by itself
    back: bool = False


def makes_none(known: set[str], told: list[tuple[bool, list[Step]]], near: set[str]) -> set[str]:
    """Requests that make no difference: those known, and what alone was new between two answers that were the same.

    Of two that were new the one may have undone what the other did. One that is `near` may have had nothing to do just then.
    """
    same = [
        step
        for alone, found in told
        for step in found
        if step.before and set(usual(found, step.before) if alone else [step.before]) == {step.after}
    ]
    spared = set(known)
    while True:
        tested: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for step in same:
            left = (step.between - spared) or (step.fresh & {step.own}) - spared
            if len(left) == 1 and left <= step.fresh:
                tested[next(iter(left))].add((step.own, step.before))
        more = {name for name, seen in tested.items() if len(seen) >= (BEFORE if name in near else 1)}
        if not more:
            return spared
        spared |= more


def changed(steps: list[Step]) -> bool:
    """Whether an answer changed within a session."""
    return any(step.before and step.before != step.after for step in steps)


def by_itself(steps: list[Step]) -> bool:
    """Whether an answer changed though nothing at all came between."""
    return any(step.before and step.before != step.after and not step.between for step in steps)


def put_back(steps: list[Step]) -> bool:
    """Whether earlier answers came back where something came between, and only there: of itself it goes on, never back."""
    back = [bool(step.between) for step in steps if step.back]
    return bool(back) and all(back)


def usual(steps: list[Step], before: str) -> list[str]:
    """What followed an answer where nothing came between."""
    return [step.after for step in steps if step.before == before and not step.between]


def unusual(steps: list[Step], step: Step, itself: bool) -> bool:
    """Whether what came between may be why another answer followed than would have without."""
    if not itself:
        return step.before != step.after
    if step.back and put_back(steps):
        return True
    known = usual(steps, step.before)
    if len(set(known)) != 1 or step.after in known:
        return False
    # one that stayed the same may only have been asked for sooner
    return step.after != step.before or len(known) >= TESTS


def odd(steps: list[Step], step: Step, itself: bool) -> bool:
    """Whether another answer followed than was ever seen to follow by itself, where one was."""
    known = usual(steps, step.before)
    return step.before != step.after if not itself else bool(known) and step.after not in known


def by_others(steps: list[Step]) -> bool:
    """Whether an answer that changes by itself was followed by another one than usual where something came between."""
    return any(unusual(steps, step, True) for step in steps)
