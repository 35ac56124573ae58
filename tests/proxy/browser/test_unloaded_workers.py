"""A worker that a page's policy keeps from being frozen fails, and that is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from stillweb.proxy.browser.capture_view import Fetcher
from stillweb.proxy.record.recorder import Recorder
from stillweb.snapshots.writer import Writer
from tests.proxy.sites import Answer, serve

WORDS = "<title>Workers</title><h1>A page that has a worker</h1><p>It says what it is for, so that nobody takes it for empty.</p>"
PARTS = {
    "/module": f"{WORDS}<script src=/module.js></script>",
    "/module.js": "new Worker('/imports.js', {type: 'module'});",
    "/imports.js": "import {x} from './x.js'; postMessage(x);",
    "/x.js": "export const x = 5;",
    "/nested": f"{WORDS}<script src=/nested.js></script>",
    "/nested.js": "new Worker('/outer.js');",
    "/outer.js": "new Worker('/inner.js');",
    "/inner.js": "postMessage(1);",
    "/throws": f"{WORDS}<script src=/throws.js></script>",
    "/throws.js": "new Worker('/fault.js');",
    "/fault.js": "throw new Error('its own');",
}


def strict(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    media = "text/javascript" if path.endswith(".js") else "text/html"
    said = {"Content-Type": media, "Content-Security-Policy": "default-src 'self'"}
    return (200 if path in PARTS else 404), said, PARTS.get(path, "").encode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "worker"), [("/module", "/imports.js"), ("/nested", "/inner.js"), ("/throws", None)]
)
def test_a_worker_that_was_not_loaded_is_named(tmp_path: Path, page: str, worker: str | None) -> None:
    with serve(strict) as site, Writer.open(tmp_path / "s") as writer, Recorder(writer) as recorder:
        [result] = Fetcher(recorder, writer).fetch([site + page])
    told = [note for note in result.notes if note.startswith("a worker was not loaded")]
    assert [note.partition(": ")[2].partition(" (")[0] for note in told] == (
        [site + worker] if worker else []
    )
