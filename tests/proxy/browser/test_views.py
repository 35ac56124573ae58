"""Recorded, sealed, replayed, compared: a small site with a posted filter, a drawn table, tabs, pages and a PDF."""

import asyncio
import hashlib
import json
import socket
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stillweb.proxy.browser.browser import BrowserHost, complete
from stillweb.proxy.browser.capture_view import Fetcher, FetchResult, Recording, plan
from stillweb.proxy.browser.driver import Driver
from stillweb.proxy.browser.errors import PageFailed
from stillweb.proxy.browser.page_snapshot import read_page
from stillweb.proxy.browser.settle import SettleTimeouts
from stillweb.proxy.browser.steps import Flow, parse_steps
from stillweb.proxy.check.check import CheckReport, check
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.view import view_address
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.proxy.browsing import Browsing
from tests.proxy.lab import Lab, client, gate
from tests.proxy.sites import Answer, mill_site, serve
from tests.support.waiting import HANG, STARTS, until

STEPS = parse_steps("""
- select: {label: Kind, option: Wind}
- click: {role: tab, name: Notes}
- select: {label: Region, option: South}
- click: Apply
- next_page
""")


@dataclass
class Recorded:
    """A recording and the site that it was made of."""

    path: Path
    base: str
    results: list[FetchResult]
    authority: Authority


