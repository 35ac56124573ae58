"""Recorded calls that were under way at once: answered in the order of the first time, each with its own answer."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.models import tape_order as turns
from stillweb.harness.models.client import ModelClient
from stillweb.harness.models.tape import ModelError, Tape, TapeMiss, gather, part_of
from stillweb.harness.models.transport import Retry
from tests.support.openai_endpoint import Asked, Endpoint
from tests.support.waiting import until

Ask = Callable[[str], Awaitable[str]]
TEXTS = [f"what of {n}" for n in range(4)]
BACKWARDS = ["re 3", "re 2", "re 1", "re 0"]


class Backwards:
    """A model that answers `TEXTS`, once all are asked, in the opposite order: each answer when those before were heard.

    `failing` is a question that nobody hears an answer to; after so many answers as `most` the others wait to the end.
    """

    def __init__(self, *, failing: str = "", most: int = 4) -> None:
        self.failing = failing
        self.most = most
        self.asked: set[str] = set()
        self.heard: list[str] = []
        self.over = threading.Event()

    def __call__(self, asked: Asked) -> str:
        self.asked.add(asked.question)
        if asked.question == self.failing:
            raise ConnectionError
        later = TEXTS[TEXTS.index(asked.question) + 1 :]
        before = {reply(text) for text in later if text != self.failing}
        assert until(lambda: self.over.is_set() or self._next(before))
        return reply(asked.question)

    def _next(self, before: set[str]) -> bool:
        return len(before) < self.most and self.asked == {*TEXTS} and before <= {*self.heard}


def reply(text: str) -> str:
    return f"re {text.split()[-1]}"


def at_once(asked: Asked) -> str:
    return reply(asked.question)


def together(
    tape: Tape, url: str, agent: Callable[[Ask, list[str]], Awaitable[Any]], model: Backwards | None = None
) -> list[str]:
    """Return the texts that an agent was told, in order; a `model` that goes by them is told, too."""
    heard = model.heard if model else []

    async def once() -> None:
        client = ModelClient(tape, base_url=url, key_variable="", retry=Retry(2, 0.01, 0.02))

        async def ask(text: str) -> str:
            reply = await client.chat("s/1", {"model": "m", "messages": [{"role": "user", "content": text}]})
            heard.append(str(reply.text))
            return str(reply.text)

        try:
            await agent(ask, heard)
            client.end("s/1")
        finally:
            await client.close()
            if model:
                model.over.set()

    asyncio.run(once())
    return heard


def asks(texts: Sequence[str]) -> Callable[[Ask, list[str]], Awaitable[Any]]:
    async def agent(ask: Ask, heard: list[str]) -> None:
        await asyncio.gather(*map(ask, texts))

    return agent


def test_answers_come_again_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    with Endpoint(model := Backwards()) as endpoint, Tape(tmp_path / "tape", "record") as tape:
        assert together(tape, endpoint.url, asks(TEXTS), model) == BACKWARDS
    for texts in (TEXTS, TEXTS[::-1]):
        with Tape(tmp_path / "tape", "replay") as tape:
            assert together(tape, endpoint.url, asks(texts)) == BACKWARDS


def test_also_when_a_worker_recorded_them_into_a_part(tmp_path: Path) -> None:
    with (
        Endpoint(model := Backwards()) as endpoint,
        Tape(tmp_path / "tape", "auto", part_of(tmp_path / "tape", "one")) as tape,
    ):
        together(tape, endpoint.url, asks(TEXTS), model)
    assert gather(tmp_path / "tape") == 1
    with Tape(tmp_path / "tape", "replay") as tape:
        assert together(tape, endpoint.url, asks(TEXTS)) == BACKWARDS


def test_who_asks_less_than_the_first_time_is_not_held_up_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 0.2)
    with Endpoint(model := Backwards()) as endpoint, Tape(tmp_path / "tape", "record") as tape:
        together(tape, endpoint.url, asks(TEXTS), model)
    with Tape(tmp_path / "tape", "replay") as tape:
        assert together(tape, endpoint.url, asks(TEXTS[:2])) == ["re 1", "re 0"]


def test_calls_one_after_the_other_wait_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 1e9)

    async def agent(ask: Ask, heard: list[str]) -> None:
        for text in reversed(TEXTS):
            await ask(text)

    with Endpoint(lambda asked: asked.question) as endpoint, Tape(tmp_path / "tape", "record") as tape:
        together(tape, endpoint.url, agent)
    with Tape(tmp_path / "tape", "replay") as tape:
        assert together(tape, endpoint.url, asks(TEXTS[2:])) == TEXTS[2:]


async def race(ask: Ask, heard: list[str]) -> None:
    """Goes on with the first answer; the others are given up."""
    tasks = [asyncio.ensure_future(ask(text)) for text in TEXTS]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_what_was_given_up_is_never_answered(tmp_path: Path) -> None:
    with Endpoint(model := Backwards(most=1)) as endpoint:
        with Tape(tmp_path / "tape", "record") as tape:
            assert together(tape, endpoint.url, race, model) == ["re 3"]
        with Tape(tmp_path / "tape", "replay") as tape:
            assert together(tape, endpoint.url, race) == ["re 3"]
        with Tape(tmp_path / "tape", "auto") as tape:  # but may be asked again
            assert sorted(together(tape, endpoint.url, asks(TEXTS))) == BACKWARDS[::-1]
    with Tape(tmp_path / "tape", "replay") as tape:
        assert sorted(together(tape, endpoint.url, asks(TEXTS))) == BACKWARDS[::-1]


def test_who_waits_for_what_was_given_up_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stillweb.harness.models.tape._MORE", 0.0)
    with Endpoint(model := Backwards(most=1)) as endpoint, Tape(tmp_path / "tape", "record") as tape:
        together(tape, endpoint.url, race, model)
    with (
        Tape(tmp_path / "tape", "replay") as tape,
        pytest.raises(TapeMiss, match=r"was given up after \d+ seconds, and is waited for now"),
    ):
        together(tape, endpoint.url, asks(TEXTS[:1]))


def test_what_failed_fails_again_in_the_same_words(tmp_path: Path) -> None:
    async def agent(ask: Ask, heard: list[str]) -> None:
        told = await asyncio.gather(*map(ask, TEXTS), return_exceptions=True)
        assert isinstance(told[1], ModelError)
        heard.append(str(told[1]))

    with Endpoint(model := Backwards(failing=TEXTS[1])) as endpoint:
        with Tape(tmp_path / "tape", "record") as tape:
            recorded = together(tape, endpoint.url, agent, model)
        with Tape(tmp_path / "tape", "replay") as tape:
            assert together(tape, endpoint.url, agent) == recorded
        endpoint.policy = at_once
        with Tape(tmp_path / "tape", "auto") as tape:
            assert sorted(together(tape, endpoint.url, asks(TEXTS))) == BACKWARDS[::-1]
        assert len(endpoint.requests) == 4 + 1 + 1  # tried twice, and once more
