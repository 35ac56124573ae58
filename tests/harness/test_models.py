"""Model calls: both APIs, streamed or not, kept on a tape and played again without key or endpoint."""

import asyncio
import gzip
import json
from pathlib import Path

import pytest
import yaml

from harness.attempt import Limits
from harness.certificate import certify, make_certificate, write_certificate
from harness.display import SilentDisplay
from harness.endpoint import Retry
from harness.models import Judge, ModelClient, Usage, cost_of
from harness.run_files import Settings
from harness.runner import run_attempts, start_run
from harness.summary import score_run, summarise
from harness.tape import ModelError, Tape, TapeMiss, difference, gather, part_of
from harness.task import Task
from harness.trace import read_trace
from snapshots.errors import MissingCapability, UsageError
from tests.support.openai_endpoint import Asked, Endpoint, chat_answer
from tests.support.runs import SHELF, bird_task
from tests.support.waiting import HANG

KEY = "sk-test-0123456789abcdef"
LIST = "https://shelf.example/list?year=2012&page=1"


def birds(asked: Asked):
    """Fetches the list, tries a page that is not there, answers from what it read."""
    if not asked.tool_answers:
        return [("fetch", {"url": LIST}), ("fetch", {"url": "https://shelf.example/other"})]
    return "7|3900\n9|3700"


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def agent_file(folder: Path, url: str, **members) -> str:
    path = folder / "model.yaml"
    settings = {"agent": "openai", "model": "birder", "base_url": url, "tries": 3, **members}
    path.write_text(yaml.safe_dump(settings))
    return str(path)


def run(folder: Path, agent: str, name="run", tasks=None, **settings):
    prices = {"birder": {"input": 1.0, "output": 2.0, "cached": 0.5}}
    ready = Settings(agent=agent, contracts=(SHELF,), prices=prices, **settings)
    files = start_run(folder / name, ready, tasks or [bird_task("one"), bird_task("two")])
    run_attempts(files.path, display=SilentDisplay())
    return files


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_run_is_taped_and_repeats_without_key_or_endpoint_to_the_same_certificate(
    tmp_path, monkeypatch, api, stream
):
    with Endpoint(birds) as endpoint:
        files = run(tmp_path, agent_file(tmp_path, endpoint.url, api=api, stream=stream), epochs=2)
        assert len(endpoint.requests) == 8
        assert set(endpoint.keys) == {f"Bearer {KEY}"}
    summary = summarise(files.path)
    assert summary.means["em"].value == 1.0
    assert summary.misses == 4
    assert summary.tokens > 0
    assert summary.cost > 0
    certificate = write_certificate(files.path)
    assert certificate["models"] == ["birder"]
    assert certificate["served"] == ["birder-2025-01-01"]
    monkeypatch.delenv("OPENAI_API_KEY")
    again = run(
        tmp_path,
        agent_file(tmp_path, endpoint.url, api=api, stream=stream),
        name="again",
        tape="replay",
        tape_path=str(files.path / "tape"),
        epochs=2,
    )
    assert make_certificate(again.path)["hash"] == certificate["hash"]
    assert score_run(again.path) == []


def test_certify_repeats_a_taped_run_in_fresh_processes(tmp_path, monkeypatch):
    with Endpoint(birds) as endpoint:
        files = run(tmp_path, agent_file(tmp_path, endpoint.url))
    monkeypatch.delenv("OPENAI_API_KEY")
    report = certify(files.path, times=2)
    assert report.differences == ()
    assert set(report.repeated) == {report.hash}


def test_a_run_without_a_tape_is_not_repeated_by_asking_again(tmp_path):
    with Endpoint(birds) as endpoint:
        files = run(tmp_path, agent_file(tmp_path, endpoint.url), tape="none", tasks=[bird_task("one")])
        asked = len(endpoint.requests)
        with pytest.raises(UsageError, match="its model calls lie on no tape"):
            certify(files.path, times=1)
        assert len(endpoint.requests) == asked


