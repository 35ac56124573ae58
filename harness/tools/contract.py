"""Contracts: the names, schemas and texts of the real tools.

Each contract is one file of `contracts/`, which names its version and the source of its texts. The texts stand
nowhere else in the code. A tool's answers are byte-stable for a contract.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from stillweb.snapshots.errors import UsageError

# an MCP content part: {"type": "text", "text": …} or {"type": "image", "data", "mimeType"}
Part = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """Description of a tool, exactly as the model receives it."""

    name: str
    description: str
    input_schema: dict[str, Any]
    contract: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Result of a tool call.

    `content` holds MCP parts. `meta` is for programs and never shown to a model: `verdict`, `captures` (file, offset
    and digest of each capture read), `address` of the text, `url` after redirects, `slice` [start, end, length],
    `nearest` on a miss, `limit` if a limit was exceeded.
    """

    content: list[Part]
    is_error: bool = False
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Text parts, joined by line breaks."""
        return "\n".join(part["text"] for part in self.content if part["type"] == "text")


def fill_template(text: str, *, error: bool = False, **meta: Any) -> ToolResult:
    return ToolResult([{"type": "text", "text": text}], error, meta)


@dataclass(frozen=True, slots=True)
class Contract:
    """Contract file. `strings` are templates, `prompts` are MCP prompts, `raw_tools` is `tools/list` as sent."""

    name: str
    server: Mapping[str, str]
    source: str
    strings: Mapping[str, str]
    raw_tools: list[dict[str, Any]]
    prompts: list[dict[str, Any]]
    instructions: str | None = None
    errors: str = "result"  # "result": isError; "jsonrpc": the server answers with a JSON-RPC error
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def specs(self) -> list[ToolSpec]:
        """The tools, in the order in which the real server lists them."""
        return [
            ToolSpec(t["name"], t.get("description", ""), t["inputSchema"], self.name) for t in self.raw_tools
        ]

    def say(self, key: str, /, **values: object) -> str:
        """Return a string of the contract with its values filled in."""
        return self.strings[key].format(**values)


@functools.cache
def _known() -> tuple[dict[str, str], dict[str, str]]:
    """Return two maps: contract name -> file name, and alias -> contract name."""
    names: dict[str, str] = {}
    aliases: dict[str, str] = {}
    chosen: dict[str, str] = {}  # aliases named in a contract file: they win if there are several versions
    for file in sorted(files("stillweb.harness.tools").joinpath("contracts").iterdir(), key=lambda f: f.name):
        if not file.name.endswith(".json"):
            continue
        value = json.loads(file.read_text(encoding="utf-8"))
        name = value["contract"]
        names[name] = file.name
        chosen |= dict.fromkeys(value.get("aliases", ()), name)
        aliases.setdefault(name.partition("@")[0], name)
    return names, aliases | chosen


def contract_names() -> list[str]:
    """Return the names of all known contracts, sorted."""
    return sorted(_known()[0])


@functools.cache
def load(name: str) -> Contract:
    """Return the contract with this name or alias. Raise UsageError, which lists the known ones, if there is none."""
    names, aliases = _known()
    full = aliases.get(name, name)
    if full not in names:
        raise UsageError(f"unknown contract {name!r}; known are {', '.join(sorted(names))}")
    text = files("stillweb.harness.tools").joinpath("contracts", names[full]).read_text(encoding="utf-8")
    return _contract(json.loads(text))


def read_contract(path: Path) -> Contract:
    """Return the contract in a custom file. Raise UsageError, which names the problem, if it is not valid."""
    try:
        return _contract(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path}: no JSON: {error}") from error
    except KeyError as error:
        raise UsageError(f"{path}: a contract needs a member {error}") from error
    except (TypeError, AttributeError) as error:
        raise UsageError(f"{path}: no contract: {error}") from error


def _contract(value: dict[str, Any]) -> Contract:
    return Contract(
        value["contract"],
        value["server"],
        value["source"],
        value["strings"],
        value["tools"],
        value.get("prompts", []),
        value.get("instructions"),
        value.get("errors", "result"),
        {k: value[k] for k in ("http", "engine", "arguments", "unknown_tool") if k in value},
    )


class Checker:
    """Checker of arguments against a JSON schema, with the error texts of the MCP SDK's servers."""

    def __init__(self, schema: dict[str, Any]) -> None:
        from jsonschema.validators import validator_for

        made: Any = validator_for(schema)
        self._validator = made(schema)

    def problem(self, arguments: Any) -> str | None:
        """Return the SDK's message for the most relevant violation, or None."""
        if self._validator.is_valid(arguments):
            return None
        from jsonschema.exceptions import best_match

        error = best_match(self._validator.iter_errors(arguments))
        return None if error is None else str(error.message)


@functools.cache
def checker(contract: str, tool: str) -> Checker:
    return Checker(next(t["inputSchema"] for t in load(contract).raw_tools if t["name"] == tool))
