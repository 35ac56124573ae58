"""examples/browser-use: an agent of browser-use is recorded with its model, and replays with no network and no key."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stillweb.proxy.net.isolation import can_isolate
from tests.examples.test_agents import Web, served
from tests.interop.readers import ROOT
from tests.support.openai_endpoint import chat_answer
from tests.support.waiting import STARTS

PYTHON = ROOT / ".venv-browser-use/bin/python"
PAGES = {
    "/": "<h1>Penguins</h1><ul><li><a href='/adelie'>Adelie</a><li><a href='/gentoo' target='_blank'>Gentoo</a></ul>",
    "/gentoo": "<h1>Gentoo</h1><p>Mass: 5076 g</p>",
}
ASKED = json.dumps({"question": "How heavy is the Gentoo?", "start_url": "https://birds.example/"})


def model(prompt: str) -> dict[str, Any]:
    """Return the next action by what the prompt shows: the link, the tab that it opened, the mass in it.

    It names the tabs in its memory, which the next prompt repeats.
    """
    tabs = dict(re.findall(r"Tab (\w{4}): (\S+)", prompt))
    current = re.search(r"Current tab: (\w{4})", prompt)
    mass = re.search(r"Mass: (\d+ g)", prompt)
    gentoo = [tab for tab, url in tabs.items() if url.endswith("/gentoo")]
    action: dict[str, Any]
    if mass:
        action = {"done": {"text": mass[1], "success": True}}
    elif gentoo and current and current[1] not in gentoo:
        action = {"switch": {"tab_id": gentoo[0]}}
    else:
        link = re.search(r"\[(\d+)\]<a[^\n]*\n\s*Gentoo", prompt)
        assert link, prompt
        action = {"click": {"index": int(link[1])}}
    memory = f"Tabs {', '.join(tabs)}."
    return {"evaluation_previous_goal": "", "memory": memory, "next_goal": "Go on.", "action": [action]}


class Birds(Web):
    """The site and the model."""

    def do_GET(self) -> None:
        page = PAGES.get(self.path, "none")
        self.say(200, "text/html", f"<!doctype html><title>{self.path}</title>{page}".encode())

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
        last = sent["messages"][-1]["content"]
        prompt = last if isinstance(last, str) else "".join(part.get("text", "") for part in last)
        self.say(200, *chat_answer(sent, json.dumps(model(prompt))))


@pytest.fixture
def short_folder() -> Iterator[str]:
    """A folder whose name leaves room for that of Chromium's socket."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield folder


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.whole_browser
def test_recorded_once_it_replays_with_its_model_taped(tmp_path: Path, short_folder: str) -> None:
    if not PYTHON.exists():
        pytest.skip("no browser-use: ./setup.sh --peers installs it")
    snap = str(tmp_path / "snap")
    local = ["--no-proxy", "127.0.0.1", "--no-proxy", "localhost"]
    environment = {**os.environ, "OPENAI_BASE_URL": "https://model.example/v1", "TZ": "UTC",
                   "HOME": str(tmp_path), "STILLWEB_STATE": str(tmp_path / "state")}  # fmt: skip

    def run(*words: str, key: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from stillweb.harness.cli import main; main()", *words, *local]
        agent = ["env", f"TMPDIR={short_folder}", str(PYTHON), "agent.py"]  # it leaves its folders there
        return subprocess.run([*command, "--", *agent], cwd=ROOT / "examples/browser-use", input=ASKED,
                              env={**environment, "OPENAI_API_KEY": key}, capture_output=True, text=True, timeout=STARTS)  # fmt: skip

    with served(Birds, ("birds.example", "model.example"), tmp_path) as origin:
        recorded = run("record", "-o", snap, *origin.options, key="sk-of-the-model")
    assert (recorded.returncode, recorded.stdout) == (0, "5076 g\n"), recorded.stderr
    alone = [] if can_isolate() else ["--isolate"]
    ledger = tmp_path / "ledger.jsonl"
    again = run("replay", snap, *alone, "--max-misses", "0", "--ledger", str(ledger), key="any")
    assert (again.returncode, again.stdout) == (0, recorded.stdout), again.stderr
    verdicts = [json.loads(line).get("verdict") for line in ledger.read_text().splitlines()]
    assert "rule:handle" in verdicts  # Chromium draws the ids of tabs anew
