"""`stillweb replay` as a server of several processes: all that one process does, and nothing left behind."""

import json
import os
import re
import signal
import ssl
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from stillweb.proxy.browser.browser import find_browser
from stillweb.proxy.net.ca import EARLIER_DAYS
from stillweb.proxy.replay import ledger
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.request import Request
from stillweb.snapshots.writer import Writer
from tests.harness.small_site import make
from tests.harness.tools.frozen import BIRDS, FOUND, SEARCH_BODY, make_site
from tests.proxy.origin import Answer, Origin
from tests.snapshots.making import exchange
from tests.support.command_line import Started, stillweb
from tests.support.isolating import needs_isolation
from tests.support.waiting import HANG

SERPER = "https://google.serper.dev/search"
pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("own_state")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replay") / "site"
    make_site(path).close()
    return path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Started, str]]:
    """A server, and its address."""
    started = Started("replay", make(tmp_path / "s"))
    try:
        yield started, started.line()
    finally:
        if started.process.poll() is None:
            started.end(0)


def client(address: str, session: str = "default") -> httpx.Client:
    proxy = address.replace("://", f"://{session}:x@")
    trusted = ssl.create_default_context(cafile=Path(os.environ["STILLWEB_STATE"]) / "stillweb-ca.pem")
    return httpx.Client(proxy=proxy, verify=trusted, trust_env=False, timeout=HANG)


def searches(address: str, session: str) -> list[Any]:
    """A recorded search, one made from the texts, a page read and a miss, each on a connection of its own."""
    said: list[Any] = []
    for method, url, body in (
        ("POST", SERPER, SEARCH_BODY),
        ("POST", SERPER, {"q": f"gentoo {'mass' if session in 'ac' else 'chinstrap'}"}),
        ("GET", f"https://r.jina.ai/{BIRDS}", None),
        ("GET", "http://nowhere.test/", None),
    ):
        with client(address, session) as c:
            answer = c.request(method, url, **({"json": body} if body else {}))
            said.append((answer.status_code, answer.headers.get("stillweb-verdict"), answer.content))
    return said


def test_searches_of_sessions_at_once_are_each_ones_own(site: Path, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    started = Started("replay", site, "--synthetic-search", "--ledger", path)
    address = started.line()
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda name: searches(address, name), "abcd"))
    started.process.terminate()
    assert started.end().code == 0
    entries = ledger.read(path)
    for name in "abcd":
        mine = [entry for entry in entries if entry["session"] == name]
        assert [entry["seq"] for entry in mine] == [0, 1, 2, 3]
        assert [entry["verdict"] for entry in mine] == ["exact", "synthetic", "exact", "miss"]
    assert json.loads(said[0][0][2]) == FOUND
    assert said[0][1][2] != said[1][1][2]
    assert said[0] == said[2]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_the_server_in_order(served: tuple[Started, str], number: int, code: int) -> None:
    """As a terminal or a service manager sends it."""
    started, address = served
    with client(address) as c:
        assert c.get("http://a.test/none").status_code == 504
    os.killpg(started.process.pid, number)
    done = started.end()
    assert done.code == code
    assert "1 request was not in the snapshot" in done.err


def test_misses_of_all_sessions_count(tmp_path: Path) -> None:
    path, book = make(tmp_path / "s"), tmp_path / "ledger"
    started = Started("replay", path, "--max-misses", "3", "--ledger", book)
    address = started.line()
    for name in "abcd":
        with client(address, name) as c:
            assert c.get("http://a.test/none").status_code == 504
    started.process.terminate()
    done = started.end()
    assert done.code == 1
    assert "4 requests were not in the snapshot; first: GET http://a.test/none" in done.err
    assert sorted(entry["session"] for entry in ledger.read(book)) == ["a", "b", "c", "d"]


