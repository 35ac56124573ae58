"""A small JSON Schema check: the keywords that our own schema files use, with the path of what is wrong.

Speed is why it exists: reading 10,000 traces must not spend minutes in a general validator. Tests hold it
against the `jsonschema` package. Keywords: $ref (local), type, const, enum, required, properties,
additionalProperties, items, minimum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    """The first thing wrong with a value, as "path: what", or None. `root` is where local $refs start."""
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
    """What a local reference such as `#/$defs/name` names."""
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
