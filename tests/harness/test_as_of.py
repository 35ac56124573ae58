"""A snapshot seen as of a date: search, fetch, replay and Memento show nothing later, and of several answers the newest."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

import stillweb
from stillweb.harness.tools import Toolset
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.dates import read_at
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.operations.mutate import mutate
from stillweb.snapshots.request import Request
from stillweb.snapshots.view import View, view_address
from stillweb.snapshots.writer import Writer
from tests.support.command_line import stillweb as command

URL = "https://news.test/"
FILLER = "Words that make this page long enough to be a page. " * 10
DAYS = {"2026-01-10": "heron", "2026-03-01": "egret", "2026-06-20": "bittern"}


@pytest.fixture(scope="module")
def dated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dated")
    with Writer.open(path / "s") as writer:
        for number, (day, bird) in enumerate(DAYS.items()):
            body = f"<title>News</title><h1>News</h1><p>The bird is a {bird}. {FILLER}".encode()
            started = datetime.fromisoformat(day).replace(hour=12, tzinfo=UTC)
            for url in (URL, f"https://news.test/{bird}"):
                request, media = Request("GET", url), (("Content-Type", "text/html"),)
                writer.exchange(Exchange(request, 200, "OK", media, body, started, f"s{number}", 1, 2))
            if bird == "bittern":
                view = View(URL, URL, URL, "News", timestamp=f"{day}T12:00:00Z")
                writer.view(view, {"dom": body})
    stillweb.seal(path / "s", path / "s.wacz")
    return path / "s.wacz"


@pytest.mark.parametrize(
    ("at", "bird"),
    [
        ("2026-01-31", "heron"),
        ("2026-02", "heron"),
        ("2026-03-01", "egret"),
        ("2026-03-01T11:59:59Z", "heron"),
        ("2026-05", "egret"),
        ("2026", "bittern"),
        ("latest", "bittern"),
    ],
)
def test_nothing_later_is_seen(dated: Path, at: str, bird: str) -> None:
    later = [b for day, b in DAYS.items() if list(DAYS.values()).index(b) > list(DAYS.values()).index(bird)]
    with stillweb.open(dated, at=at) as snapshot:
        with stillweb.replay(snapshot) as web, httpx.Client(**web.httpx()) as client:
            assert [bird in client.get(URL).text for _ in range(3)] == [True] * 3
            assert [client.get(URL + one).status_code for one in later] == [504] * len(later)
        session = Toolset(snapshot, ("fetch",)).session("s")
        fetched = asyncio.run(session.call("fetch", {"url": URL}))
        assert bird in fetched.text
        found = " ".join(text.markdown for text in snapshot.texts())
        assert not [one for one in later if one in found]
        assert bool(snapshot.views()) == (not later)
        with stillweb.open(dated) as whole:
            assert snapshot.id != whole.id


def test_a_date_before_all_captures_sees_nothing(dated: Path) -> None:
    with stillweb.open(dated, at="2025") as snapshot:
        assert not list(snapshot.captures())


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("2026-03", "20260331235959999"),
        ("2024-02", "20240229235959999"),
        ("2026-03-01T12:00", "20260301120059999"),
        ("2026-03-01T12:00:00.5Z", "20260301120000500"),
        ("9999", "99991231235959999"),
        ("9999-12-31", "99991231235959999"),
        ("9999-12-31T23:00-00:30", "99991231233059999"),
        ("9999-12-30T23:59:59-24:00", "99991231235959999"),
    ],
)
def test_a_date_lasts_to_its_end(text: str, last: str) -> None:
    assert read_at(text) == last


@pytest.mark.parametrize("text", ["yesterday", "2026-13", "2026-02-30", "20x6"])
def test_no_date(text: str) -> None:
    with pytest.raises(UsageError, match="is not a date"):
        read_at(text)


def test_a_question_of_its_time_in_a_run(dated: Path, tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text(
        json.dumps({"id": "bird", "question": "?", "answer": "egret"}) + "\n"
    )

    async def agent(attempt: Any) -> str:
        text: str = (await attempt.call("fetch", {"url": URL})).text
        return text.partition("is a ")[2].partition(".")[0]

    common: dict[str, Any] = {"tasks": tmp_path / "tasks.jsonl", "agent": agent, "snapshot": dated}
    then = stillweb.run(**common, out=tmp_path / "then", at="2026-03")
    now = stillweb.run(**common, out=tmp_path / "now", at="latest")
    assert (then.scores["exact"].mean, now.scores["exact"].mean) == (1, 0)
    assert then.certificate["settings"]["at"] == "2026-03"
    assert "at" in stillweb.compare(then, now).differs


def test_the_command_line(dated: Path) -> None:
    found = command("fetch", dated, URL, "--at", "2026-03")
    assert "egret" in found.out, found.err
    assert command("fetch", dated, URL, "--at", "soon").code == 2


def test_memento(dated: Path) -> None:
    base = "http://stillweb.local"
    with stillweb.replay(dated) as web, httpx.Client(**web.httpx(), follow_redirects=True) as client:
        timemap = client.get(f"{base}/timemap/link/{URL}")
        assert timemap.headers["content-type"] == "application/link-format"
        assert timemap.text.count('rel="memento"') == 3
        wanted = {"Accept-Datetime": "Sun, 01 Mar 2026 18:00:00 GMT"}
        memento = client.get(f"{base}/timegate/{URL}", headers=wanted)
        assert memento.history[0].headers["vary"] == "accept-datetime"
        assert memento.headers["memento-datetime"] == "Sun, 01 Mar 2026 12:00:00 GMT"
        assert "egret" in memento.text
        assert client.get(f"{base}/timegate/{URL}", headers={"Accept-Datetime": "x"}).status_code == 400
        assert client.get(f"{base}/timemap/link/https://none.test/").status_code == 404


def test_accept_datetime_on_an_ordinary_request(dated: Path) -> None:
    """Each recorded URL is its own TimeGate (RFC 7089, 4.1.2)."""
    with stillweb.replay(dated) as web, httpx.Client(**web.httpx()) as client:
        wanted = {"Accept-Datetime": "Sun, 01 Mar 2026 18:00:00 GMT"}
        for _ in range(2):
            then = client.get(URL, headers=wanted)
            assert "egret" in then.text
            assert then.headers["memento-datetime"] == "Sun, 01 Mar 2026 12:00:00 GMT"
            assert then.headers["vary"] == "accept-datetime"
            assert f'<http://stillweb.local/timemap/link/{URL}>; rel="timemap"' in then.headers["link"]
        assert client.get(URL, headers={"Accept-Datetime": "soon"}).status_code == 504
        assert "memento-datetime" not in client.get(URL).headers
        entries = list(web.ledger)
    assert [entry.get("memento", "")[:8] for entry in entries] == ["20260301", "20260301", "", ""]
    assert "is not an HTTP date" in entries[2]["why"]


def test_a_date_keeps_the_language_and_the_state(tmp_path: Path) -> None:
    """Of several answers of one visit a date leaves those before and after a post; a language stays what it was."""
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    site = "https://cart.test"
    with Writer.open(tmp_path / "s") as writer:
        for day, mark in ((0, "old"), (90, "new")):
            told = [("GET", "/cart", "empty"), ("POST", "/add", "done"), ("GET", "/cart", "tea")]
            for n, (method, path, word) in enumerate(told):
                request = Request(method, site + path, (), b"item=tea" if method == "POST" else b"")
                started = noon + timedelta(days=day, seconds=n)
                body = f"{mark} {word}".encode()
                media = (("Content-Type", "text/plain"),)
                writer.exchange(
                    Exchange(request, 200, "OK", media, body, started, f"v{day}", 2 * n + 1, 2 * n + 2)
                )
        for n, (language, word) in enumerate((("en", "tea"), ("de", "Tee"))):
            request = Request("GET", site + "/word", (("Accept-Language", language),))
            media = (("Content-Type", "text/plain"), ("Vary", "Accept-Language"))
            writer.exchange(
                Exchange(
                    request,
                    200,
                    "OK",
                    media,
                    word.encode(),
                    noon + timedelta(seconds=60 + n),
                    "v0",
                    2 * n + 9,
                    2 * n + 10,
                )
            )
    with (
        stillweb.open(tmp_path / "s", at="2026-04") as snapshot,
        stillweb.replay(snapshot) as web,
        httpx.Client(**web.httpx()) as client,
    ):
        assert client.get(site + "/cart").text == "old empty"
        assert client.post(site + "/add", content=b"item=tea").text == "old done"
        assert client.get(site + "/cart").text == "old tea"
        map_ = client.get(f"http://stillweb.local/timemap/link/{site}/cart")
        assert map_.text.count('rel="memento"') == 2
    when = {"Accept-Datetime": "Thu, 02 Apr 2026 12:00:00 GMT", "Accept-Language": "en"}
    with (
        stillweb.open(tmp_path / "s") as snapshot,
        stillweb.replay(snapshot) as web,
        httpx.Client(**web.httpx()) as client,
    ):
        assert client.get(site + "/word", headers=when).text == "tea"
        gate = client.get(f"http://stillweb.local/timegate/{site}/word", headers=when)
        assert client.get(gate.headers["location"]).text == "tea"
        assert client.get(site + "/cart", headers=when).text.startswith("old")


def test_lookups_name_the_mutation(dated: Path, tmp_path: Path) -> None:
    with stillweb.open(dated) as snapshot:
        mutate(snapshot, {"id": "m", "mutations": [{"url": URL, "banner": "moved"}]}, tmp_path / "m")
    with stillweb.open(dated, tmp_path / "m") as changed:
        assert changed.lookup(URL).verdict == "mutated:m"
        assert changed.lookup("https://news.test/heron").verdict == "exact"


LATER = "bittern"


@pytest.mark.slow
def test_no_word_of_later_captures_leaks(tmp_path: Path) -> None:
    """Misses, their nearest captures, views, recorded and frozen searches, Memento and the command line tell nothing."""
    early, late = datetime(2026, 1, 10, 12, tzinfo=UTC), datetime(2026, 6, 20, 12, tzinfo=UTC)
    page = f"<title>{LATER}</title><h1>{LATER}</h1><p>{FILLER}".encode()
    found = json.dumps({"organic": [{"title": LATER, "link": f"{URL}{LATER}", "snippet": LATER}]}).encode()
    told: list[tuple[datetime, str, str, bytes, str, bytes]] = [
        (early, "GET", URL, b"", "text/html", f"<title>News</title><p>heron {FILLER}".encode()),
        (late, "GET", URL, b"", "text/html", page),
        (late, "GET", f"{URL}{LATER}", b"", "text/html", page),
        (late, "GET", f"{URL}search?q={LATER}", b"", "text/html", page),
        (late, "GET", f"https://{LATER}.test/", b"", "text/html", page),
        (late, "POST", "https://google.serper.dev/search", b'{"q":"birds"}', "application/json", found),
    ]
    steps = ({"click": {"text": LATER}},)
    addresses = [URL, view_address(URL, steps)]
    with Writer.open(tmp_path / "s") as writer:
        for number, (started, method, url, asked, media, body) in enumerate(told):
            head = (("Content-Type", media), ("ETag", f'"{LATER}"' if started is late else '"heron"'))
            request = Request(method, url, (("Content-Type", "application/json"),) if asked else (), asked)
            session = f"s{started.month}"
            writer.exchange(
                Exchange(request, 200, "OK", head, body, started, session, 2 * number + 1, 2 * number + 2)
            )
        for address, taken in zip(addresses, ((), steps), strict=True):
            view = View(address, URL, URL, LATER, taken, timestamp="2026-06-20T12:00:00Z")
            writer.view(view, dict.fromkeys(("dom", "view", "aria", "text"), LATER.encode()))
    stillweb.seal(tmp_path / "s", tmp_path / "s.wacz")
    base, seen = "http://stillweb.local", []
    with stillweb.open(tmp_path / "s.wacz", at="2026-03") as snapshot:
        seen += [repr(snapshot.resource(k, a)) for k in ("dom", "view", "aria", "text") for a in addresses]
        seen += [repr(snapshot.lookup(URL + path)) for path in ("nope", LATER[:-1], "search?q=x")]
        seen += [repr(text) for text in snapshot.texts()]
        session = Toolset(snapshot, ("fetch", "search")).session("s")
        calls = [("fetch", {"url": address}) for address in (URL, URL + "nope", addresses[1])]
        calls += [("google_search", {"q": q, "gl": "us", "hl": "en"}) for q in ("birds", "News")]
        seen += [asyncio.run(session.call(tool, given)).text for tool, given in calls]
        with stillweb.replay(snapshot) as web, httpx.Client(**web.httpx()) as client:
            pages = [URL, f"{URL}nope", f"{URL}search?q=x", base + "/", f"{base}/misses", f"{base}/ledger"]
            pages += [
                f"{base}/timemap/link/{URL}",
                f"{base}/timegate/{URL}",
                f"{base}/memento/20260620120000000/{URL}",
            ]
            for url in pages:
                answer = client.get(url, headers={"Accept-Datetime": "Tue, 01 Dec 2026 12:00:00 GMT"})
                seen += [answer.text, repr(answer.headers)]
            seen += [json.dumps(entry) for entry in web.ledger]
    for words in (["lookup", f"{URL}nope"], ["fetch", f"{URL}nope"], ["search", "News"]):
        done = command(words[0], tmp_path / "s.wacz", words[1], "--at", "2026-03")
        seen += [done.out, done.err]
    assert any("heron" in one for one in seen)
    assert not [one for one in seen if LATER in one.lower().replace(f"{URL}{LATER[:-1]}", "")]
