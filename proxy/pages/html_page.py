"""Pages that are one HTML file: their templates."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from stillweb.snapshots.words import counted

if TYPE_CHECKING:
    from jinja2 import Template


def template(package: str, name: str, **filters: Callable[..., Any]) -> Template:
    """A template of a package, in which a name that is not given is an error; it counts by `counted`."""
    import jinja2

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"counted": counted, **filters}
    return environment.from_string(files(package).joinpath(name).read_text(encoding="utf-8"))
