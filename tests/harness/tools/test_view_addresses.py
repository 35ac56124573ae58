"""A view's address works wherever an address is taken: fetch, the browser, search, the command line; and its steps,
printed and recorded again, have the same address."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.tools.browser_shared import SharedBrowser
from stillweb.harness.tools.contract import ToolResult
from stillweb.harness.tools.toolset import ToolSession, Toolset
from stillweb.proxy.browser.browser import complete
from stillweb.proxy.browser.capture_view import Fetcher
from stillweb.proxy.browser.steps import parse_steps, to_yaml
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.harness.commands.calling import call as run
from tests.proxy.sites import Answer, serve

PAGE = """<!DOCTYPE html><html><title>Mills</title><h1>Mills of the coast</h1><p>Written down by hand, from north to south.</p>
<label>Region <select onchange="show(value)"><option>North</option><option>South</option></select></label>
<table><tr><th>Name<th>Sails</tr><tbody id=rows></tbody></table><p id=told></p><script>
const all = { North: [["Abbey Mill", 4]], South: [["Tide Mill", 6], ["Salt Mill", 8]] };
const show = (region) => { rows.innerHTML = all[region].map(([n, s]) => `<tr><td>${n}<td>${s}</tr>`).join("");
  told.textContent = `The mills of the ${region} are listed above` + (location.hash ? " with " + location.hash : ""); };
