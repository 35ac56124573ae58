"""Whether what a capture was recorded under holds in a state."""

from __future__ import annotations

from stillweb.snapshots.states.conditions import UNSET, Conditions, SiteState

FAILS, UNSURE, FITS = 0, 1, 2


def fits(conditions: Conditions, state: SiteState | None, cookies: dict[str, str]) -> int:
    """Whether a capture answers in a state: FITS, UNSURE (the evidence does not decide) or FAILS.

    `cookies` are those of the request, names and values as 8 hex digits.
    """
    if conditions.any:
        return FITS
    if conditions.never:
        return FAILS
    for name, value in conditions.cookies:
        if cookies.get(name, UNSET) != value or (state is not None and name in state.unknown):
            return FAILS
    for name, value in conditions.not_other:
        if cookies.get(name, value) != value:
            return FAILS
    result = UNSURE if conditions.during else FITS
    for name, value in conditions.carried:
        sent = cookies.get(name)
        if sent is None:
            result = UNSURE
        elif sent != value:
            return FAILS
    for name, values in conditions.chosen:
        if cookies.get(name, UNSET) not in values or (state is not None and name in state.unknown):
            result = UNSURE
    held = state.held if state is not None else {}
    for slot, value in conditions.held:
        found = held.get(slot)
        if found is None or found.value != value:
            return FAILS
        # what nobody recorded may be left under a new value, unless such values were seen to replace each other
        left = found.lost and any(slot == told for told, _ in conditions.histories)
        if (found.doubtful or left) and (slot, found.history) not in conditions.histories:
            result = UNSURE
    for slot, values in conditions.one_of:
        found = held.get(slot)
        if (found.value if found else UNSET) not in values:
            return FAILS
    for slot, values in conditions.mostly:
        found = held.get(slot)
        if (found.value if found else UNSET) not in values:
            result = UNSURE
    for slot, found in held.items():
        if slot not in conditions.named and not found.own:
            if found.strong:
                return FAILS
            result = UNSURE
    if conditions.ordered:
        asked = [slot for slot, _ in conditions.held]
        if [slot for slot in held if slot in asked] != asked:
            return FAILS
    return result
