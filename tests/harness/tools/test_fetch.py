"""`fetch` from a snapshot, word for word as mcp-server-fetch."""

import asyncio
import gzip
import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stillweb.harness.servers.mcp import prompt
from stillweb.harness.tools import ToolResult, Toolset, load
from stillweb.harness.tools.fetch import FetchTool, cut
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.harness.tools.conftest import Call
from tests.harness.tools.frozen import BIRDS, REPORT, SITE, VIEW, Recorder

RAW = "Content type {} cannot be simplified to markdown, but here is the raw content:\nContents of {}:\n{}"


# from the vectors of the tool's contract: (document, start_index, max_length, text)
VECTORS = [
    ("abcdefghijkl", 5, 5, "Contents of https://example.com/:\nfghij\n\n<error>Content truncated. Call the fetch tool with a start_index of 10 to get more content.</error>"),
    ("abcdefghijkl", 10, 5, "Contents of https://example.com/:\nkl"),
    ("abcdefghijkl", 0, 12, "Contents of https://example.com/:\nabcdefghijkl"),
    ("abcdefghijkl", 0, 11, "Contents of https://example.com/:\nabcdefghijk\n\n<error>Content truncated. Call the fetch tool with a start_index of 11 to get more content.</error>"),
    ("", 0, 5, "Contents of https://example.com/:\n<error>No more content available.</error>"),
    ("a😀b", 0, 2, "Contents of https://example.com/:\na😀\n\n<error>Content truncated. Call the fetch tool with a start_index of 2 to get more content.</error>"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "start", "most", "text"), VECTORS)
def test_vectors(content: str, start: int, most: int, text: str) -> None:
    contract = load("fetch")
    piece, _ = cut(contract, content, start, most)
    assert contract.say("contents", prefix="", url="https://example.com/", content=piece) == text


def body_of(result: ToolResult) -> str:
    return result.text.partition(":\n")[2] if not result.text.startswith("Content type") else result.text


def test_a_page(call: Call) -> None:
    result = call("fetch", url=BIRDS)
    assert not result.is_error
    assert result.text.startswith(f"Contents of {BIRDS}:\n")
    assert "| Gentoo | 5076 |" in result.text
    assert result.meta["verdict"] == "exact"
    assert result.meta["address"] == BIRDS
    assert result.meta["captures"][0]["digest"].startswith("sha256:")
    assert set(result.meta["captures"][0]) == {"file", "offset", "digest", "url"}


def test_the_url_is_echoed_normalised(call: Call) -> None:
    assert call("fetch", url="HTTPS://site.test").text.startswith("Contents of https://site.test/:\n")


def test_redirects_are_followed_and_all_captures_named(call: Call) -> None:
    result = call("fetch", url=f"{SITE}/old")
    assert "Gentoo" in result.text
    assert result.text.startswith(f"Contents of {SITE}/old:\n")
    assert len(result.meta["captures"]) == 3
    assert result.meta["url"] == BIRDS
    round_ = call("fetch", url=f"{SITE}/round")
    assert (
        round_.text
        == f"Failed to fetch {SITE}/round: TooManyRedirects('Exceeded maximum allowed redirects.')"
    )
    lost = call("fetch", url=f"{SITE}/lost")
    assert lost.is_error
    assert lost.meta["verdict"] == "miss"


@pytest.mark.parametrize(
    ("path", "media", "body"),
    [("data.json", "application/json", '{"a": "ü"}'), ("latin", "text/plain; charset=iso-8859-1", "ü")],
)
def test_what_is_not_html_is_raw(call: Call, path: str, media: str, body: str) -> None:
    assert call("fetch", url=f"{SITE}/{path}").text == RAW.format(media, f"{SITE}/{path}", body)


def test_raw_html_is_raw_text(call: Call) -> None:
    result = call("fetch", url=BIRDS, raw=True, max_length=15)
    assert result.text == RAW.format(
        "text/html; charset=utf-8", BIRDS,
        "<!doctype html>\n\n<error>Content truncated. Call the fetch tool with a start_index of 15 to get more content.</error>",
    )  # fmt: skip


def test_html_is_told_as_the_real_tool_tells_it(call: Call) -> None:
    assert call("fetch", url=f"{SITE}/untyped").text.startswith("Contents of")
    assert call("fetch", url=f"{SITE}/hidden-html").text.startswith("Contents of")
    assert (
        call("fetch", url=f"{SITE}/empty").text
        == f"Contents of {SITE}/empty:\n<error>Page failed to be simplified from HTML</error>"
    )
    for path in ("nothing", "nothing.html"):
        assert call("fetch", url=f"{SITE}/{path}").text.endswith("<error>No more content available.</error>")


