"""Settings for all tests: the same hypothesis examples everywhere, and the tier of each test by what it uses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "stillweb",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=100,
)
settings.load_profile("stillweb")

BROWSER_FIXTURES = frozenset({"browser", "chromium"})
# Whatever a test module takes from one of these starts a browser, or other programs.
BROWSER_MODULES = ("playwright", "stillweb.proxy.pages.browser", "stillweb.harness.tools.browser", "tests.proxy.browsing")
PROCESS_MODULES = ("subprocess", "tests.support.command_line")
PEERS = Path(__file__).parent / "interop"


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two workers a core, since most tests wait for a browser or another process half of their time."""
    return 2 * len(os.sched_getaffinity(0))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts a browser or a process, and what compares with other people's programs."""
    known: dict[ModuleType, frozenset[str]] = {}
    for item in items:
        module = getattr(item, "module", None)
        if isinstance(module, ModuleType):
            if module not in known:
                known[module] = frozenset(marks_of(module))
            for mark in known[module]:
                item.add_marker(mark)
        if BROWSER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("browser")
        if PEERS in item.path.parents:
            item.add_marker("peer")


def marks_of(module: ModuleType) -> Iterator[str]:
    """Yield the tiers of a test module, by the modules that it takes names from."""
    origins = {
        value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", ""))
        for value in vars(module).values()
    }
    for mark, starting in (("browser", BROWSER_MODULES), ("process", PROCESS_MODULES)):
        if any(origin == name or origin.startswith(name + ".") for origin in origins for name in starting):
            yield mark
