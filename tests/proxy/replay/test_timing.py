"""Replay at the recorded pace: the time to the first byte and of the body, kept, stretched, or left out."""

import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest

import stillweb
from stillweb.snapshots.errors import UsageError

FIRST, REST = 0.3, 0.4  # seconds to the first byte, and from it to the last
BODY = b"part one " * 400 + b"part two " * 400


class Slow(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        time.sleep(FIRST)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY[:3600])
        self.wfile.flush()
        time.sleep(REST)
        self.wfile.write(BODY[3600:])

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    path = tmp_path_factory.mktemp("timing") / "s"
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    thread = Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    try:
        with stillweb.record(path) as recording:
            with httpx.Client(proxy=recording.recorder.proxy_url("default"), trust_env=False) as client:
                client.get(url)
            recording.recorder.wait_quiet(seconds=0.0, timeout=30.0)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    return path, url


@pytest.mark.slow
@pytest.mark.parametrize(("timing", "factor"), [("none", 0), ("recorded", 1), ("x2", 2)])
def test_the_recorded_pace(recorded: tuple[Path, str], timing: str, factor: int) -> None:
    path, url = recorded
    with stillweb.replay(path, timing=timing) as web, httpx.Client(**web.httpx()) as client:
        for _ in range(2):
            began = time.monotonic()
            with client.stream("GET", url) as answer:
                first = time.monotonic() - began
                body = answer.read()
            whole = time.monotonic() - began
            assert body == BODY
            assert answer.headers["stillweb-verdict"] == "exact"
            assert first >= FIRST * factor * 0.9
            assert whole >= (FIRST + REST) * factor * 0.8
        assert [entry["verdict"] for entry in web.ledger] == ["exact"] * 2
    if not factor:
        assert whole < FIRST


@pytest.mark.parametrize("timing", ["fast", "x0", "2", "x-1"])
def test_a_wrong_pace(recorded: tuple[Path, str], timing: str) -> None:
    with (
        pytest.raises(UsageError, match="must be none, recorded or xN"),
        stillweb.replay(recorded[0], timing=timing),
    ):
        pass
