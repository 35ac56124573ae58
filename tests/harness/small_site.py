"""A site with pages and noise, snapshots of such pages, and a run over them: for tests of whole commands."""

import hashlib
import json
from pathlib import Path

from stillweb.snapshots import Snapshot
from tests.proxy.frozen import Site
from tests.proxy.origin import Answer, Asked
from tests.support.command_line import stillweb

HTML = [("Content-Type", "text/html")]
WORDS = b"<title>A page</title><h1>A page</h1><p>" + b"that says something at some length, " * 30
NEVER_QUIET = "<script>setInterval(() => fetch('/tick?' + Math.random()), {})</script>"


def noise(number: int) -> bytes:
    """64 KiB that no packing makes smaller."""
    return b"".join(hashlib.sha256(b"%d %d" % (number, part)).digest() for part in range(2048))


def answer(asked: Asked) -> Answer:
    """The site: pages, noise, and pages that are never quiet."""
    if asked.path.startswith("/noise/"):
        body = noise(int(asked.path.rpartition("/")[2]))
        return Answer(headers=[("Content-Type", "application/octet-stream")], body=body)
    every = {"/busy": 100, "/ticking": 2000}.get(asked.path)  # ms
    return Answer(headers=HTML, body=WORDS + (NEVER_QUIET.format(every).encode() if every else b""))


def make(path: Path, count: int = 3, media: str = "text/html", body: bytes = WORDS) -> Path:
    """An open snapshot with pages a.test/0, a.test/1, …"""
    site = Site(path)
    for number in range(count):
        own = b"%d " % number + (body if media == "text/html" else noise(number))
        site.add(f"https://a.test/{number}", own, headers=(("Content-Type", media),))
    with site.open():
        return path


def urls(path: Path) -> list[str]:
    """Return the URLs of a snapshot's captures."""
    with Snapshot.open(path) as snapshot:
        return sorted(capture.url for capture in snapshot.captures())


def sound(path: Path) -> bool:
    """Whether nothing is wrong with a snapshot."""
    return stillweb("verify", path).code == 0


def run_words(tmp_path: Path, step: str) -> list[str | Path]:
    """A run of one scripted step over such a snapshot, as words of the command line."""
    snapshot = make(tmp_path / "s")
    task = {"id": "one", "question": "?", "answer": "A page", "start_url": "https://a.test/0"}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    agent = f"agent: script\ndefault:\n  steps:\n    - {step}\n  answer: A page\n"
    (tmp_path / "agent.yaml").write_text(agent)
    agent_name = f"script:{tmp_path / 'agent.yaml'}"
    return [
        "run", "--tasks", tmp_path / "tasks.jsonl", "--agent", agent_name, "--snapshot", snapshot,
        "-o", tmp_path / "run",
    ]  # fmt: skip
