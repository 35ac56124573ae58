"""A YAML file of settings."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import yaml

from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.machine.text_files import read_text


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping of what JSON can hold, too. UsageError names the file and, where the parser knows it, the line.

    YAML reads words without quotes as other things (a date, `on`): what is no JSON is an error with its place. Whole
    numbers as names are taken for texts.
    """
    try:
        value = yaml.safe_load(read_text(path, "utf-8-sig"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise UsageError(f"{place}: not YAML: {problem}") from error
    except ValueError as error:  # a number or a date that is none
        raise UsageError(f"{path}: not YAML: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{path}: is nested too deeply") from error
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
        raise UsageError(f"{place.rstrip('.')}: {value} is no number of JSON")
    if value is None or isinstance(value, str | int | float):
        return value
    raise UsageError(f"{place.rstrip('.')}: is read as a {type(value).__name__}; put it in quotes")


def _name(key: Any, place: str) -> str:
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise UsageError(f"{place}the name {key!r} is read as a {type(key).__name__}; put it in quotes")
    return str(key)
