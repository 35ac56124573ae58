"""Services at their real addresses: recorded answers first, then what the frozen pages give."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stillweb.harness.servers.replaying import make_hosts
from stillweb.harness.tools import Toolset, http_hosts
from stillweb.harness.tools.jina import target_of
from stillweb.proxy.replay.answering import Answerer
from stillweb.proxy.replay.ledger import Ledger
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.harness.tools.frozen import BIRDS, FOUND, REPORT, SEARCH_BODY, SITE, VIEW, Recorder, json_bytes


def ask(toolset: Toolset, method: str, url: str, body: bytes = b"", **headers: str):
    host = url.split("/")[2]
    request = Request(method, url, tuple((n.replace("_", "-"), v) for n, v in headers.items()), body)
    return http_hosts(toolset)[host](request, "session")


def test_a_recorded_search_is_the_recorded_bytes(toolset: Toolset) -> None:
    got = ask(
        toolset,
        "POST",
        "https://google.serper.dev/search",
        json_bytes(SEARCH_BODY),
        X_API_KEY="any",
        Content_Type="application/json",
    )
    assert got.status == 200
    assert got.body == json_bytes(FOUND)
    assert got.header("stillweb-verdict") == "exact"


def test_an_unrecorded_search_is_a_miss_unless_allowed(toolset: Toolset, snapshot: Snapshot) -> None:
    body = json_bytes({"q": "gentoo"})
    missed = ask(toolset, "POST", "https://google.serper.dev/search", body)
    assert (missed.status, missed.header("stillweb-verdict")) == (504, "miss")
    assert b"not in the snapshot" in missed.body
    allowed = Toolset(snapshot, ["fetch"], synthetic_search=True, limits={"records": 10})
    made = ask(allowed, "POST", "https://google.serper.dev/search", body)
    assert made.header("stillweb-verdict") == "synthetic"
    assert BIRDS in [hit["link"] for hit in json.loads(made.body)["organic"]]
    assert ask(allowed, "POST", "https://google.serper.dev/images", body).status == 504
    assert ask(allowed, "GET", "https://google.serper.dev/search").status == 504
    assert ask(allowed, "POST", "https://google.serper.dev/search", b"junk").status == 504
    assert (
        ask(allowed, "POST", "https://google.serper.dev/search", json_bytes({"q": "x", "num": 11})).status
        == 429
    )


def test_scrape(toolset: Toolset) -> None:
    got = ask(
        toolset, "POST", "https://scrape.serper.dev/", json_bytes({"url": BIRDS, "includeMarkdown": True})
    )
    assert "| Gentoo | 5076 |" in json.loads(got.body)["markdown"]
    assert (
        ask(toolset, "POST", "https://scrape.serper.dev/", json_bytes({"url": "https://no.test/"})).status
        == 504
    )


def test_the_reader(toolset: Toolset) -> None:
    recorded = ask(toolset, "GET", f"https://r.jina.ai/{SITE}/recorded")
    assert recorded.body == b"Title: Recorded\n"
    page = ask(toolset, "GET", f"https://r.jina.ai/{BIRDS}")
    text = page.body.decode()
    assert text.startswith(f"Title: A page\n\nURL Source: {BIRDS}\n\nMarkdown Content:\n")
    assert text.endswith("\n")
    assert page.header("stillweb-verdict") == "exact"
    pdf = ask(toolset, "GET", f"https://r.jina.ai/{REPORT}").body.decode()
    assert "\n\nNumber of Pages: 4\n\nMarkdown Content:\nPage one" in pdf
    value = json.loads(ask(toolset, "GET", f"https://r.jina.ai/{BIRDS}", Accept="application/json").body)
    assert value["data"]["title"] == "A page"
    posted = ask(toolset, "POST", "https://r.jina.ai/", json_bytes({"url": VIEW}))
    assert b"5092" in posted.body
    assert posted.header("stillweb-verdict") == "rendered"
    own = ask(toolset, "POST", "https://r.jina.ai/", json_bytes({"url": f"{BIRDS}#view=list"}))
    assert own.body.decode().partition("Markdown Content:")[2] == text.partition("Markdown Content:")[2]
    assert own.header("stillweb-verdict") == "exact"  # a fragment of the page's own


@pytest.mark.parametrize(
    ("method", "body", "fields"),
    [
        ("GET", b"", {"X_Return_Format": "html"}),
        ("GET", b"", {"x_with_links_summary": "true"}),
        ("GET", b"", {"X_Target_Selector": "#main"}),
        ("GET", b"", {"Accept": "text/event-stream"}),
        ("POST", json_bytes({"url": BIRDS, "respondWith": "html"}), {}),
        ("POST", json_bytes({"html": "<p>mine"}), {}),
        ("POST", f"url={BIRDS}".encode(), {}),
    ],
)
def test_what_the_reader_makes_in_another_form_is_a_miss(
    toolset: Toolset, method: str, body: bytes, fields: dict[str, str]
) -> None:
    url = f"https://r.jina.ai/{BIRDS if method == 'GET' else ''}"
    got = ask(toolset, method, url, body, **fields)
    assert (got.status, got.header("stillweb-verdict")) == (504, "miss")
    harmless = {"X_With_Links_Summary": "false", "X_No_Cache": "true"}
    assert ask(toolset, "GET", f"https://r.jina.ai/{BIRDS}", **harmless).status == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("https://no.test/", 504),
        (f"{SITE}/gone", 422),
        ("", 400),
        ("ftp://x/", 400),
        (f"{SITE}/data.json", 422),
    ],
)
def test_the_reader_fails_clearly(toolset: Toolset, path: str, status: int) -> None:
    assert ask(toolset, "GET", f"https://r.jina.ai/{path}").status == status


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://r.jina.ai/https://a.test/x?y=1", "https://a.test/x?y=1"),
        ("https://r.jina.ai/a.test/x", "https://a.test/x"),
        ("https://r.jina.ai/https%3A%2F%2Fa.test%2Fx", "https://a.test/x"),
        ("https://r.jina.ai/", None),
        ("https://r.jina.ai", None),
    ],
)
def test_what_the_reader_is_asked_for(url: str, target: str | None) -> None:
    assert target_of(Request("GET", url)) == target


def test_what_the_recording_does_not_decide_is_said_by_the_services_too(toolset: Toolset) -> None:
    """A page that was only seen after something may have been changed."""
    after = f"{SITE}/after"
    asked = [
        ("GET", f"https://r.jina.ai/{after}", b""),
        ("POST", f"{TAVILY}/extract", json_bytes({"urls": [BIRDS, after]})),
        ("POST", f"{EXA}/contents", json_bytes({"urls": [after, BIRDS]})),
    ]
    for method, url, body in asked:
        assert ask(toolset, method, url, body).header("stillweb-ambiguous") == "true", url
    assert ask(toolset, "GET", f"https://r.jina.ai/{BIRDS}").header("stillweb-ambiguous") is None
    fetched = asyncio.run(toolset.session("doubt").call("fetch", {"url": f"https://r.jina.ai/{after}"}))
    assert fetched.meta["ambiguous"] is True
    with Ledger() as ledger:
        answerer = Answerer(toolset.snapshot, ledger, virtual_hosts=http_hosts(toolset))
        request, line = Request("GET", f"https://r.jina.ai/{after}"), answerer.state("s")
        reply = answerer.virtual(request, line, answerer.virtual_hosts["r.jina.ai"](request, "s"))
        assert ("Stillweb-Ambiguous", "true") in reply.fields
        assert ledger.entries()[-1]["ambiguous"] is True


TAVILY, EXA = "https://api.tavily.com", "https://api.exa.ai"


@pytest.mark.parametrize(
    ("url", "body"),
    [
        (f"{TAVILY}/search", {"query": "gentoo"}),
        (f"{TAVILY}/crawl", {"url": BIRDS}),
        (f"{EXA}/search", {"query": "gentoo"}),
        (f"{EXA}/findSimilar", {"url": BIRDS}),
        (f"{EXA}/answer", {"query": "gentoo"}),
    ],
)
def test_what_was_not_recorded_is_a_miss(toolset: Toolset, url: str, body: dict[str, str]) -> None:
    got = ask(toolset, "POST", url, json_bytes(body))
    assert (got.status, got.header("stillweb-verdict")) == (504, "miss")
    assert ask(toolset, "GET", url).status == 504


@pytest.fixture(scope="module")
def allowed(snapshot: Snapshot) -> Toolset:
    return Toolset(snapshot, ["fetch"], synthetic_search=True, limits={"records": 10})


def test_made_answers_are_the_same_each_time_and_hold_no_clock(allowed: Toolset) -> None:
    for url in (f"{TAVILY}/search", f"{EXA}/search"):
        body = json_bytes({"query": "gentoo", "include_usage": True, "contents": {"highlights": {}}})
        one, other = (ask(allowed, "POST", url, body) for _ in range(2))
        assert one.header("stillweb-verdict") == "synthetic"
        assert one.body == other.body
        assert ask(allowed, "POST", url, json_bytes({"query": "adelie"})).body != one.body


@pytest.mark.parametrize("name", ["include_domains", "exclude_domains"])
@pytest.mark.parametrize("domain", ["site.test", "https://www.site.test/birds", "*.test", "no.test", "[", ""])
def test_domains(allowed: Toolset, name: str, domain: str) -> None:
    got = ask(allowed, "POST", f"{TAVILY}/search", json_bytes({"query": "gentoo", name: [domain, 3]}))
    links = [hit["url"] for hit in json.loads(got.body)["results"]]
    inside = domain not in ("no.test", "[")
    if name == "include_domains":
        assert (BIRDS in links) is inside
    else:
        assert (BIRDS in links) is (not inside or domain == "")


@pytest.mark.parametrize(
    ("url", "body"),
    [
        (f"{TAVILY}/search", b"junk"),
        (f"{TAVILY}/search", b"[]"),
        (f"{TAVILY}/search", b'{"query": 3}'),
        (f"{TAVILY}/search", b'{"query": " "}'),
        (f"{TAVILY}/extract", b'{"urls": []}'),
        (f"{TAVILY}/extract", b'{"urls": 3}'),
        (f"{EXA}/search", b"junk"),
        (f"{EXA}/search", b'{"query": null}'),
        (f"{EXA}/contents", b'{"urls": [3]}'),
    ],
)
def test_bad_requests_are_refused_in_the_services_shape(toolset: Toolset, url: str, body: bytes) -> None:
    got = ask(toolset, "POST", url, body)
    assert got.status == 400
    value = json.loads(got.body)
    assert value["detail"]["error"] if url.startswith(TAVILY) else value["tag"] == "INVALID_REQUEST_BODY"


@pytest.mark.parametrize(
    "url", ["", "x", "ftp://x/", "http://[", "http:///x", "https://no.test/", "https://ü\ud800/"]
)
def test_addresses_that_are_none_fail_alone(toolset: Toolset, url: str) -> None:
    """The others of the same request are answered."""
    urls = json.dumps({"urls": [url, BIRDS, f"{SITE}/gone"]}).encode()
    extracted = ask(toolset, "POST", f"{TAVILY}/extract", urls)
    assert extracted.header("stillweb-verdict") in ("miss", "exact" if not url else "miss")
    value = json.loads(extracted.body)
    assert [page["url"] for page in value["results"]] == [BIRDS]
    assert f"{SITE}/gone" in [page["url"] for page in value["failed_results"]]
    read = json.loads(ask(toolset, "POST", f"{EXA}/contents", urls).body)
    assert [page["url"] for page in read["results"]] == [BIRDS]
    assert read["statuses"][-1]["error"] == {"tag": "CRAWL_NOT_FOUND", "httpStatusCode": 404}


def test_limits_hold_for_all_services(allowed: Toolset) -> None:
    assert (
        ask(allowed, "POST", f"{TAVILY}/search", json_bytes({"query": "x", "max_results": 11})).status == 429
    )
    assert ask(allowed, "POST", f"{EXA}/search", json_bytes({"query": "x", "numResults": 11})).status == 429


def test_limits_hold_for_what_was_recorded_too(tmp_path: Path) -> None:
    asked = [
        (f"{TAVILY}/search", {"query": "x", "max_results": 11}),
        (f"{EXA}/search", {"query": "x", "numResults": 11}),
        ("https://google.serper.dev/search", {"q": "x", "num": 11}),
    ]
    with Writer.open(tmp_path / "much") as writer:
        for url, body in asked:
            Recorder(writer).add(url, "{}", "application/json", method="POST", sent=json_bytes(body))
    with Snapshot.open(tmp_path / "much") as snapshot:
        for most, status in ((11, 200), (10, 429)):
            toolset = Toolset(snapshot, ["fetch"], limits={"records": most})
            for url, body in asked:
                got = ask(toolset, "POST", url, json_bytes(body), Content_Type="application/json")
                assert got.status == status, url


@pytest.mark.parametrize(
    "name", ["X_Return_Format", "X_Max_Tokens", "X_Set_Cookie", "X_Instruction", "X_Json_Schema"]
)
def test_what_shapes_the_readers_answer_is_a_miss(toolset: Toolset, name: str) -> None:
    got = ask(toolset, "GET", f"https://r.jina.ai/{BIRDS}", **{name: "1"})
    assert (got.status, got.header("stillweb-verdict")) == (504, "miss")


@pytest.mark.slow
def test_a_session_is_not_forgotten_whoever_asks_between(tmp_path: Path) -> None:
    url, body = "https://google.serper.dev/search", json_bytes({"q": "tide"})
    headers = (("Content-Type", "application/json"),)
    with Writer.open(tmp_path / "twice") as writer:
        for number in (1, 2):
            writer.exchange(
                Exchange(
                    Request("POST", url, headers, body),
                    200,
                    "OK",
                    headers,
                    json_bytes({"tide": number}),
                    datetime(2025, 1, number, tzinfo=UTC),
                    begin=2 * number,
                    end=2 * number + 1,
                )
            )
    with Snapshot.open(str(tmp_path / "twice")) as twice:
        hosts = http_hosts(Toolset(twice))
        host, nothing = hosts["google.serper.dev"], Request("GET", "https://r.jina.ai/")
        request = Request("POST", url, headers, body)
        assert json.loads(host(request, "one").body) == {"tide": 1}
        for number in range(4097):
            hosts["r.jina.ai"](nothing, f"other {number}")
        assert json.loads(host(request, "one").body) == {"tide": 2}


def test_a_session_that_is_reset_begins_anew_with_the_services(tmp_path: Path) -> None:
    """A search that gave another answer the second time."""
    with Writer.open(tmp_path / "s") as writer:
        asked = (("Content-Type", "application/json"),)
        for number, answer in enumerate((b'{"organic": [1]}', b'{"organic": [2]}')):
            request = Request("POST", "https://google.serper.dev/search", asked, b'{"q": "x"}')
            moment = datetime(2026, 1, 1, 0, 0, number, tzinfo=UTC)
            writer.exchange(
                Exchange(request, 200, "OK", asked, answer, moment, "default", 2 * number + 1, 2 * number + 2)
            )
    search = Request("POST", "https://google.serper.dev/search", asked, b'{"q": "x"}')
    told = {"accept": "rule", "synthetic_search": False}
    with Snapshot.open(tmp_path / "s") as snapshot:
        for hosts in (http_hosts(Toolset(snapshot, ["serper-mcp"])), make_hosts(snapshot, **told)):
            with Ledger() as ledger:
                answerer = Answerer(snapshot, ledger, virtual_hosts=hosts)
                answerer.reset("a")  # nothing is known of it yet
                host, line = answerer.virtual_hosts["google.serper.dev"], answerer.state("a")
                first, second = (answerer.virtual(search, line, host(search, line.name)).body for _ in "12")
                answerer.reset("a")
                again = answerer.virtual(search, line, host(search, line.name)).body
            assert (first, second, again) == (b'{"organic": [1]}', b'{"organic": [2]}', b'{"organic": [1]}')