def test_the_key_and_the_cookies_are_nowhere_in_the_run(tmp_path):
    with Endpoint(birds, faults=[400]) as endpoint:
        files = run(tmp_path, agent_file(tmp_path, endpoint.url))
    written = [path for path in files.path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".gz" for path in written)
    for path in written:
        data = path.read_bytes()
        data = gzip.decompress(data) if path.suffix == ".gz" else data
        assert KEY.encode() not in data, path
        assert b"secret-cookie" not in data, path


def test_tool_calls_that_are_wrong_are_told_to_the_model_and_traced(tmp_path):
    def clumsy(asked):
        turn = len(asked.tool_answers)
        if turn == 0:
            return [("fetch", "{not json"), ("fetch", "[1]"), ("sing", {})]
        return "NONE"

    with Endpoint(clumsy) as endpoint:
        files = run(tmp_path, agent_file(tmp_path, endpoint.url), tasks=[bird_task("one")])
        told = [m["content"] for m in endpoint.requests[1]["messages"] if m["role"] == "tool"]
    assert told[0].startswith("Error: the arguments are not JSON")
    assert told[1] == "Error: the arguments are no JSON object"
    assert told[2] == "Error: there is no tool 'sing'; there are fetch"
    trace = read_trace(files.trace_path("one", 1))
    assert [call["error"] for call in trace.of("tool_call")] == [True] * 3
    assert trace.of("tool_call")[0]["arguments"] == "{not json"


@pytest.mark.parametrize(
    ("limits", "end"),
    [
        (Limits(steps=1), "steps"),
        (Limits(tokens=10), "tokens"),
        (Limits(money=1e-9), "money"),
        (Limits(calls=1), "calls"),
    ],
)
def test_limits_of_steps_tokens_money_and_calls_end_an_attempt(tmp_path, limits, end):
    with Endpoint(birds) as endpoint:
        files = run(tmp_path, agent_file(tmp_path, endpoint.url), tasks=[bird_task("one")], limits=limits)
    trace = read_trace(files.trace_path("one", 1))
    assert (trace.last("answer")["end"], trace.last("score")["status"]) == (end, "zero")


def uncounted(monkeypatch):
    """The endpoint says nothing of what a call used."""
    monkeypatch.setattr(
        "tests.support.openai_endpoint.chat_answer", lambda body, said: without_usage(chat_answer(body, said))
    )


def without_usage(answer):
    kind, data = answer
    whole = json.loads(data)
    del whole["usage"]
    return kind, json.dumps(whole).encode()


def test_what_an_endpoint_does_not_count_costs_nothing_known(tmp_path, monkeypatch):
    uncounted(monkeypatch)
    with Endpoint(birds) as endpoint:
        files = run(tmp_path, agent_file(tmp_path, endpoint.url), tasks=[bird_task("one")])
    summary = summarise(files.path)
    assert (summary.cost, summary.tokens) == (None, 0)
    assert summary.means["em"].value == 1.0


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (Limits(tokens=10), "the limit of tokens can't be kept: a call does not say what it used"),
        (Limits(money=9.0), "the limit of money can't be kept: a call has no price"),
    ],
)
def test_a_limit_that_can_not_be_kept_ends_the_attempt_and_says_so(tmp_path, monkeypatch, limits, says):
    uncounted(monkeypatch)
    with Endpoint(birds) as endpoint:
        files = run(tmp_path, agent_file(tmp_path, endpoint.url), tasks=[bird_task("one")], limits=limits)
        assert len(endpoint.requests) == 1
    answer = read_trace(files.trace_path("one", 1)).last("answer")
    assert answer["end"] == "error"
    assert says in answer["error"]


def test_a_limit_of_money_wants_the_price_of_the_model_before_anything_is_asked(tmp_path):
    with Endpoint(birds) as endpoint:
        agent = agent_file(tmp_path, endpoint.url, model="another")
        with pytest.raises(UsageError, match="--max-money: --prices has none for 'another'"):
            run(tmp_path, agent, limits=Limits(money=1.0))
        assert endpoint.requests == []


