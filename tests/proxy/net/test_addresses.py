"""Sessions and hosts in addresses."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.proxy.net.addresses import host_port, public, session_name, site_named, with_session
from stillweb.snapshots.errors import UsageError

NAMES = st.text(min_size=1).filter(
    lambda name: name.isprintable() and name == name.strip() and not set(name) & set(":%")
)


@given(NAMES)
def test_a_session_is_read_back_from_what_a_client_sends(name: str) -> None:
    address = with_session("http://[::1]:8080", name)
    user, _, place = address.removeprefix("http://").rpartition("@")
    assert place == "[::1]:8080"
    assert session_name(f"Basic {base64.b64encode(user.encode()).decode()}") == name


@pytest.mark.parametrize("name", ["", " a", "a\n", "a:b", "a%b"])
def test_names_that_no_client_could_send(name: str) -> None:
    with pytest.raises(UsageError, match="can't be a session's name"):
        with_session("http://127.0.0.1:8080", name)


def test_hosts_with_ports() -> None:
    assert host_port("127.0.0.1", 80) == "127.0.0.1:80"
    assert host_port("::1", 80) == "[::1]:80"


def test_what_is_told_of_an_address_holds_its_secrets_only_where_they_are_recorded_as_they_are() -> None:
    class Masks:
        def url(self, url: str) -> str:
            return url.replace("secret", "x")

    assert public("https://a.test/?key=secret", Masks()) == "https://a.test/?key=x"
    assert public("https://a.test/?key=secret", None) == "https://a.test/?key=secret"


@pytest.mark.parametrize(
    ("host", "site"),
    [
        ("x.test", "x.test"),
        ("x.test:81", "x.test:81"),
        ("[2001:db8::1]", "[2001:db8::1]"),
        ("proxy.test:8899", ""),  # our port: whatever name we have
        ("localhost:9000", ""),  # and whatever port leads to us
        ("127.0.0.1", ""),
        ("[::1]:1", ""),
        ("stillweb.local", ""),
        ("x test", ""),
        (None, ""),
    ],
)
def test_the_site_of_a_request_for_a_mere_path(host: str | None, site: str) -> None:
    assert site_named(host, 8899) == site
