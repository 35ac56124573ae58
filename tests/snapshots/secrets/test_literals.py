"""The automaton says the same as searching for each string."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stillweb.snapshots.secrets.detect import Literals

LETTERS = st.binary(min_size=1, max_size=4).map(lambda b: bytes(97 + c % 3 for c in b))


@given(st.lists(LETTERS, min_size=1, max_size=12), st.lists(LETTERS, max_size=40).map(b"".join))
def test_same_as_searching(strings: list[bytes], text: bytes) -> None:
    sought = Literals(strings)
    expected = {(s, at) for s in strings for at in range(len(text)) if text.startswith(s, at)}
    assert set(sought.places(text)) == expected


def test_strings_that_overlap_are_all_found() -> None:
    found = Literals([b"API_KEY", b"PI_K", b"KEYS"]).places(b"my API_KEYS")
    assert sorted(found) == [(b"API_KEY", 3), (b"KEYS", 7), (b"PI_K", 4)]


def test_order_and_places_in_long_texts_with_few_and_with_many() -> None:
    strings = [b"key", b"eyes", b"token", b"\xff\xfe\xfd\xfc!", b"AKIA", b"AIza"]
    for count in (1, 3, 200):
        text = b"".join(b"x" * (7 * n) + b"a keyes \xff\xfe\xfd\xfc! AKIAIza token" for n in range(count))
        expected = sorted((at + len(s), -len(s), s, at) for s in strings for at in _all(text, s))
        assert Literals(strings).places(text) == [(s, at) for _, _, s, at in expected]


def _all(text: bytes, string: bytes) -> list[int]:
    found, at = [], text.find(string)
    while at >= 0:
        found.append(at)
        at = text.find(string, at + 1)
    return found
