"""Strict readers of JSON, YAML and schemas in files that people wrote, and loading of custom modules."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from stillweb.snapshots._os.text_files import read_text
from stillweb.snapshots.errors import UsageError


class StandsTwice(ValueError):
    """Error for a member that stands twice in a JSON object."""


def strict_json(text: str) -> Any:
    """Parse a JSON text strictly.

    Raise ValueError also for NaN and Infinity (not JSON), for too deep nesting, and for a member that stands twice in
    an object, because the first one would be lost.
    """
    try:
        return json.loads(text, parse_constant=no_number, object_pairs_hook=unique_members)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def no_number(name: str) -> Any:
    """Refuse NaN and Infinity, which Python reads as JSON; for `parse_constant`."""
    raise ValueError(f"{name} is not a number of JSON")


def unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an object. Raise StandsTwice for one that stands twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise StandsTwice(f"the member {twice!r} stands twice in an object")
    return found


def read_lines(path: Path) -> list[str]:
    """Return the stripped lines that are not empty. Raise UsageError if the file can't be read or is empty."""
    text = read_text(path, "utf-8-sig")
    if "\0" in text:
        raise UsageError(f"{path}: is not text")
    lines = [line.strip() for line in text.split("\n")]
    if not any(lines):
        raise UsageError(f"{path}: is empty")
    return [line for line in lines if line]


_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def problem(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], path: str = "") -> str | None:
    """Return the first violation of a JSON schema, as "path: problem", or None. Local $refs start at `root`."""
    if "$ref" in schema:
        return problem(value, resolve(root, schema["$ref"]), root, path)
    where = f"{path}: " if path else ""
    if "const" in schema and (value != schema["const"] or type(value) is not type(schema["const"])):
        return f"{where}must be {schema['const']!r}, not {value!r}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where}must be one of {', '.join(map(repr, schema['enum']))}, not {value!r}"
    if "type" in schema and not _is(value, schema["type"]):
        names = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        return f"{where}must be {' or '.join(names)}, not {type(value).__name__}"
    if "minimum" in schema and isinstance(value, (int, float)) and value < schema["minimum"]:
        return f"{where}must be at least {schema['minimum']}, not {value}"
    if isinstance(value, dict):
        return _object_problem(value, schema, root, path)
    if isinstance(value, list) and "items" in schema:
        for i, item in enumerate(value):
            if found := problem(item, schema["items"], root, f"{path}[{i}]"):
                return found
    return None


def resolve(root: Mapping[str, Any], ref: str) -> Mapping[str, Any]:
    """Return the schema that a local reference such as `#/$defs/name` names."""
    at: Any = root
    for part in ref.removeprefix("#/").split("/"):
        at = at[part]
    found: Mapping[str, Any] = at
    return found


def _object_problem(
    value: dict[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], path: str
) -> str | None:
    where = f"{path}: " if path else ""
    for name in schema.get("required", ()):
        if name not in value:
            return f"{where}member {name!r} is missing"
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    for name, member in value.items():
        rule = properties.get(name)
        if rule is None:
            if others is False:
                return f"{where}unknown member {name!r}"
            rule = others if isinstance(others, dict) else None
        if rule and (found := problem(member, rule, root, f"{path}.{name}" if path else name)):
            return found
    return None


def _is(value: Any, names: str | list[str]) -> bool:
    for name in (names,) if isinstance(names, str) else names:
        if isinstance(value, bool) and name != "boolean":
            continue
        if isinstance(value, _TYPES[name]):
            return True
    return False


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping of JSON values. Raise UsageError, which names the file and, if known, the line.

    YAML reads some words without quotes as other types (a date, `on`). A value that JSON can't hold is an error with
    its place. Integer keys become texts.
    """
    from stillweb.snapshots import yaml_text  # 15 ms that no attempt's process needs

    value = yaml_text.read(read_text(path, "utf-8-sig"), str(path))
    if value is None:
        raise UsageError(f"{path}: is empty")
    if not isinstance(value, dict):
        raise UsageError(f"{path}: must hold a mapping, not {type(value).__name__}")
    plain: dict[str, Any] = _plain(value, f"{path}: ")
    return plain


def _plain(value: Any, place: str) -> Any:
    if isinstance(value, dict):
        return {
            (name := _name(key, place)): _plain(member, f"{place}{name}.") for key, member in value.items()
        }
    if isinstance(value, list):
        return [_plain(member, f"{place.rstrip('.')}[{i}].") for i, member in enumerate(value, 1)]
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{place.rstrip('.')}: {value} is not a number of JSON")
    if value is None or isinstance(value, str | int | float):
        return value
    raise UsageError(f"{place.rstrip('.')}: is read as a {type(value).__name__}; put it in quotes")


def _name(key: Any, place: str) -> str:
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise UsageError(f"{place}the name {key!r} is read as a {type(key).__name__}; put it in quotes")
    return str(key)


_ODD = re.compile(r"[^A-Za-z0-9_./()\[\]=,+ -]")


def session_of(text: str) -> str:
    """Return a session name for any text: ASCII without `:` and `%`, different for different texts."""
    plain = _ODD.sub("_", text).strip()
    if plain == text and len(plain) <= 200 and plain:
        return plain
    return f"{plain[:180]}-{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


# directories in which this process's runs were started: custom modules are found there
_begun: list[str] = []


def look_in(directory: str | None) -> None:
    """Add the directory in which a run was started, if it exists, to the places where `load_module` looks."""
    if directory and os.path.isdir(directory) and directory not in _begun:
        _begun.append(directory)


def load_module(name: str, whose: str) -> ModuleType:
    """Import a module from Python's path, the directories of `look_in`, or the working directory, in this order.

    Raise UsageError, whose text begins with `whose`, if there is none. Errors of the module itself pass through.
    """
    places = list(dict.fromkeys((*_begun, os.getcwd())))
    if not all(name.split(".")):  # empty, a path, or relative to nothing
        raise _no_module(whose, name, places)
    waiting = iter([place for place in places if place not in sys.path])
    while True:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not _is_of(error, name):
                raise
            place = next(waiting, None)
            if place is None:
                raise _no_module(whose, error.name, places) from error
            sys.path.append(place)
            importlib.invalidate_caches()


def look_for_module(name: str, whose: str) -> None:
    """Put the folder that holds a module on Python's path, without importing it. Raise UsageError if there is none."""
    top = name.partition(".")[0]
    places = list(dict.fromkeys((*_begun, os.getcwd())))
    for place in (None, *(place for place in places if place not in sys.path)):
        if place is not None:
            sys.path.append(place)
            importlib.invalidate_caches()
        try:
            if importlib.util.find_spec(top) is not None:
                return
        except ValueError:  # `__main__`
            break
    raise _no_module(whose, top, places)


def _no_module(whose: str, name: str | None, places: list[str]) -> UsageError:
    return UsageError(
        f"{whose}: there is no module {name!r}, neither on Python's path nor in "
        f"{' or '.join(places)}; PYTHONPATH can name its folder"
    )


def _is_of(error: ModuleNotFoundError, name: str) -> bool:
    """Return True if the missing module is the named one, or a package that contains it."""
    return bool(error.name) and f"{name}.".startswith(f"{error.name}.")
