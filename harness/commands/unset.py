"""What a program's agent asks of our environment and does not get."""

from __future__ import annotations

import os
from collections.abc import Iterable

from stillweb.harness.console import say


def say_unset(agent: str, pass_env: Iterable[str]) -> None:
    """Says which variables that are to be passed on are not set here."""
    for name in pass_env:
        if name not in os.environ:
            say(f"{agent}: pass_env: {name} is not set here, so the program does not get it")
