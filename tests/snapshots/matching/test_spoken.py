"""Messages of a web socket decide answers over HTTP; tests/proxy/replay/test_talks.py has the reverse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.matching.ladder import Matcher
from stillweb.snapshots.matching.spoken import STRAYED, Spoken, word
from tests.support.memory_store import MemoryStore, Recorded, Replay, get, html, matcher, plain, post, spoken

A = "http://a.test"
TEA = word({"text": '{"add": "tea"}'})
LIST = get(f"{A}/items")


def say(replay: Replay, *words: str) -> None:
    for one in words:
        replay.session.says("a.test", one)


def test_what_was_said_tells_which_answer_it_is() -> None:
    replay = Replay(spoken(2, (LIST, plain("none")), (LIST, plain("tea"))))
    say(replay, TEA)
    assert (replay.ask(LIST), replay.last.ambiguous) == ("tea", False)
    silent = Replay(replay.matcher)
    for _ in range(2):
        assert (silent.ask(LIST), silent.last.ambiguous) == ("none", False)


@pytest.mark.parametrize("words", [(), (TEA, TEA), (word({"text": "rum!"}),), (TEA, STRAYED)])
def test_after_other_words_an_answer_is_unsure(words: tuple[str, ...]) -> None:
    replay = Replay(spoken(0, (LIST, html("tea"))))
    say(replay, *words)
    assert (replay.ask(LIST), replay.last.ambiguous) == ("tea", True)
    assert (replay.ask(LIST), replay.last.ambiguous) == ("tea", True)  # not remembered as sure


def test_after_the_same_words_it_is_sure() -> None:
    replay = Replay(spoken(0, (LIST, html("tea"))))
    say(replay, TEA)
    assert (replay.ask(LIST), replay.last.ambiguous) == ("tea", False)


def test_what_was_said_after_it_was_asked_for_does_not_count() -> None:
    replay = Replay(spoken(1, (LIST, html("none"))))
    assert (replay.ask(LIST), replay.last.ambiguous) == ("none", False)
    say(replay, TEA)
    assert (replay.ask(LIST), replay.last.ambiguous) == ("none", True)


def test_what_was_alike_before_and_after_is_sure_whatever_is_said() -> None:
    replay = Replay(spoken(2, (LIST, html("the same")), (LIST, html("the same"))))
    say(replay, TEA, TEA)
    assert (replay.ask(LIST), replay.last.ambiguous) == ("the same", False)


def test_what_writes_is_answered_as_it_is() -> None:
    form = post(f"{A}/add", "x=1")
    replay = Replay(spoken(0, (form, html("added", 303, ("Location", "/")))))
    assert (replay.ask(form), replay.last.ambiguous) == ("added", False)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("40", False), ("2probe", False), ("3", False), ('{"type":"ping"}', False), ("[null,\"5\",\"phoenix\",\"heartbeat\",{}]", False),
        ('42["add","tea"]', True), ("shopping list", True), ("ping " + "x" * 200, True),
    ],
)  # fmt: skip
def test_signs_of_life_do_not_count(text: str, counts: bool) -> None:
    assert bool(word({"text": text})) is counts
    replay = Replay(spoken(0, (LIST, html("page")), text=text))
    assert (replay.ask(LIST), replay.last.ambiguous) == ("page", counts)


def test_bytes_are_no_sign_of_life() -> None:
    assert word({"base64": "1234"})
    assert word({"base64": "+ping+++"})


def test_what_the_server_said_is_nothing_that_the_client_must_say() -> None:
    over = matcher((LIST, html("page")))
    assert isinstance(over.snapshot, MemoryStore)
    heard = {"session": "s", "begin": 0, "messages": [{"from": "server", "text": "news"}], "events": [0]}
    over.snapshot.talks = [("http://a.test/ws", heard)]
    replay = Replay(over)
    assert (replay.ask(LIST), replay.last.ambiguous) == ("page", False)


def test_after_more_than_was_kept_of_a_socket_nothing_is_sure() -> None:
    later = get(f"{A}/later")
    over = matcher((LIST, html("before")), (later, html("after")))
    assert isinstance(over.snapshot, MemoryStore)
    news = {"from": "server", "text": "news"}
    cut = {"session": "s", "begin": 0, "messages": [news, news], "events": [0, 2], "left_out": 1}
    over.snapshot.talks = [("http://a.test/ws", cut)]
    replay = Replay(over)
    assert (replay.ask(LIST), replay.last.ambiguous) == ("before", False)
    assert (replay.ask(later), replay.last.ambiguous) == ("after", True)


def test_a_socket_recorded_without_events_changes_nothing() -> None:
    over = matcher((LIST, html("page")))
    assert isinstance(over.snapshot, MemoryStore)
    over.snapshot.talks = [("http://a.test/ws", {"messages": [{"from": "client", "text": "more"}]})]
    replay = Replay(over)
    assert (replay.ask(LIST), replay.last.ambiguous) == ("page", False)


def test_where_what_was_said_cannot_be_read_nothing_is_sure_and_elsewhere_all_is() -> None:
    class Damaged(MemoryStore):
        def said_at(self, uri: str, /) -> Iterator[dict[str, Any]]:
            if uri == "http://a.test/ws":
                raise DamagedInput("data.warc.gz: offset 7: it is cut off")
            return super().said_at(uri)

    elsewhere, tea = get("http://b.test/items"), html("tea")
    store = Damaged([Recorded(LIST, html("none")), Recorded(elsewhere, tea)])
    said = {"session": "s", "begin": 0, "messages": [{"from": "client", "text": "rum!"}], "events": [0]}
    store.talks = [("http://a.test/ws", said), ("http://b.test/ws", said)]
    replay = Replay(Matcher(store))
    assert (replay.ask(LIST), replay.last.ambiguous) == ("none", True)
    assert (replay.ask(elsewhere), replay.last.ambiguous) == ("tea", True), "nothing was said there"
    replay.session.says("b.test", word({"text": "rum!"}))
    assert (replay.ask(elsewhere), replay.last.ambiguous) == ("tea", False)


def test_what_a_session_wrote_is_told_in_order() -> None:
    first, second = post(f"{A}/items", "x=1"), post(f"{A}/items", "x=2")
    elsewhere, beacon = post("http://ab.test/items", "x=3"), post(f"{A}/g/collect?v=2", "x=4")
    store = MemoryStore(
        [Recorded(r, html("ok")) for r in (second, get(f"{A}/"), first, elsewhere, beacon)]
        + [Recorded(first, html("ok"), "other")]
    )
    keys = [
        c.key
        for c in sorted(store.captures(), key=lambda c: c.begin)
        if c.session == "s" and c.url == f"{A}/items" and c.method == "POST"
    ]
    told = Spoken(store).written(f"{A}/ws", "s")
    assert [key for _, key in told] == keys
    assert [event for event, _ in told] == sorted(event for event, _ in told)
