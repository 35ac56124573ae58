"""Texts of the browser tools: sections, code lines, search in a page's snapshot, argument errors.

All strings are in the contract (contracts/playwright-mcp.json), which names its source.
"""

from __future__ import annotations

import functools
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

CONTEXT_LINES = 3


@functools.cache
def contract() -> dict[str, Any]:
    """Return the contract file: `tools`, `strings`, `server` and their source."""
    text = (
        files("stillweb.harness.tools").joinpath("contracts/playwright-mcp.json").read_text(encoding="utf-8")
    )
    return json.loads(text)  # type: ignore[no-any-return]


def fill_string(key: str, /, **values: object) -> str:
    """Return a string of the contract with its values filled in."""
    return str(contract()["strings"][key]).format(**values)


@dataclass(slots=True)
class Sections:
    """Sections of a result, in the order in which they are shown."""

    errors: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    tabs: list[str] = field(default_factory=list)
    page: list[str] = field(default_factory=list)
    modal: list[str] = field(default_factory=list)
    snapshot: str | None = None
    events: list[str] = field(default_factory=list)

    def text(self) -> str:
        parts: list[str] = []
        for title, lines, fence in (
            ("Error", self.errors, ""),
            ("Result", self.results, ""),
            ("Ran Playwright code", self.code, "js"),
            ("Open tabs", self.tabs, ""),
            ("Page", self.page, ""),
            ("Modal state", self.modal, ""),
            ("Snapshot", [] if self.snapshot is None else [self.snapshot], "yaml"),
            ("Events", self.events, ""),
        ):
            if lines:
                parts.append(f"### {title}")
                parts += [f"```{fence}", *lines, "```"] if fence else lines
        return "\n".join(parts)


def full_url(url: str) -> str:
    """Complete a URL without a scheme as the real tool does."""
    if re.match(r"^[a-zA-Z][a-zA-Z0-9+.-]*:", url) and not re.match(r"^[\w.-]+:\d+(/|$)", url):
        return url
    return f"http://{url}" if url.startswith("localhost") else f"https://{url}"


# ---- code lines


def js_string(text: str) -> str:
    """Return a text as a JavaScript string in single quotes."""
    return "'" + json.dumps(text, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"


def _pieces(selector: str) -> list[str]:
    """Split a selector at `>>`, except inside quotes."""
    parts, current, quote = [], "", ""
    index = 0
    while index < len(selector):
        char = selector[index]
        if quote:
            if char == "\\":
                current += selector[index : index + 2]
                index += 2
                continue
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif selector.startswith(">>", index):
            parts.append(current.strip())
            current = ""
            index += 2
            continue
        current += char
        index += 1
    return [*parts, current.strip()]


_ROLE = re.compile(r'internal:role=([\w-]+)(?:\[name=("(?:\\.|[^"\\])*")([is])\])?')
_TEXT = re.compile(r'internal:(text|label|has-text)=("(?:\\.|[^"\\])*")([is])')
_ATTRIBUTE = re.compile(r'internal:(?:attr|testid)=\[([\w-]+)=("(?:\\.|[^"\\])*")([is])\]')
_BY = {
    "text": "getByText",
    "label": "getByLabel",
    "placeholder": "getByPlaceholder",
    "alt": "getByAltText",
    "title": "getByTitle",
    "data-testid": "getByTestId",
}


def code_of(selector: str) -> str:
    """Write a Playwright selector as a JavaScript locator, as the real tool does."""
    out: list[str] = []
    for piece in _pieces(selector):
        if found := _ROLE.fullmatch(piece):
            role, name, mode = found.groups()
            exact = ", exact: true" if mode == "s" else ""
            more = f", {{ name: {js_string(json.loads(name))}{exact} }}" if name else ""
            out.append(f"getByRole({js_string(role)}{more})")
        elif found := _TEXT.fullmatch(piece):
            kind, text, mode = found.groups()
            if kind == "has-text":
                out.append(f"filter({{ hasText: {js_string(json.loads(text))} }})")
            else:
                exact = ", { exact: true }" if mode == "s" else ""
                out.append(f"{_BY[kind]}({js_string(json.loads(text))}{exact})")
        elif found := _ATTRIBUTE.fullmatch(piece):
            name, text, mode = found.groups()
            exact = ", { exact: true }" if mode == "s" and name != "data-testid" else ""
            out.append(f"{_BY.get(name, 'getByTestId')}({js_string(json.loads(text))}{exact})")
        elif piece == "nth=0":
            out.append("first()")
        elif piece == "nth=-1":
            out.append("last()")
        elif piece.startswith("nth="):
            out.append(f"nth({piece[4:]})")
        elif piece == "internal:control=enter-frame":
            out.append("contentFrame()")
        elif not piece.startswith("internal:describe="):
            out.append(f"locator({js_string(piece)})")
    return ".".join(out)


# ---- search in a snapshot


MATCHING_SECONDS = 5.0  # for a model's pattern: some take for ever
_MATCHER = """import json, re, sys
source, flags, texts = json.load(sys.stdin)
try:
    pattern = re.compile(source, flags)
except (re.error, OverflowError, RecursionError):
    print("null")
else:
    print(json.dumps([pattern.search(text) is not None for text in texts]))
"""


class EndlessPattern(Exception):
    """Error for a pattern that takes longer than MATCHING_SECONDS."""


def matching(source: str, letters: str, texts: Sequence[str]) -> list[bool] | None:
    """Return which texts a regular expression with the flags of some letters matches, or None for one that is invalid. Raise EndlessPattern.

    A process of its own searches: nothing else could end a search that takes for ever, or holds up all others meanwhile.
    """
    named = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}
    flags = sum(named[letter] for letter in set(letters) & named.keys())
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _MATCHER],
            input=json.dumps([source, flags, list(texts)]).encode(),
            capture_output=True,
            timeout=MATCHING_SECONDS,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise EndlessPattern from None
    found: list[bool] | None = json.loads(done.stdout)
    return found


