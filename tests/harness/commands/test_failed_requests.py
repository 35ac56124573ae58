"""Unreachable hosts of a recording fail again in a real replay: as the program knew them, told, and no miss."""

import json
import sys
from pathlib import Path

import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.net.isolation import can_isolate
from stillweb.proxy.replay import ledger
from tests.harness.small_site import answer
from tests.proxy.dead import UNKNOWN, closed_port, resetting
from tests.proxy.origin import Origin
from tests.support.command_line import stillweb

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("own_state")]

ASK = """
import json, os, ssl, sys
import httpx
context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
with httpx.Client(verify=context, timeout=60) as client:
    for url in sys.argv[1:]:
        try:
            got = client.get(url)
            print(url, got.status_code, got.headers.get("content-type"), got.text)
        except httpx.TransportError as error:
            print(url, repr(error))
"""


@pytest.mark.slow
def test_what_failed_fails_again_and_passes_the_gate(tmp_path: Path) -> None:
    """Refused, unknown, not trusted, broken off, plainly and in a tunnel: the program hears the same, word for word."""
    stranger = Authority.load_or_create(tmp_path / "stranger").context_for("localhost", ("http/1.1",))
    with (
        closed_port() as dead,
        closed_port() as gone,
        resetting() as broken,
        Origin(answer, stranger) as strange,
        Origin(answer) as origin,
    ):
        ask = (
            "--", sys.executable, "-c", ASK, f"{origin.url}/page", f"http://127.0.0.1:{dead}/a?x=1", f"https://127.0.0.1:{gone}/b",
            f"http://{UNKNOWN}/", f"https://{UNKNOWN}/", f"https://localhost:{strange.port}/", f"http://127.0.0.1:{broken}/",
        )  # fmt: skip
        first = stillweb("record", "-o", tmp_path / "s", *ask)
    assert first.code == 0
    assert "s: 6 requests failed" in first.err
    assert "6 requests failed" in stillweb("seal", tmp_path / "s").err
    alone = ("--isolate",) if can_isolate() else ()
    book = tmp_path / "ledger.jsonl"
    done = stillweb("replay", tmp_path / "s.wacz", "--max-misses", "0", "--ledger", book, *alone, *ask)
    assert (done.code, done.out) == (0, first.out)
    assert "6 requests failed as while recording" in done.err
    assert [line["verdict"] for line in ledger.read(book)] == [
        "exact", "failed:refused", "failed:refused", "failed:dns", "failed:dns", "failed:tls", "failed:reset",
    ]  # fmt: skip
    other = stillweb(
        "replay", tmp_path / "s.wacz", "--max-misses", "0", *ask, f"http://127.0.0.1:{dead}/a?x=2"
    )
    assert (other.code, other.out.startswith(first.out)) == (1, True)
    looked = stillweb("lookup", tmp_path / "s.wacz", f"https://{UNKNOWN}/never-asked", "--json")
    told = json.loads(looked.out)
    assert (looked.code, told["verdict"]) == (1, "failed:dns")
    assert f"no tunnel to {UNKNOWN}:443 could be opened" in told["why"]
