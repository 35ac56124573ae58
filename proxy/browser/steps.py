"""Steps: the way from a URL to a view, as people write it and as it is hashed.

A steps file is YAML: a list of steps, or a list of flows `{url, steps}`. A step is one action with its target
and arguments. `parse_steps` gives each its one canonical form, so that the same way always has the same view
id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from stillweb.proxy.browser.uploads import Files, names_of
from stillweb.snapshots import yaml_text
from stillweb.snapshots._os.text_files import read_text
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.view import Step
from stillweb.snapshots.words import texts_in

TARGETS = ("role", "label", "text", "placeholder", "css")
# fields that may accompany a target, and the target that they need
_BESIDE = {"name": "role", "exact": None, "nth": None, "frame": None}


@dataclass(frozen=True, slots=True)
class Flow:
    """The steps for one URL, or for every URL that is fetched if `url` is None.

    `files` holds the files that they upload, by digest.
    """

    url: str | None
    steps: tuple[Step, ...]
    files: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)


class _Bad(Exception):
    """An invalid step; the message lacks its place."""


def _string(value: object, field: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _Bad(f"field {field!r} must be text, not {_kind(value)}")
    return str(value)


def _number(value: object, field: str, least: float = 0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Bad(f"field {field!r} must be a number, not {_kind(value)}")
    if value < least:
        raise _Bad(f"field {field!r} must be at least {least:g}, not {value:g}")
    return value


def _count(value: object, field: str, least: int) -> int:
    number = _number(value, field, least)
    if number != int(number):
        raise _Bad(f"field {field!r} must be a whole number, not {number:g}")
    return int(number)


def _kind(value: object) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), f"{value!r}")


def _mapping(value: object, short: str | None) -> dict[str, Any]:
    """Return the arguments as a mapping. A plain text stands for the field `short`."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise _Bad(f"field {key!r} is not a name")
        return dict(value)
    if short is not None and isinstance(value, str | int | float) and not isinstance(value, bool):
        return {short: value}
    raise _Bad(f"needs a mapping{f' or text (for {short!r})' if short else ''}, not {_kind(value)}")


def _target(given: dict[str, Any], *, needed: bool = True) -> dict[str, Any]:
    """Remove the target's fields from `given` and return them, checked, in canonical form."""
    ways = [way for way in TARGETS if way in given]
    if not ways:
        if needed:
            raise _Bad(f"names no element: needs one of {', '.join(TARGETS)}")
        for beside in _BESIDE:
            if beside in given:
                raise _Bad(f"field {beside!r} needs an element ({', '.join(TARGETS)})")
        return {}
    if len(ways) > 1:
        raise _Bad(f"names its element in two ways: {' and by '.join(repr(way) for way in ways)}")
    way = ways[0]
    found: dict[str, Any] = {way: _string(given.pop(way), way)}
    if not found[way].strip():
        raise _Bad(f"field {way!r} is empty")
    for beside, only in _BESIDE.items():
        if beside not in given:
            continue
        value = given.pop(beside)
        if only is not None and only != way:
            raise _Bad(f"field {beside!r} goes with {only!r} only")
        if beside == "nth":
            found["nth"] = _count(value, "nth", 1)
        elif beside == "exact":
            if not isinstance(value, bool):
                raise _Bad(f"field 'exact' must be true or false, not {_kind(value)}")
            if value:
                found["exact"] = True
        else:
            found[beside] = _string(value, beside)
    return found


def _known_only(given: dict[str, Any], known: Iterable[str]) -> None:
    """Raise _Bad for unknown fields.

    Call it before missing fields are reported, so that a misspelt field is named as such.
    """
    known = list(known)
    unknown = [key for key in given if key not in known]
    if unknown:
        fields = ", ".join(repr(key) for key in unknown)
        raise _Bad(f"has unknown field {fields} (known: {', '.join(known)})")


def _options(value: object, field: str) -> str | list[str]:
    if isinstance(value, list):
        if not value:
            raise _Bad(f"field {field!r} is an empty list")
        return [_string(one, field) for one in value]
    return _string(value, field)


def _goto(value: object) -> dict[str, Any]:
    given = _mapping(value, "url")
    _known_only(given, ["url"])
    if "url" not in given:
        raise _Bad("needs a field 'url'")
    url = _string(given.pop("url"), "url")
    if not url.startswith(("http://", "https://", "/", "?", "#", "./", "../")):
        raise _Bad(f"url {url!r} is neither http(s) nor relative")
    return {"url": url}


def _select(value: object) -> dict[str, Any]:
    given = _mapping(value, None)
    _known_only(given, [*TARGETS, *_BESIDE, "option", "value"])
    found = _target(given)
    ways = [way for way in ("option", "value") if way in given]
    if len(ways) != 1:
        raise _Bad("needs either 'option' (its text) or 'value'")
    found[ways[0]] = _options(given.pop(ways[0]), ways[0])
    return found


