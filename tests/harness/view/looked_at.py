"""A snapshot with a hostile page, and runs over it, as `stillweb view` shows them."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from PIL import Image

from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.request import Request
from stillweb.snapshots.view import View, view_address
from stillweb.snapshots.writer import Writer
from tests.support.command_line import Started
from tests.support.runs import bird_task

PAGE = "https://birds.test/2012"
EVIL = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"
DOM = f"""<!DOCTYPE html><html><head><title>Birds {EVIL}</title><base href="https://birds.test/">
<meta http-equiv="refresh" content="0;url=https://evil.test/away"><link rel="stylesheet" href="style.css">
<link rel="dns-prefetch" href="//evil.test"><script src="https://evil.test/s.js"></script></head>
<body onload="document.body.textContent='owned'" style="background:url(https://evil.test/b.png)">
<h1>Birds of 2012</h1><p>Bird 7 weighed 3900 g. Bird 9 weighed 3700 g. Bird 8 weighed 3800 g.</p>
<img src="bird.png" alt="bird"><img src="https://evil.test/pixel.png" srcset="https://evil.test/2.png 2x" alt="">
<iframe src="https://evil.test/frame"></iframe><form action="https://evil.test/post"><button id="send">send</button></form>
<a id="away" href="https://evil.test/" target="_top">away</a><script>document.body.textContent='owned'</script></body></html>"""


def png(width: int, height: int) -> bytes:
    """A grey picture."""
    out = io.BytesIO()
    Image.new("RGB", (width, height), (120, 130, 140)).save(out, "PNG")
    return out.getvalue()


OPTIONS = {"media": "text/html", "options": {}, "title": "Birds", "meta": {"url": PAGE}}
START = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)


def make_snapshot(path: Path, dom: str = DOM) -> Path:
    """A snapshot of the page with its style and its picture, and two views of it."""
    answers = [
        (PAGE, "text/html", dom.encode()),
        (
            "https://birds.test/style.css",
            "text/css",
            b"h1 { color: rgb(1, 2, 3) } p { background: url(https://evil.test/c.png) }",
        ),
        ("https://birds.test/bird.png", "image/png", png(8, 8)),
        ("https://birds.test/robots.txt", "text/plain", b"User-agent: *\nAllow: /\n"),
    ]
    with Writer.open(path) as writer:
        for number, (url, kind, body) in enumerate(answers):
            request = Request("GET", url)
            moment = START + timedelta(seconds=number)
            writer.exchange(
                Exchange(
                    request,
                    200,
                    "OK",
                    (("Content-Type", kind),),
                    body,
                    moment,
                    "s",
                    2 * number + 1,
                    2 * number + 2,
                )
            )
        steps: tuple[dict[str, Any], ...] = ({"click": {"text": "More"}},)
        captures = ({"url": PAGE, "method": "GET", "status": 200},)
        resources = {
            "view": png(64, 40),
            "dom": dom.encode(),
            "text": b"Birds of 2012 Bird 7 weighed 3900 g. Hidden words.",
        }
        writer.view(
            View(PAGE, PAGE, PAGE, f"Birds {EVIL}", timestamp="20250301120000", captures=captures), resources
        )
        more = View(
            view_address(PAGE, steps), PAGE, PAGE, "More birds", steps, PAGE, timestamp="20250301120001"
        )
        writer.view(more, resources)
        text = "Birds of 2012\n\nBird 7 weighed 3900 g. Bird 9 weighed 3700 g. Bird 8 weighed 3800 g."
        writer.conversion(
            PAGE,
            text,
            extractor="t",
            version="1",
            refers_to=None,
            options=OPTIONS,
            timestamp="20250301120000",
        )
    return path


def script(**answers: str) -> dict[str, Any]:
    """An agent that reads the page and gives the right answer, or the one for its task."""
    call = {"call": "fetch", "with": {"url": PAGE}}
    miss = {"call": "fetch", "with": {"url": "https://birds.test/nowhere"}, "may_fail": True}
    tasks = {name: {"steps": [call, miss], "answer": answer} for name, answer in answers.items()}
    return {"agent": "script", "default": {"steps": [call], "answer": "7|3900\n9|3700"}, "tasks": tasks}


def make_run(path: Path, snapshot: Path, names: list[str], *, epochs: int = 1, **answers: str) -> RunFiles:
    """A run of that agent on bird tasks."""
    agent = path.with_name(f"{path.name}.yaml")
    agent.write_text(yaml.safe_dump(script(**answers)), encoding="utf-8")
    settings = Settings(agent=str(agent), snapshots=(str(snapshot),), epochs=epochs)
    files = start_run(path, settings, [bird_task(name) for name in names])
    run_attempts(files.path, display=SilentDisplay())
    return files


WRONG = "7|3900\n9|3800"
BABBLE = "I could not find any of these birds, sorry."


def make_world(folder: Path) -> Path:
    """A snapshot and two runs: of the tasks right, wrong and babble, the second run gets another one wrong."""
    snapshot = make_snapshot(folder / "birds")
    names = ["right", "wrong", "babble"]
    make_run(folder / "run1", snapshot, names, epochs=2, wrong=WRONG, babble=BABBLE)
    make_run(folder / "run2", snapshot, names, epochs=2, right="7|3900", babble=BABBLE)
    return folder


@contextmanager
def viewed(*paths: Path, cache: Path) -> Iterator[str]:
    """The address of a running `stillweb view`, without the last slash."""
    command = Started("view", *paths, "--no-open", env={"STILLWEB_CACHE": str(cache)})
    try:
        yield command.line().rstrip("/")
    finally:
        command.interrupt()
        command.end()
