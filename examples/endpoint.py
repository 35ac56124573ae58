"""A scripted model behind an OpenAI-compatible endpoint, so that the examples run without a key.

    python -m examples.endpoint examples/sgr/model.yaml -- stillweb run …

The endpoint lives on loopback while the command runs; OPENAI_BASE_URL, GRADER_BASE_URL and the keys are set for
it. The script is a list: the first entry whose texts (`when`) all stand in what was asked, and whose number of
tool answers so far (`after`) and model are those of the request, says or calls something.

    - {when: [fastest], after: 0, call: {fetch: {url: "https://…"}}}
    - {when: [fastest], after: 1, say: "F-07|…"}
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.support.openai_endpoint import Asked, Endpoint, Said

MEMBERS = {"when", "after", "model", "call", "say"}


class Script:
    """What the model says."""

    def __init__(self, entries: list[dict[str, Any]], source: str) -> None:
        for number, entry in enumerate(entries, 1):
            if unknown := sorted(set(entry) - MEMBERS):
                raise SystemExit(f"{source}: entry {number}: unknown member {unknown[0]!r}")
        self.entries = entries

    @classmethod
    def load(cls, path: Path) -> Script:
        """From a YAML file."""
        return cls(yaml.safe_load(path.read_text(encoding="utf-8")), str(path))

    def __call__(self, asked: Asked) -> Said:
        """The first entry that fits; a confession where none does."""
        told = json.dumps(asked.items, ensure_ascii=False)
        for entry in self.entries:
            texts = entry.get("when", [])
            if not all(text in told for text in ([texts] if isinstance(texts, str) else texts)):
                continue
            if entry.get("after", len(asked.tool_answers)) != len(asked.tool_answers):
                continue
            if entry.get("model", asked.body["model"]) != asked.body["model"]:
                continue
            if "call" in entry:
                return list(entry["call"].items())
            return str(entry["say"]).strip()
        return "I can't tell."


def environment(url: str) -> dict[str, str]:
    """The variables that lead an agent and all judges to the endpoint."""
    names = ["OPENAI_%s", "GRADER_%s", *(f"SGI_JUDGE_%s_{n}" for n in (1, 2, 3))]
    urls = {name % "BASE_URL": url for name in names}
    return urls | {name % "API_KEY": "none-is-needed" for name in names}


def main(words: list[str]) -> int:
    """Runs a command beside the endpoint; returns its exit code."""
    if len(words) < 3 or words[1] != "--":
        raise SystemExit("usage: python -m examples.endpoint SCRIPT.yaml -- COMMAND…")
    with Endpoint(Script.load(Path(words[0]))) as endpoint:
        done = subprocess.run(words[2:], env={**os.environ, **environment(endpoint.url)}, check=False)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