def _fill(value: object) -> dict[str, Any]:
    given = _mapping(value, None)
    _known_only(given, [*TARGETS, *_BESIDE, "value"])
    found = _target(given)
    if "value" not in given:
        raise _Bad("needs a field 'value'")
    found["value"] = _string(given.pop("value"), "value")
    return found


def _upload(value: object) -> dict[str, Any]:
    given = _mapping(value, None)
    _known_only(given, [*TARGETS, *_BESIDE, "file"])
    found = _target(given)
    if "file" not in given:
        raise _Bad("needs a field 'file'")
    found["file"] = given.pop("file")
    return found


def _only_target(short: str) -> Callable[[object], dict[str, Any]]:
    def parse(value: object) -> dict[str, Any]:
        given = _mapping(value, short)
        _known_only(given, [*TARGETS, *_BESIDE])
        return _target(given)

    return parse


def _press(value: object) -> dict[str, Any]:
    given = _mapping(value, "key")
    _known_only(given, ["key", *TARGETS, *_BESIDE])
    if "key" not in given:
        raise _Bad("needs a field 'key', such as Enter")
    found: dict[str, Any] = {"key": _string(given.pop("key"), "key")}
    found |= _target(given, needed=False)
    return found


def _wait(value: object) -> dict[str, Any]:
    short = "text" if isinstance(value, str) else "time"
    given = _mapping(value, short)
    _known_only(given, ["text", "gone", "selector", "time"])
    ways = [way for way in ("text", "gone", "selector", "time") if way in given]
    if len(ways) != 1:
        raise _Bad("needs exactly one of 'text', 'gone', 'selector', 'time'")
    way = ways[0]
    raw = given.pop(way)
    found: dict[str, Any] = {way: _number(raw, "time") if way == "time" else _string(raw, way)}
    if way == "time" and found["time"] > 600:
        raise _Bad("field 'time' is in seconds and at most 600")
    return found


def _scroll(value: object) -> dict[str, Any]:
    if value is None:
        return {"to": "bottom"}
    given = _mapping(value, "to")
    _known_only(given, ["to", "times", *TARGETS, *_BESIDE])
    found = _target(given, needed=False)
    to = _string(given.pop("to"), "to") if "to" in given else "bottom"
    if to not in ("bottom", "top", "view"):
        raise _Bad(f"field 'to' must be bottom, top or view, not {to!r}")
    if to == "view" and not found:
        raise _Bad("scrolls into view, but names no element")
    found["to"] = to
    times = _count(given.pop("times"), "times", 1) if "times" in given else 1
    if times != 1:
        found["times"] = times
    return found


def _next_page(value: object) -> dict[str, Any]:
    given = _mapping({} if value is None else value, "text")
    _known_only(given, ["times", *TARGETS, *_BESIDE])
    found = _target(given, needed=False)
    if "times" in given:
        found["times"] = _count(given.pop("times"), "times", 1)
    return found


ACTIONS: dict[str, Callable[[object], dict[str, Any]]] = {
    "goto": _goto,
    "select": _select,
    "fill": _fill,
    "upload": _upload,
    "check": _only_target("label"),
    "uncheck": _only_target("label"),
    "click": _only_target("text"),
    "press": _press,
    "wait": _wait,
    "scroll": _scroll,
    "next_page": _next_page,
}


def _one(item: object, files: Files) -> list[Step]:
    if isinstance(item, str) and item in ("scroll", "next_page"):
        item = {item: None}
    if not isinstance(item, dict):
        raise _Bad(f"must be one action with its arguments, not {_kind(item)}")
    if len(item) != 1:
        raise _Bad(f"must be one action, but has {len(item)}: {', '.join(map(str, item))}")
    action, value = next(iter(item.items()))
    if action not in ACTIONS:
        raise _Bad(f"unknown action {action!r} (known: {', '.join(ACTIONS)})")
    try:
        found = ACTIONS[action](value)
        if action == "upload":
            found["file"] = files.take(found["file"])
    except (_Bad, UsageError) as bad:
        raise _Bad(f"{action} {bad}") from None
    times = found.pop("times", 1) if action == "next_page" else 1
    return [{action: dict(found)} for _ in range(times)]


def canonical(
    items: Iterable[object], where: str = "steps", lines: list[int] | None = None, files: Files | None = None
) -> tuple[Step, ...]:
    """Return the canonical steps of plain data. Raises UsageError naming step, line (if known) and field.

    `files` reads the files to upload, by default from the current folder.
    """
    files = files or Files(Path())
    steps: list[Step] = []
    for number, item in enumerate(items, start=1):
        try:
            steps.extend(_one(item, files))
        except _Bad as bad:
            line = f" (line {lines[number - 1]})" if lines and number <= len(lines) else ""
            raise UsageError(f"{where}: step {number}{line}: {bad}") from None
    return tuple(steps)


def _lines(node: yaml.Node | None) -> list[int]:
    if not isinstance(node, yaml.SequenceNode):
        return []
    return [one.start_mark.line + 1 for one in node.value]


