"""Wrong arguments, pages or clients never end a tool: each contract fails in its own words."""

import asyncio
import gzip
import json
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stillweb.harness.tools import ToolResult, Toolset, http_hosts
from stillweb.harness.tools.serper import SEARCH_URL
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.harness.tools.frozen import BIRDS, REPORT, VIEW, Recorder, json_bytes
from tests.snapshots.making import freeze_texts
from tests.snapshots.text.test_text import ARTICLE, make_pdf

ODD = "https://odd.test"
CHINESE = "<html><body><p>企鹅是南方的鸟，它们不会飞，但是游得很快，吃鱼和磷虾。</p></body></html>"
NOISE = "<!--" + "".join(random.Random(1).choices("0123456789abcdef", k=20_000)) + "-->"
SEARCHES = {
    "html": "<html>sign in</html>",
    "long": "<!DOCTYPE html><title>Sign in</title>",
    "half": '{"organic": [{"ti',
    "nothing": "",
    "deep": "[" * 100_000,
    "no-number": '{"a": NaN}',
    "no-gzip": '{"a": 1}',
    "numbers": '{"a": 1e5, "b": 12345678901234567890, "c": 1e-7, "d": 1e400, "e": 4.0, "f": "\\ud800"}',
}
LARGE = os.environ.get("STILLWEB_LARGE_PAGES")  # "1": also a page of 50 MB, which takes a minute

TEXTS = st.text(st.characters(), max_size=20)  # lone surrogates, too, as JSON can have them
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.sampled_from([BIRDS, REPORT, VIEW, "http://[", "1-", "0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["url", "path", "pages", "x"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
NAMES = {
    "fetch": ["url", "max_length", "start_index", "raw", "more"],
    "google_search": ["q", "gl", "hl", "num", "page", "site", "exclude", "or", "exact", "tbs"],
    "scrape": ["url", "includeMarkdown"],
    "read_pdf": ["sources", "include_full_text", "include_images"],
}
ARGUMENTS = st.sampled_from(sorted(NAMES)).flatmap(
    lambda tool: st.tuples(st.just(tool), st.dictionaries(st.sampled_from(NAMES[tool]), VALUES, max_size=5))
)
PATHS = {
    "google.serper.dev": ["/search", "/images"],
    "scrape.serper.dev": ["", "/"],
    "r.jina.ai": ["", "/", f"/{BIRDS}", "/http://[", "/%", "/https%3A%2F%2F[", "/x y"],
    "api.tavily.com": ["/search", "/extract"],
    "api.exa.ai": ["/search", "/contents"],
}
KEYS = ["q", "num", "page", "url", "urls", "query", "max_results", "include_domains", "numResults", "contents", "text", "highlights", "includeDomains"]  # fmt: skip
ASKED = st.sampled_from(sorted(PATHS)).flatmap(
    lambda host: st.tuples(st.just(host), st.sampled_from(PATHS[host]))
)
BODIES = st.binary(max_size=20) | st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5).map(
    lambda value: json.dumps(value).encode()
)
FUZZ = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)


@pytest.mark.slow
@FUZZ
@given(ARGUMENTS)
def test_no_arguments_end_a_tool(allowed: Toolset, asked: tuple[str, dict[str, Any]]) -> None:
    name, arguments = asked
    result = asyncio.run(allowed.session("s").call(name, arguments))
    assert result.content
    assert all(part["type"] in ("text", "image") for part in result.content)
    json.dumps(result.meta)


@pytest.mark.slow
@FUZZ
@given(ASKED, st.sampled_from(["GET", "POST", "PUT"]), BODIES)
def test_no_request_ends_a_service(allowed: Toolset, at: tuple[str, str], method: str, body: bytes) -> None:
    host, path = at
    got = http_hosts(allowed)[host](Request(method, f"https://{host}{path}", (), body), "s")
    assert got.status in (200, 400, 422, 429, 504)
    assert got.header("stillweb-verdict")


@pytest.fixture(scope="module")
def allowed(snapshot: Snapshot) -> Toolset:
    return Toolset(snapshot, ["fetch", "serper", "pdf-reader"], synthetic_search=True)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snapshot]:
    path = tmp_path_factory.mktemp("odd") / "site"
    with Writer.open(path) as writer:
        site = Recorder(writer)
        site.add(f"{ODD}/blank", "<html><head><title>T</title></head><body><div></div></body></html>")
        site.add(f"{ODD}/no-bytes", b"")
        site.add(f"{ODD}/html.pdf", ARTICLE, "application/pdf")
        site.add(f"{ODD}/pdf.html", make_pdf("In truth a PDF"), "text/html")
        site.add(f"{ODD}/gbk", CHINESE.encode("gb18030"), "text/html; charset=utf-8")
        site.add(f"{ODD}/latin-label", CHINESE, "text/html; charset=iso-8859-1")
        site.add(f"{ODD}/no-such-charset", CHINESE, "text/html; charset=klingon")
        gz = (("Content-Encoding", "gzip"),)
        site.add(f"{ODD}/cut-gzip", gzip.compress((ARTICLE + NOISE).encode())[:-3000], headers=gz)
        site.add(f"{ODD}/no-gzip", ARTICLE, headers=gz)
        site.add(f"{ODD}/noise", bytes(range(256)) * 9, headers=gz)
        for query, body in SEARCHES.items():
            sent = json_bytes({"q": query, "gl": "us", "hl": "en"})
            fields = gz if query == "no-gzip" else ()
            site.add(SEARCH_URL, body, "application/json", method="POST", sent=sent, headers=fields)
        freeze_texts(writer)
    with Snapshot.open(path) as opened:
        yield opened


