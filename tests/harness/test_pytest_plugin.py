"""The pytest plugin, in pytest runs of its own: replay, block, fail on misses."""

import subprocess
import sys
from datetime import UTC, datetime

import pytest

from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.request import Request
from stillweb.snapshots.writer import Writer
from tests.harness.plugin_project import URL, project, run

__all__ = ["project"]
pytest_plugins = ["pytester"]


CLIENTS = f"""
import asyncio, os, subprocess, sys, urllib.request
import httpx, pytest, requests
pytestmark = pytest.mark.snapshot("site")
URL = {URL!r}

def test_httpx(stillweb_transport):
    with httpx.Client(transport=stillweb_transport) as client:
        answer = client.get(URL)
    assert "kestrel" in answer.text and answer.headers["stillweb-verdict"] == "exact"

def test_httpx_async(stillweb):
    async def go():
        async with httpx.AsyncClient(transport=stillweb.transport()) as client:
            return (await client.get(URL)).text
    assert "kestrel" in asyncio.run(go())

def test_requests(stillweb):
    assert "kestrel" in stillweb.mount(requests.Session()).get(URL).text

def test_proxy(stillweb_proxy):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({{"http": stillweb_proxy}}))
    assert b"kestrel" in opener.open(URL).read()

def test_program(stillweb_environment):
    code = "import urllib.request; print(urllib.request.urlopen('%s').read())" % URL
    done = subprocess.run([sys.executable, "-c", code], env=stillweb_environment, capture_output=True, text=True)
    assert "kestrel" in done.stdout, done.stderr

def test_tools(stillweb_tools):
    result = asyncio.run(stillweb_tools.call("fetch", {{"url": URL}}))
    assert "kestrel" in result.content[0]["text"] and not result.is_error

def test_playwright(stillweb):
    from playwright.sync_api import sync_playwright
    with sync_playwright() as playwright, playwright.chromium.launch(**stillweb.playwright_options()) as browser:
        page = browser.new_page()
        page.goto(URL)
        assert "kestrel" in page.content()
"""


SERVICES = f"""
import ssl
import httpx, pytest, requests
pytestmark = pytest.mark.snapshot("site", max_misses=1)
URL, SEARCH, READ = {URL!r}, "https://google.serper.dev/search", "https://r.jina.ai/{URL}"

def same(stillweb, search, read):
    assert search == {{"organic": [{{"link": URL}}]}}
    assert read.startswith("Title: Birds") and "kestrel" in read
    asked = [(entry["url"], entry["verdict"], entry["derived"]) for entry in stillweb.ledger.entries()]
    how = asked[0][1]  # clients write the same JSON in their own ways
    assert asked == [(SEARCH, how, "virtual"), (READ, "exact", "virtual")] and how in ("exact", "canonical")

def test_httpx(stillweb):
    with httpx.Client(transport=stillweb.transport()) as client:
        search = client.post(SEARCH, json={{"q": "kestrel"}}, headers={{"X-API-KEY": "another"}})
        same(stillweb, search.json(), client.get(READ).text)

def test_requests(stillweb):
    session = stillweb.mount(requests.Session())
    same(stillweb, session.post(SEARCH, json={{"q": "kestrel"}}).json(), session.get(READ).text)

def test_proxy(stillweb):
    context = ssl.create_default_context(cafile=str(stillweb.ca_path))
    with httpx.Client(proxy=stillweb.proxy_url, verify=context) as client:
        same(stillweb, client.post(SEARCH, json={{"q": "kestrel"}}).json(), client.get(READ).text)

def test_misses_count(stillweb):
    session = stillweb.mount(requests.Session())
    answer = session.post(SEARCH, json={{"q": "owls"}})
    assert (answer.status_code, answer.headers["stillweb-verdict"]) == (504, "miss")
    assert [entry["verdict"] for entry in stillweb.ledger.entries()] == ["miss"]
"""


@pytest.mark.slow
def test_search_and_reader_services_answer_in_process_as_through_the_proxy(project):
    with Writer.open(project.path / "site") as writer:
        headers = (("Host", "google.serper.dev"), ("Content-Type", "application/json"), ("X-API-KEY", "one"))
        request = Request("POST", "https://google.serper.dev/search", headers, b'{"q":"kestrel"}')
        found = b'{"organic": [{"link": "%s"}]}' % URL.encode()
        fields = (("Content-Type", "application/json"), ("Content-Length", str(len(found))))
        writer.exchange(
            Exchange(request, 200, "OK", fields, found, datetime(2025, 1, 1, tzinfo=UTC), begin=3, end=4)
        )
    run(project, SERVICES).assert_outcomes(passed=4)


@pytest.mark.slow
def test_every_kind_of_client_is_answered_from_the_snapshot(project):
    run(project, CLIENTS).assert_outcomes(passed=7)


