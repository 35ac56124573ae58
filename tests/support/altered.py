"""Sources with one term altered: a check of what they compute must fail."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
Check = Callable[[Any], None]
Sources = Mapping[str, tuple[Check, list[tuple[str, str]]]]  # path -> its check, and (old, new) terms


def load(path: str, old: str = "", new: str = "") -> ModuleType:
    """A module of its own from the source with a term replaced once; the real one is untouched."""
    source = (ROOT / path).read_text("utf-8")
    assert old in source, f"{path} no longer says {old!r}; update the mutation"
    name = f"altered_{Path(path).stem}"
    spec = importlib.util.spec_from_loader(name, loader=None)
    assert spec
    module = importlib.util.module_from_spec(spec)
    code = compile(source.replace(old, new, 1), path, "exec")  # one that is no Python would prove nothing
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(code, module.__dict__)
    finally:
        del sys.modules[name]
    return module


def notice(check: Check, path: str, old: str, new: str) -> None:
    """Fails the test unless the check fails with the altered source."""
    module = load(path, old, new)
    try:
        check(module)
    except (
        AssertionError,
        ArithmeticError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        pytest.fail.Exception,
    ):
        return
    pytest.fail(f"{path}: {old!r} -> {new!r} went unnoticed")


def cases(sources: Sources) -> pytest.MarkDecorator:
    """Return a mark that makes one test of each altered term: `path`, `old`, `new`."""
    found = [(path, old, new) for path, (_, changes) in sources.items() for old, new in changes]
    names = [f"{Path(path).stem}-{number}" for number, (path, _, _) in enumerate(found)]
    return pytest.mark.parametrize(("path", "old", "new"), found, ids=names)
