"""An answer that can't be sent to its end is never ended cleanly, and the ledger says so."""

import gzip
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stillweb.proxy import Authority, Gateway
from stillweb.snapshots import Snapshot, Writer
from tests.snapshots.making import record
from tests.support.waiting import HANG

BODY = random.Random(7).randbytes(3 << 20)
HOST = "https://big.test"


def made(path: Path, **headers: str) -> Path:
    fields = (
        ("Content-Type", "application/x-thing"),
        *((n.replace("_", "-"), v) for n, v in headers.items()),
    )
    with Writer.open(path) as writer:
        body = gzip.compress(BODY, 1) if headers else BODY
        record(writer, f"{HOST}/big", body, headers=fields, protocol="h2")
        record(writer, f"{HOST}/small", b"small")
    return path


def damage(path: Path, at: int, to: bytes | None = None) -> None:
    """Changes a byte of the large record: `at` counts from its beginning, or back from its end."""
    with Snapshot.open(path) as snapshot:
        (capture,) = [c for c in snapshot.captures() if c.url.endswith("/big")]
    archive = path / "archive" / capture.filename
    data = bytearray(archive.read_bytes())
    place = capture.offset + (at if at >= 0 else capture.length + at)
    data[place : place + 1] = to if to is not None else bytes([data[place] ^ 0xFF])
    archive.write_bytes(data)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.load_or_create(tmp_path / "state")


def serve(path: Path, authority: Authority) -> Iterator[Gateway]:
    with Snapshot.open(path) as snapshot, Gateway(snapshot, authority=authority) as gateway:
        yield gateway


def ask(gateway: Gateway, path: str, http2: bool = False, **headers: str) -> bytes:
    import ssl

    context = ssl.create_default_context(cafile=str(gateway.ca_path))
    with httpx.Client(
        proxy=gateway.url, verify=context, http2=http2, trust_env=False, timeout=HANG, headers=headers
    ) as c:
        return c.get(HOST + path).content


@pytest.mark.parametrize("http2", [False, True])
@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("at", [1 << 20, -6])  # within, and in the check sum that comes after all
def test_damage_in_a_large_record_is_no_clean_end(
    tmp_path: Path, authority: Authority, at: int, encoded: bool, http2: bool
) -> None:
    path = made(tmp_path / "site", **({"Content_Encoding": "gzip"} if encoded else {}))
    for gateway in serve(path, authority):
        assert ask(gateway, "/big", http2, **{"Accept-Encoding": "identity"}) == BODY
        assert [e["status"] for e in gateway.ledger.entries()] == [200]
    damage(path, at)
    for gateway in serve(path, authority):
        with pytest.raises(httpx.TransportError):
            ask(gateway, "/big", http2, **{"Accept-Encoding": "identity"})
        first, second = gateway.ledger.entries()
        assert (first["status"], second["status"], second["verdict"]) == (200, 0, "miss")
        assert second["why"].startswith("the answer broke off after ")
        assert second["url"] == first["url"] == f"{HOST}/big"
        assert gateway.stats.misses == 1
        assert gateway.stats.failures == 1
        assert ask(gateway, "/small") == b"small"


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_bug_while_answering_is_told_everywhere(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def bug(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("by nothing")

    with Writer.open(tmp_path / "site") as writer:
        record(writer, "http://big.test/page", b"<p>all")
    for gateway in serve(tmp_path / "site", authority):
        with httpx.Client(proxy=gateway.url, trust_env=False, timeout=HANG) as client:
            assert client.get("http://big.test/page").text == "<p>all"
            with monkeypatch.context() as patched:
                patched.setattr("stillweb.snapshots.evidence.matcher.Matcher.lookup", bug)
                answer = client.request(method, "http://big.test/other")
                assert (answer.status_code, answer.headers["Stillweb-Verdict"]) == (500, "miss")
                assert "ZeroDivisionError: by nothing" in answer.text
            entry = gateway.ledger.entries()[-1]
            assert (entry["verdict"], entry["status"], entry["seq"]) == ("miss", 500, 1)
            assert "ZeroDivisionError" in entry["why"]
            assert "ZeroDivisionError" in client.get("http://stillweb.local/").json()["failures"][-1]
            # what it may have changed is not known
            again = client.get("http://big.test/page")
            assert again.status_code == 200
            assert ("stillweb-ambiguous" in again.headers) == (method == "POST")


def test_what_was_looked_at_to_choose_and_is_damaged_is_no_failure_of_ours(
    tmp_path: Path, authority: Authority
) -> None:
    form = (("Content-Type", "application/x-www-form-urlencoded"),)
    with Writer.open(tmp_path / "snap") as writer:
        record(writer, f"{HOST}/cart", b"none")
        record(writer, f"{HOST}/add", b"added", method="POST", sent=b"item=1", request_headers=form)
        record(writer, f"{HOST}/cart", b"one")
    with Snapshot.open(tmp_path / "snap") as snapshot:
        (added,) = [c for c in snapshot.captures() if c.method == "POST"]
    archive = tmp_path / "snap" / "archive" / added.filename
    data = bytearray(archive.read_bytes())
    data[added.offset + added.length // 2] ^= 0xFF
    archive.write_bytes(data)
    with Snapshot.open(tmp_path / "snap") as snapshot, Gateway(snapshot, authority=authority) as gateway:
        with httpx.Client(proxy=gateway.url, verify=False, trust_env=False, timeout=HANG) as client:
            assert client.get(f"{HOST}/cart").text == "none"
            broken = client.post(f"{HOST}/add", content=b"item=1", headers=dict(form))
            assert (broken.status_code, broken.reason_phrase) == (502, "Damaged Capture")
            assert "the record at offset" in broken.text
            # what it would have changed is not known
            after = client.get(f"{HOST}/cart")
            assert after.status_code == 504 or "stillweb-ambiguous" in after.headers
        assert gateway.stats.failures == 0