def test_a_direct_host_is_asked_past_the_snapshot_and_that_is_said(tmp_path: Path) -> None:
    book = tmp_path / "ledger"
    program = (
        "import sys, urllib.request as u\n"
        "for url in sys.argv[1:]: print(u.urlopen(url).read()[:9].decode().split()[0])"
    )
    with Origin(lambda asked: Answer(body=b"live")) as origin:
        words = ("--ledger", book, "--max-misses", "0", "--", sys.executable, "-c", program)
        urls = (f"http://127.0.0.1:{origin.port}/", "https://a.test/0")
        done = stillweb("replay", make(tmp_path / "s"), "--no-proxy", "127.0.0.1", *words, *urls)
        assert (done.code, done.out) == (0, "live\n0\n"), done.err
        assert "asked directly, so in no ledger, and not the same each time: 127.0.0.1" in done.err
        assert [entry["url"] for entry in ledger.read(book)] == ["https://a.test/0"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--no-proxy", "a.test", "--isolate", "--", "true"), "--isolate leaves no way to a.test"),
        (("--no-proxy", "127.0.0.1:70000", "--isolate", "--", "true"), "'127.0.0.1:70000' is not a host"),
        (("--no-proxy", "a.test"), "--no-proxy is for a program after '--'"),
        (("--no-proxy", "https://a.test/", "--", "true"), "'https://a.test/' is not a host"),
    ],
)
def test_direct_hosts_that_can_not_be(words: tuple[str, ...], why: str, site: Path) -> None:
    done = stillweb("replay", site, *words)
    assert done.code == 2
    assert why in done.err


@needs_isolation
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_port_of_this_machine_is_let_into_the_isolation_and_nothing_else(tmp_path: Path, name: str) -> None:
    program = (
        "import socket, sys, urllib.error, urllib.request as u\n"
        "for url in sys.argv[1:]:\n"
        "    try: print(u.urlopen(url, timeout=60).read()[:9].decode().split()[0])\n"
        "    except urllib.error.URLError as error: print(type(error.reason).__name__)\n"
        "for place in (('127.0.0.2', PORT), ('192.0.2.1', PORT)):\n"
        "    try: socket.create_connection(place, 60); print('reached')\n"
        "    except OSError as error: print(type(error).__name__)\n"
    )
    with Origin(lambda asked: Answer(body=b"live")) as origin, Origin(lambda asked: Answer()) as other:
        direct = ("--no-proxy", f"{name}:{origin.port}", "--no-proxy", name)  # without a port: what is inside
        words = ("--isolate", "--", sys.executable, "-c", program.replace("PORT", str(origin.port)))
        urls = [f"http://{name}:{port}/" for port in (origin.port, other.port)]
        done = stillweb("replay", make(tmp_path / "s"), *direct, *words, *urls, "https://a.test/0")
        assert (done.code, done.out) == (
            0,
            "live\nConnectionRefusedError\n0\nConnectionRefusedError\nOSError\n",
        ), done.err
        assert f"let in from this machine, and nothing else: {name}:{origin.port}\n" in done.err
        assert not other.asked


@pytest.mark.slow
def test_the_browser_script_of_the_document_misses_nothing(tmp_path: Path) -> None:
    """Loopback is asked through the proxy, and no connection is broken off for its certificate."""
    text = (Path(__file__).parents[3] / "docs" / "clients.md").read_text(encoding="utf-8")
    code = next(found for found in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "launch(" in found)
    here = f"launch(executable_path={str(find_browser())!r}, chromium_sandbox=False, "
    (tmp_path / "browse.py").write_text(code.replace("launch(", here), encoding="utf-8")
    for url in ("https://a.test/page", "http://127.0.0.1:8099/page"):
        site = tmp_path / url.partition(":")[0]
        with Writer.open(site) as writer:
            writer.exchange(exchange(url, b"<title>Found</title>", begin=0, end=1))
        done = stillweb("replay", site, "--max-misses", "0", "--session", "mine", "--", sys.executable, tmp_path / "browse.py", url)  # fmt: skip
        assert (done.code, done.out) == (0, "Found\n"), done.err


@pytest.mark.parametrize(
    ("body", "url", "told"),
    [
        ('{"capabilities": {"alwaysMatch": {}}}', "http://localhost:4444/session", True),
        ('{"capabilities": {"alwaysMatch": {}}}', "http://[::1]:4444/wd/hub/session", True),
        ("{}", "http://127.0.0.1/devtools/browser/1", True),
        ('{"user": "ada"}', "http://localhost:3000/session", False),
        ('{"capabilities": {}}', "http://grid.test/session", False),
    ],
)
def test_a_browser_that_is_asked_of_the_snapshot_is_told(site: Path, body: str, url: str, told: bool) -> None:
    done = stillweb(
        "replay", site, "--", "curl", "-gsS", "-H", "content-type: application/json", "-d", body, url
    )
    assert ("the browser that it drives" in done.err) == told
    assert "1 request was not in the snapshot" in done.err


