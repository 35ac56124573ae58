"""The virtual hosts that every process of a replay makes: those of the tools, loaded when one is asked."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stillweb.harness.servers.replaying import HOSTS, make_hosts
from stillweb.harness.tools import Toolset, http_hosts
from stillweb.snapshots.request import Request
from tests.harness.tools.frozen import FOUND, SEARCH_BODY, json_bytes, make_site

JSON = (("Content-Type", "application/json"),)


def test_they_are_those_of_the_tools_and_made_once(tmp_path: Path) -> None:
    with make_site(tmp_path / "s") as snapshot:
        assert set(HOSTS) == set(http_hosts(Toolset(snapshot)))
        hosts = make_hosts(snapshot, accept="rule", synthetic_search=False)
        assert set(hosts) == set(HOSTS)
        recorded = Request("POST", "https://google.serper.dev/search", JSON, json_bytes(SEARCH_BODY))
        with ThreadPoolExecutor(4) as pool:
            said = list(pool.map(lambda name: hosts["google.serper.dev"](recorded, name), "abcd"))
        assert [json.loads(answer.body) for answer in said] == [FOUND] * 4
        unknown = Request("POST", "https://api.exa.ai/search", (), b'{"query": "x"}')
        assert hosts["api.exa.ai"](unknown, "a").status == 504


def test_starting_loads_no_tools() -> None:
    code = "import sys, stillweb.harness.commands.replay, stillweb.harness.servers.replaying; print([m for m in sys.modules if m.startswith('stillweb.harness.tools')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