def _loaded(text: str, where: str) -> tuple[Any, yaml.Node | None]:
    return yaml_text.read(text, where), yaml_text.compose(text, where)


def parse_steps(text: str, where: str = "steps", files: Files | None = None) -> tuple[Step, ...]:
    """Return the canonical steps of a YAML list; see docs/views.md. Raises UsageError."""
    return _steps(*_loaded(text, where), where, files)


def _steps(data: Any, node: yaml.Node | None, where: str, files: Files | None) -> tuple[Step, ...]:
    if data is None:
        return ()
    if not isinstance(data, list):
        raise UsageError(f"{where}: must be a list of steps, not {_kind(data)}")
    return canonical(data, where, _lines(node), files)


def parse_flows(text: str, where: str = "steps", folder: Path | None = None) -> list[Flow]:
    """Return the flows of a steps file. Raises UsageError.

    The file is `[{url, steps}, …]` (either may be left out), or a list of steps for every URL; or one of these
    as `flows` or `steps` beside `browser`, the options that `load_browser` reads. Files to upload are read
    from `folder`, by default the current one.
    """
    data, node = _loaded(text, where)
    if isinstance(data, dict) and "browser" in data:
        data, node = _headed(data, node, where)
    if not (isinstance(data, list) and data and all(_is_flow(item) for item in data)):
        files = Files(folder or Path())
        return [Flow(None, _steps(data, node, where, files), files.contents)]
    assert isinstance(node, yaml.SequenceNode)
    flows = []
    for number, (item, mapping) in enumerate(zip(data, node.value, strict=True), start=1):
        place = f"{where}: flow {number}"
        unknown = [key for key in item if key not in ("url", "steps")]
        if unknown:
            raise UsageError(f"{place}: unknown field {unknown[0]!r} (known: url, steps)")
        url = item.get("url")
        if url is not None and not (isinstance(url, str) and url.startswith(("http://", "https://"))):
            raise UsageError(f"{place}: url {url!r} is not an http(s) URL")
        steps = item.get("steps", [])
        if not isinstance(steps, list):
            raise UsageError(f"{place}: steps must be a list, not {_kind(steps)}")
        inner = next((value for key, value in mapping.value if key.value == "steps"), None)
        files = Files(folder or Path())
        flows.append(Flow(url, canonical(steps, place, _lines(inner), files), files.contents))
    return flows


def _headed(data: dict[Any, Any], node: yaml.Node | None, where: str) -> tuple[Any, yaml.Node | None]:
    """Return the flows or steps of a file that begins with browser options."""
    unknown = [key for key in data if key not in ("browser", "flows", "steps")]
    if unknown:
        raise UsageError(f"{where}: unknown field {unknown[0]!r} (known: browser, flows, steps)")
    if "flows" in data and "steps" in data:
        raise UsageError(f"{where}: has both flows and steps. Write the steps into a flow")
    name = "flows" if "flows" in data else "steps"
    assert isinstance(node, yaml.MappingNode)
    return data.get(name), next((value for key, value in node.value if key.value == name), None)


def _is_flow(item: object) -> bool:
    return isinstance(item, dict) and not item.keys().isdisjoint(("url", "steps"))


def load_flows(path: Path) -> list[Flow]:
    """Parse the flows of a file; files to upload are beside it. Raises UsageError if one can't be read."""
    return parse_flows(read_text(path), str(path), path.parent)


def load_browser(path: Path) -> dict[str, Any]:
    """Return the browser options at the head of a steps file, as written; {} without any."""
    data, _ = _loaded(read_text(path), str(path))
    given = data.get("browser") if isinstance(data, dict) else None
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise UsageError(f"{path}: browser must be a mapping of options, not {_kind(given)}")
    return {str(name).replace("-", "_"): value for name, value in given.items()}


def to_yaml(steps: Iterable[Step]) -> str:
    """Return canonical steps as a steps file, which `parse_steps` reads back.

    The files that the steps upload must be there to read it back.
    """
    data = list(steps)
    readable = all(text.isprintable() for text in texts_in(data))  # else YAML takes some for line ends
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=readable, default_flow_style=False)


def describe(step: Step) -> str:
    """Return a step in a few words, for people: `select "2019" in label "Year"`."""
    action, given = next(iter(step.items()))
    way = next((way for way in TARGETS if way in given), None)
    element = f'{way} "{given[way]}"' if way else ""
    if given.get("name"):
        element += f' "{given["name"]}"'
    if action == "upload":
        return f"upload {', '.join(names_of(given))} to {element}"
    if action in ("select", "fill"):
        value = given.get("option", given.get("value"))
        text = ", ".join(map(str, value)) if isinstance(value, list) else value
        return f'{action} "{text}" in {element}'
    if action in ("goto", "press", "wait"):
        text = next(
            (f"{given[key]}" for key in ("url", "key", "text", "gone", "selector", "time") if key in given),
            "",
        )
        return f"{action} {text}"
    return f"{action} {element}".strip()
