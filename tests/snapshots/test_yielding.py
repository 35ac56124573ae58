"""Long values are sorted, read, written and searched as short ones are, and leave the caches."""

import json
import pickle
import random
import tracemalloc
import weakref
from collections.abc import Callable
from unittest.mock import patch

import pytest

from stillweb.snapshots import yielding
from stillweb.snapshots.cache import ENTRIES, ROOM, Cache, cached
from stillweb.snapshots.evidence.events import History, event_of
from stillweb.snapshots.http.bodies import BYTES, JSON, typed_body
from stillweb.snapshots.http.header_values import items_of
from stillweb.snapshots.identity.cookies import choices_of
from stillweb.snapshots.identity.header_fields import has_client_fields, own_of
from stillweb.snapshots.identity.irrelevant import irrelevant_url
from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.identity.urlkeys import surt
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.redact import mask
from stillweb.snapshots.yielding import RUN, in_order


def test_long_lists_are_in_the_order_of_sorted() -> None:
    chance = random.Random(1)
    names = [str(chance.randrange(10**4)) for _ in range(3 * RUN + 5)]
    assert in_order(names) == sorted(names)
    pairs = [(name, str(number)) for number, name in enumerate(names)]
    assert in_order(iter(pairs)) == sorted(pairs)
    assert in_order(pairs, key=lambda pair: pair[0]) == sorted(pairs, key=lambda pair: pair[0])  # stable


def test_what_else_holds_stays_when_a_list_is_freed() -> None:
    class Kept:
        def __init__(self) -> None:
            self.inside = [object()]

    shared, alone = Kept(), Kept()
    gone = weakref.ref(alone)
    values = [[{"deep": (alone,)}, shared], [str(number) for number in range(5000)]]
    del alone
    yielding.free(values)
    assert (values, gone()) == ([], None)
    assert len(shared.inside) == 1


GOOD = ["null", "true", "0", "-7", "0.1", "1e2", '"x"', '"é"', '"1.5e3"', '"\\u00e9\\n"', '"\x7f"']
ODD = [
    *(
        "-0",
        "1e999",
        "0.12345678901234567",
        "1234567890123456789",
        "NaN",
        "１",
        "1２",
        "1.２",
        "01",
        "tru",
        "",
    ),
    *('"\\ud800"', '{"a":1,"a":2}', "[1,]", '{"a":1,}', '"\x01"', "[" * 70 + "]" * 70, "[" * 2000),
]


def _document(chance: random.Random, leaves: list[str], odd: str | None, depth: int = 0) -> str:
    if depth > 3 or chance.random() < 0.3:
        return chance.choice(leaves) if odd is None else odd
    count = chance.randrange(1, 4)
    at = chance.randrange(count)
    items = [_document(chance, leaves, odd if n == at else None, depth + 1) for n in range(count)]
    space = chance.choice(["", " ", "\n\t"])
    if chance.random() < 0.5:
        return f"[{space}{f',{space}'.join(items)}]"
    names = chance.sample(["b", "a", "", "10", "9", *(["é", "\\n"] if depth > 2 else [])], count)
    members = [f'"{name}":{space}{item}' for name, item in zip(names, items, strict=True)]
    return "{" + f"{space},".join(members) + "}"


def test_long_json_is_the_same_body_as_short_json() -> None:
    chance, read = random.Random(1), 0
    for odd in [None] * 200 + ODD * 4:
        body = _document(chance, chance.sample(GOOD, 2), odd).encode()
        with patch.multiple(yielding, STEP=1, PIECE=1):  # every text is a long one
            long = typed_body(body, "application/json")
        short = typed_body(body, "application/json")
        assert long == short, body
        assert repr(long.value) == repr(short.value), body  # also the order of names, and 1 apart from 1.0
        read += short.kind == JSON
    assert 200 <= read < 210


def test_an_object_of_many_members_is_read_whole_and_none_of_them_twice() -> None:
    members = {str(number): number for number in range(3 * RUN)}
    text = json.dumps(members)
    for step in (0, 1 << 20):  # read by Python's scanner, and by C's
        with patch.object(yielding, "STEP", step):
            body = typed_body(text.encode(), "application/json")
            assert (body.kind, body.value) == (JSON, members)
            assert body.canonical == json.dumps(members, sort_keys=True, separators=(",", ":")).encode()
            assert typed_body((text[:-1] + ', "7": 7}').encode(), "application/json").kind == BYTES