def ask(tape, url, text="hello", session="s/1", patience=HANG, **options):
    async def once():
        client = ModelClient(tape, base_url=url, retry=Retry(3, 0.01, 0.02), timeout=patience, **options)
        try:
            return await client.chat(session, {"model": "m", "messages": [{"role": "user", "content": text}]})
        finally:
            await client.close()

    return asyncio.run(once())


@pytest.mark.parametrize("faults", [[429], [500, 503], ["hang"], ["cut"], ["html"], ["empty"], ["nonsense"]])
def test_what_passes_is_tried_again_and_never_taped(tmp_path, faults):
    with Endpoint(lambda asked: "hi", faults) as endpoint, Tape.open(tmp_path / "tape", "record") as tape:
        assert ask(tape, endpoint.url, patience=10.0 if "hang" in faults else HANG).text == "hi"
        assert len(endpoint.requests) == len(faults) + 1
    with Tape.open(tmp_path / "tape", "replay") as tape:
        assert ask(tape, endpoint.url).text == "hi"


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ([429] * 3, "status 429"),
        ([503] * 3, r"status 503.*tried 3 times"),
        (["html"] * 3, "sent HTML where JSON was expected"),
        (["hang"] * 3, "timed out"),
        (["cut"] * 3, "RemoteProtocolError"),
        (["empty"] * 3, "sent an empty body"),
        (["nonsense"] * 3, "sent no JSON"),
        (["no choices"], "holds no choices"),
        ([404], "status 404"),
        ([401], "status 401"),
    ],
)
def test_what_stays_broken_is_named_and_carries_no_key(tmp_path, faults, message):
    with (
        Endpoint(lambda asked: "hi", faults) as endpoint,
        Tape.open(tmp_path / "tape", "record") as tape,
        pytest.raises(ModelError, match=message) as error,
    ):
        ask(tape, endpoint.url, patience=0.5 if "hang" in faults else HANG)
    assert KEY not in str(error.value)


@pytest.mark.parametrize("stream", [False, True])
def test_half_an_answer_is_no_answer(tmp_path, stream):
    """A proxy that gives up in the middle closes a stream as if it were whole."""
    more = {"stream": True} if stream else {}

    async def once(tape, url):
        client = ModelClient(tape, base_url=url, retry=Retry(2, 0.01, 0.02))
        try:
            return await client.chat(
                "s/1", {"model": "m", "messages": [{"role": "user", "content": "?"}], **more}
            )
        finally:
            await client.close()

    with Tape.open(tmp_path / "tape", "record") as tape:
        with (
            Endpoint(lambda asked: "a long answer " * 20, ["half", "half"]) as endpoint,
            pytest.raises(ModelError, match="that breaks off" if stream else "sent no JSON"),
        ):
            asyncio.run(once(tape, endpoint.url))
        with Endpoint(lambda asked: "a long answer " * 20, ["half"]) as endpoint:
            assert asyncio.run(once(tape, endpoint.url)).text == "a long answer " * 20


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_the_model_is_told_where_to_start_if_the_protocol_says_so(tmp_path, api):
    identities = []
    for name, members in (("with", {}), ("without", {"start_url": False})):
        with Endpoint(lambda asked: "NONE") as endpoint:
            agent = agent_file(tmp_path, endpoint.url, api=api, **members)
            files = run(tmp_path, agent, name, tasks=[bird_task("one")])
            told = json.dumps(endpoint.requests[0])
        assert ("Start at https://shelf.example/" in told) == (name == "with")
        identities.append(files.manifest()[1]["agent"])
    assert identities[0] != identities[1]


def test_an_endpoint_that_is_gone_is_named(tmp_path):
    with Endpoint(lambda asked: "hi") as endpoint:
        pass
    with Tape.open(tmp_path / "tape", "record") as tape, pytest.raises(ModelError, match="ConnectError"):
        ask(tape, endpoint.url)


