"""Code of one's own, named by an import path."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

from snapshots.errors import UsageError


def load_module(name: str, whose: str) -> ModuleType:
    """The module of that name, also one in the working directory, where a script leaves it out of Python's path.

    UsageError, which `whose` begins, where there is none; what it raises itself passes.
    """
    try:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            here = os.getcwd()
            if not _is_of(error, name) or here in sys.path:
                raise
            sys.path.append(here)
            importlib.invalidate_caches()
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if _is_of(error, name):
            raise UsageError(
                f"{whose}: there is no module {error.name!r}, neither on Python's path nor in {os.getcwd()}"
            ) from error
        raise


def _is_of(error: ModuleNotFoundError, name: str) -> bool:
    """Whether the module itself, or a package it is in, is what was not found."""
    return bool(error.name) and f"{name}.".startswith(f"{error.name}.")
