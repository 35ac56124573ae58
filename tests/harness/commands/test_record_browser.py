"""`record`: the browser that people ask for, in the command or the steps file, and the one that replays it."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from stillweb.api import record
from stillweb.proxy.browser import browser
from stillweb.proxy.browser.browser import find_browser, profile_of
from stillweb.proxy.browser.options import browser_options
from stillweb.snapshots import Snapshot
from stillweb.snapshots.errors import MissingCapability, UsageError
from tests.proxy.sites import Answer, serve
from tests.snapshots.making import exchange
from tests.support.command_line import stillweb
from tests.support.waiting import STARTS, until

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("own_state")]

PAGE = """<!DOCTYPE html><title>T</title><p>team {team}, languages {language}, signed in: {signed}</p><p id=out></p><script>
out.textContent = [new Date().toISOString(), navigator.language, Intl.DateTimeFormat().resolvedOptions().timeZone,
  screen.width, devicePixelRatio, navigator.maxTouchPoints, localStorage.theme, navigator.userAgent].join(" | ");</script>"""


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    text = PAGE.format(
        team=headers.get("x-team"),
        language=headers.get("accept-language"),
        signed="sid=Xy7Kd02mPq94LsVb" in headers.get("cookie", ""),
    )
    return 200, {"Content-Type": "text/html"}, text.encode()


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with serve(handle) as base:
        yield f"{base}/"


def text_of(snapshot: Snapshot) -> str:
    (view,) = snapshot.views()
    data = snapshot.resource("text", view.address)
    assert data is not None
    return data.decode()


def state(site: str) -> dict[str, object]:
    host = site.split("/")[2].partition(":")[0]
    cookie = {"name": "sid", "value": "Xy7Kd02mPq94LsVb", "domain": host, "path": "/", "expires": -1}
    return {
        "cookies": [cookie | {"httpOnly": True, "secure": False, "sameSite": "Lax"}],
        "origins": [
            {
                "origin": site.rstrip("/"),
                "localStorage": [
                    {"name": "access_token", "value": "t0kEn9Qw3Er5Ty7Ui"},
                    {"name": "theme", "value": "dark"},
                ],
            }
        ],
    }


@pytest.mark.slow
def test_the_browser_that_was_asked_for_records_and_replays(site: str, tmp_path: Path) -> None:
    (tmp_path / "login.json").write_text(json.dumps(state(site)))
    (tmp_path / "steps.yaml").write_text(
        f"browser: {{locale: de-DE, timezone: Europe/Berlin, storage_state: login.json}}\nflows:\n- url: {site}\n"
    )
    out = tmp_path / "s"
    done = stillweb(
        "record", "-o", out, "--steps", tmp_path / "steps.yaml", "--device", "Pixel 7", "--header", "X-Team: birds",
        "--header", "X-Api-Key: q8Zr2Lw0vT5yB1nM", "--clock", "2020-02-29T12:00:00Z",
    )  # fmt: skip
    assert done.code == 0, done.err
    with Snapshot.open(out) as snapshot:
        text, profile = text_of(snapshot), snapshot.profile
    assert "team birds, languages de-DE" in text
    assert "signed in: true" in text.lower()
    assert "2020-02-29T12:00:00.000Z | de-DE | Europe/Berlin | 412 | 2.625 | 1 | dark |" in text
    assert "Pixel 7" in text
    assert profile is not None
    assert ("x-team", "birds") in profile.headers
    for secret in (b"q8Zr2Lw0vT5yB1nM", b"t0kEn9Qw3Er5Ty7Ui", b"Xy7Kd02mPq94LsVb"):
        assert not any(secret in file.read_bytes() for file in out.rglob("*") if file.is_file())
    checked = stillweb("check", out)
    assert checked.code == 0, checked.out + checked.err
    other = stillweb("record", "-o", out, site, "--locale", "fr-FR")
    assert other.code != 0
    assert f"{out}: was recorded with locale 'de-DE', not 'fr-FR'. Record into another directory" in other.err


@pytest.mark.slow
def test_the_locale_is_the_language_that_the_tasks_have_in_common(site: str, tmp_path: Path) -> None:
    for name, languages in {"one": ["de-DE"], "several": ["de-DE", "fr-FR"]}.items():
        tasks = [
            {"id": one, "question": "q", "answer": "a", "start_url": site, "meta": {"language": one}}
            for one in languages
        ]
        (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
        done = stillweb("record", "-o", tmp_path / name, "--tasks", tmp_path / "tasks.jsonl")
        assert done.code == 0, done.err
        with Snapshot.open(tmp_path / name) as snapshot:
            assert ("languages de-DE" in text_of(snapshot)) is (name == "one")
        assert ("the tasks name several languages (de-DE, fr-FR)" in done.err) is (name == "several")


@pytest.mark.slow
def test_the_clock_is_the_moment_of_the_recording(site: str, tmp_path: Path) -> None:
    begun = datetime.now(UTC) - timedelta(seconds=1)
    assert stillweb("record", "-o", tmp_path / "s", site).code == 0
    with Snapshot.open(tmp_path / "s") as snapshot:
        shown = datetime.fromisoformat(text_of(snapshot).split("\n")[-1].split(" | ")[0])
        profile = profile_of(snapshot)
    assert begun <= shown <= datetime.now(UTC)
    assert datetime.fromisoformat(profile.clock) == shown  # where replays begin, too


@pytest.mark.slow
def test_the_python_interface_records_with_the_browser_that_was_asked_for(site: str, tmp_path: Path) -> None:
    begun = datetime.now(UTC) - timedelta(seconds=1)
    with record(tmp_path / "s", browser={"locale": "de-DE", "viewport": "390x844"}) as recording:
        results = recording.visit_all([site])
    assert [result.ok for result in results] == [True]
    with Snapshot.open(tmp_path / "s") as snapshot:
        clock, locale, _, width, *_ = text_of(snapshot).split("\n")[-1].split(" | ")
    assert (locale, width) == ("de-DE", "390")
    assert begun <= datetime.fromisoformat(clock) <= datetime.now(UTC)
    with (
        pytest.raises(UsageError, match="was recorded with locale 'de-DE', not 'fr-FR'"),
        record(tmp_path / "s", browser={"locale": "fr-FR"}),
    ):
        pass
    with pytest.raises(UsageError, match="browser: unknown browser option 'lang'"), record(tmp_path / "t", browser={"lang": "de"}):  # fmt: skip
        pass
    assert not (tmp_path / "t").exists()


def test_pages_of_a_foreign_archive_begin_at_its_first_capture(tmp_path: Path) -> None:
    from stillweb.snapshots.writer import Writer

    with Writer.open(tmp_path / "s") as writer:
        writer.exchange(exchange("http://a.test/", b"<p>x</p>"))
    with Snapshot.open(tmp_path / "s") as snapshot:
        first = min(capture.timestamp for capture in snapshot.captures())
        clock = profile_of(snapshot).clock
    assert datetime.fromisoformat(clock).strftime("%Y%m%d%H%M%S") == first[:14]


@pytest.mark.slow
def test_a_running_browser_records_with_its_own_login(site: str, tmp_path: Path) -> None:
    with sync_playwright() as playwright:
        person = playwright.chromium.launch_persistent_context(
            str(tmp_path / "person"),
            executable_path=str(find_browser()),
            args=["--no-sandbox", "--remote-debugging-port=0"],
        )
        try:
            person.add_cookies(state(site)["cookies"])  # type: ignore[arg-type]
            tab = person.new_page()
            tab.goto(site)
            tab.evaluate("localStorage.theme = 'dark'")
            port = (tmp_path / "person" / "DevToolsActivePort").read_text().split("\n")[0]
            done = stillweb("record", "-o", tmp_path / "s", site, "--cdp", f"http://127.0.0.1:{port}")
            assert done.code == 0, done.err
            page = person.new_page()  # it runs on, with its login
            page.goto(site)
            assert "signed in: True" in page.inner_text("body")
        finally:
            person.close()
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert "signed in: True" in text_of(snapshot)
        assert "| dark |" in text_of(snapshot)


def attachable(folder: Path) -> subprocess.Popen[bytes]:
    """Start a browser that can be attached to."""
    switches = ("--headless", "--no-sandbox", "--remote-debugging-port=0", f"--user-data-dir={folder}")
    return subprocess.Popen([find_browser(), *switches, "about:blank"], stderr=subprocess.DEVNULL)


def place(folder: Path) -> str:
    """Return the address of a browser that was started with this folder, once it listens."""
    named = folder / "DevToolsActivePort"
    assert until(lambda: named.exists() and "\n" in named.read_text(), STARTS)
    return f"http://127.0.0.1:{named.read_text().split()[0]}"


@pytest.mark.slow
@pytest.mark.parametrize("way", [(), ("--explore", "9", "--links", "site")], ids=["pages", "explored"])
def test_a_running_browser_that_is_killed_ends_the_recording_in_a_line(
    way: tuple[str, ...], tmp_path: Path
) -> None:
    person = attachable(tmp_path / "p")

    def page(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        if path == "/second":
            person.kill()
        return 200, {"Content-Type": "text/html"}, b"<p>first</p><a href=/second>second</a>"

    try:
        at = place(tmp_path / "p")
        with serve(page) as base:
            urls = [f"{base}/first"] if way else [f"{base}/first", f"{base}/second", f"{base}/third"]
            done = stillweb("record", "-o", tmp_path / "s", *urls, "--cdp", at, "--parallel", "1", *way)
    finally:
        person.kill()
        person.wait()
    assert done.code == 4, done.err
    assert f"error: {at}: the browser is gone (" in done.err
    assert "What was recorded until then is kept" in done.err
    assert len(done.err.splitlines()) == 1, done.err
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert "first" in text_of(snapshot)


@pytest.mark.slow
@pytest.mark.own_driver
def test_a_running_browser_that_answers_no_more_ends_the_recording_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = attachable(tmp_path / "p")

    def page(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        if path == "/second":
            monkeypatch.setattr(browser, "SECONDS", 1.0)
            os.kill(person.pid, signal.SIGSTOP)
        return 200, {"Content-Type": "text/html"}, b"<p>first</p>"

    try:
        with serve(page) as base, record(tmp_path / "s", browser={"cdp": place(tmp_path / "p")}) as recording:
            recording.visit(f"{base}/first")
            with pytest.raises(MissingCapability, match="the browser did not answer for 1 s"):  # fmt: skip
                recording.visit(f"{base}/second")
    finally:
        person.kill()
        person.wait()
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert "first" in text_of(snapshot)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"locale": "french!"}, "locale 'french!': is not a locale; write it as de-DE"),
        (
            {"timezone": "Mars/Olympus"},
            "timezone 'Mars/Olympus': is not a time zone; write it as Europe/Berlin",
        ),
        ({"viewport": "wide"}, "viewport 'wide': write WIDTHxHEIGHT, as 1280x800"),
        ({"viewport": 800}, "viewport 800 must be text"),
        ({"viewport": "99999x600"}, "viewport '99999x600': is too large. Take at most 8192 pixels on a side"),
        ({"locale": False}, "locale false must be text"),  # `locale: no` in YAML
        ({"user_agent": "a\nb"}, "user_agent 'a\\nb': has characters that a header may not have"),
        ({"device": "Pixl 7"}, "device 'Pixl 7' is unknown"),
        ({"clock": "noon"}, "clock 'noon': is not a time"),
        ({"headers": {"a b": "c"}}, "header 'a b': is not a header's name and value"),
        ({"headers": {"x-team": None}}, "header 'x-team': is not a header's name and value"),
        ({"headers": {"x-team": "鳥"}}, "header 'x-team': is not a header's name and value"),
        ({"headers": {"Host": "b.test"}}, "header 'Host': the browser sets it itself. Leave it out"),
        ({"headers": {"Proxy-Foo": "b"}}, "header 'Proxy-Foo': the browser sets it itself. Leave it out"),
        ({"storage_state": "no-such.json"}, "no-such.json: can't be read: No such file or directory"),
        ({"storage_state": "number.json"}, "Expected object, got int - at $.cookies[0]"),
        ({"storage_state": "list.json"}, "list.json: is not a storage state: Expected object, got array"),
        ({"storage_state": "site.json"}, "Object missing required field domain - at $.cookies[0]"),
        (
            {"storage_state": "item.json"},
            "Object missing required field value - at $.origins[0].localStorage[0]",
        ),
        ({"storage_state": "origin.json"}, "- at $.origins[0].origin"),
        ({"cdp": "9222"}, "cdp '9222': write http://HOST:PORT or ws://…"),
        ({"cdp": "http://"}, "cdp 'http://': write http://HOST:PORT or ws://…"),
        ({"cdp": "http://a.test:99999"}, "cdp 'http://a.test:99999': write http://HOST:PORT or ws://…"),
        (
            {"cdp": "http://127.0.0.1:9222", "headful": True},
            "headful has no effect on a browser that runs already",
        ),
        ({"languages": "de"}, "unknown browser option 'languages'"),
    ],
)
def test_an_option_that_can_not_be_met_is_told(tmp_path: Path, given: dict[str, object], said: str) -> None:
    states: dict[str, object] = {
        "number": {"cookies": [1]},
        "list": [],
        "site": {"cookies": [{"name": "a", "value": "b", "path": "/"}]},
        "item": {"cookies": [], "origins": [{"origin": "http://a.test", "localStorage": [{"name": "a"}]}]},
        "origin": {"cookies": [], "origins": [{"origin": "a.test", "localStorage": []}]},
    }
    for name, value in states.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(value))
    with pytest.raises(UsageError, match=re.escape(said)):
        browser_options(given, "steps.yaml", tmp_path)


@pytest.mark.slow
def test_no_browser_to_attach_to_is_told(tmp_path: Path) -> None:
    done = stillweb("record", "-o", tmp_path / "s", "http://127.0.0.1:9/", "--cdp", "http://127.0.0.1:1")
    assert done.code != 0
    assert "http://127.0.0.1:1: no browser can be attached to" in done.err


@pytest.mark.whole_browser
def test_a_window_without_a_display_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    done = stillweb("record", "-o", tmp_path / "s", "http://127.0.0.1:9/", "--headful")
    assert done.code != 0
    assert "headful: no display to show a window on. Set DISPLAY, start it by xvfb-run" in done.err
    assert len(done.err.splitlines()) == 1


def test_options_of_a_browser_do_not_go_with_a_program(tmp_path: Path) -> None:
    done = stillweb("record", "-o", tmp_path / "s", "--locale", "de-DE", "--", "true")
    assert "--locale is for the browser that records URLs" in done.err
