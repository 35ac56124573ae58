"""A YAML file of settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from snapshots.errors import UsageError


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping. UsageError names the file and, where the parser knows it, the line."""
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        raise UsageError(f"{place}: not YAML: {getattr(error, 'problem', None) or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 at byte {error.start}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{path}: must hold a mapping, not {type(value).__name__}")
    return value