show("North");</script></html>"""
STEPS = parse_steps("- select: {label: Region, option: South}")


def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    return 200, {"Content-Type": "text/html"}, PAGE.encode()


@dataclass
class Sealed:
    path: Path
    base: str
    plain: str  # address of the view without steps
    south: str  # and of the other
    toolset: Toolset
    session: ToolSession
    runner: asyncio.Runner
    recorded_again: list[str]

    def call(self, name: str, **given: Any) -> ToolResult:
        return self.runner.run(self.session.call(name, given))


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sealed]:
    folder = tmp_path_factory.mktemp("addresses")
    profile = complete(Profile())

    def record(name: str, base: str, steps: Any) -> list[str]:
        with Writer.open(folder / name, profile=profile) as writer, Recorder(writer) as recorder:
            (result,) = Fetcher(recorder, writer, profile).fetch([f"{base}/"], steps)
        assert result.error is None
        return result.views

    with serve(handle) as base:
        plain, south = record("s", base, STEPS)
        with Snapshot.open(folder / "s") as snapshot:
            view = snapshot.view(south)
            assert view is not None
            printed = to_yaml(view.steps)
        again = record("again", base, parse_steps(printed))
    seal(folder / "s", folder / "s.wacz")
    with (
        Snapshot.open(folder / "s.wacz") as snapshot,
        Gateway(snapshot) as gateway,
        asyncio.Runner() as runner,
    ):
        browser = SharedBrowser(ca=gateway.ca_path)
        toolset = Toolset(
            snapshot, ["fetch", "serper", "browser"], gateway=gateway, browser=browser, synthetic_search=True
        )
        session = toolset.session("test")
        try:
            yield Sealed(folder / "s.wacz", base, plain, south, toolset, session, runner, again)
        finally:
            runner.run(session.close())
            runner.run(toolset.close())
            browser.close()


def other_name(sealed: Sealed) -> str:
    """The view without steps, as search calls it: by its id, too."""
    view = sealed.toolset.snapshot.view(sealed.plain)
    assert view is not None
    return f"{sealed.plain}#view={view.id}"


def unknown(sealed: Sealed) -> list[str]:
    id_ = sealed.south.rpartition("=")[2]
    return [f"{sealed.base}/#view=0123456789abcdef", f"{sealed.base}/elsewhere#view={id_}"]


@pytest.mark.slow
def test_fetch_reads_a_view(sealed: Sealed) -> None:
    south = sealed.call("fetch", url=sealed.south)
    assert "Tide Mill" in south.text
    assert "Abbey Mill" not in south.text
    assert (south.meta["verdict"], south.meta["view"]) == ("rendered", sealed.south)
    assert "Abbey Mill" in sealed.call("fetch", url=other_name(sealed)).text
    for address in unknown(sealed):
        assert sealed.call("fetch", url=address).is_error
    assert not sealed.call("fetch", url=f"{sealed.base}/#view=list").is_error  # a fragment of the page's own


@pytest.mark.slow
def test_the_browser_goes_to_a_view(sealed: Sealed) -> None:
    south = sealed.call("browser_navigate", url=sealed.south)
    assert "Salt Mill" in south.text
    assert south.meta["address"] == sealed.south
    plain = sealed.call("browser_navigate", url=other_name(sealed))
    assert "The mills of the North are listed above" in plain.text
    assert "#view=" not in plain.text.partition("### Snapshot")[2]  # the page never hears of it
    for address in unknown(sealed):
        lost = sealed.call("browser_navigate", url=address)
        assert lost.is_error
        assert f"net::ERR_INTERNET_DISCONNECTED at {address}" in lost.text
        assert "Mill" not in lost.text
    own = sealed.call("browser_navigate", url=f"{sealed.base}/#view=list")
    assert not own.is_error  # as any fragment: the page stays, and is told
    assert f"- Page URL: {sealed.base}/#view=list" in own.text
    again = sealed.call("browser_navigate", url=sealed.south)
    assert "Salt Mill" in again.text
    assert "Abbey Mill" in sealed.call("browser_navigate", url=sealed.plain).text


@pytest.mark.slow
@pytest.mark.parametrize(("query", "word"), [("Salt Mill", "Salt Mill"), ("Abbey Mill", "Abbey Mill")])
def test_what_search_names_can_be_fetched_and_visited(sealed: Sealed, query: str, word: str) -> None:
    found = json.loads(sealed.call("google_search", q=query, gl="us", hl="en").text)
    links = [hit["link"] for hit in found["organic"]]
    texts = {link: sealed.call("fetch", url=link).text for link in links}
    assert any(word in text and "#view=" in link for link, text in texts.items())
    for link, text in texts.items():
        if "#view=" in link:
            assert (word in sealed.call("browser_navigate", url=link).text) == (word in text)


@pytest.mark.slow
def test_the_command_line_takes_an_address(
    sealed: Sealed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fetch(address: str, *more: object) -> tuple[int, str]:
        return run(capsys, "fetch", sealed.path, address, *more)

    for address, word in (
        (sealed.south, "Tide Mill"),
        (other_name(sealed), "Abbey Mill"),
        (sealed.plain, "Abbey Mill"),
    ):
        for what in ("text", "seen", "dom", "aria", "tables"):
            code, out = fetch(address, "--content", what)
            assert code == 0, (address, what)
            if what != "text" or address != sealed.plain:  # the page itself is text without its scripts' work
                assert word in out
        assert fetch(address, "--content", "screenshot", "-o", tmp_path / "view.png")[0] == 0
        assert (tmp_path / "view.png").read_bytes().startswith(b"\x89PNG")
    assert fetch(sealed.south, "--content", "tables")[1] == "Name,Sails\nTide Mill,6\nSalt Mill,8\n"
    for address in unknown(sealed):
        for what in ("text", "dom", "tables"):
            assert fetch(address, "--content", what) == (1, ""), (address, what)


def test_a_view_that_is_not_frozen_yet_has_its_text_all_the_same(
    sealed: Sealed, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = run(capsys, "fetch", sealed.path.with_suffix(""), sealed.south)
    assert code == 0
    assert "Tide Mill" in out


def test_steps_that_were_printed_lead_to_the_same_address(
    sealed: Sealed, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed = run(capsys, "ls", sealed.path, "--views", "--steps", sealed.south)
    assert code == 0
    assert parse_steps(printed) == STEPS
    assert sealed.recorded_again == [sealed.plain, sealed.south]
    code, printed = run(capsys, "ls", sealed.path, "--views", "--steps", other_name(sealed))
    assert (code, parse_steps(printed)) == (0, ())