def tool(snapshot: Snapshot, name: str, contract: str, **arguments: Any) -> ToolResult:
    return asyncio.run(Toolset(snapshot, [contract]).session("s").call(name, arguments))


def service(snapshot: Snapshot, method: str, url: str, body: object = None) -> tuple[int, Any]:
    request = Request(method, url, (("Accept", "application/json"),), json_bytes(body) if body else b"")
    got = http_hosts(Toolset(snapshot, ["fetch"]))[url.split("/")[2]](request, "s")
    return got.status, json.loads(got.body) if got.body[:1] == b"{" else got.body.decode()


def read_by_all(snapshot: Snapshot, url: str) -> dict[str, str | None]:
    """The text that each contract gives of a page; None where it fails."""
    found: dict[str, str | None] = {}
    for contract in ("mcp-fetch@0.6.3", "mcp-fetch@2026.10.24"):
        result = tool(snapshot, "fetch", contract, url=url)
        found[contract] = None if result.is_error else result.text
    result = tool(snapshot, "scrape", "serper", url=url, includeMarkdown=True)
    found["serper"] = None if result.is_error else json.loads(result.text)["markdown"]
    result = tool(snapshot, "read_pdf", "pdf-reader", sources=[{"url": url}], include_full_text=True)
    found["pdf"] = None if result.is_error else json.loads(result.content[0]["text"])["results"][0]["data"]["full_text"]  # fmt: skip
    status, value = service(snapshot, "GET", f"https://r.jina.ai/{url}")
    found["jina"] = value["data"]["content"] if status == 200 else None
    _, value = service(snapshot, "POST", "https://api.tavily.com/extract", {"urls": [url]})
    found["tavily"] = value["results"][0]["raw_content"] if value["results"] else None
    _, value = service(snapshot, "POST", "https://api.exa.ai/contents", {"urls": [url], "text": True})
    found["exa"] = value["results"][0]["text"] if value["results"] else None
    return found


def test_pages_without_text(odd: Snapshot) -> None:
    for name in ("blank", "no-bytes"):
        found = read_by_all(odd, f"{ODD}/{name}")
        assert found.pop("mcp-fetch@2026.10.24") is not None
        fetched = found.pop("mcp-fetch@0.6.3") or ""
        if name == "blank":
            assert fetched.endswith("<error>Page failed to be simplified from HTML</error>")
        assert found.pop("serper") in ("", None)
        assert found.pop("jina") in ("", None)
        assert found == {"pdf": None, "tavily": None, "exa": None}


def test_html_that_is_labelled_pdf(odd: Snapshot) -> None:
    found = read_by_all(odd, f"{ODD}/html.pdf")
    assert found.pop("pdf") is None
    assert found.pop("mcp-fetch@0.6.3") is not None
    assert found.pop("mcp-fetch@2026.10.24") is not None
    assert all("| Gentoo | 5076 |" in str(text) for text in found.values())
    failed = tool(odd, "read_pdf", "pdf-reader", sources=[{"url": f"{ODD}/html.pdf"}])
    assert failed.text.endswith("Invalid PDF structure.")


def test_pdfs_that_are_labelled_html(odd: Snapshot) -> None:
    found = read_by_all(odd, f"{ODD}/pdf.html")
    assert all("In truth a PDF" in str(text) for text in found.values())


@pytest.mark.parametrize("name", ["latin-label", "no-such-charset"])
def test_charsets_that_the_bytes_contradict(odd: Snapshot, name: str) -> None:
    found = read_by_all(odd, f"{ODD}/{name}")
    assert found.pop("pdf") is None
    assert all("企鹅是南方的鸟" in str(text) for text in found.values())


def test_bytes_that_no_charset_fits_are_replaced_and_counted(odd: Snapshot) -> None:
    """As the real client does it; nothing is guessed."""
    found = read_by_all(odd, f"{ODD}/gbk")
    assert found.pop("pdf") is None
    assert all("\ufffd" in str(text) for text in found.values())
    frozen = odd.text(f"{ODD}/gbk")
    assert frozen is not None
    assert "could not be read as utf-8" in frozen.warnings[0]


