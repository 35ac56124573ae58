"""`stillweb fetch`, `lookup` and `search` give what the tools and a replay would give."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import stillweb
from stillweb.harness.cli import main
from stillweb.harness.commands.lookup import command
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots import Request, Snapshot
from stillweb.snapshots.view import View
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.harness.commands.calling import call
from tests.proxy.frozen import Site
from tests.proxy.gateways import client
from tests.snapshots.making import exchange, small_snapshot

PAGE = "http://site.example/a%20%C3%BC"
LONG = f"http://site.example/?q={'a' * 5000}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fetch") / "site"
    with Writer.open(path) as writer:
        writer.exchange(exchange(PAGE, b"<title>T</title><p>The text of the page.</p>", begin=0, end=1))
        writer.exchange(
            exchange(
                "http://site.example/old", b"", status=302, headers=(("Location", PAGE),), begin=2, end=3
            )
        )
        writer.view(
            View(PAGE, PAGE, PAGE, "T", ()), {"text": b"seen", "dom": b"<p>The text of the page.</p>"}
        )
    return path


@pytest.mark.parametrize(
    "address", [PAGE, "http://site.example/a ü", "http://site.example/old", f"{PAGE}#part"]
)
def test_a_page_has_its_text_before_it_is_sealed(
    site: Path, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    code, out = call(capsys, "fetch", site, address)
    assert (code, "The text of the page." in out) == (0, True)


def test_the_text_is_that_of_what_a_new_client_gets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page behind a login has its text under its address; without the login it leads to the form, and so does the tool."""
    members, form = "http://site.example/members", "http://site.example/login"
    with Writer.open(tmp_path / "site") as writer:
        writer.exchange(exchange(members, b"", status=302, headers=(("Location", "/login"),), begin=0, end=1))
        writer.exchange(exchange(form, b"<p>Who are you, and what is your password?</p>", begin=2, end=3))
        writer.exchange(
            exchange(
                form, b"", method="POST", sent=b"user=ann", status=302,
                headers=(("Location", "/members"), ("Set-Cookie", "session=1")), begin=4, end=5,
            )
        )  # fmt: skip
        writer.exchange(
            exchange(
                members, b"<p>Ann and Bo are the members.</p>",
                request_headers=(("Cookie", "session=1"),), begin=6, end=7,
            )
        )  # fmt: skip
    seal(tmp_path / "site", tmp_path / "site.wacz")
    code, out = call(capsys, "fetch", tmp_path / "site.wacz", members)
    assert (code, "Who are you" in out, "Ann and Bo" in out) == (0, True, False)
    text = stillweb.fetch(tmp_path / "site.wacz", members)
    assert text is not None
    assert f"{text.markdown}\n" == out


def test_an_address_of_no_view_is_told_as_one(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not the page without the steps, neither here nor where a miss is explained."""
    address = f"{PAGE}#view=0123456789abcdef"
    for words in (["fetch", address], ["lookup", address], ["fetch", f"{PAGE}x", "--content", "seen"]):
        with pytest.raises(SystemExit) as ended:
            main([words[0], str(site), *words[1:]])
        told = capsys.readouterr()
        assert ended.value.code == 1
        assert "'stillweb ls SNAPSHOT --views' lists them" in told.out + told.err


def test_what_has_no_text_is_told_as_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, packed = tmp_path / "site", "http://site.example/data.zip"
    with Writer.open(path) as writer:
        writer.exchange(
            exchange(packed, b"PK\5\6" + bytes(18), headers=(("Content-Type", "application/zip"),))
        )
    for address, told in (
        (packed, "is application/zip, which has no frozen text"),
        (f"{packed}x", "not in the snapshot as text"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["fetch", str(path), address])
        assert (ended.value.code, told in capsys.readouterr().err) == (1, True)


def test_an_address_longer_than_any_path_is_a_miss(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "lookup", site, LONG)[0] == 1
    assert call(capsys, "fetch", site, LONG)[0] == 1


TOLD = "no text is frozen in it, so no search finds anything"


def test_a_search_without_frozen_texts_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_texts = small_snapshot(tmp_path / "site")
    seal(with_texts)
    (warc,) = (small_snapshot(tmp_path / "crawl") / "archive").iterdir()
    for path, said in ((tmp_path / "site.wacz", False), (warc, True)):
        with pytest.raises(SystemExit) as ended:
            main(["search", str(path), "kestrel"])
        assert not ended.value.code
        assert (TOLD in capsys.readouterr().err) is said


URL = "http://site.example/"
ASKED = [
    ("GET", {}),
    ("GET", {"Range": "bytes=1-2"}),
    ("HEAD", {}),
    ("OPTIONS", {"Origin": "http://other.example", "Access-Control-Request-Method": "GET"}),
    ("OPTIONS", {"Origin": "http://other.example", "Access-Control-Request-Method": "PUT"}),
    ("GET", {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "eA=="}),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lookup") / "snap"
    site = Site(path)
    site.add(URL, b"page", headers=(("Access-Control-Allow-Origin", "*"),))
    with site.open():
        pass
    return path


@pytest.mark.parametrize(("method", "headers"), ASKED)
def test_it_says_what_a_replay_serves(
    made: Path, tmp_path: Path, method: str, headers: dict[str, str]
) -> None:
    words = [str(made), URL, "-X", method, "--json"]
    for field in headers.items():
        words += ["-H", ": ".join(field)]
    shown = CliRunner().invoke(command, words, standalone_mode=False)
    told: dict[str, Any] = json.loads(shown.output)
    asked = Request(method, URL, tuple(headers.items()))
    assert json.loads(json.dumps(stillweb.lookup(made, asked))) == told
    authority = Authority.load_or_create(tmp_path)
    with Snapshot.open(made) as snapshot, Gateway(snapshot, authority=authority) as gateway:
        with client(gateway, "default") as c:
            c.request(method, URL, headers=headers)
        (entry,) = gateway.ledger.entries()
    for name in ("verdict", "derived", "why"):
        assert told.get(name) == entry.get(name), name
    assert shown.return_value == (entry["verdict"] == "miss")
    assert (told["capture"]["offset"] if "capture" in told else None) == (
        entry["capture"]["offset"] if entry["capture"] else None
    )
