"""Streams of answers as endpoints and what stands before them send them: whole, cut, and none that anybody can read."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from stillweb.harness.models.client import ModelClient, Reply
from stillweb.harness.models.sse import response_of
from stillweb.harness.models.tape import ModelError, Tape
from stillweb.harness.models.transport import Retry

pytestmark = pytest.mark.usefixtures("openai_key")

DONE = "data: [DONE]\n\n"


def chunk(text: str, finish: str | None = None, index: int = 0) -> str:
    """An event of a stream of Chat Completions."""
    choice = {"index": index, "delta": {"content": text}, "finish_reason": finish}
    return f"data: {json.dumps({'choices': [choice]})}\n\n"


def ask(tape: Tape, said: str, *, stream: bool = True, kind: str = "text/event-stream") -> Reply:
    """A question to an endpoint that says just this, whenever it is asked."""
    transport = httpx.MockTransport(
        lambda _: httpx.Response(200, headers={"Content-Type": kind}, content=said.encode())
    )

    async def once() -> Reply:
        client = ModelClient(
            tape, base_url="http://127.0.0.1:9/v1", transport=transport, retry=Retry(2, 0.01, 0.01)
        )
        body: dict[str, Any] = {
            "model": "m",
            "messages": [{"role": "user", "content": "?"}],
            "stream": stream,
        }
        try:
            return await client.chat("s/1", body)
        finally:
            await client.close()

    return asyncio.run(once())


@pytest.mark.parametrize(
    "said",
    [
        chunk("say [DONE] and"),
        chunk("half", ""),  # as some endpoints write what others call null
        chunk("half") + chunk(" of it", "stop").rstrip("\n"),  # an event that breaks off is none
    ],
)
def test_a_stream_that_breaks_off_is_no_answer_whatever_it_says(said: str) -> None:
    with Tape(None, "none") as tape, pytest.raises(ModelError, match="that breaks off"):
        ask(tape, said)


def test_an_event_that_is_no_json_is_told() -> None:
    with Tape(None, "none") as tape, pytest.raises(ModelError, match="an event stream that is not JSON"):
        ask(tape, chunk("7") + "data: {nonsense\n\n" + chunk("", "stop") + DONE)


@pytest.mark.parametrize("between", [": at work\n\n", "id: 1\nretry: 5\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_streams_say_between_their_events_is_no_answer(between: str, end: str) -> None:
    said = (between + chunk("7") + between + chunk("", "stop") + DONE).replace("\n", end)
    with Tape(None, "none") as tape:
        assert ask(tape, said).text == "7"


def test_of_several_answers_the_first_is_the_answer() -> None:
    said = [chunk("se"), chunk("ni", index=1), chunk("ven", "stop"), chunk("ne", "stop", 1), DONE]
    with Tape(None, "none") as tape:
        assert ask(tape, "".join(said)).text == "seven"


@pytest.mark.parametrize(
    ("stream", "said", "kind"),
    [
        (True, 'data: {"choices": [], "usage": {"prompt_tokens": 3}}\n\n' + DONE, "text/event-stream"),
        (False, chunk("7", "stop") + DONE, "text/event-stream"),
        (True, '{"choices": [{"message": {"content": "7"}}]}', "application/json"),
    ],
)
def test_what_nobody_can_read_is_not_on_the_tape_and_asked_for_again(
    tmp_path: Path, stream: bool, said: str, kind: str
) -> None:
    with (
        Tape(tmp_path / "tape", "auto") as tape,
        pytest.raises(ModelError, match=r"the endpoint's (answer|stream)"),
    ):
        ask(tape, said, stream=stream, kind=kind)
    message = {"role": "assistant", "content": "7"}
    whole = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    good = (chunk("7", "stop") + DONE, "text/event-stream") if stream else (whole, "application/json")
    with Tape(tmp_path / "tape", "auto") as tape:
        assert ask(tape, good[0], stream=stream, kind=good[1]).text == "7"


def delta(finish: str | None = None, **members: Any) -> str:
    """An event with a delta of these members."""
    choice = {"index": 0, "delta": members, "finish_reason": finish}
    return f"data: {json.dumps({'choices': [choice]})}\n\n"


def part(name: str | None = None, arguments: Any = None, **members: Any) -> dict[str, Any]:
    """A part of a tool call; `members` are its index and id."""
    given = {"name": name, "arguments": arguments}
    return {**members, "function": {key: value for key, value in given.items() if value is not None}}


FETCH = ("fetch", '{"url": "a"}')
READ = ("read", '{"page": 2}')


@pytest.mark.parametrize(
    ("parts", "calls"),
    [
        pytest.param(
            [part("fetch", '{"url"', index=0, id="1"), part("fetch", ': "a"}', index=0, id="1")],
            [FETCH],
            id="the name again in each chunk",
        ),
        pytest.param(
            [part(*FETCH, index=0, id="1"), part(*READ, index=0, id="2")], [FETCH, READ], id="one index"
        ),
        pytest.param([part(*FETCH, id="1"), part(*READ, id="2")], [FETCH, READ], id="no index"),
        pytest.param([part(*FETCH, index=0), part(*READ, index=1)], [FETCH, READ], id="no ids"),
        pytest.param([part(*FETCH), part(*READ)], [FETCH, READ], id="neither"),
        pytest.param([part("fetch", {"url": "a"}, index=0, id="1")], [FETCH], id="arguments as an object"),
        pytest.param([part(*FETCH, index=0, id="1")] * 2, [FETCH], id="the whole call again at the end"),
        pytest.param(
            [
                part("fetch", '{"url":', index=0, id="1"),
                part(None, '"a"}', index=0),
                part(*FETCH, index=0, id="1"),
            ],
            [("fetch", FETCH[1])],
            id="the whole call again, written otherwise",
        ),
        pytest.param(
            [part("read", "{}", index=0, id="1"), part(None, READ[1], index=0)],
            [READ],
            id="an empty object before the arguments",
        ),
        pytest.param(
            [part(*FETCH, index=0, id="1"), part(None, "\n", index=0)],
            [("fetch", FETCH[1] + "\n")],
            id="a line's end after the arguments",
        ),
        pytest.param(
            [part("read", index=0, id="1"), part(None, '{"page"', index=0), part(None, ": 2}", index=0)],
            [READ],
            id="the arguments after the name",
        ),
    ],
)
def test_tool_calls_arrive_however_they_are_cut(parts: list[Any], calls: list[tuple[str, str]]) -> None:
    said = "".join(delta(tool_calls=[one]) for one in parts) + delta("tool_calls") + DONE
    with Tape(None, "none") as tape:
        reply = ask(tape, said)
    assert [(call.name, call.arguments) for call in reply.tool_calls] == calls
    ids = [call.id for call in reply.tool_calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)


def test_a_stream_may_send_a_message_whole() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [part(*FETCH, id="1")]}
    said = delta("tool_calls", **message).replace('"delta"', '"message"') + DONE
    with Tape(None, "none") as tape:
        reply = ask(tape, said)
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [FETCH]


@pytest.mark.parametrize(
    ("deltas", "member", "value"),
    [
        ([{"reasoning_content": "I "}, {"reasoning_content": "look."}], "reasoning_content", "I look."),
        (
            [{"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": text}]} for text in "ab"]
            + [{"reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": "s=="}]}],
            "reasoning_details",
            [{"type": "reasoning.text", "index": 0, "text": "ab", "signature": "s=="}],
        ),
        (
            [{"reasoning_details": [{"type": "reasoning.encrypted", "id": name, "data": "x"}]} for name in "ab"],
            "reasoning_details",
            [{"type": "reasoning.encrypted", "id": name, "data": "x"} for name in "ab"],
        ),
        ([{"extra_content": {"google": {"thought_signature": "t"}}}], "extra_content", {"google": {"thought_signature": "t"}}),
        ([{"annotations": [{"url": "a"}]}, {"annotations": [{"url": "b"}]}], "annotations", [{"url": "a"}, {"url": "b"}]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [True, False])
def test_all_that_an_endpoint_sends_with_a_message_goes_back(
    deltas: list[dict[str, Any]], member: str, value: Any, stream: bool
) -> None:
    message = {"role": "assistant", "content": "7", member: value}
    whole = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    streamed = "".join(delta(**one) for one in deltas) + chunk("7", "stop") + DONE
    with Tape(None, "none") as tape:
        if stream:
            (item,) = ask(tape, streamed).items
        else:
            (item,) = ask(tape, whole, stream=False, kind="application/json").items
    assert item[member] == value


def test_items_that_a_stream_of_responses_sent_before_its_end_arrive() -> None:
    items = [
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "2 + 5"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "7"}]},
    ]
    done = [
        {"type": "response.output_item.done", "output_index": n, "item": item} for n, item in enumerate(items)
    ]
    last = {"type": "response.completed", "response": {"status": "completed", "output": []}}
    for events in ([*done, last], [*done[::-1], last], [{**last, "response": {"output": items}}]):
        assert response_of(events)["output"] == items


@pytest.mark.parametrize(
    ("content", "text", "reasoning"),
    [
        ("<think>2 + 5</think>\n\n7", "7", "2 + 5"),
        ("2 + 5</think>7", "7", "2 + 5"),
        ("<|channel>thought\n2 + 5<channel|>7", "7", "2 + 5"),
        ("The tag is <think>.", "The tag is <think>.", None),
        ("7", "7", None),
    ],
)
def test_thoughts_in_the_content_are_not_the_answer(content: str, text: str, reasoning: str | None) -> None:
    with Tape(None, "none") as tape:
        reply = ask(tape, chunk(content[:3]) + chunk(content[3:], "stop") + DONE)
    assert (reply.text, reply.reasoning) == (text, reasoning)