def find(snapshot: str, text: str | None, regex: str | None) -> str | None:
    """Return the result of `browser_find`: the matching lines with context and their path from the root.

    Return None for an invalid `regex`. Raise EndlessPattern.
    """
    lines = snapshot.split("\n")
    matches: list[bool] | None
    if regex:
        literal = re.fullmatch(r"/(.*)/([a-z]*)", regex, re.DOTALL)
        query = regex if literal else f"/{regex}/"
        source, letters = (literal[1], literal[2]) if literal else (regex, "")
        matches = matching(source, letters, lines)
    else:
        needle = (text or "").lower()
        query, matches = f'"{text}"', [needle in line.lower() for line in lines]
    if matches is None:
        return None
    indents = [len(line) - len(line.lstrip()) for line in lines]

    def above(index: int) -> list[int]:
        path, indent = [], indents[index]
        for at in range(index - 1, -1, -1):
            if indent <= 0:
                break
            if lines[at].strip() and indents[at] < indent:
                path.append(at)
                indent = indents[at]
        return path[::-1]

    hits = [i for i, matched in enumerate(matches) if matched]
    if not hits:
        return fill_string("find_none", query=query)
    windows: list[list[int]] = []
    for hit in hits:
        start, end = max(0, hit - CONTEXT_LINES), min(len(lines) - 1, hit + CONTEXT_LINES)
        if windows and start <= windows[-1][1] + 1:
            windows[-1][1] = max(windows[-1][1], end)
        else:
            windows.append([start, end])
    path = {at for hit in hits for at in (hit, *above(hit))}
    snippets = []
    for start, end in windows:
        indices = [*above(start), *range(start, end + 1)]
        out: list[str] = []
        for place, index in enumerate(indices):
            before = indices[place - 1] if place else -1
            if place and index > before + 1 and index not in path and before not in path:
                out.append(" " * indents[index] + "...")
            out.append(lines[index])
        snippets.append("\n".join(out))
    word = "match" if len(hits) == 1 else "matches"
    return fill_string(
        "find_some", count=len(hits), word=word, query=query, snippets="\n\n----\n\n".join(snippets)
    )


# ---- arguments


def _received(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity"
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


def _problems(value: Any, schema: Mapping[str, Any], path: str) -> Iterable[tuple[str, str]]:
    """Yield (message, path) for each violation of the JSON schema; only keywords that the contract uses."""
    if "enum" in schema and value not in schema["enum"]:
        yield fill_string("wrong_option", options="|".join(f'"{one}"' for one in schema["enum"])), path
        return
    expected = schema.get("type")
    kinds: dict[str, tuple[type, ...]] = {
        "string": (str,), "boolean": (bool,), "number": (int, float), "integer": (int,),
        "array": (list,), "object": (dict,),
    }  # fmt: skip
    if expected in kinds:
        right = isinstance(value, kinds[expected]) and not (
            expected in ("number", "integer")
            and (isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)))
        )
        if not right:
            what = "number" if expected == "integer" else str(expected)
            yield fill_string("wrong_type", expected=what, received=_received(value)), path
            return
    if expected == "object":
        known = schema.get("properties", {})
        lacking = [
            n for n in schema.get("required", ()) if n not in value and "default" not in known.get(n, {})
        ]
        # in the order of the schema, not of the arguments
        for name, one in (known | {n: {} for n in lacking if n not in known}).items():
            inner = f"{path}.{name}" if path else name
            if name in value:
                yield from _problems(value[name], one, inner)
            elif name in lacking and "enum" in one:
                yield from _problems(None, one, inner)
            elif name in lacking:
                yield (
                    fill_string("wrong_type", expected=one.get("type", "nonoptional"), received="undefined"),
                    inner,
                )
        if isinstance(others := schema.get("additionalProperties"), dict):
            for name, one in value.items():
                if name not in known:
                    yield from _problems(one, others, f"{path}.{name}" if path else name)
    if expected == "array":
        for index, one in enumerate(value):
            yield from _problems(one, schema.get("items", {}), f"{path}[{index}]")


def argument_error(name: str, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    """Return the real tool's error for arguments that don't fit its schema, or None."""
    problems = list(_problems(dict(arguments), schema, ""))
    if not problems:
        return None
    lines = [
        fill_string("problem", message=m, path=p) if p else fill_string("problem_here", message=m)
        for m, p in problems
    ]
    return fill_string("invalid", name=name, problems="\n".join(lines))