def test_a_missing_key_is_named_before_anything_is_sent(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with (
        Endpoint(lambda asked: "hi") as endpoint,
        Tape.open(tmp_path / "tape", "auto") as tape,
        pytest.raises(MissingCapability, match="OPENAI_API_KEY holds no key"),
    ):
        ask(tape, endpoint.url)
    assert endpoint.requests == []
    with Endpoint(lambda asked: "hi") as endpoint, Tape.open(None, "none") as tape:
        assert ask(tape, endpoint.url, key_variable="").text == "hi"


def test_a_call_that_is_not_on_the_tape_is_explained_to_the_character(tmp_path):
    with Endpoint(lambda asked: "hi") as endpoint, Tape.open(tmp_path / "tape", "record") as tape:
        ask(tape, endpoint.url, "Which birds weigh more?")
    with Tape.open(tmp_path / "tape", "replay") as tape:
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
        with pytest.raises(TapeMiss, match="recorded 1 time and is made once more"):
            ask(tape, endpoint.url, "Which birds weigh more?")


def test_the_same_question_twice_gets_the_two_answers_in_order(tmp_path):
    count = iter(range(10))
    with (
        Endpoint(lambda asked: f"answer {next(count)}") as endpoint,
        Tape.open(tmp_path / "tape", "record") as tape,
    ):
        recorded = [ask(tape, endpoint.url).text for _ in range(3)]
    with Tape.open(tmp_path / "tape", "replay") as tape:
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
            with Tape.open(tmp_path / "tape", mode) as tape:
                assert ask(tape, endpoint.url).text == expected
        with Tape.open(tmp_path / "tape", "auto") as tape:
            assert ask(tape, endpoint.url).text == "answer 1"
            assert ask(tape, endpoint.url, "another").text == "answer 2"
        with Tape.open(tmp_path / "tape", "replay") as tape:
            assert ask(tape, endpoint.url, "another").text == "answer 2"
            assert ask(tape, endpoint.url).text == "answer 1"


def test_odd_session_names_come_back(tmp_path):
    name = "tâsk @7/ü\n:1/1"
    with Endpoint(lambda asked: "hi") as endpoint, Tape.open(tmp_path / "tape", "record") as tape:
        ask(tape, endpoint.url, session=name)
    with Tape.open(tmp_path / "tape", "replay") as tape:
        assert ask(tape, endpoint.url, session=name).text == "hi"


def test_a_tape_that_is_not_there_or_a_mode_that_is_none_is_named(tmp_path):
    with pytest.raises(UsageError, match="there is no tape to replay"):
        Tape.open(tmp_path / "tape", "replay")
    with pytest.raises(UsageError, match="'erase' is none of"):
        Tape.open(tmp_path / "tape", "erase")  # type: ignore[arg-type]


def test_the_tape_opens_as_any_snapshot_does(tmp_path):
    from snapshots.snapshot import Snapshot

    with Endpoint(lambda asked: "hi") as endpoint, Tape.open(tmp_path / "tape", "record") as tape:
        ask(tape, endpoint.url)
    with Snapshot.open(tmp_path / "tape") as snapshot:
        [capture] = snapshot.captures()
        assert (capture.method, capture.url) == ("POST", f"{endpoint.url}/chat/completions")
        assert b'"hi"' in snapshot.read(capture).body
        assert snapshot.read_request(capture).header("authorization") is None


def test_a_judge_is_taped_and_scores_again_from_the_trace_alone(tmp_path, monkeypatch):
    def both(asked):
        if asked.body["model"] == "grader":
            return "extracted_final_answer: kestrel\nreasoning: the same\ncorrect: yes\nconfidence: 90"
        return "A kestrel."

    task = Task("bird", "Which bird?", "kestrel", "judge", options={"model": "grader"})
    with Endpoint(both) as endpoint:
        env = {"GRADER_BASE_URL": endpoint.url}
        monkeypatch.setenv("GRADER_API_KEY", KEY)
        files = run(tmp_path, agent_file(tmp_path, endpoint.url), tasks=[task], env=env)
    trace = read_trace(files.trace_path("bird", 1))
    assert trace.last("score")["metrics"] == {"correct": 1.0}
    assert [event["purpose"] for event in trace.of("model")] == ["agent", "judge"]
    assert score_run(files.path) == []
    for name in ("OPENAI_API_KEY", "GRADER_API_KEY"):
        monkeypatch.delenv(name)
    assert certify(files.path, times=1).holds


def test_a_judge_stands_alone_too(tmp_path):
    with Endpoint(lambda asked: "yes") as endpoint, Tape.open(tmp_path / "tape", "record") as tape:
        judge = Judge(tape, {None: {"base_url": endpoint.url, "key_variable": "OPENAI_API_KEY"}})
        try:
            assert judge.complete([{"role": "user", "content": "right?"}], "grader", 0.0) == "yes"
        finally:
            judge.close()
    assert endpoint.requests[0]["temperature"] == 0.0


def test_cost_counts_cached_tokens_at_their_own_price():
    price = {"input": 2.0, "output": 10.0, "cached": 0.5}
    assert cost_of(Usage(1_000_000, 100_000, 400_000), price) == 1.2 + 0.2 + 1.0
    assert cost_of(Usage(5, 5), None) is None


@pytest.mark.parametrize(
    ("taped", "now", "text"),
    [
        ({"a": 1}, {"a": 2}, "a is 1 on the tape, now 2"),
        ({"a": 1}, {}, "a is 1 on the tape, now it is not there"),
        ({}, {"b": "x"}, 'b is not on the tape, now "x"'),
        ({"a": [1, 2]}, {"a": [1]}, "a has 2 entries on the tape, now 1"),
        (
            {"a": [{"b": "xyz"}]},
            {"a": [{"b": "xya"}]},
            "a[0].b differs at character 2: 'xyz' on the tape, now 'xya'",
        ),
        ({"a": "1"}, {"a": 1}, 'a is "1" on the tape, now 1'),
    ],
)
def test_a_difference_is_named_with_its_place(taped, now, text):
    assert difference(taped, now)[1] == text


def test_waiting_between_tries_is_bounded_and_the_same_every_time():
    retry = Retry(5, 0.5, 8.0)
    waits = [retry.delay(n, "key", None) for n in range(1, 8)]
    assert waits == [retry.delay(n, "key", None) for n in range(1, 8)]
    assert all(0.25 <= wait <= 8.0 for wait in waits)
    assert retry.delay(1, "key", "3") == 3.0
    assert retry.delay(1, "key", "9999") == 8.0


def test_parts_that_workers_recorded_become_the_tape(tmp_path):
    """One directory has one writer, so each worker of another engine records into a part of its own."""
    with Endpoint(lambda asked: f"to {asked.question}") as endpoint:
        with Tape.open(tmp_path / "tape", "record") as tape:
            ask(tape, endpoint.url, session="a/1")
        for name in ("b/1", "c/1"):
            with Tape.open(tmp_path / "tape", "auto", part_of(tmp_path / "tape", name[0])) as tape:
                ask(tape, endpoint.url, session=name)
                ask(tape, endpoint.url, session=name)
        assert len(endpoint.requests) == 5
        url = endpoint.url
    assert gather(tmp_path / "tape") == 2
    assert gather(tmp_path / "tape") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["tape"]
    with Tape.open(tmp_path / "tape", "replay") as tape:
        for name in ("a/1", "b/1", "b/1", "c/1"):
            assert ask(tape, url, session=name).text == "to hello"
        with pytest.raises(TapeMiss, match="is made once more"):
            ask(tape, url, session="b/1")


def test_a_part_that_is_still_written_is_left_until_it_is_whole(tmp_path):
    tape = tmp_path / "tape"
    with Endpoint(lambda asked: "hi") as endpoint:
        with Tape.open(tape, "auto", part_of(tape, "ended")) as ended:
            ask(ended, endpoint.url, session="a/1")
        with Tape.open(tape, "auto", part_of(tape, "goes on")) as going:
            ask(going, endpoint.url, "first", session="b/1")
            assert gather(tape) == 1
            ask(going, endpoint.url, "second", session="b/1")
    assert gather(tape) == 1
    assert not part_of(tape, "x").parent.exists()
    with Tape.open(tape, "replay") as whole:
        assert [ask(whole, endpoint.url, text, session="b/1").text for text in ("first", "second")] == [
            "hi",
            "hi",
        ]
