"""Streams of answers as endpoints and what stands before them send them: whole, cut, and none that anybody can read."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from stillweb.harness.models.client import ModelClient, Reply
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
    with Tape.open(None, "none") as tape, pytest.raises(ModelError, match="that breaks off"):
        ask(tape, said)


def test_an_event_that_is_no_json_is_told() -> None:
    with Tape.open(None, "none") as tape, pytest.raises(ModelError, match="an event stream that is no JSON"):
        ask(tape, chunk("7") + "data: {nonsense\n\n" + chunk("", "stop") + DONE)


@pytest.mark.parametrize("between", [": at work\n\n", "id: 1\nretry: 5\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_streams_say_between_their_events_is_no_answer(between: str, end: str) -> None:
    said = (between + chunk("7") + between + chunk("", "stop") + DONE).replace("\n", end)
    with Tape.open(None, "none") as tape:
        assert ask(tape, said).text == "7"


def test_of_several_answers_the_first_is_the_answer() -> None:
    said = [chunk("se"), chunk("ni", index=1), chunk("ven", "stop"), chunk("ne", "stop", 1), DONE]
    with Tape.open(None, "none") as tape:
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
        Tape.open(tmp_path / "tape", "auto") as tape,
        pytest.raises(ModelError, match="the endpoint's answer"),
    ):
        ask(tape, said, stream=stream, kind=kind)
    message = {"role": "assistant", "content": "7"}
    whole = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    good = (chunk("7", "stop") + DONE, "text/event-stream") if stream else (whole, "application/json")
    with Tape.open(tmp_path / "tape", "auto") as tape:
        assert ask(tape, good[0], stream=stream, kind=good[1]).text == "7"
