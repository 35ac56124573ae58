"""A judge and an embedder that need no model."""

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

from stillweb.harness.scoring import Context, Score
from stillweb.harness.task import Task


class Answers:
    """A judge: a function of the last message's text and the model's name."""

    def __init__(self, answer: Callable[[str, str], str] | str) -> None:
        self.answer = answer
        self.calls: list[tuple[str, str, float]] = []
        self.told: list[str] = []  # before each, as the system

    def complete(self, messages: Sequence[Any], model: str, temperature: float) -> str:
        prompt = str(messages[-1]["content"])
        self.told.append("".join(str(one["content"]) for one in messages[:-1]))
        self.calls.append((prompt, model, temperature))
        return self.answer if isinstance(self.answer, str) else self.answer(prompt, model)


class Words:
    """An embedder: a text is the counts of its words, hashed into 64 places."""

    name = "words"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        vectors = []
        for text in texts:
            vector = [0.0] * 64
            for word in text.lower().replace(",", " ").split():
                vector[hashlib.sha256(word.encode()).digest()[0] % 64] += 1.0
            length = math.sqrt(sum(x * x for x in vector))
            vectors.append([x / length for x in vector] if length else vector)
        return vectors


def percent(task: Task, answer: str | None, context: Context) -> Score:
    """A scorer of one's own that counts to a hundred, under a name that another scorer has."""
    return Score({"exact": 80.0})
