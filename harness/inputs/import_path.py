"""Code of one's own, named by an import path."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

from stillweb.snapshots.errors import UsageError

_begun: list[str] = []  # where runs of this process were begun, which found their code from there


def look_in(directory: str | None) -> None:
    """Modules are looked for in the directory in which a run was begun, too, if it is still there."""
    if directory and os.path.isdir(directory) and directory not in _begun:
        _begun.append(directory)


def load_module(name: str, whose: str) -> ModuleType:
    """The module of that name, also one in the working directory, where a script leaves it out of Python's path, and
    before it in those of `look_in`.

    UsageError, which `whose` begins, where there is none; what it raises itself passes.
    """
    places = list(dict.fromkeys((*_begun, os.getcwd())))
    waiting = iter([place for place in places if place not in sys.path])
    while True:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not _is_of(error, name):
                raise
            place = next(waiting, None)
            if place is None:
                raise UsageError(
                    f"{whose}: there is no module {error.name!r}, neither on Python's path nor in "
                    f"{' or '.join(places)}; PYTHONPATH can name its folder"
                ) from error
            sys.path.append(place)
            importlib.invalidate_caches()


def _is_of(error: ModuleNotFoundError, name: str) -> bool:
    """Whether the module itself, or a package it is in, is what was not found."""
    return bool(error.name) and f"{name}.".startswith(f"{error.name}.")
