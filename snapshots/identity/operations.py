"""GraphQL operations in a body: by their text, or by the name, number or hash of a persisted query.

Such a name does not say whether the operation reads or writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stillweb.snapshots.http.bodies import FORM, JSON
from stillweb.snapshots.identity.keys import ParsedRequest
from stillweb.snapshots.yielding import in_order

# Members beside `variables` that name an operation: Apollo's and urql's, Relay's, those of the draft for GraphQL over HTTP.
_NAMING = re.compile(r"id|sha256Hash|(?:doc|document|query|operation)_?(?:id|hash|name)|fb_\w+_name", re.I)
_MUTATION = re.compile(r"(?:^|\})[^\S\n]*mutation\b", re.MULTILINE)
# How Relay's compiler has them named.
_CONVENTION = re.compile(r"(?:Query|(Mutation))$")


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: its text, "" where it goes by its `names` alone."""

    text: str
    names: tuple[str, ...]  # `name=value`, sorted

    @property
    def changes(self) -> bool | None:
        """True for a change; None if nothing tells."""
        if self.text:
            return _MUTATION.search(self.text) is not None
        changing = {found[1] is not None for name in self.names if (found := _CONVENTION.search(name))}
        return changing.pop() if len(changing) == 1 else None


def operations_of(parsed: ParsedRequest) -> tuple[Operation, ...]:
    """Return the operations of a body, in order; none if it is not of GraphQL alone."""
    return parsed.derived("operations", _operations_of)


def _operations_of(parsed: ParsedRequest) -> tuple[Operation, ...]:
    body = parsed.body
    if body.kind == FORM:
        # a member `query` there may be of any language
        items: list[Any] = [{_text(p.name): _text(p.value) for p in body.value if p.name != b"query"}]
    elif body.kind == JSON:
        items = body.value if isinstance(body.value, list) else [body.value]
    else:
        return ()
    found = [_operation(item) for item in items]
    return tuple(one for one in found if one is not None) if None not in found else ()


def _operation(item: Any) -> Operation | None:
    if not isinstance(item, dict):
        return None
    text = item.get("query")
    text = text if isinstance(text, str) and "{" in text else ""
    if not text and "variables" not in item and "persistedQuery" not in _members(item.get("extensions")):
        return None
    names = tuple(in_order(_names(item)))
    return Operation(text, names) if text or names else None


def _names(item: Mapping[str, Any]) -> Iterator[str]:
    hashed = _members(_members(item.get("extensions")).get("persistedQuery"))
    for name, value in (*item.items(), *hashed.items()):
        if isinstance(value, (str, int, float)) and _NAMING.fullmatch(name):
            yield f"{name}={value}"


def _members(value: Any) -> Mapping[str, Any]:
    """Return the members of an object, which a form has as text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
