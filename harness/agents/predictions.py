"""Agent that gives saved answers: `predictions:FILE`, JSONL of objects with the members id and answer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from stillweb.harness._parsing import strict_json
from stillweb.harness.agents.attempt import Attempt
from stillweb.snapshots.errors import DamagedInput, UsageError
from stillweb.snapshots.words import did_you_mean, pluralize

_IDS = ("id", "task_id", "idx")  # the sets' own names, too


class PredictionsAgent:
    """Agent that answers each task with its line in a file. A null answer, or none, is no answer.

    An answer that is not text (a number, a list) is given as its JSON.
    """

    name = "predictions"

    def __init__(self, answers: dict[str, str | None], digest: str, source: str) -> None:
        self.answers = answers
        self._digest = digest
        self._source = source

    @classmethod
    def from_file(cls, path: Path) -> PredictionsAgent:
        """Read a file. Raise DamagedInput naming the line that is not a prediction, or the second one of an id."""
        try:
            data = path.read_bytes()
            lines = data.decode("utf-8-sig").split("\n")
        except OSError as error:
            raise UsageError(f"{path}: can't be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise DamagedInput(f"{path}: is not UTF-8: {error}") from error
        answers: dict[str, str | None] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            name, answer = _prediction(line, f"{path}:{number}")
            if name in answers:
                raise DamagedInput(
                    f"{path}:{number}: a second answer to {name!r}. Put each attempt in a file of its own"
                )
            answers[name] = answer
        if not answers:
            raise DamagedInput(f"{path}: holds no predictions")
        return cls(answers, sha256(data).hexdigest(), str(path))

    def identity(self) -> dict[str, Any]:
        """Return the kind and the SHA-256 (hex) of the file."""
        return {"kind": "predictions", "sha256": self._digest}

    async def run(self, attempt: Attempt) -> str | None:
        """Return the saved answer, or None."""
        return self.answers.get(attempt.task.id)

    def check(self, task_ids: Iterable[str]) -> str:
        """Return which tasks have no answer, as a sentence, or "". Raise UsageError for an answer to no task."""
        known = list(task_ids)
        if unknown := [name for name in self.answers if name not in set(known)]:
            raise UsageError(
                f"{self._source}: an answer to {unknown[0]!r}, which is no task of the set{did_you_mean(unknown[0], known)}"
            )
        missing = [name for name in known if name not in self.answers]
        if not missing:
            return ""
        count = pluralize(len(missing), "task")
        return f"{self._source}: no answer to {count}, counted as unanswered ({missing[0]} first)"


def _prediction(line: str, where: str) -> tuple[str, str | None]:
    try:
        value = strict_json(line)
    except ValueError as error:
        raise DamagedInput(f"{where}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DamagedInput(f"{where}: a prediction must be an object with id and answer")
    names = [name for name in _IDS if name in value]
    if len(names) != 1 or "answer" not in value:
        raise DamagedInput(f"{where}: a prediction needs the members id and answer")
    name, answer = value[names[0]], value["answer"]
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise DamagedInput(f"{where}: {names[0]} must be text")
    if not isinstance(answer, str | None):
        answer = json.dumps(answer, ensure_ascii=False)
    return str(name), answer