def test_what_is_only_called_a_pdf_is_raw_and_nothing_is_no_page_that_failed(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "snap") as writer:
        site = Recorder(writer)
        site.add(f"{SITE}/no.pdf", "no pdf at all", "application/pdf")
        site.add(f"{SITE}/nothing", gzip.compress(b""), None, headers=(("Content-Encoding", "gzip"),))
    with Snapshot.open(tmp_path / "snap") as snapshot:
        session = Toolset(snapshot, ["fetch"]).session("s")

        def text(path: str) -> str:
            return asyncio.run(session.call("fetch", {"url": f"{SITE}/{path}"})).text

        assert text("no.pdf") == RAW.format("application/pdf", f"{SITE}/no.pdf", "no pdf at all")
        nothing = "<error>No more content available.</error>"
        assert text("nothing") == f"Contents of {SITE}/nothing:\n{nothing}"


def test_pdfs_are_read(call: Call) -> None:
    result = call("fetch", url=REPORT)
    assert result.text == f"Contents of {REPORT}:\nPage one\n\nPage two\n\nPage three\n\n"
    assert "In truth a PDF" in call("fetch", url=f"{SITE}/pdf-as-html").text
    assert "Gentoo" in call("fetch", url=f"{SITE}/not-a.pdf", raw=True).text


def test_views_are_read_by_their_address(call: Call) -> None:
    result = call("fetch", url=VIEW)
    assert "5092" in result.text
    assert "5076" not in result.text
    assert result.meta["verdict"] == "rendered"
    assert result.meta["view"] == VIEW
    assert "<table>" in call("fetch", url=VIEW, raw=True).text
    missing = call("fetch", url=f"{BIRDS}#view=0000000000000000")
    assert missing.is_error
    assert missing.meta["verdict"] == "miss"
    for own in ("section", "view=month", "text=5076"):
        assert "5076" in call("fetch", url=f"{BIRDS}#{own}").text


def test_a_miss_looks_like_a_host_that_does_not_answer(call: Call) -> None:
    result = call("fetch", url="https://unknown.test/x")
    assert result.is_error
    assert (
        result.text
        == "Failed to fetch https://unknown.test/x: ConnectError('All connection attempts failed')"
    )
    assert result.meta["verdict"] == "miss"
    assert call("fetch", url=f"{SITE}/gone").text == f"Failed to fetch {SITE}/gone - status code 404"


def test_pages_are_had_in_any_order(toolset: Toolset) -> None:
    urls = [f"{SITE}/after", BIRDS, f"{SITE}/", f"{SITE}/set?language=en", f"{SITE}/data.json"]
    for order in (urls, urls[::-1], urls * 2):
        session = toolset.session("order")
        results = [asyncio.run(session.call("fetch", {"url": url})) for url in order]
        assert [result.is_error for result in results] == [False] * len(order)
    # what may depend on an earlier request is marked, and can be refused
    strict = Toolset(toolset.snapshot, ["fetch"], accept="rule+unambiguous").session("strict")
    first = asyncio.run(toolset.session("other").call("fetch", {"url": f"{SITE}/after"}))
    refused = asyncio.run(strict.call("fetch", {"url": f"{SITE}/after"}))
    assert bool(first.meta.get("ambiguous")) is refused.is_error


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://choosy.test/open/page", "ConnectError"),
        ("https://choosy.test/open/a.log?x", "ConnectError"),
        ("https://choosy.test/open/a.log", "specifies that autonomous fetching"),
        ("https://choosy.test/page", "specifies that autonomous fetching"),
        ("https://garbled.test/page", "robots.txt https://garbled.test/robots.txt due to a connection issue"),
    ],
)
def test_robots_rules_are_read_as_the_real_tool_reads_them(call: Call, url: str, said: str) -> None:
    refused = call("fetch", url=url)
    assert refused.is_error
    assert said in refused.text


def test_recorded_robots_rules_are_repeated(call: Call) -> None:
    refused = call("fetch", url="https://shy.test/private/x")
    assert refused.text.startswith("The sites robots.txt (https://shy.test/robots.txt), specifies")
    assert "Disallow: /private" in refused.text
    assert "ConnectError" in call("fetch", url="https://shy.test/open").text
    assert "received status 403" in call("fetch", url="https://closed.test/").text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "Input validation error: 'url' is a required property"),
        ({"url": ""}, "Input validation error: '' should be non-empty"),
        ({"url": 5}, "Input validation error: 5 is not of type 'string'"),
        ({"url": BIRDS, "max_length": 0}, "Input validation error: 0 is less than or equal to the minimum of 0"),
        ({"url": BIRDS, "max_length": 1000000}, "Input validation error: 1000000 is greater than or equal to the maximum of 1000000"),
        ({"url": BIRDS, "max_length": "a"}, "Input validation error: 'a' is not of type 'integer'"),
        ({"url": BIRDS, "start_index": -1}, "Input validation error: -1 is less than the minimum of 0"),
        ({"url": BIRDS, "raw": "yes"}, "Input validation error: 'yes' is not of type 'boolean'"),
        ({"url": "nope"}, "1 validation error for Fetch\nurl\n  Input should be a valid URL, relative URL without a base [type=url_parsing, input_value='nope', input_type=str]"),
        ({"url": "http://a b/"}, "1 validation error for Fetch\nurl\n  Input should be a valid URL, invalid international domain name"),
        ({"url": "mailto:ann@x.test"}, "Failed to fetch robots.txt mailto:/robots.txt due to a connection issue"),
        ({"url": "ftp://x.test/"},
            "Failed to fetch robots.txt ftp://x.test/robots.txt due to a connection issue",
        ),
    ],
)  # fmt: skip
def test_bad_arguments_have_the_real_words(call: Call, arguments: dict[str, object], text: str) -> None:
    result = call("fetch", **arguments)
    assert result.is_error
    assert result.text.startswith(text)


