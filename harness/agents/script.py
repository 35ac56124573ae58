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
expression keeps its type. Filters extract tables, JSON, lines and references from the output of tools.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, TemplateError, Undefined
from jinja2.nativetypes import NativeEnvironment
from jinja2.sandbox import SandboxedEnvironment
from msgspec import UNSET, Struct, UnsetType, field

from stillweb.harness._parsing import read_yaml
from stillweb.harness.agents.attempt import Attempt
from stillweb.harness.trace import digest
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.shapes import convert
from stillweb.snapshots.words import did_you_mean, pluralize

# raised by templates and filters
_FAULTS = (UsageError, TemplateError, TypeError, ValueError, ArithmeticError, LookupError, re.error)


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


# -- filters

Table = list[list[str]]

_ARIA_ITEM = re.compile(
    r"^(?P<indent>\s*)- (?P<role>[a-z]+)\b(?: \"(?P<name>(?:[^\"\\]|\\.)*)\")?(?P<rest>.*)$"
)
_RULE = re.compile(r"\s*\|?\s*:?-{1,}:?\s*(\|\s*:?-{1,}:?\s*)*\|?\s*")


def tables(text: str) -> list[Table]:
    """Return all tables of a text: markdown, accessibility snapshots (`- table:` … `- row`) or HTML."""
    if re.search(r"<table[\s>]", text, re.IGNORECASE):
        return _html_tables(text)
    if re.search(r"^\s*- row\b", text, re.MULTILINE):
        return _aria_tables(text)
    return _markdown_tables(text)


def table(text: str, *columns: str, index: int | None = None) -> Table:
    """Return one table, header row first: number `index` (from 0), or the first with all named columns.

    Column names are compared without case and outer blanks. Raise UsageError listing the tables.
    """
    found = tables(text)
    if index is not None:
        if index < len(found):
            return found[index]
        raise UsageError(f"there is no table {index}: the text has {len(found)}")
    wanted = {column.strip().lower() for column in columns}
    for candidate in found:
        if candidate and wanted <= {cell.strip().lower() for cell in candidate[0]}:
            return candidate
    heads = "; ".join(" | ".join(t[0]) for t in found if t) or "none"
    raise UsageError(f"no table has the columns {', '.join(columns)}; tables found: {heads}")


def records(text: str, *columns: str, index: int | None = None) -> list[dict[str, str]]:
    """Return the rows of a table as mappings from column name to cell."""
    head, *rows = table(text, *columns, index=index)
    names = [name.strip() for name in head]
    return [dict(zip(names, row, strict=False)) for row in rows]


def pick(rows: list[dict[str, str]], *columns: str) -> Table:
    """Return the named columns of records, in that order."""
    lowered = [{name.lower(): cell for name, cell in row.items()} for row in rows]
    try:
        return [[row[column.lower()] for column in columns] for row in lowered]
    except KeyError as error:
        raise UsageError(f"there is no column {error.args[0]!r}; there are {', '.join(rows[0])}") from error


def piped(rows: Table, separator: str = "|") -> str:
    """Return a table as lines of cells joined by `separator`."""
    return "\n".join(separator.join(map(str, row)) for row in rows)


def find(text: str, pattern: str, group: int | str = 1) -> str:
    """Return the first match of a regular expression: the given group, or the whole match without groups."""
    match = re.search(pattern, text, re.MULTILINE)
    found = match and match.group(group if match.re.groups else 0)
    if found is None:
        what = "nothing matches" if match is None else f"the match has no group {group} of"
        raise UsageError(f"{what} {pattern!r} in {_begin(text)}")
    return str(found)


def _begin(text: str) -> str:
    """Return the length and the beginning of a text, for an error message."""
    words = " ".join(text[:400].split())
    if not words:
        return "an empty text"
    return f"a text of {pluralize(len(text), 'character')}: {words[:160].rstrip()}{'…' if len(text.strip()) > 160 else ''}"


def find_all(text: str, pattern: str) -> list[Any]:
    """Return all matches of a regular expression: texts, or lists of groups if it has several."""
    return [list(m) if isinstance(m, tuple) else m for m in re.findall(pattern, text, re.MULTILINE)]


