"""A preflight that was not recorded is granted only what a recorded request shows to have been granted."""

from collections.abc import Iterator

import httpx
import pytest

from stillweb.proxy.replay.answering import is_preflight
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.request import Request
from tests.proxy.frozen import Site
from tests.proxy.gateways import client

API = "https://api.example"
APP = "https://app.example"
JSON = ("Content-Type", "application/json")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    site = Site(tmp_path_factory.mktemp("permissions") / "snap")

    def add(method: str, path: str, *told: tuple[str, str], sent: tuple[tuple[str, str], ...] = ()) -> None:
        asked = (("Origin", APP), JSON, *sent)
        site.add(
            API + path, b"{}", method=method, headers=(JSON, *told), request_headers=asked, request_body=b"{}"
        )

    mine = ("Access-Control-Allow-Origin", APP)
    add("PUT", "/mine", mine)
    add("PUT", "/known", mine, ("Access-Control-Allow-Credentials", "true"))
    add("PUT", "/all", ("Access-Control-Allow-Origin", "*"))
    add("PUT", "/closed")
    add("POST", "/fields", mine)
    add("POST", "/fields", mine, sent=(("X-Trace", "1"),))
    site.add(f"{API}/page", b"x", headers=(JSON, mine))
    with site.open() as snapshot, Gateway(snapshot) as running:
        yield running


def ask(
    gateway: Gateway, path: str, method: str = "PUT", origin: str = APP, fields: str = ""
) -> httpx.Response:
    headers = {"Origin": origin, "Access-Control-Request-Method": method}
    if fields:
        headers["Access-Control-Request-Headers"] = fields
    with client(gateway) as c:
        return c.request("OPTIONS", API + path, headers=headers)


def told(answer: httpx.Response) -> dict[str, str]:
    """Return the permissions that an answer gives (CORS)."""
    start = "access-control-allow-"
    return {n.removeprefix(start): v for n, v in answer.headers.items() if n.startswith(start)}


def test_what_was_let_through_is_let_through(gateway: Gateway) -> None:
    for path, more in (
        ("/mine", {"origin": APP}),
        ("/known", {"origin": APP, "credentials": "true"}),
        ("/all", {"origin": "*"}),
    ):
        answer = ask(gateway, path, fields="content-type")
        assert (answer.status_code, answer.headers["stillweb-verdict"]) == (204, "synthetic")
        assert told(answer) == {"methods": "PUT", "headers": "content-type", **more}
    assert told(ask(gateway, "/page", "GET")) == {"methods": "GET", "origin": APP}


def test_fields_are_permitted_that_a_recorded_request_had(gateway: Gateway) -> None:
    assert (
        told(ask(gateway, "/fields", "POST", fields="Content-Type, X-Trace"))["headers"]
        == "content-type, x-trace"
    )
    refused = ask(gateway, "/fields", "POST", fields="content-type, x-other")
    assert refused.status_code == 504
    assert "the recorded request had no x-other" in refused.text


@pytest.mark.parametrize(
    ("path", "method", "origin", "why"),
    [
        ("/closed", "PUT", APP, "allows no other origin"),
        ("/mine", "PUT", "https://other.example", f"is for the origin {APP}"),
        ("/mine", "DELETE", APP, ""),
        ("/min", "PUT", APP, ""),
        ("/none", "GET", APP, ""),
    ],
)
def test_no_permission_is_made_up(gateway: Gateway, path: str, method: str, origin: str, why: str) -> None:
    answer = ask(gateway, path, method, origin)
    assert answer.status_code == 504
    assert answer.headers["stillweb-verdict"] == "miss"
    assert told(answer) == {}
    assert why in answer.text
    assert gateway.ledger.misses()[-1]["method"] == "OPTIONS"


def test_what_a_preflight_is() -> None:
    asked = (("Origin", APP), ("Access-Control-Request-Method", "PUT"))
    assert is_preflight(Request("OPTIONS", API, asked))
    assert not is_preflight(Request("OPTIONS", API, asked[:1]))
    assert not is_preflight(Request("OPTIONS", API, asked[1:]))
    assert not is_preflight(Request("GET", API, asked))
