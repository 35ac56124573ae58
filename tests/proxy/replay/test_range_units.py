"""A range in a unit that only the origin can count is answered where just that range was recorded."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from stillweb.proxy import Gateway
from stillweb.snapshots import Snapshot, Writer
from tests.snapshots.making import exchange


@pytest.mark.parametrize("unit", ["items", "rows", "seconds"])
@pytest.mark.parametrize(("span", "status"), [("0-24", 206), ("0-9", 504), ("25-49", 504), ("", 504)])
def test_a_range_in_another_unit(tmp_path: Path, unit: str, span: str, status: int) -> None:
    url = "http://a.test/list"
    with Writer.open(tmp_path / "s") as writer:
        headers = (("Content-Type", "application/json"), ("Content-Range", f"{unit} 0-24/66"))
        asked = (("Range", f"{unit}=0-24"),)
        writer.exchange(exchange(url, b"[1]", status=206, headers=headers, request_headers=asked))
    with (
        Snapshot.open(tmp_path / "s") as snapshot,
        Gateway(snapshot) as gateway,
        httpx.Client(proxy=gateway.url) as client,
    ):
        answer = client.get(url, headers={"Range": f"{unit}={span}"} if span else {})
    assert answer.status_code == status
    assert (answer.headers.get("Content-Range"), answer.text) == (f"{unit} 0-24/66", "[1]") or status == 504
