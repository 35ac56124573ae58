"""The tape: calls are kept on it and played again, and what is not on it is explained."""

import shutil
from datetime import UTC, datetime

import pytest

from stillweb.harness.models.tape import Tape, TapeMiss, difference, gather, part_of
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.support.openai_endpoint import Endpoint, ask

pytestmark = pytest.mark.usefixtures("openai_key")


def test_a_call_that_is_not_on_the_tape_is_explained_to_the_character(tmp_path):
    with Endpoint(lambda asked: "hi") as endpoint, Tape(tmp_path / "tape", "record") as tape:
        ask(tape, endpoint.url, "Which birds weigh more?")
    with Tape(tmp_path / "tape", "replay") as tape:
        with pytest.raises(TapeMiss) as error:
            ask(tape, endpoint.url, "Which birds sing more?")
        assert (
            "nearest to call 1 of 1, but messages[0].content differs at character 12: "
            "'Which birds weigh more?' on the tape, now 'Which birds sing more?'"
        ) in str(error.value)
        with pytest.raises(TapeMiss, match=r"nothing was recorded for this task and attempt"):
            ask(tape, endpoint.url, "Which birds weigh more?", session="s/2")
        with pytest.raises(
            TapeMiss, match=r"its URL is http://127.*, now http://127.0.0.1:9/v1/chat/completions"
        ):
            ask(tape, "http://127.0.0.1:9/v1", "Which birds weigh more?")
        assert ask(tape, endpoint.url, "Which birds weigh more?").text == "hi"
        with pytest.raises(TapeMiss, match="recorded 1 time and is now made once more"):
            ask(tape, endpoint.url, "Which birds weigh more?")


def test_the_same_question_twice_gets_the_two_answers_in_order(tmp_path):
    count = iter(range(10))
    with (
        Endpoint(lambda asked: f"answer {next(count)}") as endpoint,
        Tape(tmp_path / "tape", "record") as tape,
    ):
        recorded = [ask(tape, endpoint.url).text for _ in range(3)]
    with Tape(tmp_path / "tape", "replay") as tape:
        assert (
            [ask(tape, endpoint.url).text for _ in range(3)]
            == recorded
            == ["answer 0", "answer 1", "answer 2"]
        )


def test_auto_asks_only_for_what_is_not_there_and_recording_begins_anew(tmp_path):
    count = iter(range(10))
    with Endpoint(lambda asked: f"answer {next(count)}") as endpoint:
        for mode, expected in (
            ("auto", "answer 0"),
            ("auto", "answer 0"),
            ("record", "answer 1"),
            ("replay", "answer 1"),
        ):
            with Tape(tmp_path / "tape", mode) as tape:
                assert ask(tape, endpoint.url).text == expected
        with Tape(tmp_path / "tape", "auto") as tape:
            assert ask(tape, endpoint.url).text == "answer 1"
            assert ask(tape, endpoint.url, "another").text == "answer 2"
        with Tape(tmp_path / "tape", "replay") as tape:
            assert ask(tape, endpoint.url, "another").text == "answer 2"
            assert ask(tape, endpoint.url).text == "answer 1"


def test_odd_session_names_come_back(tmp_path):
    name = "tâsk @7/ü\n:1/1"
    with Endpoint(lambda asked: "hi") as endpoint, Tape(tmp_path / "tape", "record") as tape:
        ask(tape, endpoint.url, session=name)
    with Tape(tmp_path / "tape", "replay") as tape:
        assert ask(tape, endpoint.url, session=name).text == "hi"


def test_a_tape_that_is_not_there_or_a_mode_that_is_none_is_named(tmp_path):
    with pytest.raises(UsageError, match="there is no tape to replay"):
        Tape(tmp_path / "tape", "replay")
    with pytest.raises(UsageError, match="'erase' is none of"):
        Tape(tmp_path / "tape", "erase")  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["auto", "record"])
def test_nothing_is_paid_for_what_a_sealed_tape_can_not_keep(tmp_path, mode):
    with Endpoint(lambda asked: "hi") as endpoint:
        with Tape(tmp_path / "tape", "record") as tape:
            ask(tape, endpoint.url, "one")
        seal(tmp_path / "tape", tmp_path / "tape.wacz")
        with Tape(tmp_path / "tape.wacz", mode) as tape:
            if mode == "auto":
                assert ask(tape, endpoint.url, "one").text == "hi"
            with pytest.raises(UsageError, match="a sealed tape can't be extended"):
                ask(tape, endpoint.url, "two")
        assert len(endpoint.requests) == 1


def test_sessions_that_no_tape_made_are_no_calls_of_it(tmp_path):
    with Endpoint(lambda asked: "hi") as endpoint, Tape(tmp_path / "tape", "record") as tape:
        ask(tape, endpoint.url)
    with (
        Snapshot.open(tmp_path / "tape") as snapshot,
        Writer.open(tmp_path / "other", software="test") as writer,
    ):
        [capture] = snapshot.captures()
        request, said = snapshot.read_request(capture), snapshot.read(capture)
        moment = datetime(2025, 1, 1, tzinfo=UTC)
        writer.exchange(Exchange(request, 200, "", said.headers, said.body, moment, "me@home", 1, 2))
    with (
        Tape(tmp_path / "other", "replay") as tape,
        pytest.raises(TapeMiss, match="nothing was recorded"),
    ):
        ask(tape, endpoint.url)