def from_json(text: str) -> Any:
    """Return the JSON value at the first brace or bracket of a text; a tool may write words before it."""
    start = re.search(r"[\[{]", text)
    if start is None:
        raise UsageError(f"no JSON object or array in {_begin(text)}")
    try:
        value, _ = json.JSONDecoder().raw_decode(text, start.start())
    except ValueError as error:
        raise UsageError(f"the text holds no whole JSON value: {error}") from error
    return value


def ref(snapshot: str, pattern: str, nth: int = 0) -> str:
    """Return the reference (`e12`) in the nth line of a browser snapshot that matches a pattern."""
    lines = [line for line in snapshot.splitlines() if "[ref=" in line and re.search(pattern, line)]
    if nth >= len(lines):
        raise UsageError(f"no element {nth} of the page matches {pattern!r} ({len(lines)} do)")
    found = re.search(r"\[ref=([^\]]+)\]", lines[nth])
    return found[1] if found else ""


def columns_of(text: str) -> Table:
    """Return the lines of a text set in columns (as in a PDF), split at tabs and at two or more blanks."""
    return [re.split(r"\t|\s{2,}", line.strip()) for line in text.splitlines() if line.strip()]


def words_of(text: str) -> Table:
    """Return the lines of a text, split at blanks."""
    return [line.split() for line in text.splitlines() if line.strip()]


def csv_rows(text: str) -> Table:
    return list(csv.reader(io.StringIO(text)))


def _markdown_tables(text: str) -> list[Table]:
    found: list[Table] = []
    current: Table = []
    ruled = False
    for line in [*text.splitlines(), ""]:
        if "|" in line and line.strip():
            # below the head; further rules are rows
            if _RULE.fullmatch(line) and not ruled and len(current) < 2:
                ruled = True
                continue
            inner = line.strip().removeprefix("|")
            inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
            current.append([c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", inner)])
        else:
            if current:
                found.append(current)
            current, ruled = [], False
    return found


def _html_tables(text: str) -> list[Table]:
    from bs4 import BeautifulSoup

    found: list[Table] = []
    for element in BeautifulSoup(text, "lxml").find_all("table"):
        rows = [
            [" ".join(cell.get_text(" ").split()) for cell in row.find_all(["td", "th"], recursive=False)]
            for row in element.find_all("tr")
        ]
        found.append([row for row in rows if row])
    return found


def _aria_tables(text: str) -> list[Table]:
    """Return the tables of an accessibility snapshot, by indentation.

    A cell's text is its name, else the words inside it.
    """
    found: list[Table] = []
    stack: list[tuple[int, str]] = []  # (indent, role) of the open table, row and cell
    named = False
    for line in text.splitlines():
        item = _ARIA_ITEM.match(line)
        if item is None:
            continue
        indent, role = len(item["indent"]), item["role"]
        while stack and stack[-1][0] >= indent:
            stack.pop()
        name = (item["name"] or "").replace('\\"', '"')
        if role in ("table", "grid", "treegrid"):
            found.append([])
            stack.append((indent, role))
        elif role == "row":
            if not any(open_role in ("table", "grid", "treegrid") for _, open_role in stack):
                found.append([])
            found[-1].append([])
            stack.append((indent, role))
        elif role in ("cell", "gridcell", "columnheader", "rowheader") and found and found[-1]:
            after = item["rest"].partition("]:")[2] or re.sub(r"^(\s*\[[^\]]*\])*\s*:?", "", item["rest"])
            found[-1][-1].append(name or after.strip().strip('"'))
            named = bool(found[-1][-1][-1])
            stack.append((indent, "cell"))
        elif stack and stack[-1][1] == "cell" and not named:
            inner = name or item["rest"].partition(": ")[2].strip().strip('"')
            cells = found[-1][-1]
            cells[-1] = f"{cells[-1]} {inner}".strip()
    return [[row for row in rows if row] for rows in found if any(rows)]


_FILTERS: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        tables, table, records, pick, piped, find, find_all, from_json, ref, columns_of, words_of, csv_rows
    )
}  # fmt: skip
