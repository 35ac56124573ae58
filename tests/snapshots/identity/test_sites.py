"""Site of a URL, however the URL is written."""

import pytest

from stillweb.snapshots.identity.sites import host_of, site_of, site_of_host
from tests.support.memory_store import Replay, answers, get, html, matcher, post, redirect


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://a.test/l", "a.test"),
        ("HTTP://A.Test/l", "a.test"),
        ("http://a%2Etest/l", "a.test"),
        ("http:\\\\a.test\\l", "a.test"),
        ("http:/a.test/l", "a.test"),
        ("http://\uff41.test/l", "a.test"),
        ("http://a.test?x://y", "a.test"),
        ("http://user:pass@a.test:80/", "a.test"),
        ("https://a.test:80/", "a.test:80"),
        ("http://127.1/", "127.0.0.1"),
        ("http://127.0.0.1:80/", "127.0.0.1"),
        ("http://b\u00fccher.test/", "xn--bcher-kva.test"),
        ("http://[::1]:80/", "[::1]"),
        ("http://[zz/", "[zz"),
        ("urn:x", ""),
        ("", ""),
    ],
)
def test_the_host_is_that_of_the_parsed_url(url: str, host: str) -> None:
    assert host_of(url) == host


def test_a_site_is_a_registrable_domain_or_a_host_with_its_port() -> None:
    assert site_of("http://www.example.co.uk:8080/") == site_of("https://example.co.uk/") == "example.co.uk"
    assert site_of("http://127.0.0.1:8080/") != site_of("http://127.0.0.1:8081/")
    assert site_of("http://[zz/") != site_of("http://[yy/")


@pytest.mark.parametrize(
    ("host", "site"),
    [
        ("a.b.c.kobe.jp", "b.c.kobe.jp"),  # *.kobe.jp
        ("www.city.kobe.jp", "city.kobe.jp"),  # !city.kobe.jp
        ("c.kobe.jp", "c.kobe.jp"),
        ("www.github.io", "www.github.io"),  # of the private part of the list
        ("a.www.github.io", "www.github.io"),
        ("a.b.xn--85x722f.com.cn", "xn--85x722f.com.cn"),
        ("www.xn--85x722f.xn--55qx5d.cn", "xn--85x722f.xn--55qx5d.cn"),
        ("a.b.nosuchsuffix", "b.nosuchsuffix"),
        ("b.nosuchsuffix:80", "b.nosuchsuffix"),
        ("nosuchsuffix:80", "nosuchsuffix:80"),
        ("www.example.co.uk.", "example.co.uk"),
        ("a..co.uk", "a..co.uk"),
        ("xn--.com", "xn--.com"),
    ],
)
def test_a_site_is_found_by_the_public_suffix_list(host: str, site: str) -> None:
    assert site_of_host(host) == site


@pytest.mark.parametrize(
    "url",
    ["http://a.test:80/l", "http://a%2Etest/l", "http:/a.test/l", "http:\\\\a.test\\l", "HTTP://A.TEST/l"],
)
def test_another_spelling_of_a_url_is_in_the_same_state(url: str) -> None:
    recorded = [
        (get("http://a.test/l"), html("all")),
        (post("http://a.test/f", "x=1"), redirect("/l")),
        (get("http://a.test/l"), html("one")),
    ]
    replay = Replay(matcher(*recorded))
    assert replay.ask(get(url)) == "all"
    replay.ask(post("http://a.test/f", "x=1"))
    assert replay.ask(get(url)) == "one"


def test_a_url_that_none_can_parse_is_a_miss_and_no_error() -> None:
    over = matcher((get("http://a.test/"), html("x")))
    for method in (get, post):
        lookup = over.lookup(method("http://[zz/x"), over.session())
        assert (lookup.verdict, lookup.explain()) == ("miss", [])


@pytest.mark.parametrize("location", ["//[oops", "http://[oops/x", "http://a b/", "//\udcff", ":"])
def test_a_location_that_leads_nowhere_is_no_error(location: str) -> None:
    over = matcher((post("http://a.test/f", "x=1"), redirect(location)), (get("http://a.test/"), html("x")))
    assert over.lookup(post("http://a.test/f", "x=1"), over.session()).verdict == "exact"


def test_a_recorded_url_that_none_can_parse_does_no_harm() -> None:
    over = matcher((get("http://[oops/x"), html("x")), (post("http://[oops/x", "x=1"), redirect("/")))
    replay = Replay(over)
    assert replay.ask(get("http://[oops/x")) == "x"
    replay.ask(post("http://[oops/x", "x=1"))
    assert replay.ask(get("http://[oops/x")) == "miss"
    assert "[oops/x" in str(replay.last.explain()[0])


def test_a_write_to_one_host_of_a_site_concerns_the_pages_of_another() -> None:
    """The list does not have `test`, nor `corp` or `lan`."""
    page = get("http://www.a.test/list")
    recorded = [
        (page, html("none")),
        (post("http://api.a.test/add", "x=1"), redirect("http://www.a.test/list")),
        (page, html("one")),
    ]
    assert answers(matcher(*recorded), *(request for request, _ in recorded)) == ["none", "", "one"]
    assert answers(matcher(*recorded), page, post("http://api.a.test/add", "x=2"), page)[1:] == [
        "miss",
        "miss",
    ]
