"""A task set, as commands read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stillweb.harness.console import say

if TYPE_CHECKING:
    from stillweb.harness.task import TaskSet


def read_tasks(source: str, split: str | None = None) -> TaskSet:
    """The set; which of its records could not be read, and which fields nothing reads, is said.

    Whoever leaves out a record for that ends with exit code 1: a misspelt field must not look like a task that went well.
    """
    from stillweb.harness.datasets import load_tasks

    tasks = load_tasks(source, split=split)
    for problem in tasks.problems:
        say(f"left out: {problem}")
    for notice in tasks.notices:
        say(f"not read: {notice}")
    return tasks
