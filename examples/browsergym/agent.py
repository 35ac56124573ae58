"""A BrowserGym agent on a recorded site: `python agent.py SITE.wacz TASKS.jsonl`.

Needs `pip install 'stillweb[all]' browsergym-core==0.13.3`. Nothing leaves this machine: BrowserGym's browser asks the
replay. The agent reads the accessibility tree, clicks the first link whose words the question has, and answers with
the heading of the page: put a model in its place.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

from browsergym.core import _get_global_playwright
from browsergym.core.env import BrowserEnv
from browsergym.core.task import AbstractBrowserTask
from browsergym.utils.obs import flatten_axtree_to_str

import stillweb
from stillweb.harness.datasets import load_tasks
from stillweb.harness.scoring import METRICS, score
from stillweb.harness.task import Task
from stillweb.proxy.browser.browser import find_browser


class RecordedTask(AbstractBrowserTask):
    """A task of a task set: it begins at `start_url`, and ends with the agent's first message."""

    def __init__(self, seed: int, task: Task) -> None:
        super().__init__(seed)
        self.task, self.slow_mo, self.timeout = task, 0, 30_000

    def setup(self, page: Any) -> tuple[str, dict[str, Any]]:
        """Open the first page."""
        if self.task.start_url:
            page.goto(self.task.start_url)
        return self.task.question, {}

    def validate(self, page: Any, chat_messages: list[Any]) -> tuple[float, bool, str, dict[str, Any]]:
        """Score the answer with the task's own scorer."""
        said = [one["message"] for one in chat_messages[1:] if one["role"] == "assistant"]
        if not said:
            return 0.0, False, "", {}
        found = score(self.task, said[0])
        return found.metrics[METRICS[self.task.scorer][0]] or 0.0, True, "", found.to_json()


def act(seen: dict[str, Any]) -> str:
    """Return the next action."""
    question = seen["goal_object"][0]["text"].lower()
    tree = flatten_axtree_to_str(seen["axtree_object"])
    for line in tree.splitlines():
        bid, _, what = line.strip().partition(" ")
        kind, _, name = what.partition(" ")
        name = name.split("'")[1] if "'" in name else ""
        if kind == "link" and name.lower() in question and not seen["last_action"]:
            return f"click({bid[1:-1]!r})"
    heading = next(line for line in tree.splitlines() if " heading " in line)
    return f"send_msg_to_user({heading.split(chr(39))[1]!r})"


def main(snapshot: str, tasks: str) -> None:
    """Play each task once; print its reward, and the misses of all."""
    chromium = _get_global_playwright().chromium
    chromium.launch = partial(
        chromium.launch, executable_path=str(find_browser())
    )  # also of the chat's browser
    with stillweb.open(snapshot) as frozen, stillweb.replay(frozen) as web:
        for task in load_tasks(tasks):
            env = BrowserEnv(RecordedTask, {"task": task}, pw_context_kwargs=web.playwright(task.id))
            seen, _ = env.reset()
            over, reward = False, 0.0
            while not over:
                seen, reward, ended, cut, _ = env.step(act(seen))
                over = ended or cut
            print(f"{task.id}: {reward}")
            env.close()
        print(
            f"misses: {sum(entry['verdict'] == 'miss' and not entry.get('irrelevant') for entry in web.ledger.entries())}"
        )


if __name__ == "__main__":
    main(str(Path(sys.argv[1])), sys.argv[2])
