"""A range in a unit that only the origin can count is answered where just that range was recorded."""

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


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("recorded", "asked", "told"),
    [
        (("items=0-24", ""), "items=25-49", None),  # the whole list is not a page of it
        (("items=0-24", ""), "items=0-24", "items=0-24"),
        (("",), "items=0-24", None),
        (("0-24", "25-49"), "50-74", None),  # as PostgREST has it
        (("0-24", "25-49"), "0-24", "0-24"),
    ],
)
def test_a_page_of_a_list_is_no_other_page_and_not_the_list(
    tmp_path: Path, method: str, recorded: tuple[str, ...], asked: str, told: str | None
) -> None:
    """A server may say so with 200 and no Content-Range, and for other methods than GET."""
    url = "http://a.test/list"
    with Writer.open(tmp_path / "s") as writer:
        for number, span in enumerate(recorded):
            fields = (("Range", span),) if span else ()
            writer.exchange(exchange(url, span.encode(), method=method, request_headers=fields, session=f"s{number}"))  # fmt: skip
    with (
        Snapshot.open(tmp_path / "s") as snapshot,
        Gateway(snapshot) as gateway,
        httpx.Client(proxy=gateway.url) as client,
    ):
        answer = client.request(method, url, headers={"Range": asked})
    assert (answer.text if answer.status_code == 200 else None) == told