def handle_with_faults(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    if path == "/download":
        return (
            200,
            {"Content-Type": "application/pdf", "Content-Disposition": "attachment"},
            b"%PDF-1.4\n%%EOF",
        )
    if path == "/wall":
        return 200, {"Content-Type": "text/html"}, b"<h1>Access denied</h1>"
    if path == "/restless":
        return (
            200,
            {"Content-Type": "text/html"},
            b"<p>news</p><script>setInterval(()=>fetch('/n'),400)</script>",
        )
    if path == "/n":
        return 200, {"Content-Type": "text/plain"}, b"n"
    return _mills(method, path, body, headers)


_mills = mill_site()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("views")
    authority = Authority.load_or_create(folder / "state")
    profile = complete(Profile())
    said: list[str] = []
    with serve(handle_with_faults) as base, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and listens to nobody
        with (
            Writer.open(folder / "snap", profile=profile) as writer,
            Recorder(writer, authority=authority) as recorder,
        ):
            fetcher = Fetcher(recorder, writer, profile, patience=SettleTimeouts(total=4000))
            gone = Flow(f"{base}/list?page=1", parse_steps("- click: Gone"))
            flows = [Flow(f"{base}/", STEPS), Flow(None, ()), gone]
            paths = ["/list?page=2", "/nope", "/wall", "/papers/survey.pdf", "/download", "/restless"]
            urls = [*(base + path for path in paths), f"http://127.0.0.1:{closed.getsockname()[1]}/"]
            results = fetcher.fetch(urls, flows, True, lambda url, event: said.append(event))
        seal(folder / "snap", folder / "snap.wacz")
    assert said.count("started") == len(results)
    return Recorded(folder / "snap.wacz", base, results, authority)


def result(recorded: Recorded, path: str) -> FetchResult:
    return next(one for one in recorded.results if one.url.endswith(path))


@pytest.mark.slow
def test_each_state_has_its_view(recorded: Recorded) -> None:
    base = recorded.base
    main = recorded.results[0]
    assert main.error is None
    kept = [(), STEPS[:1], STEPS[:2], STEPS[:4], STEPS]  # choosing a region alone changes nothing
    assert main.views == [view_address(f"{base}/", list(steps)) for steps in kept]
    assert [document.url for document in main.documents] == [f"{base}/papers/survey.pdf"]
    with Snapshot.open(recorded.path) as snapshot:
        last = snapshot.view(main.views[-1])
        assert last is not None
        assert last.parent == main.views[-2]
        assert last.final_url == f"{base}/list?page=2"
        assert [one["url"] for one in last.captures] == [f"{base}/list?page=2"]
        texts = [(snapshot.resource("text", address) or b"").decode() for address in main.views]
        assert "Abbey Mill" in texts[0]
        assert "Abbey Mill" not in texts[1]
        assert "Written by hand" in texts[2]
        assert "South mills, page 1 of 2" in texts[3]
        assert "Tide Mill" in texts[4]
        info = json.loads(snapshot.resource("pageinfo", main.views[1]) or b"")
        assert info["state"]["fields"][1]["value"] == ["Wind"]
        assert info["urls"][f"{base}/api/rows"]["method"] == "POST"
        assert info["quiet"] is True
        assert b'<option value="wind" selected=""' in (snapshot.resource("dom", main.views[1]) or b"")
        assert (snapshot.resource("view", main.views[1]) or b"").startswith(b"\x89PNG")
        whole = next(c for c in snapshot.captures() if c.url.endswith("survey.pdf"))
        assert len(snapshot.read(whole).body) > 5000


@pytest.mark.slow
def test_what_fails_is_told_and_stops_nothing(recorded: Recorded) -> None:
    assert result(recorded, "/list?page=2").ok
    assert result(recorded, "/papers/survey.pdf").documents[0].media == "application/pdf"
    assert result(recorded, "/download").ok
    assert (
        result(recorded, "/nope").error == f"{recorded.base}/nope: not stored as a view: missing (status 404)"
    )
    assert result(recorded, "/wall").findings[0].kind == "forbidden"
    missing = result(recorded, "/list?page=1")
    assert missing.error is not None
    assert missing.error.startswith("step 1: click: no element with text 'Gone' on ")
    assert len(missing.views) == 1
    restless = result(recorded, "/restless")
    assert restless.ok
    assert restless.notes == ["never quiet: keeps sending requests for 4 s"]
    (closed,) = [one for one in recorded.results if not one.url.startswith(recorded.base)]
    assert not closed.ok
    rows = [result.row() for result in recorded.results]
    failed = [row for row in rows if row["result"] == "failed"]
    assert len(failed) == 4
    assert all(row["why"] for row in failed)
    with Snapshot.open(recorded.path) as snapshot:
        assert not [view for view in snapshot.views() if "wall" in view.url or "nope" in view.url]


@pytest.mark.slow
def test_a_page_that_lacked_a_script_is_not_called_quiet_one_step_later(tmp_path: Path) -> None:
    asked = threading.Event()

    def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        if path == "/late.js":
            asked.wait(HANG)
            return 200, {"Content-Type": "text/javascript"}, b"document.title = 'whole'"
        if path == "/go":
            asked.set()
        page = b"<p id=t>a</p><button onclick=\"fetch('/go').then(() => { t.textContent = 'b' })\">Go</button><script async src=/late.js></script>"
        return 200, {"Content-Type": "text/html"}, page

    profile = complete(Profile())
    with (
        serve(handle) as base,
        Writer.open(tmp_path / "snap", profile=profile) as writer,
        Recorder(writer, authority=Authority.load_or_create(tmp_path / "state")) as recorder,
    ):
        fetcher = Fetcher(recorder, writer, profile, patience=SettleTimeouts(stuck=0.5))
        (found,) = fetcher.fetch([f"{base}/"], parse_steps("- click: Go\n- wait: {time: 1}"))
    assert len(found.views) == 3, found
    with Snapshot.open(tmp_path / "snap") as snapshot:
        infos = [json.loads(snapshot.resource("pageinfo", address) or b"") for address in found.views]
    assert [info["quiet"] for info in infos] == [False, False, False]


@pytest.mark.slow
def test_every_view_is_the_same_again_but_what_has_changed(recorded: Recorded) -> None:
    from stillweb.harness.view.export import check_page

    with Snapshot.open(recorded.path) as snapshot:
        original = snapshot.resource

        def altered(kind: str, address: str) -> bytes | None:
            data = original(kind, address)
            if address == f"{recorded.base}/list?page=2" and kind == "text":
                return b"something else\n" + (data or b"")
            if address == f"{recorded.base}/" and kind == "view":
                return original("view", f"{recorded.base}/list?page=2")
            return data

        snapshot.resource = altered  # type: ignore[method-assign]
        with Gateway(snapshot, authority=recorded.authority) as gateway:
            report: CheckReport = check(snapshot, gateway)
        page = check_page(report, "snap.wacz", snapshot.id)
    assert len(report.views) == 8
    assert {(view.error, *view.missed) for view in report.views} == {(None,)}
    by_address = {view.address: view for view in report.views}
    text = by_address[f"{recorded.base}/list?page=2"]
    assert not text.same
    assert text.text < 1
    assert text.text_changes == ["-something else"]
    picture = by_address[f"{recorded.base}/"]
    assert 0 < picture.pixels < 1
    assert picture.difference.startswith(b"\x89PNG")
    assert not report.passed(text=1.0)
    assert {view.aria for view in report.views} == {1.0}
    for view in report.views:
        assert (view.text, view.pixels) == (1.0, 1.0) or view in (text, picture), view.address
    assert (text.pixels, picture.text) == (1.0, 1.0)
    unchanged = replace(report, views=[view for view in report.views if view not in (text, picture)])
    assert unchanged.passed(text=1.0, pixels=1.0)
    assert report.warning is None
    assert page.count("<h2") == 8
    assert "http://" not in page.replace(recorded.base, "")


@pytest.mark.slow
def test_replays_alone_and_together_are_one(recorded: Recorded, chromium: Browsing) -> None:
    async def once(host: BrowserHost, gateway: Gateway, profile: Profile, session: str) -> list[str]:
        context = await host.context(session, gateway.proxy_url(session), profile, gateway.ca_path)
        driver = Driver(context)
        seen = []
        try:
            await driver.open_start(f"{recorded.base}/")
            for number, step in enumerate(STEPS, start=1):
                await driver.perform(step, number)
                sight = await read_page(driver.page)
                seen.append(hashlib.sha256(f"{sight.aria}\0{sight.text}".encode() + sight.png).hexdigest())
            seen += sorted(f"{a.url} {a.status} {a.verdict} {a.capture}" for a in driver.traffic.answers)
        finally:
            await context.close()
        return seen

    async def all_of_them(gateway: Gateway, profile: Profile) -> list[list[str]]:
        alone = await once(chromium.host, gateway, profile, "alone")
        together = (once(chromium.host, gateway, profile, f"together-{n}") for n in range(2))
        return [alone, *await asyncio.gather(*together)]

    with Snapshot.open(recorded.path) as snapshot, Gateway(snapshot, authority=recorded.authority) as gateway:
        runs = chromium.run(all_of_them(gateway, complete(snapshot.profile or Profile())))
    assert len({tuple(run) for run in runs}) == 1
    assert not [line for line in runs[0] if " miss " in line]


@pytest.mark.slow
def test_what_was_not_recorded_is_a_miss(recorded: Recorded, chromium: Browsing) -> None:
    async def go(gateway: Gateway, url: str) -> None:
        proxy = gateway.proxy_url("m")
        context = await chromium.host.context("m", proxy, complete(Profile()), gateway.ca_path)
        try:
            await Driver(context).open_start(url)
        finally:
            await context.close()

    with (
        Snapshot.open(recorded.path) as snapshot,
        Gateway(snapshot, authority=recorded.authority) as gateway,
        pytest.raises(PageFailed, match=r"list\?page=9: not in the snapshot \(miss\)"),
    ):
        chromium.run(go(gateway, f"{recorded.base}/list?page=9"))


@pytest.mark.slow
def test_an_interruption_leaves_all_in_order(tmp_path: Path) -> None:
    profile = replace(complete(Profile()), viewport=(800, 600))
    reached = threading.Event()

    async def go(fetcher: Fetcher, base: str) -> None:
        urls = [f"{base}/list?page={n}" for n in (1, 2, 3)] * 5
        work = asyncio.ensure_future(
            fetcher.fetch_all(
                urls, progress=lambda url, event: reached.set() if event.startswith("view") else None
            )
        )
        assert await asyncio.to_thread(reached.wait, STARTS)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    with (
        serve(mill_site()) as base,
        Writer.open(tmp_path / "snap", profile=profile) as writer,
        Recorder(writer, authority=Authority.load_or_create(tmp_path / "state")) as recorder,
    ):
        asyncio.run(go(Fetcher(recorder, writer, profile), base))
    with Snapshot.open(tmp_path / "snap") as snapshot:
        assert len(snapshot.views()) >= 1


def test_what_can_not_be_planned() -> None:
    with pytest.raises(UsageError, match=r"'ftp://a/' is not an http\(s\) URL"):
        plan(["ftp://a/"], ())
    with pytest.raises(UsageError, match=r"'http://\[::1' is not an http\(s\) URL"):
        plan(["http://[::1"], ())
    jobs = plan(["http://a/", "http://b/"], [Flow("http://a/", STEPS)])
    assert jobs == [Flow("http://a/", STEPS), Flow("http://b/", ())]


MILLS = b"<h1>Mills</h1><p>" + b"The first of many mills. " * 100


# A browser that is busy may have read nothing yet when it hears of the end: then the first is as the second.
@pytest.mark.slow
@pytest.mark.parametrize(
    "came", [b"%x\r\n%b\r\n" % (len(MILLS), MILLS), b""], ids=["some of it", "nothing of it"]
)
def test_a_page_that_came_in_part_is_no_view(came: bytes, tmp_path: Path) -> None:
    """The origin ends its connection within the document; what the browser shows of it looks like a page."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n" + came
    profile = complete(Profile())

    def serve_half() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                if connection.recv(65536):
                    connection.sendall(answer)

    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Writer.open(tmp_path / "snap", profile=profile) as writer,
        Recorder(writer, authority=Authority.load_or_create(tmp_path / "state")) as recorder,
    ):
        thread = threading.Thread(target=serve_half, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        (found,) = Fetcher(recorder, writer, profile).fetch([url])
        server.shutdown(socket.SHUT_RDWR)
        thread.join(HANG)
    assert (found.ok, found.views) == (False, [])
    assert found.error is not None
    assert "not stored as a view: broken (its document ended early" in found.error


def test_what_took_long_belongs_to_the_next_view_and_is_not_left_out(lab: Lab, tmp_path: Path) -> None:
    """A slow request began before what the first view was told of, and ended after that."""
    gate.open.clear()
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder, client(recorder) as c:
        recording = Recording(recorder, writer, "default")

        async def told() -> list[str]:
            return [capture.url for capture in await recording.new_captures()]

        async def run() -> None:
            slow = asyncio.ensure_future(asyncio.to_thread(c.get, "http://plain.example/slow"))
            assert await asyncio.to_thread(until, lambda: recorder.stats.under_way == 1)
            await asyncio.to_thread(c.get, "http://plain.example/headers")
            recording.traffic = cast(
                Any, SimpleNamespace(hanging=lambda: ["http://plain.example/slow"], unread={}, untold=set())
            )
            assert await told() == ["http://plain.example/headers"]
            gate.open.set()
            await slow
            recording.traffic = None
            assert await told() == ["http://plain.example/slow"]
            assert await told() == []
            assert recording.count == 2

        try:
            asyncio.run(run())
        finally:
            gate.open.set()
