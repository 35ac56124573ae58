"""Endpoints that fail: what passes is tried again, what stays is named, and neither gets on the tape."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from stillweb.harness.models import transport
from stillweb.harness.models.client import ModelClient
from stillweb.harness.models.tape import ModelError, Tape
from stillweb.harness.models.transport import Retry
from stillweb.snapshots.errors import MissingCapability
from tests.support import openai_endpoint
from tests.support.openai_endpoint import KEY, Endpoint, ask
from tests.support.waiting import HANG

pytestmark = pytest.mark.usefixtures("openai_key")


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults", [[429], [500, 503], [521, 501], ["hang"], ["cut"], ["html"], ["empty"], ["nonsense"]]
)
def test_what_passes_is_tried_again_and_never_taped(tmp_path, faults):
    with Endpoint(lambda asked: "hi", faults) as endpoint, Tape(tmp_path / "tape", "record") as tape:
        assert ask(tape, endpoint.url, patience=10.0 if "hang" in faults else HANG).text == "hi"
        assert len(endpoint.requests) == len(faults) + 1
    with Tape(tmp_path / "tape", "replay") as tape:
        assert ask(tape, endpoint.url).text == "hi"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ([429] * 3, "status 429"),
        ([503] * 3, r"status 503.*tried 3 times"),
        (["packed"] * 3, "DecodingError.*tried 3 times"),
        (["html"] * 3, "sent HTML where JSON was expected"),
        (["hang"] * 3, "timed out"),
        (["drip"] * 3, "timed out.*tried 3 times"),
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
        Tape(tmp_path / "tape", "record") as tape,
        pytest.raises(ModelError, match=message) as error,
    ):
        ask(tape, endpoint.url, patience=0.5 if {"hang", "drip"} & set(faults) else HANG)
    assert KEY not in str(error.value)


@pytest.mark.parametrize("word", ["EMPTY", "none", "lm-studio", "x"])
def test_a_word_in_the_place_of_a_key_is_cut_out_of_no_answer(tmp_path, monkeypatch, word):
    """A word that local servers take for a key may stand in any question and answer."""
    monkeypatch.setenv("OPENAI_API_KEY", word)
    with Endpoint(lambda asked: f"It is {word}.") as endpoint, Tape(tmp_path / "tape", "record") as tape:
        assert ask(tape, endpoint.url, f"Is it {word}?").text == f"It is {word}."
    monkeypatch.delenv("OPENAI_API_KEY")
    with Tape(tmp_path / "tape", "replay") as tape:
        assert ask(tape, endpoint.url, f"Is it {word}?").text == f"It is {word}."


def test_what_holds_no_choices_is_not_on_the_tape(tmp_path):
    """The same command, which goes on with the tape, must ask again."""
    with Endpoint(lambda asked: "hi", ["no choices"]) as endpoint:
        with (
            Tape(tmp_path / "tape", "auto") as tape,
            pytest.raises(ModelError, match="holds no choices"),
        ):
            ask(tape, endpoint.url)
        with Tape(tmp_path / "tape", "auto") as tape:
            assert ask(tape, endpoint.url).text == "hi"


def given(value, kind="application/json"):
    """An endpoint that says just this."""
    body = value.encode() if isinstance(value, str) else json.dumps(value).encode()
    return httpx.MockTransport(lambda _: httpx.Response(200, headers={"Content-Type": kind}, content=body))


def message(**members):
    return {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **members}}]}


@pytest.mark.parametrize(
    "value",
    [
        [1],
        None,
        {"choices": {"a": 1}},
        {"choices": ["x"]},
        {"choices": [{"message": "hi"}]},
        message(content={"a": 1}),
        message(content=None, tool_calls=[{"id": "a", "function": {}}]),
        message(content=None, tool_calls=[{"id": "a", "function": {"name": None, "arguments": "{}"}}]),
        {**message(content="hi"), "usage": "much"},
    ],
)
def test_an_answer_built_otherwise_is_an_error_with_a_name_and_not_on_the_tape(tmp_path, value):
    url = "http://127.0.0.1:9/v1"
    with (
        Tape(tmp_path / "tape", "auto") as tape,
        pytest.raises(ModelError, match="the endpoint's answer"),
    ):
        ask(tape, url, transport=given(value))
    with Tape(tmp_path / "tape", "auto") as tape:
        assert ask(tape, url, transport=given(message(content="hi"))).text == "hi"


@pytest.mark.parametrize("said", ["y" * 4_000_001, [("fetch", {"url": "y" * 4_000_001})]])
def test_a_reply_that_is_too_long_is_named(tmp_path, said):
    with (
        Endpoint(lambda _: said) as endpoint,
        Tape(tmp_path / "tape", "auto") as tape,
        pytest.raises(ModelError, match=r"has 4,000,0\d\d characters; at most 4,000,000 are taken"),
    ):
        ask(tape, endpoint.url)


def test_an_answer_without_an_end_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(transport, "MOST_BODY", 1 << 20)
    with (
        Endpoint(lambda _: "y" * (2 << 20)) as endpoint,
        Tape(tmp_path / "tape", "auto") as tape,
        pytest.raises(ModelError, match="sent more than 1 MB"),
    ):
        ask(tape, endpoint.url)
    assert len(endpoint.requests) == 1


def test_content_in_parts_is_its_text(tmp_path):
    parts = [
        {"type": "thinking", "thinking": []},
        {"type": "text", "text": "4"},
        {"type": "text", "text": "2"},
    ]
    with Tape(tmp_path / "tape", "none") as tape:
        assert ask(tape, "http://127.0.0.1:9/v1", transport=given(message(content=parts))).text == "42"


def test_calls_that_a_stream_gives_one_number_stay_apart(tmp_path):
    """As some endpoints do with calls at once: each whole, with an id of its own, and all of index 0."""

    def chunk(delta, finish=None):
        return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta, 'finish_reason': finish}]})}\n\n"

    def call(name, arguments, **more):
        return {"tool_calls": [{"index": 0, **more, "function": {"name": name, "arguments": arguments}}]}

    stream = "".join(
        [
            chunk(call("fetch", '{"url":', id="a")),
            chunk(call(None, ' "x"}')),
            chunk(call("search", "{}", id="b")),
            chunk({}, "tool_calls"),
            "data: [DONE]\n\n",
        ]
    )

    async def once(tape):
        client = ModelClient(
            tape, base_url="http://127.0.0.1:9/v1", transport=given(stream, "text/event-stream")
        )
        try:
            return await client.chat("s/1", {"model": "m", "messages": [], "stream": True})
        finally:
            await client.close()

    with Tape(tmp_path / "tape", "none") as tape:
        calls = asyncio.run(once(tape)).tool_calls
    assert [(c.id, c.name, c.arguments) for c in calls] == [
        ("a", "fetch", '{"url": "x"}'),
        ("b", "search", "{}"),
    ]


CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CHUNKS = "".join(
    f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'tool_calls': [{**CALL, 'id': str(n), 'index': n}]}}]})}\n\n"
    for n in range(2000)
)
CHUNKS += "data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("api", "answer", "told"),
    [
        ("chat", {"choices": [{"message": {"content": "a"}}] * 1001}, "1,001 choices"),
        ("chat", message(content=None, tool_calls=[CALL] * 100_000), "100,000 tool calls"),
        ("chat", message(content=[{"type": "text", "text": "a"}] * 1001), "1,001 parts"),
        ("responses", {"output": [{}] * 1001}, "1,001 items"),
        ("stream", CHUNKS, "1,001 tool calls"),
    ],
    ids=["choices", "calls", "parts", "items", "streamed calls"],
)
def test_an_answer_of_more_than_anyone_asks_for_is_an_error_before_the_sdk_reads_it(
    tmp_path, api, answer, told
):
    kind = "text/event-stream" if api == "stream" else "application/json"

    async def once(tape):
        client = ModelClient(tape, base_url="http://127.0.0.1:9/v1", transport=given(answer, kind))
        try:
            if api == "responses":
                return await client.respond("s/1", {"model": "m", "input": []})
            return await client.chat("s/1", {"model": "m", "messages": [], "stream": api == "stream"})
        finally:
            await client.close()

    with (
        Tape(tmp_path / "tape", "none") as tape,
        pytest.raises(ModelError, match=f"{told}; at most 1,000"),
    ):
        asyncio.run(once(tape))


PART = '{"choices": [{"index": 0, "delta": {"content": "half"}, "finish_reason": null}]}'
BROKEN = {
    "an error for an answer": ("chat", False, '{"error": {"code": 429, "message": "too many"}}'),
    "a choice that failed": (
        "chat",
        False,
        '{"choices": [{"index": 0, "message": {"role": "assistant", "content": "half"}, "finish_reason": "error"}]}',
    ),
    "a response that failed": ("responses", False, '{"status": "failed", "error": {"message": "late"}}'),
    "a response that failed, and says no more": (
        "responses",
        False,
        '{"status": "failed", "error": null, "output": []}',
    ),
    "an error amid a stream": (
        "chat",
        True,
        f'data: {PART}\n\ndata: {{"error": {{"message": "gone"}}, "choices": [{{"index": 0, "delta": {{}}, '
        '"finish_reason": "error"}]}\n\ndata: [DONE]\n\n',
    ),
    "an error event": (
        "responses",
        True,
        'event: error\ndata: {"type": "error", "code": "server_error", "message": "gone", "param": null}\n\n',
    ),
    "a stream of a response that failed": (
        "responses",
        True,
        'data: {"type": "response.failed", "response": {"status": "failed", "error": {"message": "late"}}}\n\n',
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_error_in_the_shape_of_an_answer_is_tried_again_and_never_taped(tmp_path, monkeypatch, name):
    api, stream, text = BROKEN[name]
    broken = [("text/event-stream" if stream else "application/json", text.encode())]
    for made in ("chat_answer", "response_answer"):
        real = getattr(openai_endpoint, made)
        monkeypatch.setattr(
            openai_endpoint, made, lambda body, said, real=real: broken.pop() if broken else real(body, said)
        )
    said = 'it says {"error": "x"} and "type": "error"'

    async def once(tape, url):
        client = ModelClient(tape, base_url=url, retry=Retry(2, 0.01, 0.02))
        more = {"stream": True} if stream else {}
        words = [{"role": "user", "content": "?"}]
        try:
            if api == "chat":
                return await client.chat("s/1", {"model": "m", "messages": words, **more})
            return await client.respond("s/1", {"model": "m", "input": words, **more})
        finally:
            await client.close()

    with Endpoint(lambda asked: said) as endpoint, Tape(tmp_path / "tape", "record") as tape:
        assert asyncio.run(once(tape, endpoint.url)).text == said
        assert len(endpoint.requests) == 2
    with Tape(tmp_path / "tape", "replay") as tape:
        assert asyncio.run(once(tape, endpoint.url)).text == said


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

    with Tape(tmp_path / "tape", "record") as tape:
        with (
            Endpoint(lambda asked: "a long answer " * 20, ["half", "half"]) as endpoint,
            pytest.raises(ModelError, match="that breaks off" if stream else "sent no JSON"),
        ):
            asyncio.run(once(tape, endpoint.url))
        with Endpoint(lambda asked: "a long answer " * 20, ["half"]) as endpoint:
            assert asyncio.run(once(tape, endpoint.url)).text == "a long answer " * 20


def test_an_endpoint_that_is_gone_is_named(tmp_path):
    with Endpoint(lambda asked: "hi") as endpoint:
        pass
    with Tape(tmp_path / "tape", "record") as tape, pytest.raises(ModelError, match="ConnectError"):
        ask(tape, endpoint.url)


def test_isolation_is_named_where_it_leaves_no_way_to_the_endpoint(tmp_path, monkeypatch):
    monkeypatch.setattr("stillweb.harness.models.transport.is_isolated", lambda: True)
    with Endpoint(lambda asked: "hi") as endpoint:
        pass
    with Tape(tmp_path / "tape", "record") as tape, pytest.raises(MissingCapability, match="--isolate"):
        ask(tape, endpoint.url)


def test_a_missing_key_is_named_before_anything_is_sent(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with (
        Endpoint(lambda asked: "hi") as endpoint,
        Tape(tmp_path / "tape", "auto") as tape,
        pytest.raises(MissingCapability, match="OPENAI_API_KEY holds no key"),
    ):
        ask(tape, endpoint.url)
    assert endpoint.requests == []
    with Endpoint(lambda asked: "hi") as endpoint, Tape(None, "none") as tape:
        assert ask(tape, endpoint.url, key_variable="").text == "hi"


def test_waiting_between_tries_is_bounded_and_the_same_every_time():
    retry = Retry(5, 0.5, 8.0)
    waits = [retry.delay(n, "key", None) for n in range(1, 8)]
    assert waits == [retry.delay(n, "key", None) for n in range(1, 8)]
    assert all(0.25 <= wait <= 8.0 for wait in waits)
    assert retry.delay(1, "key", "3") == 3.0
    assert retry.delay(1, "key", "9999") == 8.0


def test_a_date_says_until_when_to_wait_and_what_says_nothing_is_no_error():
    retry = Retry(5, 0.1, 600.0)
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=300), usegmt=True)
    assert 200 < retry.delay(1, "key", date) <= 300
    past = format_datetime(datetime.now(UTC) - timedelta(seconds=300), usegmt=True)
    plain = retry.delay(1, "key", None)
    for nothing in (past, "soon", "\u00b2", "", "-5", "nan", "inf"):
        assert retry.delay(1, "key", nothing) == plain
