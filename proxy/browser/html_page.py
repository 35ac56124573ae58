"""Templates of pages that are one HTML file."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from stillweb.snapshots.words import counted

if TYPE_CHECKING:
    from jinja2 import Template


def template(package: str, name: str, **filters: Callable[..., Any]) -> Template:
    """Return a template of a package, in which a missing name is an error, with the filter `counted`."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"counted": counted, **filters}
    return environment.from_string(files(package).joinpath(name).read_text(encoding="utf-8"))