def test_the_tape_opens_as_any_snapshot_does(tmp_path):
    from stillweb.snapshots.snapshot import Snapshot

    with Endpoint(lambda asked: "hi") as endpoint, Tape(tmp_path / "tape", "record") as tape:
        ask(tape, endpoint.url)
    with Snapshot.open(tmp_path / "tape") as snapshot:
        [capture] = snapshot.captures()
        assert (capture.method, capture.url) == ("POST", f"{endpoint.url}/chat/completions")
        assert b'"hi"' in snapshot.read(capture).body
        assert snapshot.read_request(capture).header("authorization") is None


@pytest.mark.parametrize(
    ("taped", "now", "text"),
    [
        ({"a": 1}, {"a": 2}, "a is 1 on the tape, now 2"),
        ({"a": 1}, {}, "a is 1 on the tape, and is missing now"),
        ({}, {"b": "x"}, 'b is not on the tape, now "x"'),
        ({"a": [1, 2]}, {"a": [1]}, "a has 2 entries on the tape, now 1"),
        (
            {"a": [{"b": "xyz"}]},
            {"a": [{"b": "xya"}]},
            "a[0].b differs at character 2: 'xyz' on the tape, now 'xya'",
        ),
        ({"a": "1"}, {"a": 1}, 'a is "1" on the tape, now 1'),
        ({"temperature": 0}, {"temperature": 0.0}, "temperature is 0 on the tape, now 0.0"),
        ({"a": [1, True]}, {"a": [1, 1]}, "a[1] is true on the tape, now 1"),
    ],
)
def test_a_difference_is_named_with_its_place(taped, now, text):
    assert difference(taped, now)[1] == text


def test_parts_that_workers_recorded_become_the_tape(tmp_path):
    """A directory has one writer, so each worker of another engine records into a part of its own."""
    with Endpoint(lambda asked: f"to {asked.question}") as endpoint:
        with Tape(tmp_path / "tape", "record") as tape:
            ask(tape, endpoint.url, session="a/1")
        for name in ("b/1", "c/1"):
            with Tape(tmp_path / "tape", "auto", part_of(tmp_path / "tape", name[0])) as tape:
                ask(tape, endpoint.url, session=name)
                ask(tape, endpoint.url, session=name)
        assert len(endpoint.requests) == 5
        url = endpoint.url
    assert gather(tmp_path / "tape") == 2
    assert gather(tmp_path / "tape") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["tape"]
    with Tape(tmp_path / "tape", "replay") as tape:
        for name in ("a/1", "b/1", "b/1", "c/1"):
            assert ask(tape, url, session=name).text == "to hello"
        with pytest.raises(TapeMiss, match="is now made once more"):
            ask(tape, url, session="b/1")


def test_a_part_that_is_still_written_is_left_until_it_is_whole(tmp_path):
    tape = tmp_path / "tape"
    with Endpoint(lambda asked: "hi") as endpoint:
        with Tape(tape, "auto", part_of(tape, "ended")) as ended:
            ask(ended, endpoint.url, session="a/1")
        with Tape(tape, "auto", part_of(tape, "goes on")) as going:
            ask(going, endpoint.url, "first", session="b/1")
            assert gather(tape) == 1
            ask(going, endpoint.url, "second", session="b/1")
    assert gather(tape) == 1
    assert not part_of(tape, "x").parent.exists()
    with Tape(tape, "replay") as whole:
        assert [ask(whole, endpoint.url, text, session="b/1").text for text in ("first", "second")] == [
            "hi",
            "hi",
        ]


@pytest.mark.parametrize("copied", [1, 2])
def test_a_gathering_that_was_cut_off_goes_on_where_it_was(tmp_path, monkeypatch, copied):
    """A tape with some calls twice would answer calls that were never made."""
    place = tmp_path / "tape"
    with Endpoint(lambda asked: "hi") as endpoint:
        with Tape(place, "auto", part_of(place, "one")) as tape:
            for _ in range(2):
                ask(tape, endpoint.url, session="a/1")
        left = [copied]
        exchange, remove = Writer.exchange, shutil.rmtree

        def cut(*arguments):
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return exchange(*arguments)

        monkeypatch.setattr(Writer, "exchange", cut)
        monkeypatch.setattr(shutil, "rmtree", cut)
        with pytest.raises(KeyboardInterrupt):
            gather(place)
        monkeypatch.setattr(Writer, "exchange", exchange)
        monkeypatch.setattr(shutil, "rmtree", remove)
        url = endpoint.url
    assert gather(place) == 1
    with Tape(place, "replay") as tape:
        for _ in range(2):
            assert ask(tape, url, session="a/1").text == "hi"
        with pytest.raises(TapeMiss, match="was recorded 2 times and is now made once more"):
            ask(tape, url, session="a/1")