@pytest.mark.slow
def test_workers_of_xdist_share_a_snapshot(project):
    run(project, CLIENTS, "-n", "2", "-k", "httpx or requests").assert_outcomes(passed=3)


@pytest.mark.slow
def test_a_miss_fails_a_test_that_passed_and_names_what_was_near(project):
    result = run(
        project,
        f"""
        import httpx, pytest
        @pytest.mark.snapshot("site")
        def test_it(stillweb_transport):
            with httpx.Client(transport=stillweb_transport) as client:
                assert client.get({URL!r} + "?page=2").status_code == 504
        @pytest.mark.snapshot("site", max_misses=1)
        def test_allowed(stillweb_transport):
            with httpx.Client(transport=stillweb_transport) as client:
                client.get({URL!r} + "?page=2")
        """,
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*stillweb: 1 request is not in the snapshot (0 allowed)",
            f"*miss: GET {URL}?page=2",
            f"*nearest: GET {URL}, which differs in *page*",
        ]
    )


@pytest.mark.slow
def test_a_tool_that_misses_counts_too(project):
    result = run(
        project,
        """
        import asyncio, pytest
        @pytest.mark.snapshot("site")
        def test_it(stillweb_tools):
            assert asyncio.run(stillweb_tools.call("fetch", {"url": "http://shelf.example/other"})).is_error
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*miss: fetch http://shelf.example/other"])


@pytest.mark.slow
def test_what_a_fixture_misses_as_it_ends_is_told_too(project):
    code = f"""
        import httpx, pytest

        @pytest.fixture
        def agent(stillweb):
            with httpx.Client(transport=stillweb.transport()) as client:
                yield client
                client.get({URL!r} + "?bye")

        @pytest.mark.snapshot("site")
        def test_missing_late(agent):
            assert agent.get({URL!r}).status_code == 200

        @pytest.mark.snapshot("site", max_misses=1)
        def test_allowed(agent):
            pass

        @pytest.mark.snapshot("site", max_misses=1)
        def test_missing_before(agent):
            agent.get({URL!r} + "?page=2")
            agent.get({URL!r} + "?page=3")
        """
    result = run(project, code)
    result.assert_outcomes(passed=2, failed=1, errors=2)
    result.stdout.fnmatch_lines([f"*miss: GET {URL}?bye"])


@pytest.mark.slow
def test_a_failed_test_prints_its_misses(project):
    result = run(
        project,
        f"""
        import httpx, pytest
        @pytest.mark.snapshot("site")
        def test_it(stillweb_transport):
            with httpx.Client(transport=stillweb_transport) as client:
                assert client.post({URL!r}, json={{"a": 1}}).status_code == 200
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*stillweb: not in the snapshot*", f"*miss: POST {URL}", "*nearest: GET*"])


@pytest.mark.slow
def test_a_test_that_fails_past_the_snapshot_says_why_and_what_to_do(project):
    result = run(
        project,
        """
        import requests, pytest
        @pytest.mark.snapshot("site")
        def test_module_level():
            requests.get("http://outside.example/")
        @pytest.mark.snapshot("site")
        def test_as_the_report_says(stillweb, monkeypatch):
            for name, value in stillweb.environment.items():
                monkeypatch.setenv(name, value)
            assert "kestrel" in requests.get("http://shelf.example/birds").text
        """,
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*stillweb: the network is blocked in this test*",
            "asking for GET http://outside.example/*",
            "*stillweb.mount(session)*",
        ]
    )


def test_the_network_is_blocked_even_where_the_code_swallows_the_error(project):
    result = run(
        project,
        """
        import socket, subprocess, sys, urllib.request, pytest
        @pytest.mark.snapshot("site")
        def test_swallows(stillweb):
            try:
                urllib.request.urlopen("http://outside.example/")
            except OSError:
                pass
        @pytest.mark.snapshot("site")
        def test_program(stillweb):
            ask = "import urllib.request; urllib.request.urlopen('https://program.example/')"
            assert subprocess.run([sys.executable, "-c", ask], capture_output=True).returncode == 1
        @pytest.mark.snapshot("site")
        def test_loopback(stillweb):
            with pytest.raises(ConnectionError, match="the network is blocked"):
                socket.create_connection(("127.0.0.1", 9))
        @pytest.mark.snapshot("site", allow=("loopback",))
        def test_allowed(stillweb):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", 9))
        @pytest.mark.snapshot("site", allow="loopback")
        def test_allowed_as_text(stillweb):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", 9))
        def test_unmarked():
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", 9))
        """,
    )
    result.assert_outcomes(passed=3, failed=3)
    tried = "*the network is blocked in this test; it tried"
    result.stdout.fnmatch_lines([tried, "asking for GET http://outside.example/*"])
    result.stdout.fnmatch_lines([tried, "asking for program.example:443"])
    result.stdout.fnmatch_lines(["*connecting to 127.0.0.1:9*"])