def test_a_long_form_is_the_same_body_and_the_same_secret_as_a_short_one() -> None:
    chance, media = random.Random(1), "application/x-www-form-urlencoded"
    for _ in range(300):
        words = [
            "",
            "&",
            "a=1",
            "b",
            "password=hunter2",
            "%41=+",
            "x;token=Zq8rT4mK2pL9vB6nW3",
            "é",
            '"',
            "=",
        ]
        body = "&".join(chance.choices(words, k=chance.randrange(6))).encode()
        request = Request("POST", "http://a.test/", (("Content-Type", media),), body)
        short = typed_body(body, media), mask(request)
        with patch.multiple(yielding, PIECE=1):
            assert (typed_body(body, media), mask(request)) == short, body


@pytest.mark.parametrize(
    "text", ["/".join(map(str, range(10_000))), "word/" * 12_000, "?a=" + "b" * 60_000, "?" + "b" * 60_000]
)
def test_what_a_session_keeps_of_a_long_address_is_small(text: str) -> None:
    request, other = (Request("GET", f"http://a.test/{text}{end}") for end in "cd")
    event, another = (event_of(one, request_key(one).canonical) for one in (request, other))
    assert len(pickle.dumps(event)) < 5000
    assert (event.type, event.parameters) != (another.type, another.parameters)


def test_what_a_session_keeps_of_a_form_with_many_fields_is_small() -> None:
    forms = [b"&".join(b"n%d=%d" % (n, n + more) for n in range(5000)) for more in (0, 1)]
    media = (("Content-Type", "application/x-www-form-urlencoded"),)
    requests = [Request("POST", "http://a.test/", media, form) for form in forms]
    events = [event_of(one, request_key(one).canonical) for one in requests]
    assert all(len(pickle.dumps(event)) < 1000 for event in events)
    assert events[0].done != events[1].done


def test_what_is_known_is_not_computed_again_until_the_cache_is_full() -> None:
    asked = []

    @cached
    def doubled(text: str, times: int) -> str:
        asked.append(text)
        return text * times

    assert [doubled("a", 2), doubled("a", 2), doubled("a", 3)] == ["aa", "aa", "aaa"]
    assert asked == ["a", "a"]
    for number in range(ENTRIES):
        doubled(str(number), 1)
    doubled("a", 2)
    assert asked.count("a") == 3


def test_the_newest_entry_stays_however_large() -> None:
    cache = Cache[str, int](len)
    for letter in "abc":
        assert cache[letter * 2 * ROOM] == 2 * ROOM
        assert list(cache) == [letter * 2 * ROOM]


LONG = "x" * 40_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "ask",
    [
        lambda n: surt(f"http://a.test/{n}{LONG}"),
        lambda n: irrelevant_url(f"http://a.test/{n}{LONG}"),
        lambda n: items_of(f"a/{n}{LONG}"),
        lambda n: has_client_fields((("User-Agent", f"{n}{LONG}"),)),
        lambda n: own_of((("X-Own", f"{n} {LONG}"),)),
        lambda n: choices_of((("Cookie", f"a={n}{LONG}"),)),
    ],
)
def test_long_texts_leave_memory(ask: Callable[[int], object]) -> None:
    tracemalloc.start()
    try:
        for number in range(100):
            ask(number)
        assert tracemalloc.get_traced_memory()[0] < 4 * ROOM
    finally:
        tracemalloc.stop()


def test_a_session_that_repeats_its_requests_takes_little_memory() -> None:
    """An event of its own takes 350 to 700 bytes."""
    form = (("Content-Type", "application/x-www-form-urlencoded"),)
    asked = [Request("GET", f"http://a.test/{n}?page={n}") for n in range(20)]
    asked.append(Request("POST", "http://a.test/add", form, b"item=1&count=2"))
    history = History()

    def walk(times: int) -> int:
        for request in asked * times:
            history.add(event_of(request, request_key(request).canonical))
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = walk(2)
        assert walk(100) - before < 200 * 100 * len(asked)
    finally:
        tracemalloc.stop()
