"""Words of a command line in a wrong order, or that lack something: one line says which, and nothing is given for them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stillweb.snapshots.wacz import seal
from tests.harness.small_site import make, run_words
from tests.support.command_line import stillweb
from tests.support.runs import make_run
from tests.support.waiting import until

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("own_state")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make(tmp_path_factory.mktemp("words") / "s")
    seal(path)  # it has texts whichever test comes first
    return path


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["fetch", "https://a.test/0", "SITE"], 2, "comes first"),
        (["lookup", "https://a.test/0", "SITE"], 2, "comes first"),
        (["fetch", "SITE", "a.test/0"], 2, "'a.test/0' is not a URL; it begins with http:// or https://"),
        (["lookup", "SITE", "localhost:80/0"], 2, "'localhost:80/0' is not a URL"),
        (["lookup", "nothing-knows://this/place", "https://a.test/0"], 2, "nothing-knows://this/place: "),
        (["replay", "SITE", "curl", "https://a.test/0"], 2, "a program to run comes after '--': -- curl"),
        (["replay", "no-such-site", "--", "true"], 2, "no-such-site: no such file"),
        (["seal", "SITE", "-o", "no/such/site.wacz"], 2, "no/such/site.wacz: there is no directory no/such"),
        (["fetch", "SITE", "https://a.test/0", "-o", "no/such/text"], 2, "there is no directory no/such"),
        (["check", "SITE", "--html", "no/such/page.html"], 2, "there is no directory no/such"),
        (["lookup", "SITE", "https://a.test/0", "-d", os.fsdecode(b"\xff")], 1, ""),
        (["lookup", "SITE", "https://a.test/0", "--accept", "exakt"], 2, "accept 'exakt': must be one of"),
        (["recrod", "https://a.test/0"], 2, "No such command 'recrod'. Did you mean 'record'?"),
        (["mcp", "SITE", "--accept", "canonicl"], 2, "accept 'canonicl': must be one of"),
        (["replay", "SITE", "--accept", "+unambiguous", "--", "true"], 2, "accept '+unambiguous': must be"),
        (["mcp", "SITE", "--port", "8931"], 2, "--port goes with --transport http"),
        (["replay", "SITE", "--port", "high"], 2, "'high' is not a valid number"),
        (["record", "https://a.test/", "-o", "out", "--depth", "3"], 2, "--depth goes with --explore"),
        (["record", "https://a.test/", "-o", "out", "--session", "x"], 2, "--session is for a program"),
        (["refresh", "SITE", "-o", "out", "--private"], 2, "--private goes with --misses"),
        (["ls", "SITE", "--html", "views.html"], 2, "--html goes with --views"),
        (["search", "SITE", ""], 2, "'' names no word to look for"),
        (["search", "SITE", "... -page"], 2, "'... -page' names no word to look for"),
        (["search", "SITE", "nothingofthekind"], 0, ""),
        (
            ["compare", "SITE", "SITE", "--fail-on", "bogus"],
            2,
            "gate 'bogus': expected `regressed` or one of",
        ),
        (["compare", "SITE", "SITE", "--metric", ""], 2, "--metric names no metric"),
        (["score", "SITE", "--parallel", "3"], 2, "--parallel goes with --ask-judge"),
        (["record", "--misses", "EMPTY", "-o", "more"], 2, "empty.jsonl: holds no requests"),
        (["coverage", "SITE", "--tasks", "EMPTY"], 2, "empty.jsonl: holds no tasks"),
        (["diff", "SITE", "SITE", "--tasks", "EMPTY"], 2, "empty.jsonl: holds no tasks"),
        (["coverage", "SITE", "--tasks", ""], 2, "no task set is named"),
        (["verify", ""], 2, "path of the snapshot is empty"),
        (["record", "--urls", "TASKS", "-o", "s"], 2, "one URL a line; a task set is recorded by --tasks"),
        (
            ["replay", "SITE", "--ledger", "no/such", "--", "true"],
            2,
            "no/such: can't be written: No such file",
        ),
    ],
)
def test_words_in_a_wrong_place_are_told(
    site: Path, tmp_path: Path, words: list[str], code: int, says: str
) -> None:
    (tmp_path / "empty.jsonl").touch()
    tasks = tmp_path.parent / f"{tmp_path.name}.jsonl"
    tasks.write_text('{"question": "?", "answer": "a"}\n')
    given = {"SITE": str(site), "EMPTY": "empty.jsonl", "TASKS": str(tasks)}
    done = stillweb(*[given.get(word, word) for word in words], cwd=tmp_path)
    assert done.code == code
    assert says in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["empty.jsonl"]


@pytest.mark.parametrize(
    "words",
    [
        ("replay", "SITE", "--ledger", "SITE", "--", "true"),
        ("fetch", "SITE", "https://a.test/0", "-o", "SITE"),
        ("ls", "--views", "--html", "SITE", "SITE"),
    ],
)
def test_a_command_does_not_write_over_what_it_reads(site: Path, tmp_path: Path, words: list[str]) -> None:
    whole = site.with_suffix(".wacz").read_bytes()
    (tmp_path / "copy.wacz").write_bytes(whole)
    done = stillweb(*[{"SITE": "copy.wacz"}.get(word, word) for word in words], cwd=tmp_path)
    assert (done.code, "copy.wacz: is an input of this command" in done.err) == (2, True)
    assert (tmp_path / "copy.wacz").read_bytes() == whole


@pytest.mark.parametrize("name", ["run.json", "traces/right.1.jsonl"])
def test_a_report_does_not_take_the_place_of_a_file_of_the_run(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path, ["right"]).path
    before = (run / name).read_bytes()
    done = stillweb("report", run, "-o", run / name)
    assert (done.code, f"{name}: is an input of this command" in done.err) == (2, True)
    assert (run / name).read_bytes() == before
    for _ in range(2):
        assert stillweb("report", run).code == 0


def test_a_path_that_the_locale_lacks_is_named(site: Path, tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text(
        '{"id": "a", "question": "?", "answer": "a", "start_url": "https://é.test/"}'
    )
    (tmp_path / "é.wacz").write_bytes(site.with_suffix(".wacz").read_bytes())
    (tmp_path / "agent.yaml").write_text("agent: script\ndefault: {steps: [], answer: a}\n")
    words = ("--tasks", "tasks.jsonl", "--agent", "script:agent.yaml", "--snapshot", "é.wacz", "-o", "run")
    assert stillweb("run", *words, cwd=tmp_path).code == 0
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "stillweb", "report", "run"]
    done = subprocess.run(command, cwd=tmp_path, env=ascii_only, capture_output=True, text=True)
    assert (done.returncode, "can't be named in this locale (ascii); set PYTHONUTF8=1" in done.stderr) == (
        4,
        True,
    )


@pytest.mark.slow
def test_a_run_tells_them_before_anything_is_made(tmp_path: Path) -> None:
    words = run_words(tmp_path, "{call: fetch, with: {url: 'https://a.test/0'}}")
    # an empty variable in a script: all tasks were run; of a file each split was the whole
    assert "--only: there is no task ''; an empty one is" in stillweb(*words, "--only", "").err
    assert "tasks.jsonl: is one file; a split ('goal')" in stillweb(*words, "--split", "goal").err
    assert "accept 'canonicl'" in stillweb(*words, "--accept", "canonicl").err
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").write_text("a file")
    done = stillweb(*words)
    assert (done.code, f"{tmp_path / 'run'}: " in done.said) == (2, True)


@pytest.mark.slow
def test_a_program_that_goes_past_the_proxy_is_told(site: Path) -> None:
    """A program that asks the snapshot nothing passes no gate on misses: without --isolate all may have come from elsewhere."""
    told = "asked the snapshot nothing"
    done = stillweb("replay", site, "--", sys.executable, "-c", "pass")
    assert (done.code, told in done.err) == (0, True)
    done = stillweb("replay", site, "--max-misses", "0", "--", sys.executable, "-c", "pass")
    assert (done.code, told in done.err) == (1, True)
    errand = (
        "import urllib.request as u\ntry: u.urlopen('http://update.googleapis.com/')\nexcept OSError: pass"
    )
    done = stillweb("replay", site, "--max-misses", "0", "--", sys.executable, "-c", errand)
    assert (done.code, told in done.err) == (1, True)  # as a browser that takes only its page past the proxy
    asks = "import urllib.request as u; print(u.urlopen('https://a.test/0').status)"
    done = stillweb("replay", site, "--max-misses", "0", "--", sys.executable, "-c", asks)
    assert (done.code, done.out, told in done.err) == (0, "200\n", False)


@pytest.mark.slow
def test_a_recording_of_a_program_that_went_past_the_proxy_says_so(tmp_path: Path) -> None:
    done = stillweb("record", "-o", tmp_path / "site", "--", sys.executable, "-c", "pass")
    assert (done.code, "nothing was recorded: " in done.err) == (1, True)
    asks = "import urllib.request as u\ntry: u.urlopen('http://127.0.0.1:1/')\nexcept OSError: pass"
    done = stillweb("record", "-o", tmp_path / "site", "--", sys.executable, "-c", asks)
    assert (done.code, "nothing was recorded: " in done.err) == (0, False), done.err
    assert "not recorded: http://127.0.0.1:1/: " in done.err


@pytest.mark.slow
def test_a_miss_is_told_with_the_way_to_see_them_all(site: Path, tmp_path: Path) -> None:
    asks = "import urllib.request as u\ntry: u.urlopen('https://a.test/none')\nexcept OSError as e: print(e.code)"
    told = "1 request was not in the snapshot; first: GET https://a.test/none"
    done = stillweb("replay", site, "--", sys.executable, "-c", asks)
    assert (done.code, done.out) == (0, "504\n")
    nearest = r"  nearest: GET https://a\.test/\S+, which differs in path: "
    assert f"{told}; --ledger FILE lists them with what came nearest\n" in done.err
    assert re.search(nearest, done.err), done.err
    done = stillweb("replay", site, "--ledger", tmp_path / "ledger", "--", sys.executable, "-c", asks)
    assert f"{told}\n" in done.err
    asks = "import socket, os, urllib.parse as p\nat = p.urlsplit(os.environ['HTTP_PROXY'])\n" + (
        "s = socket.create_connection((at.hostname, at.port))\ns.send(b'GET http://a.test/none HTTP/1.1\\n\\n')\ns.recv(1)"
    )
    assert "  why: refused: " in stillweb("replay", site, "--", sys.executable, "-c", asks).err


def test_sealing_again_tells_the_same_texts(tmp_path: Path) -> None:
    path = make(tmp_path / "s", count=2)
    assert "2 captures, 0 views, 2 texts" in stillweb("seal", path).err
    assert "2 captures, 0 views, 2 texts" in stillweb("seal", path).err


@pytest.mark.slow
def test_a_report_that_can_not_be_written_is_named_as_it_was_asked_for(tmp_path: Path) -> None:
    words = run_words(tmp_path, "{call: fetch, with: {url: 'https://a.test/0'}}")
    assert stillweb(*words).code == 0
    done = stillweb("report", tmp_path / "run", "-o", tmp_path / "no" / "report.html")
    assert done.code == 2
    assert f"{tmp_path / 'no' / 'report.html'}: there is no directory {tmp_path / 'no'}" in done.said


def test_a_site_that_was_never_recorded_has_nothing_near(site: Path) -> None:
    done = stillweb("lookup", site, "https://elsewhere.test/0")
    assert (done.code, done.out) == (1, "miss\n  near: nothing\n")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere pages are opened otherwise")
@pytest.mark.parametrize("screen", [True, False])
def test_a_page_is_opened_where_there_is_a_screen(tmp_path: Path, screen: bool) -> None:
    """A browser of texts would take the terminal of who works over SSH."""
    run = make_run(tmp_path, ["right"]).path
    opener = tmp_path / "xdg-open"
    opener.write_text('#!/bin/sh\necho "$1" > "$0.asked"\n')
    opener.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    env = {"PATH": path, "DISPLAY": ":9" if screen else "", "WAYLAND_DISPLAY": ""}
    done = stillweb("report", run, "--open", env=env)
    assert (done.code, done.out) == (0, f"{run / 'report.html'}\n")
    if screen:
        assert until((tmp_path / "xdg-open.asked").exists)
    assert (tmp_path / "xdg-open.asked").exists() == screen