DAILY = """
import sys, time, urllib.error, urllib.request
day = time.strftime("%Y-%m-%d", time.gmtime())
try:
    print(urllib.request.urlopen(f"https://news.example/of?day={day}").read().decode())
except urllib.error.HTTPError as error:
    print(error.code)
"""


PAGE = b"""<!DOCTYPE html><title>News</title><script>
const day = new Date().toISOString().slice(0, 10)
setTimeout(() => fetch("/of?day=" + day).then(a => a.text()).then(text => { document.title = text }), 100)
</script>"""
BROWSE = """
import os, sys
from playwright.sync_api import sync_playwright
proxy = os.environ["HTTPS_PROXY"].rpartition("@")[2].rpartition("/")[2]
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(
        executable_path=sys.argv[1], chromium_sandbox=False, args=["--ignore-certificate-errors"],
        proxy={"server": "http://" + proxy, "bypass": "<-loopback>", "username": "default", "password": "x"})
    page = browser.new_page()
    page.goto("https://news.example/")
    page.wait_for_function("document.title != 'News'")
    print(page.title())
"""


@pytest.mark.slow
def test_a_browser_that_a_program_drives_has_its_clock(tmp_path: Path) -> None:
    then = datetime.now(UTC).replace(hour=12) - timedelta(days=30)
    answers = {"": ("text/html", PAGE), f"of?day={then:%Y-%m-%d}": ("text/plain", b"the news of that day")}
    with Writer.open(tmp_path / "s") as writer:
        for number, (path, (kind, body)) in enumerate(answers.items()):
            request = Request("GET", f"https://news.example/{path}", (("Host", "news.example"),))
            headers = (("Content-Type", kind),)
            at = {"begin": 2 * number + 1, "end": 2 * number + 2}
            writer.exchange(Exchange(request, 200, "OK", headers, body, then, **at))
    command = [sys.executable, "-c", BROWSE, str(find_browser())]
    held = stillweb("replay", tmp_path / "s", "--clock", "recorded", "--", *command)
    assert (held.code, held.out.strip()) == (0, "the news of that day"), held.err


@pytest.mark.slow
@pytest.mark.parametrize("days", [30, EARLIER_DAYS - 2])
def test_a_program_that_asks_for_today_finds_the_recorded_day(days: int, tmp_path: Path) -> None:
    then = datetime.now(UTC).replace(hour=12) - timedelta(days=days)
    request = Request("GET", f"https://news.example/of?day={then:%Y-%m-%d}", (("Host", "news.example"),))
    with Writer.open(tmp_path / "s") as writer:
        headers = (("Content-Type", "text/plain"),)
        writer.exchange(Exchange(request, 200, "OK", headers, b"the news of that day", then, begin=1, end=2))
    replay = ("replay", tmp_path / "s", "--max-misses", "0")
    today = stillweb(*replay, "--", sys.executable, "-c", DAILY)
    assert (today.code, today.out.strip()) == (1, "504")
    assert "differs in query day" in today.err
    assert "--clock recorded" in today.err
    for moment in ("recorded", f"{then:%Y-%m-%d}T12:00:00Z"):
        held = stillweb(*replay, "--clock", moment, "--", sys.executable, "-c", DAILY)
        assert (held.code, held.out.strip()) == (0, "the news of that day"), held.err
        assert f"the program's clock begins at {then:%Y-%m-%d}T12" in held.err


def test_a_snapshot_of_today_is_no_reason_to_hold_the_clock(tmp_path: Path) -> None:
    recorded, asked = (
        Request(
            "GET",
            f"https://news.example/of?day={datetime.now(UTC):%Y-%m-%d}&page={n}",
            (("Host", "news.example"),),
        )
        for n in (1, 2)
    )
    with Writer.open(tmp_path / "s") as writer:
        writer.exchange(Exchange(recorded, 200, "OK", (), b"news", datetime.now(UTC), begin=1, end=2))
    done = stillweb("replay", tmp_path / "s", "--", "curl", "-s", asked.url)
    assert "differs in query page" in done.err
    assert "--clock" not in done.err


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--clock", "recorded"), "--clock is for a program"),
        (("--clock", "soon", "--", "true"), "'soon': must be recorded or a time"),
        (("--clock", "2001-01-01", "--", "true"), "certificates are valid"),
    ],
)
def test_a_clock_that_can_not_be_is_refused(site: Path, more: tuple[str, ...], why: str) -> None:
    done = stillweb("replay", site, *more)
    assert done.code == 2
    assert why in done.err