@pytest.mark.parametrize("name", ["mcp-fetch@0.6.3", "mcp-fetch@2026.10.24"])
def test_the_words_are_those_of_the_contract_whatever_is_installed(toolset: Toolset, name: str) -> None:
    """pydantic puts its release into a link: a run with another one must have the same hash."""
    contract = load(name)
    other = replace(contract, strings={**contract.strings, "pydantic": "https://errors.pydantic.dev/0.1/"})
    visit = toolset.session("words").visit
    for known, link in ((contract, "/2.14/"), (other, "/0.1/")):
        result = asyncio.run(FetchTool(known).call("fetch", {"url": "nope"}, visit))
        assert result.is_error
        assert result.text.endswith(f"https://errors.pydantic.dev{link}v/url_parsing")


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    st.sampled_from([BIRDS, REPORT, VIEW, f"{SITE}/data.json"]),
    st.lists(st.integers(1, 120), min_size=1),
    st.booleans(),
)
def test_slices_joined_give_the_whole(toolset: Toolset, url: str, sizes: list[int], raw: bool) -> None:
    session = toolset.session("slices")

    def piece(start: int, size: int) -> ToolResult:
        return asyncio.run(
            session.call("fetch", {"url": url, "start_index": start, "max_length": size, "raw": raw})
        )

    whole = piece(0, 999_999)
    total = whole.meta["slice"][2]
    out, at, turn = "", 0, 0
    while at < total:
        size = sizes[turn % len(sizes)] + turn  # growing, so that it ends
        result = piece(at, size)
        out += strip(result.text, url)
        assert result.meta["slice"] == [at, min(at + size, total), total]
        at += size
        turn += 1
    assert out == strip(whole.text, url)
    assert piece(total, 10).text.endswith("<error>No more content available.</error>")


@given(
    st.text(min_size=1).map(lambda text: text + " 🐧𠮷é\u0301 " + text),
    st.lists(st.integers(1, 40), min_size=1),
)
def test_slices_of_any_text_joined_give_the_whole(content: str, sizes: list[int]) -> None:
    contract = load("fetch")
    out, at, turn = "", 0, 0
    while at < len(content):
        most = sizes[turn % len(sizes)]
        text, end = cut(contract, content, at, most)
        trailer = contract.say("truncated", next=end) if end < len(content) else ""
        assert text.endswith(trailer)
        piece = text[: len(text) - len(trailer)]
        assert piece == content[at : at + most]
        out, at, turn = out + piece, end, turn + 1
    assert out == content
    assert cut(contract, content, at, 1) == (contract.strings["no_more"], len(content))


def strip(text: str, url: str) -> str:
    text = text[text.index(f"Contents of {url}:\n") + len(f"Contents of {url}:\n") :]
    at = text.rfind("\n\n<error>Content truncated. Call the fetch tool")
    return text[:at] if at >= 0 else text


def test_the_contract_file_names_its_source() -> None:
    for file in files("stillweb.harness.tools").joinpath("contracts").iterdir():
        value = json.loads(file.read_text(encoding="utf-8"))
        assert value["source"]
        assert "@" in value["contract"]


def test_the_reader_service_is_read_at_its_own_address(call: Call) -> None:
    address = f"https://r.jina.ai/{BIRDS}"
    result = call("fetch", url=address)
    assert not result.is_error
    assert (result.meta["verdict"], result.meta["address"]) == ("exact", address)
    assert result.text.startswith("Content type text/plain; charset=utf-8 cannot be simplified")
    assert f"URL Source: {BIRDS}" in result.text
    assert "| Gentoo | 5076 |" in result.text
    assert call("fetch", url=address, max_length=6, start_index=7).text.split("\n")[2] == "A page"
    for url, verdict in (
        ("https://r.jina.ai/https://no.test/", "miss"),
        (f"https://r.jina.ai/{SITE}/gone", "exact"),
    ):
        failed = call("fetch", url=url)
        assert failed.is_error
        assert failed.meta["verdict"] == verdict


@pytest.mark.parametrize("url", ["ftp://x.test/a", "mailto:ann@x.test", "nowhere"])
def test_a_person_hears_of_a_protocol_what_the_client_says(toolset: Toolset, url: str) -> None:
    """Nobody asks for robots.txt on a person's behalf."""
    given = asyncio.run(prompt(toolset, toolset.session("a"), "fetch", {"url": url}))
    with pytest.raises(httpx.UnsupportedProtocol) as raised:
        httpx.get(url, trust_env=False)
    assert given["messages"][0]["content"]["text"] == f"Failed to fetch {url}: {raised.value!r}"
