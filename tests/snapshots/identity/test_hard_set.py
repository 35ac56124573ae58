"""The hard set: pairs of requests that are nearly the same. None is joined wrongly, and no part of the key, no rule is idle."""

import os

import pytest

from stillweb.snapshots.evidence.matcher import Matcher
from stillweb.snapshots.identity import keys
from stillweb.snapshots.identity.rules import builtin
from tests.support.hard_set import APART, JOIN, Pair, pairs
from tests.support.memory_store import MemoryStore, Recorded, html

PAIRS = int(os.environ.get("STILLWEB_PAIRS", "600"))  # some ten of each kind


def _looked_up(pair: Pair) -> bool:
    over = Matcher(MemoryStore([Recorded(pair.recorded, html("x"))]))
    return over.lookup(pair.asked, over.session()).capture is not None


@pytest.mark.slow
def test_the_hard_set_has_no_wrong_answer() -> None:
    asked = list(pairs(PAIRS))
    assert {one.kind for one in asked} == {kind.__name__ for kind in (*JOIN, *APART)}
    wrong = [f"{p.kind}: {p.recorded} / {p.asked}" for p in asked if _looked_up(p) != p.same]
    assert wrong == []


@pytest.mark.parametrize("part", [p.__name__ for p in keys.KEY_PARTS])
def test_without_a_part_of_the_key_the_hard_set_has_wrong_answers(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "KEY_PARTS", [p for p in keys.KEY_PARTS if p.__name__ != part])
    monkeypatch.setattr(keys, "plain_key", lambda url: None)  # the same key, made without the list
    assert any(_looked_up(pair) for pair in pairs(400) if not pair.same)


@pytest.mark.parametrize("rule", [r.id for r in builtin().rules if r.kind not in ("issued", "redacted")])
def test_without_a_rule_the_hard_set_has_misses(rule: str) -> None:
    without = builtin().without(rule)
    stores = (
        (pair, MemoryStore([Recorded(pair.recorded, html("x"))], without)) for pair in pairs(400) if pair.same
    )
    assert any(Matcher(store).lookup(pair.asked).capture is None for pair, store in stores)
