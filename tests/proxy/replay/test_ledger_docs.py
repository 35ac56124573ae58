"""docs/ledger.md says what the ledger really holds."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.replay.gateway import Gateway
from stillweb.proxy.replay.ledger import hash_entries
from tests.proxy.frozen import Site
from tests.proxy.gateways import client

DOCS = Path(__file__).parents[3] / "docs" / "ledger.md"


def replayed(tmp_path: Path) -> list[dict[str, Any]]:
    site = Site(tmp_path / "snap")
    site.add("http://shop.example/list?page=2&sort=name", b"<p>second page</p>")
    site.add(
        "http://shop.example/search", b"{}", method="POST",
        request_headers=(("Content-Type", "application/json"),), request_body=b'{"q":"tea","limit":10}',
    )  # fmt: skip
    with site.open() as snapshot, Gateway(snapshot, authority=Authority.load_or_create(tmp_path)) as gateway:
        with client(gateway, "attempt-1") as c:
            c.get("http://shop.example/list?sort=name&page=2")
            c.head("http://shop.example/list?page=2&sort=name")
            c.post("http://shop.example/search", json={"q": "tea", "limit": 20})
        return gateway.ledger.entries()


def documented() -> list[dict[str, Any]]:
    block = re.search(r"```jsonl\n(.*?)```", DOCS.read_text(), re.S)
    assert block is not None
    return [json.loads(line) for line in block[1].splitlines()]


def plain(entry: dict[str, Any]) -> dict[str, Any]:
    """Without what depends on the machine or on how the writer packs records."""
    entry = {k: v for k, v in entry.items() if k != "ms"}
    if entry["capture"] is not None:
        entry["capture"] = {**entry["capture"], "offset": 0}
    return entry


def test_the_example_is_what_is_written(tmp_path: Path) -> None:
    assert [plain(e) for e in documented()] == [plain(e) for e in replayed(tmp_path)]


def test_every_member_is_described(tmp_path: Path) -> None:
    described = set(re.findall(r"^\| `(\w+)`", DOCS.read_text(), re.M))
    used = {member for entry in replayed(tmp_path) for member in entry}
    assert used <= described
    assert {"why", "derived", "body", "body_base64", "body_size", "type"} <= described


@pytest.mark.parametrize("ordered", [True, False])
def test_the_hash_of_the_example_is_as_documented(ordered: bool) -> None:
    found = hash_entries(documented(), ordered=ordered)
    assert found in DOCS.read_text()
