"""Scripted agent: a YAML file of tool calls, and an answer template filled from their results.

    agent: script
    tasks:
      penguins_001:
        steps:
          - call: browser_navigate
            with: {url: "{{ task.start_url }}"}
            as: page                               # names the result's text for later templates
          - set: {rows: "{{ page | records('id', 'body_mass_g') }}"}
          - when: "{{ rows | length > 3 }}"        # the step is left out where this is not true
            call: fetch
            with: {url: "…"}
        answer: "{{ rows | pick('id', 'body_mass_g') | piped }}"
    default: {steps: […], answer: …}               # for tasks not named

Templates are Jinja's, in its sandbox, with undefined names as errors; a template that is nothing but one
expression keeps its type. Filters are the functions of `stillweb.harness.agents.extract`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, TemplateError, Undefined
from jinja2.nativetypes import NativeEnvironment
from jinja2.sandbox import SandboxedEnvironment
from msgspec import UNSET, Struct, UnsetType, field

from stillweb.harness._parsing import read_yaml
from stillweb.harness.agents import extract
from stillweb.harness.agents.attempt import Attempt
from stillweb.harness.trace import digest
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.shapes import convert
from stillweb.snapshots.words import did_you_mean

# raised by templates and filters
_FAULTS = (UsageError, TemplateError, TypeError, ValueError, ArithmeticError, LookupError, re.error)
_FILTERS = {
    "tables": extract.tables,
    "table": extract.table,
    "records": extract.records,
    "pick": extract.pick,
    "piped": extract.piped,
    "find": extract.find,
    "find_all": extract.find_all,
    "from_json": extract.from_json,
    "ref": extract.ref,
    "columns_of": extract.columns_of,
    "words_of": extract.words_of,
    "csv_rows": extract.csv_rows,
}


class _Environment(SandboxedEnvironment):
    """Environment that renders templates to text."""


class _Native(SandboxedEnvironment, NativeEnvironment):
    """Environment whose `compile_expression` returns the expression's value, not its text."""


class _Step(Struct, forbid_unknown_fields=True):
    call: str | UnsetType = UNSET
    arguments: dict[str, Any] | None = field(default=None, name="with")
    result: str | None = field(default=None, name="as")
    set: dict[str, Any] | None = None
    when: Any = None
    may_fail: bool | None = None

    def __post_init__(self) -> None:
        if self.call is UNSET and self.set is None:
            raise ValueError("needs call or set")


class _Script(Struct, forbid_unknown_fields=True):
    steps: list[_Step] | None = None
    answer: Any = None


class _File(Struct, forbid_unknown_fields=True):
    agent: Any = None
    name: Any = None
    tasks: dict[str, Any] | None = None
    default: Any = None


@dataclass(frozen=True, slots=True)
class Script:
    """Steps, as they are written, and answer template of one task."""

    steps: tuple[dict[str, Any], ...]
    answer: str | None

    @classmethod
    def read(cls, value: Any, where: str) -> Script:
        """Check and return a script. Raise UsageError naming `where` and what is wrong."""
        try:
            answer = convert(value, _Script).answer
        except ValueError as error:
            raise UsageError(f"{where}: {error}") from None
        text = answer if answer is None or isinstance(answer, str) else json.dumps(answer)
        return cls(tuple(value.get("steps") or ()), text)


class ScriptAgent:
    """Agent that plays scripts. A failing step ends the attempt, unless it says `may_fail`."""

    def __init__(self, tasks: dict[str, Script], default: Script | None = None, name: str = "script") -> None:
        self.name = name
        self._tasks, self._default = tasks, default
        texts = _Environment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=False)
        values = _Native(undefined=StrictUndefined, autoescape=False)
        for environment in (texts, values):
            environment.filters.update(_FILTERS)
        # to compile a template takes 4 ms, and all tasks may share the default script
        self._text = cache(texts.from_string)
        self._value = cache(partial(values.compile_expression, undefined_to_none=False))

    @classmethod
    def from_file(cls, path: Path) -> ScriptAgent:
        """Read a script. Raise UsageError naming the file, task, step and member that is wrong."""
        return cls.from_mapping(read_yaml(path), str(path))

    @classmethod
    def from_mapping(cls, value: dict[str, Any], source: str) -> ScriptAgent:
        """Make the agent from the mapping of its YAML file; `source` is named in errors."""
        try:
            file = convert(value, _File)
        except ValueError as error:
            raise UsageError(f"{source}: {error}") from None
        scripts = {
            task: Script.read(script, f"{source}: tasks.{task}")
            for task, script in (file.tasks or {}).items()
        }
        default = Script.read(file.default, f"{source}: default") if file.default else None
        return cls(scripts, default, str(value.get("name", "script")))

    def not_among(self, ids: Sequence[str]) -> list[str]:
        """Return a message for each script whose task is not in `ids`.

        The task of a misspelt id would be played by the `default` script.
        """
        return [
            f"the script for {name!r} is for no task of the set{did_you_mean(name, ids, 1)}"
            for name in self._tasks
            if name not in ids
        ]

    def identity(self) -> dict[str, Any]:
        """Return kind, name and the digest of all scripts."""
        scripts = {task: [list(script.steps), script.answer] for task, script in self._tasks.items()}
        default = [list(self._default.steps), self._default.answer] if self._default else None
        return {"kind": "script", "name": self.name, "prompts": digest([scripts, default])}

    async def run(self, attempt: Attempt) -> str | None:
        """Play the task's script and fill its answer template."""
        task = attempt.task
        script = self._tasks.get(task.id, self._default)
        if script is None:
            raise UsageError(f"the script has no steps for task {task.id!r} and no default")
        names: dict[str, Any] = {"task": task.to_agent(), "attempt": attempt.number}
        for number, step in enumerate(script.steps, 1):
            try:
                await self._play(step, names, attempt)
            except _FAULTS as error:
                raise UsageError(f"script of {task.id!r}, step {number}: {error}") from error
        if script.answer is None:
            return None
        try:
            return self._text(script.answer).render(names).strip()
        except _FAULTS as error:
            raise UsageError(f"script of {task.id!r}, answer: {error}") from error

    async def _play(self, step: dict[str, Any], names: dict[str, Any], attempt: Attempt) -> None:
        if "when" in step and not self._fill(step["when"], names):
            return
        for name, value in (step.get("set") or {}).items():
            names[name] = self._fill(value, names)
        if "call" not in step:
            return
        result = await attempt.call(step["call"], self._fill(step.get("with") or {}, names))
        text = "\n".join(str(part.get("text", "")) for part in result.content if part.get("type") == "text")
        if result.is_error and not step.get("may_fail"):
            raise UsageError(f"{step['call']} failed: {text[:300]}")
        names["last"] = text
        if step.get("as"):
            names[step["as"]] = text

    def _fill(self, value: Any, names: dict[str, Any]) -> Any:
        """Fill the templates in a JSON value.

        A template of a single expression gives that value, not its text.
        """
        if isinstance(value, dict):
            return {key: self._fill(member, names) for key, member in value.items()}
        if isinstance(value, list):
            return [self._fill(member, names) for member in value]
        if not isinstance(value, str) or "{" not in value:
            return value
        bare = value.strip()
        if bare.startswith("{{") and bare.endswith("}}") and bare.count("{{") == 1:
            filled = self._value(bare[2:-2].strip())(**names)
            # str() of it raises, with its name
            return str(filled) if isinstance(filled, Undefined) else filled
        return self._text(value).render(names)
