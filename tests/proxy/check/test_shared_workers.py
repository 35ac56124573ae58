"""Requests of a shared worker are recorded, although a browser tells nobody of them."""

from pathlib import Path

import pytest

from stillweb.proxy.browser.browser import complete
from stillweb.proxy.browser.capture_view import Fetcher
from stillweb.proxy.check.check import check
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.sites import Answer, serve

PAGE = b"""<!DOCTYPE html><title>W</title><h1>Page</h1><p id=o>none</p><script>
const worker = new SharedWorker("/worker.js"); worker.port.onmessage = (e) => { o.textContent = e.data; };
</script>"""
WORKER = b"""const config = (async () => (await fetch("/config")).json())();
onconnect = async (e) => { const [port] = e.ports; port.postMessage(`got ${(await config).x}`); };"""
ANSWERS = {"/worker.js": ("text/javascript", WORKER), "/config": ("application/json", b'{"x": 3}')}


def answer(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    kind, data = ANSWERS.get(path, ("text/html", PAGE))
    return 200, {"Content-Type": kind}, data


@pytest.mark.slow
def test_what_a_shared_worker_asks_for_is_not_called_unasked(tmp_path: Path) -> None:
    profile, authority = complete(Profile()), Authority.load_or_create(tmp_path / "state")
    with (
        serve(answer) as base,
        Writer.open(tmp_path / "snap", profile=profile) as writer,
        Recorder(writer, authority=authority) as recorder,
    ):
        [result] = Fetcher(recorder, writer, profile).fetch([f"{base}/"])
    assert result.ok
    with Snapshot.open(tmp_path / "snap") as snapshot, Gateway(snapshot, authority=authority) as gateway:
        [recorded] = snapshot.views()
        assert f"{base}/config" in [capture["url"] for capture in recorded.captures]
        assert (snapshot.resource("text", recorded.address) or b"").decode().endswith("got 3")
        [view] = check(snapshot, gateway).views
    assert (view.same, view.missed, view.unasked) == (True, [], [])
