"""The official Tavily and Exa clients, unchanged, are answered through the gateway at the services' real addresses."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.tools import Toolset, http_hosts
from stillweb.proxy.net.client_env import client_environment
from stillweb.proxy.replay.gateway import Gateway
from stillweb.proxy.replay.ledger import Ledger
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.harness.tools.frozen import BIRDS, SITE, Recorder, json_bytes, make_site
from tests.interop.readers import ROOT
from tests.support.waiting import STARTS

PYTHON = ROOT / ".venv-peers/bin/python"
SCRIPT = Path(__file__).parent / "clients" / "search_services.py"
ABSENT = "https://absent.test/x"
TEXT = (
    "Penguins are birds of the south. " * 8
)  # answers of such services are long: a short one may only confirm a write
TAVILY = {
    "query": "penguins",
    "results": [{"url": BIRDS, "title": "Recorded", "content": TEXT, "score": 0.5}],
}
EXA = {
    "requestId": "r",
    "results": [{"id": BIRDS, "url": BIRDS, "title": "Recorded", "author": "A", "text": TEXT}],
}


def record(path: Path) -> None:
    make_site(path).close()
    with Writer.open(path) as writer:
        site = Recorder(writer)
        for url, sent, answer in (
            ("https://api.tavily.com/search", {"max_results": 3, "query": "penguins"}, TAVILY),
            ("https://api.exa.ai/search", {"query": "penguins"}, EXA),
        ):
            body = json_bytes(answer)
            site.add(url, body, "application/json", method="POST", sent=json_bytes(sent))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the answers that the clients got, and the ledger's verdicts."""
    if not PYTHON.exists():
        pytest.skip("no .venv-peers: ./setup.sh --peers makes it")
    path = tmp_path_factory.mktemp("search") / "site"
    record(path)
    with Snapshot.open(path) as snapshot:
        ledger = Ledger()
        hosts = http_hosts(Toolset(snapshot, ("serper-mcp",), synthetic_search=True, min_confidence=0.3))
        with Gateway(snapshot, ledger=ledger, virtual_hosts=hosts, min_confidence=0.3) as gateway:
            proxied = client_environment(gateway.proxy_url("clients"), gateway.ca_path)
            done = subprocess.run(
                [PYTHON, str(SCRIPT), BIRDS, f"{SITE}/gone", ABSENT],
                env={**os.environ, **proxied},
                capture_output=True,
                text=True,
                timeout=STARTS,
            )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_recorded_searches_are_answered_as_recorded(told: dict[str, Any]) -> None:
    assert told["recorded"] == TAVILY
    (hit,) = told["exa recorded"]
    assert (hit["url"], hit["title"], hit["author"]) == (BIRDS, "Recorded", "A")


def test_tavily_searches_the_frozen_texts(told: dict[str, Any]) -> None:
    found = told["search"]
    assert found["query"] == "gentoo mass"
    assert len(found["results"]) == 2
    first = found["results"][0]
    assert first["score"] == 1.0 >= found["results"][1]["score"] > 0
    assert all(hit["raw_content"] and hit["content"] for hit in found["results"])
    assert BIRDS in [hit["url"].partition("#")[0] for hit in found["results"]]
    within = [hit["url"] for hit in told["within"]["results"]]
    assert all(url.startswith(SITE) and not url.startswith(f"{SITE}/birds") for url in within)


def test_tavily_refuses_what_it_refuses(told: dict[str, Any]) -> None:
    assert told["empty"] == "BadRequestError: Query is missing."
    assert told["long"] == "BadRequestError: Query is too long. Max query length is 400 characters."


def test_tavily_extracts_frozen_texts(told: dict[str, Any]) -> None:
    (page,) = told["extract"]["results"]
    assert page["url"] == BIRDS
    assert "| Gentoo | 5076 |" in page["raw_content"]
    assert told["extract"]["failed_results"] == [{"url": ABSENT, "error": "Failed to fetch url"}]


def test_exa_searches_the_frozen_texts(told: dict[str, Any]) -> None:
    assert len(told["exa search"]) == 3
    assert all(0 < length <= 10_000 for _, _, length in told["exa search"])
    assert told["exa bare"]
    assert all(url.startswith(f"{SITE}/birds") and text is None for url, text in told["exa bare"])
    assert "400" in told["exa empty"]
    assert "INVALID_REQUEST_BODY" in told["exa empty"]


def test_exa_gives_the_contents_of_frozen_pages(told: dict[str, Any]) -> None:
    ((url, title, text, highlights),) = told["exa contents"]
    assert (url, title, len(text), len(highlights)) == (BIRDS, "A page", 40, 1)
    assert told["exa statuses"] == [[BIRDS, "success"], [f"{SITE}/gone", "error"], [ABSENT, "error"]]
