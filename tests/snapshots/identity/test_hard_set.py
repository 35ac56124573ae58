"""The hard set: pairs of requests that are nearly the same. None is joined wrongly, and no part of the key, no rule is idle."""

from __future__ import annotations

import pytest

from stillweb.snapshots.evidence.matcher import Matcher
from stillweb.snapshots.identity import keys
from stillweb.snapshots.identity.rules import builtin
from tests.support.hard_set import pairs
from tests.support.memory_store import MemoryStore, Recorded, html


def _hard(count: int, seed: int = 1) -> tuple[int, int, list[str]]:
    """How many pairs that are the same were found, of how many, and what was wrong."""
    found = asked = 0
    wrong = []
    for pair in pairs(count, seed):
        over = Matcher(MemoryStore([Recorded(pair.recorded, html("x"))]))
        hit = over.lookup(pair.asked, over.session()).capture is not None
        asked += pair.same
        found += pair.same and hit
        if hit and not pair.same:
            wrong.append(f"{pair.kind}: {pair.recorded} / {pair.asked}")
    return found, asked, wrong


@pytest.mark.slow
def test_the_hard_set_has_no_wrong_answer(capsys: pytest.CaptureFixture[str]) -> None:
    found, asked, wrong = _hard(5000)
    with capsys.disabled():
        print(f"\nhard set: 5000 pairs, {len(wrong)} wrong, {found} of {asked} joined ({found / asked:.1%})")  # noqa: T201
    assert wrong == []
    assert found == asked


@pytest.mark.slow
@pytest.mark.parametrize("part", [p.__name__ for p in keys.KEY_PARTS])
def test_without_a_part_of_the_key_the_hard_set_has_wrong_answers(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "KEY_PARTS", [p for p in keys.KEY_PARTS if p.__name__ != part])
    monkeypatch.setattr(keys, "plain_key", lambda url: None)  # the same key, made without the list
    assert _hard(400)[2]


@pytest.mark.slow
@pytest.mark.parametrize("rule", [r.id for r in builtin().rules if r.kind not in ("issued", "redacted")])
def test_without_a_rule_the_hard_set_has_misses(rule: str) -> None:
    missed = 0
    for pair in pairs(400):
        if pair.same:
            store = MemoryStore([Recorded(pair.recorded, html("x"))], builtin().without(rule))
            missed += Matcher(store).lookup(pair.asked).capture is None
    assert missed
