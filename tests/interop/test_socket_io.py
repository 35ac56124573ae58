"""Socket.IO's own server and client: by long polls, over a web socket, and from the one to the other."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import Done, Started
from tests.support.waiting import STARTS

CLIENTS = Path(__file__).parent / "clients"
pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="no Node"),
    pytest.mark.skipif(
        not (CLIENTS / "node_modules/socket.io").exists(),
        reason="the Node packages are not here: ./setup.sh --peers installs them",
    ),
]


@pytest.fixture
def server() -> Iterator[str]:
    words = ["node", str(CLIENTS / "chat_server.cjs")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.communicate(timeout=STARTS)


def chat(way: list[str | Path], url: str, transports: str, *items: str) -> Done:
    return Started(*way, "--", "node", CLIENTS / "chat_client.cjs", url, transports, *items).end()


@pytest.mark.slow
@pytest.mark.parametrize("transports", ["polling", "websocket", "polling,websocket"])
def test_what_it_hears_is_heard_again(tmp_path: Path, server: str, transports: str) -> None:
    first = chat(["record", "-o", tmp_path / "s"], server, transports, "a", "b", "c")
    assert "added 3" in first.out, first.err
    for _ in range(3):
        again = chat(["replay", tmp_path / "s", "--max-misses", "0"], server, transports, "a", "b", "c")
        heard = [line for line in first.out.splitlines() if line.startswith(("first", "second"))]
        assert again.out.splitlines() == heard, again.err
        assert again.code == 0, again.err


@pytest.mark.slow
def test_what_was_not_said_is_missed(tmp_path: Path, server: str) -> None:
    chat(["record", "-o", tmp_path / "s"], server, "polling", "a", "b")
    other = chat(["replay", tmp_path / "s", "--max-misses", "0"], server, "polling", "a", "x")
    assert other.code == 1
    assert "transport=polling" in other.err
