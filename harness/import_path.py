"""Code of one's own, named by an import path."""

from __future__ import annotations

import importlib
from types import ModuleType

from snapshots.errors import UsageError


def load_module(name: str, whose: str) -> ModuleType:
    """The module of that name. UsageError, which `whose` begins, where there is none; what it raises itself passes."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and name.startswith(error.name):
            raise UsageError(f"{whose}: there is no module {error.name!r}") from error
        raise
