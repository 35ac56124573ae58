"""First difference between two requests, in words: the member and, in a text, the character."""

from __future__ import annotations

import json
from typing import Any

from stillweb.harness.trace import canonical
from stillweb.snapshots.words import counted


def difference(taped: Any, now: Any, path: str = "") -> tuple[int, str]:
    """Return how far two JSON values agree, and their first difference in words.

    The number counts the characters of equal leaves before the difference. The text names the member and, in
    a string, the character.
    """
    if type(taped) is not type(now):  # e.g. 0 and 0.0, which are serialized differently
        return 0, f"{path or 'the body'} is {_short(taped)} on the tape, now {_short(now)}"
    if isinstance(taped, dict):
        same = 0
        for name in [*taped, *(n for n in now if n not in taped)]:
            inner = f"{path}.{name}" if path else name
            if name not in now:
                return same, f"{inner} is {_short(taped[name])} on the tape, now it is not there"
            if name not in taped:
                return same, f"{inner} is not on the tape, now {_short(now[name])}"
            if canonical(taped[name]) != canonical(now[name]):
                more, text = difference(taped[name], now[name], inner)
                return same + more, text
            same += len(str(taped[name]))
        return same, ""
    if isinstance(taped, list):
        same = 0
        for i, (old, new) in enumerate(zip(taped, now, strict=False)):
            if canonical(old) != canonical(new):
                more, text = difference(old, new, f"{path}[{i}]")
                return same + more, text
            same += len(str(old))
        return same, f"{path} has {counted(len(taped), 'entry')} on the tape, now {len(now)}"
    if isinstance(taped, str):
        at = next(
            (i for i, (a, b) in enumerate(zip(taped, now, strict=False)) if a != b), min(len(taped), len(now))
        )
        begin = max(0, at - 20)
        old, new = taped[begin : at + 30], now[begin : at + 30]
        return at, f"{path} differs at character {at}: {old!r} on the tape, now {new!r}"
    return 0, f"{path} is {_short(taped)} on the tape, now {_short(now)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"
