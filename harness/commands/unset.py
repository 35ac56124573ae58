"""Notes on environment variables that an agent's program needs and does not get."""

from __future__ import annotations

import os
from collections.abc import Iterable

from stillweb.harness.console import say


def say_unset(agent: str, pass_env: Iterable[str]) -> None:
    """Print which variables of `pass_env` are not set here."""
    for name in pass_env:
        if name not in os.environ:
            say(f"{agent}: pass_env: {name} is not set here, so the program does not get it")
