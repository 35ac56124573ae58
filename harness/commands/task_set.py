"""Task sets for commands: read with their problems printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stillweb.harness.console import say

if TYPE_CHECKING:
    from stillweb.harness.task import TaskSet


def read_tasks(source: str) -> TaskSet:
    """Return a task set; print which records could not be read, and which fields are not used.

    A command that leaves out a record must end with exit code 1: a misspelt field must not look like a success.
    """
    from stillweb.harness.datasets import load_tasks

    tasks = load_tasks(source)
    for remark in tasks.remarks:
        say(remark)
    return tasks
