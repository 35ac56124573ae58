"""Reader of YAML written by people: each error is one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from stillweb.snapshots.errors import UsageError

MOST = 1_000_000  # values of a text whose aliases are unfolded


class _Loader(yaml.SafeLoader):
    def compose_document(self) -> yaml.Node | None:
        document: yaml.Node | None = super().compose_document()
        sizes: dict[yaml.Node, int] = {}
        if document is not None and MOST < _unfolded(document, sizes) > len(sizes):
            raise ValueError(f"its aliases unfold to more than {MOST:,} values")
        return document

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        value: int = super().construct_yaml_int(node)
        try:
            str(value)
        except ValueError:  # hexadecimal: Python reads it, but does not print it
            raise ValueError("a number has too many digits") from None
        return value


def _unfolded(node: yaml.Node, sizes: dict[yaml.Node, int]) -> int:
    """Return the number of values in a node if each alias stood for a copy. `sizes` is filled with those of all nodes."""
    if node not in sizes:
        sizes[node] = 0  # until it is known: an alias within refers to what holds it
        parts = node.value if isinstance(node.value, list) else ()
        flat = [part for pair in parts for part in (pair if isinstance(pair, tuple) else (pair,))]
        sizes[node] = 1 + sum(_unfolded(part, sizes) for part in flat)
    elif not sizes[node]:
        raise yaml.composer.ComposerError(None, None, "an anchor holds an alias of itself", node.start_mark)
    return sizes[node]


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def read(text: str, where: str) -> Any:
    """Return the value of a YAML text. Raises UsageError that names `where` and, if known, the line."""
    with _told(where):
        return yaml.load(text, Loader=_Loader)


def compose(text: str, where: str) -> yaml.Node | None:
    """Return the tree of a YAML text, which knows its lines. Raises UsageError as `read` does."""
    with _told(where):
        return yaml.compose(text, Loader=_Loader)


@contextmanager
def _told(where: str) -> Iterator[None]:
    try:
        yield
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{where}:{mark.line + 1}" if mark else where
        problem = (
            getattr(error, "problem", None)
            or getattr(error, "context", None)
            or str(error).partition("\n")[0]
        )
        raise UsageError(f"{place}: not YAML: {problem}") from None
    except RecursionError:
        raise UsageError(f"{where}: is nested too deeply") from None
    except ValueError as error:  # an invalid number or date
        raise UsageError(f"{where}: not YAML: {error}") from None
    except AttributeError:  # PyYAML's own, of `!!timestamp x`
        raise UsageError(f"{where}: not YAML: a value is not of the type that its tag names") from None
