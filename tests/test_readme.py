"""Every command of the README runs, in its order, against a page of a local site."""

import os
import re
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.support.waiting import STARTS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGE = b"<!doctype html><html lang=en><title>Example Domain</title><h1>Example Domain</h1><p>An example page, with words.</p>"
THE_USERS = "URL=https://example.com/"
SET_UP = "make demo"  # the block that continuous integration runs itself


@pytest.fixture
def site() -> Iterator[str]:
    """A page on loopback, in place of the user's own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/" else 404)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(PAGE)))
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_command_runs(site: str, tmp_path: Path, commands_path: str) -> None:
    script = "".join(block for block in blocks("sh") if not block.startswith(SET_UP))
    assert script.count(THE_USERS) == 1
    script = script.replace(THE_USERS, f"URL={site}")
    shown = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": commands_path},
        capture_output=True,
        text=True,
        timeout=STARTS,
    )
    assert shown.returncode == 0, shown.stdout[-3000:] + shown.stderr[-3000:]
    assert "exit code 1" in shown.stdout
    assert "query page: asked '2', not recorded" in shown.stdout
    assert shown.stdout.count("Example Domain") >= 3
    assert "repetitions in fresh processes: the same" in shown.stdout


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    missing = [link for link in links if not link.startswith("http") and not (ROOT / link).exists()]
    assert not missing


def test_its_make_targets_exist() -> None:
    targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"demo", "test", "setup"} <= set(targets)