@pytest.mark.slow
def test_a_test_that_skips_itself_for_what_is_missing_fails(project):
    """The agent says that there is no network; skipped for that, the test would be skipped for ever."""
    result = run(
        project,
        """
        import httpx, pytest
        @pytest.mark.snapshot("site")
        def test_missing(stillweb_transport):
            with httpx.Client(transport=stillweb_transport) as client:
                if client.get("https://nowhere.example/").status_code != 200:
                    pytest.skip("no network")
        @pytest.mark.snapshot("site")
        def test_for_another_reason(stillweb_transport):
            pytest.skip("not on this machine")
        """,
    )
    result.assert_outcomes(skipped=1, failed=1)
    result.stdout.fnmatch_lines(["*1 request is not in the snapshot*", "miss: GET https://nowhere.example/"])
    result.stdout.fnmatch_lines(["FAILED (stillweb miss) *"])


def test_a_mark_that_comes_too_late_is_an_error(project):
    result = run(
        project,
        """
        import pytest
        @pytest.fixture
        def late(request):
            request.node.add_marker(pytest.mark.snapshot("site"))
        def test_it(late):
            pass
        """,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*mark snapshot: the marker was added after the test had begun*"])


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            '@pytest.mark.snapshot("nowhere")\ndef test_it(): pass',
            "there is no snapshot; record it with --stillweb-mode=once",
        ),
        ("@pytest.mark.snapshot()\ndef test_it(): pass", "needs the path of a snapshot"),
        ('@pytest.mark.snapshot("site", acept="rule")\ndef test_it(): pass', "unknown argument 'acept'"),
        (
            '@pytest.mark.snapshot("site", accept="canonicl")\ndef test_it(): pass',
            "accept 'canonicl': must be one of exact, canonical, varies, rule",
        ),
        ('@pytest.mark.snapshot("site", mode="some")\ndef test_it(): pass', "'some' is none of none, once"),
        (
            '@pytest.mark.snapshot("site", max_misses="3")\ndef test_it(): pass',
            "max_misses='3': must be a whole",
        ),
        (
            '@pytest.mark.snapshot("site")\ndef test_one(): pass\n'
            '@pytest.mark.snapshot("site", mode="all")\ndef test_it(): pass',
            "mode 'all', but another test here has the same snapshot in 'none'",
        ),
        ("def test_it(stillweb): pass", "the fixture stillweb needs"),
    ],
)
def test_a_wrong_use_is_one_clear_line(project, code, message):
    result = run(project, f"import pytest\n{code}\n")
    assert result.ret != 0
    told = result.stdout.str() + result.stderr.str()
    assert message in told
    assert "KeyError" not in told
    assert "During handling" not in told
    assert "Traceback" not in told


def test_loading_the_plugin_loads_nothing_heavy():
    code = (
        "import sys, harness.pytest_plugin\n"
        "heavy = {'mitmproxy', 'playwright', 'httpx', 'requests', 'openai', 'stillweb.harness.testing.pytest_case', 'stillweb.proxy', 'jinja2'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


RULES = """
[[rule]]
id = "shelf-trace"
about = "The id that the page draws for each visit."
blank = [{ in = ["query"], name = 'trace', value = '[0-9a-f]{8}' }]
join = [["GET http://a.test/s?trace=0123abcd", "GET http://a.test/s?trace=4567ef01"]]
apart = [["GET http://a.test/s?q=x&trace=0123abcd", "GET http://a.test/s?q=y&trace=0123abcd"]]
"""


def test_rules_of_ones_own_are_applied_to_every_client(project):
    (project.path / "rules.toml").write_text(RULES)
    with Writer.open(project.path / "site") as writer:
        asked = Request("GET", f"{URL}?trace=0123abcd", (("Host", "shelf.example"),))
        writer.exchange(
            Exchange(asked, 200, "OK", (), b"a heron", datetime(2025, 1, 1, tzinfo=UTC), begin=3, end=4)
        )
    code = f"""
    import httpx, pytest
    URL = "{URL}?trace=89abcdef"
    @pytest.mark.snapshot("site", rules="rules.toml")
    def test_transport(stillweb):
        with httpx.Client(transport=stillweb.transport()) as client:
            answer = client.get(URL)
        assert (answer.text, answer.headers["stillweb-verdict"]) == ("a heron", "rule:shelf-trace")
    @pytest.mark.snapshot("site", rules="rules.toml")
    def test_proxy(stillweb):
        with httpx.Client(proxy=stillweb.proxy_url) as client:
            assert client.get(URL).text == "a heron"
    @pytest.mark.snapshot("site")
    def test_without():
        pass
    """
    done = run(project, code)
    done.assert_outcomes(passed=2, errors=1)
    done.stdout.fnmatch_lines(["*another test here has the same snapshot with other rules*"])
