"""Task: a question, its reference answer and its scorer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, overload

from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.shapes import convert, must_be_known


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on what an attempt may use; None is no limit. `money` is in the currency of the price list.

    A `seconds` limit depends on the clock: a repetition may end elsewhere.
    """

    steps: int | None = 50  # model calls
    calls: int | None = 200  # tool calls
    tokens: int | None = None
    seconds: float | None = None
    money: float | None = None


# The members of `meta` that agents are told; others may hold a rubric, the pages of the answer or a set's canary.
TOLD = (
    "set", "domain", "topic", "type", "discipline", "direction", "language", "variant", "budget", "system",
    "agent"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Task:
    """Task, in the same form for all task sets.

    `reference` is any JSON value (the text of a table, a string, fields of a record); only the scorer reads it.
    `scorer` is a registered name or an import path `module:function`. `base` names the problem that variants share
    (a goal and a constraint form, two languages); None if there are no variants. `options` are for the scorer.
    `meta` holds the set's facts about the task (domain, variant, language, budget, …), of which agents are told those
    in TOLD.
    """

    id: str
    question: str
    reference: Any = None
    scorer: str = "exact"
    meta: dict[str, Any] = field(default_factory=dict)
    base: str | None = None
    start_url: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with every field; inverse of `from_json`."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def to_agent(self) -> dict[str, Any]:
        """Return a JSON object with what an agent may know: id, question, start_url, and of meta the members in TOLD."""
        meta = {name: self.meta[name] for name in TOLD if name in self.meta}
        return {"id": self.id, "question": self.question, "start_url": self.start_url, "meta": meta}

    @classmethod
    def from_json(cls, value: Any) -> Task:
        """Return the task in a JSON object. Raise DamagedInput for a missing, unknown or wrongly typed field."""
        try:
            must_be_known(value, cls)
            return convert(value, cls)
        except ValueError as error:
            raise DamagedInput(f"no task: {error}") from None

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the task's canonical JSON, for certificates; equal after a round trip through a file."""
        plain = json.loads(json.dumps(self.to_json()))  # keys must be texts before they are sorted
        text = json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Problem:
    """Record that could not be read: `line` counts from 1 (0: the whole file), `field` may be empty."""

    file: str
    line: int
    field: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.field + ': ' if self.field else ''}{self.message}"


@dataclass(frozen=True, slots=True)
class TaskSet(Sequence[Task]):
    """Tasks of one source in its order, and the records that were refused.

    `notices` are about records that were read: fields that no code uses, once for each file and field.
    """

    name: str
    tasks: tuple[Task, ...]
    problems: tuple[Problem, ...] = ()
    notices: tuple[Problem, ...] = ()

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Task, ...]: ...
    def __getitem__(self, index: int | slice) -> Task | tuple[Task, ...]:
        return self.tasks[index]

    @property
    def remarks(self) -> list[str]:
        """Sentences about the records that were refused, and the fields that are not read."""
        return [f"left out: {one}" for one in self.problems] + [f"not read: {one}" for one in self.notices]

    def by_id(self, task_id: str) -> Task:
        """Return the task with this id. Raise KeyError if there is none."""
        for task in self.tasks:
            if task.id == task_id:
                return task
        raise KeyError(task_id)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the tasks' digests, independent of their order."""
        return hashlib.sha256("\n".join(sorted(task.digest for task in self.tasks)).encode()).hexdigest()
