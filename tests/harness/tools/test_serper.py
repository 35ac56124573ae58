"""Serper's tools: recorded searches as recorded, others only when allowed, pages scraped from what is frozen."""

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillweb.harness.tools import Toolset, http_hosts
from stillweb.harness.tools.serper import link_of, script_json, wrapper_body
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from tests.harness.tools.conftest import Call
from tests.harness.tools.frozen import BIRDS, FOUND, REPORT, SITE, VIEW


def test_a_recorded_search_is_answered_as_recorded(call: Call) -> None:
    result = call("google_search", q="  penguins ")
    assert json.loads(result.text) == FOUND
    assert result.text.startswith('{\n  "searchParameters": {\n    "q": "penguins"')
    assert '"rating": 4\n' in result.text  # numbers as JavaScript writes them
    assert "Pingüino" in result.text
    assert result.meta["verdict"] == "exact"


def test_another_search_is_a_miss_in_the_tools_words(call: Call) -> None:
    result = call("google_search", q="penguin mass", gl="de")
    assert result.is_error
    assert result.text == (
        'Search failed: Error: SearchTool: failed to search for "penguin mass". FetchError: request to '
        "https://google.serper.dev/search failed, reason: getaddrinfo ENOTFOUND google.serper.dev"
    )
    assert result.meta["verdict"] == "miss"


def test_a_recorded_refusal_is_repeated(call: Call) -> None:
    result = call("google_search", q="poor")
    assert result.is_error
    assert result.text.endswith(
        'Error: Serper API error: 400 OK - {"message":"Not enough credits","statusCode":400}'
    )


def test_an_empty_query_is_refused(call: Call) -> None:
    assert call("google_search").text == "Search query (q) is required"
    assert call("google_search", q="").is_error


def synthetic(snapshot: Snapshot, **limits: int) -> Toolset:
    return Toolset(snapshot, ["serper"], synthetic_search=True, limits=limits)


def test_synthetic_search_has_serpers_shape(snapshot: Snapshot) -> None:
    session = synthetic(snapshot).session("s")
    result = asyncio.run(session.call("google_search", {"q": "gentoo masses", "num": 3, "hl": "de"}))
    value = json.loads(result.text)
    assert result.meta["verdict"] == "synthetic"
    assert list(value) == ["searchParameters", "organic", "credits"]
    assert value["searchParameters"] == {
        "q": "gentoo masses",
        "gl": "us",
        "hl": "de",
        "type": "search",
        "num": 3,
        "page": 1,
        "engine": "google",
    }
    assert [set(hit) for hit in value["organic"]] == [{"title", "link", "snippet", "position"}] * len(
        value["organic"]
    )
    links = [hit["link"] for hit in value["organic"]]
    assert BIRDS in links
    assert VIEW in links
    assert asyncio.run(session.call("google_search", {"q": "gentoo masses", "num": 3, "hl": "de"})) == result
    recorded = asyncio.run(session.call("google_search", {"q": "penguins"}))
    assert recorded.meta["verdict"] == "exact"


def test_pages_of_results_don_t_overlap(snapshot: Snapshot) -> None:
    session = synthetic(snapshot).session("s")
    pages = [
        json.loads(
            asyncio.run(session.call("google_search", {"q": "page of a site", "num": 2, "page": n})).text
        )["organic"]
        for n in (1, 2)
    ]
    links = [hit["link"] for page in pages for hit in page]
    assert len(links) == len(set(links)) >= 3


def test_limits_of_a_query(snapshot: Snapshot) -> None:
    session = synthetic(snapshot, pages=2, records=5).session("s")
    over = asyncio.run(session.call("google_search", {"q": "x", "page": 3}))
    assert over.is_error
    assert over.text == "limit reached: page 3 is over the limit of 2"
    assert over.meta["limit"] == "page"
    assert asyncio.run(session.call("google_search", {"q": "x", "num": 6})).meta["limit"] == "num"
    assert not asyncio.run(session.call("google_search", {"q": "x", "num": 5, "page": 2})).is_error


def test_scrape_is_made_from_the_page(call: Call) -> None:
    value = json.loads(call("scrape", url=BIRDS).text)
    assert list(value) == ["text", "metadata", "credits"]
    assert "Gentoo 5076" in value["text"]
    assert value["metadata"] == {"title": "A page"}
    more = json.loads(call("scrape", url=REPORT, includeMarkdown=True).text)
    assert more["markdown"].startswith("Page one")
    assert "5092" in json.loads(call("scrape", url=VIEW).text)["text"]


@pytest.mark.parametrize(
    "url", ["https://unknown.test/", f"{SITE}/gone", "nope", f"{BIRDS}#view=0000000000000000"]
)
def test_what_can_t_be_scraped_fails_as_the_tool_does(call: Call, url: str) -> None:
    result = call("scrape", url=url)
    assert result.is_error
    assert result.text.startswith(
        "SearchTool: failed to scrape. FetchError: request to https://scrape.serper.dev/ failed"
    )
    assert call("scrape").text == "SearchTool: failed to scrape. Error: URL is required for scraping"


def test_operators_are_appended_as_the_wrapper_does() -> None:
    body = wrapper_body(
        {"q": " a  b ", "site": "x.test", "exact": "c d", "exclude": "e, f", "or": "g,h", "num": 5}
    )
    assert body["q"] == 'a b site:x.test "c d" -e -f (g OR h)'
    assert list(body) == ["q", "gl", "hl", "num", "site", "exact", "exclude", "or"]


def test_links_of_other_answers_are_their_urls() -> None:
    assert link_of("https://a.test/x#text=0123456789abcdef") == "https://a.test/x"
    assert link_of("https://a.test/x#view=0123456789abcdef") == "https://a.test/x#view=0123456789abcdef"


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda v: st.lists(v) | st.dictionaries(st.text(), v),
    )
)
def test_json_is_indented_as_javascript_does(value: object) -> None:
    assert script_json(value) == json.dumps(value, ensure_ascii=False, indent=2)


def test_half_a_character_is_written_as_javascript_writes_it(snapshot: Snapshot) -> None:
    toolset = synthetic(snapshot)
    body = b'{"q":"penguins \\ud83d"}'
    request = Request(
        "POST", "https://google.serper.dev/search", (("Content-Type", "application/json"),), body
    )
    answer = http_hosts(toolset)["google.serper.dev"](request, "a").body.decode()
    assert answer.startswith('{"searchParameters":{"q":"penguins \\ud83d",')
    result = asyncio.run(toolset.session("a").call("google_search", {"q": "penguins \ud83d"}))
    assert '"q": "penguins \\ud83d"' in result.text