def test_a_body_that_ends_early_is_read_as_far_as_it_goes(odd: Snapshot) -> None:
    found = read_by_all(odd, f"{ODD}/cut-gzip")
    assert found.pop("pdf") is None
    assert all("Penguins are birds of the south" in str(text) for text in found.values())
    assert all("\ufffd" not in str(text) for text in found.values())
    frozen = odd.text(f"{ODD}/cut-gzip")
    assert frozen is not None
    assert "ends early" in frozen.warnings[0]


def test_a_body_that_was_never_encoded_fails_as_for_the_real_tool(odd: Snapshot) -> None:
    found = read_by_all(odd, f"{ODD}/no-gzip")
    assert found.pop("mcp-fetch@0.6.3") is None
    assert found.pop("mcp-fetch@2026.10.24") is None
    assert found.pop("pdf") is None
    assert all("Penguins are birds of the south" in str(text) for text in found.values())
    told = tool(odd, "fetch", "fetch", url=f"{ODD}/no-gzip").text
    assert told.startswith(f"Failed to fetch {ODD}/no-gzip: DecodingError(")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("html", "Unexpected token '<', \"<html>sign in</html>\" is not valid JSON"),
        ("long", "Unexpected token '<', \"<!DOCTYPE \"... is not valid JSON"),
        ("half", "reason: Unexpected end of JSON input"),
        ("nothing", "reason: Unexpected end of JSON input"),
        ("deep", "FetchError: invalid json response body at https://google.serper.dev/search reason: "),
        ("no-number", "FetchError: invalid json response body at https://google.serper.dev/search reason: "),
        (
            "no-gzip",
            "FetchError: Invalid response body while trying to fetch https://google.serper.dev/search",
        ),
    ],
)
def test_a_recorded_search_that_is_no_json_fails_as_for_the_real_tool(
    odd: Snapshot, query: str, said: str
) -> None:
    result = tool(odd, "google_search", "serper", q=query)
    assert result.is_error
    assert result.text.startswith(
        f'Search failed: Error: SearchTool: failed to search for "{query}". FetchError: '
    )
    assert said in result.text
    assert result.meta["verdict"] == "exact"


def test_numbers_and_halves_of_letters_are_written_as_javascript_does(odd: Snapshot) -> None:
    text = tool(odd, "google_search", "serper", q="numbers").text
    assert text == (
        '{\n  "a": 100000,\n  "b": 12345678901234567000,\n  "c": 1e-7,\n  "d": null,\n  "e": 4,\n  "f": "\\ud800"\n}'
    )


@pytest.mark.parametrize("host", sorted(PATHS))
@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 50_000 + b"1" + b"}" * 50_000])
def test_a_body_that_is_nested_too_deeply_is_no_json(allowed: Toolset, host: str, body: bytes) -> None:
    for path in PATHS[host][:2]:
        got = http_hosts(allowed)[host](Request("POST", f"https://{host}{path}", (), body), "s")
        assert got.status in (400, 504)


def test_a_body_of_noise_has_no_text(odd: Snapshot) -> None:
    found = read_by_all(odd, f"{ODD}/noise")
    assert {text for text in found.values() if text} == set()


@pytest.mark.parametrize("url", [BIRDS, REPORT, VIEW])
def test_all_contracts_say_the_same_text(snapshot: Snapshot, url: str) -> None:
    """Slices of fetch are joined elsewhere: here the whole that they give is the whole that the others give."""
    found = read_by_all(snapshot, url)
    if url == REPORT:
        assert (found.pop("pdf") or "").replace("\n\n", "") == (found["jina"] or "").replace("\n", "")
    else:
        assert found.pop("pdf") is None
    whole = found["jina"]
    assert whole
    assert [name for name, text in found.items() if text is None or not text.endswith(whole)] == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(st.sampled_from([BIRDS, REPORT]), st.integers(1, 400))
def test_a_cut_text_is_the_beginning_of_the_whole(snapshot: Snapshot, url: str, most: int) -> None:
    asked = {"urls": [url], "text": {"maxCharacters": most}}
    _, cut = service(snapshot, "POST", "https://api.exa.ai/contents", asked)
    _, whole = service(snapshot, "POST", "https://api.exa.ai/contents", {"urls": [url], "text": True})
    assert cut["results"][0]["text"] == whole["results"][0]["text"][:most]


@pytest.mark.skipif(not LARGE, reason="STILLWEB_LARGE_PAGES=1 asks of a page of 50 MB")
def test_a_page_of_50_mb(tmp_path_factory: pytest.TempPathFactory) -> None:
    words = "".join(f"<p>Paragraph {n} is one of very many that a page can have.</p>" for n in range(900_000))
    path = tmp_path_factory.mktemp("large") / "site"
    with Writer.open(path) as writer:
        Recorder(writer).add(f"{ODD}/large", f"<html><body>{words}</body></html>")
        freeze_texts(writer)
    with Snapshot.open(path) as opened:
        for name, text in read_by_all(opened, f"{ODD}/large").items():
            assert (text is None) is (name == "pdf")
        last = tool(opened, "fetch", "fetch", url=f"{ODD}/large", start_index=44_000_000)
        assert "is one of very many" in last.text
