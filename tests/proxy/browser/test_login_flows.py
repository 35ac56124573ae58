"""Pages behind a login form are recorded by steps that fill it in, and are reached again; the form itself is not a view."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from stillweb.proxy.browser.browser import complete
from stillweb.proxy.browser.capture_view import Fetcher, FetchResult
from stillweb.proxy.browser.steps import Flow, parse_steps
from stillweb.proxy.check.check import check
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.proxy.sites import Answer, serve

pytestmark = pytest.mark.slow  # all wait for one recording of all flows
PASSWORD = "correct horse 7 staple"
FORM = b"""<title>Sign in</title><form method=post action=/login><label>Name <input name=name></label>
<label>Word <input type=password name=word></label><button>Go</button></form>"""
SETTINGS = b"""<title>Reading room</title><h1>Register</h1><form method=post action=/join><label>Name <input name=name></label>
<label>Mail <input type=email name=mail></label><label>Branch <select name=branch><option>North<option>South</select></label>
<label>Word <input type=password name=word></label><button>Join</button></form>"""
FILLED = (
    "- fill: {label: Name, value: ann}\n- fill: {label: Word, value: correct horse 7 staple}\n- click: Go\n"
)


def answer(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    signed = "sid=" in headers.get("Cookie", headers.get("cookie", ""))
    html = {"Content-Type": "text/html"}
    if method == "POST":
        if parse_qs(body.decode()).get("word") == [PASSWORD]:
            return 303, {"Location": "/account", "Set-Cookie": "sid=Xy7Kd02mPq94LsVb; Path=/; HttpOnly"}, b""
        return 200, html, FORM
    if path == "/account" and not signed:
        return 303, {"Location": "/login"}, b""
    if path == "/account":
        return 200, html, b"<title>Account</title><p>Hello ann, three books are due.</p>"
    if path == "/join":
        return 200, html, SETTINGS
    if path in ("/login", "/401"):
        return int(path[1:]) if path[1:].isdigit() else 200, html, FORM
    return 200, html, b"<title>Books</title><p>A library of books.</p><a href=/login>Sign in</a>"


FLOWS = {  # a path and its steps, by what is tried
    "401": ("/401", FILLED),
    "account": ("/account", FILLED),
    "way": ("/", f"- click: Sign in\n{FILLED}"),
    "bare": ("/login", ""),
    "wrong": ("/login", FILLED.replace("correct horse", "another mule")),
    "join": ("/join", "- select: {label: Branch, option: South}\n"),
}


@dataclass
class Recorded:
    path: Path
    found: dict[str, FetchResult]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The sealed snapshot of all flows, and what was said of each."""
    folder, profile = tmp_path_factory.mktemp("login"), complete(Profile())
    with (
        serve(answer) as base,
        Writer.open(folder / "site", profile=profile) as writer,
        Recorder(writer, authority=Authority.load_or_create(folder / "state")) as recorder,
    ):
        flows = [Flow(base + path, parse_steps(steps)) for path, steps in FLOWS.values()]
        found = Fetcher(recorder, writer, profile).fetch([], flows)
    seal(folder / "site", folder / "site.wacz", state=folder / "state")
    return Recorded(folder / "site.wacz", dict(zip(FLOWS, found, strict=True)))


def test_a_login_form_that_comes_with_a_refusal_is_gone_through(recorded: Recorded) -> None:
    found = recorded.found["401"]
    assert (found.ok, found.error, len(found.views)) == (True, None, 1)
    said = "not stored as a view: login (status 401, with a form that asks for a password); the steps go on from it"
    assert found.notes[0].endswith(said)


def test_steps_go_on_through_a_login_form(recorded: Recorded) -> None:
    first, way = recorded.found["account"], recorded.found["way"]
    assert (first.ok, first.error, len(first.views)) == (True, None, 1)
    assert (way.ok, way.error, len(way.views)) == (True, None, 2)
    assert first.notes[0].endswith(
        "/account: not stored as a view: login (is a form that asks for a password); the steps go on from it"
    )
    assert "/ after step 1: not stored as a view: login" in way.notes[0]
    with Snapshot.open(recorded.path) as snapshot, Gateway(snapshot) as gateway:
        views = {view.address: view for view in snapshot.views()}
        assert set(views) == {address for found in recorded.found.values() for address in found.views}
        account, home = views[way.views[1]], views[way.views[0]]
        assert (account.title, account.parent) == ("Account", home.address)
        assert views[first.views[0]].parent is None
        held = [snapshot.resource(kind, address) for address in views for kind in ("dom", "pageinfo", "text")]
        assert not [data for data in held if data and PASSWORD.encode() in data]
        report = check(snapshot, gateway)
    assert [(view.error, view.missed, view.text, view.pixels) for view in report.views] == [
        (None, [], 1.0, 1.0)
    ] * len(views)


def test_a_login_form_at_the_end_is_a_failure(recorded: Recorded) -> None:
    bare, wrong = recorded.found["bare"], recorded.found["wrong"]
    assert (bare.ok, bare.views) == (False, [])
    assert bare.error is not None
    assert bare.error.endswith("/login: not stored as a view: login (is a form that asks for a password)")
    assert (wrong.ok, wrong.views) == (False, [])
    assert wrong.error is not None
    assert "after step 3: not stored as a view: login" in wrong.error


def test_a_form_that_asks_for_more_than_who_comes_is_a_page(recorded: Recorded) -> None:
    joined = recorded.found["join"]
    assert (joined.ok, joined.error, len(joined.views), joined.findings) == (True, None, 2, [])
