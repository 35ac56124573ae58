"""Java is told of the proxy and its authority by properties in a variable."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.net.client_env import add_no_proxy, client_environment
from tests.proxy.net.test_told import read_store

PROXY = "http://north:x@127.0.0.1:8080"


def properties(environment: dict[str, str]) -> dict[str, str]:
    """As Java reads them: it splits and unquotes as a shell does, and the last of a name counts."""
    words = shlex.split(environment["JAVA_TOOL_OPTIONS"])
    return dict(word[2:].split("=", 1) for word in words if word.startswith("-D"))


@pytest.mark.parametrize("folder", ["state", "a state", 'a "state"', "it's"])
def test_proxy_and_trust_store(tmp_path: Path, folder: str) -> None:
    ours = Authority.load_or_create(tmp_path / folder)
    environment = client_environment(PROXY, ours.certificate_path, {})
    told = properties(environment)
    store = Path(told.pop("javax.net.ssl.trustStore"))
    assert len(read_store(store.read_bytes(), told["javax.net.ssl.trustStorePassword"])) == 1
    assert told == {
        "http.proxyHost": "127.0.0.1",
        "http.proxyPort": "8080",
        "https.proxyHost": "127.0.0.1",
        "https.proxyPort": "8080",
        "http.nonProxyHosts": "",  # not even localhost goes past, as it would without
        "javax.net.ssl.trustStoreType": "JKS",
        "javax.net.ssl.trustStorePassword": "changeit",
    }


def test_what_the_user_has_set_besides_stays(tmp_path: Path) -> None:
    ours = Authority.load_or_create(tmp_path)
    present = (
        '-Xmx1g -Dhttps.proxyHost=corporate -Dhttp.nonProxyHosts="localhost|*.corporate" '
        "-Djavax.net.ssl.trustStorePassword=secret -Dname='a b' -ea"
    )
    environment = client_environment(PROXY, ours.certificate_path, {"JAVA_TOOL_OPTIONS": present})
    assert environment["JAVA_TOOL_OPTIONS"].startswith("-Xmx1g -Dname='a b' -ea -D")
    told = properties(environment)
    assert (told["https.proxyHost"], told["http.nonProxyHosts"]) == ("127.0.0.1", "")
    assert told["javax.net.ssl.trustStorePassword"] == "changeit"
    assert client_environment(PROXY, ours.certificate_path, environment) == environment
    other = properties(client_environment("http://127.0.0.1:9", ours.certificate_path, environment))
    assert (other["http.proxyPort"], other["name"]) == ("9", "a b")


def test_hosts_that_are_asked_directly(tmp_path: Path) -> None:
    ours = Authority.load_or_create(tmp_path)
    through = client_environment(PROXY, ours.certificate_path, {})
    past = add_no_proxy(through, ["api.openai.com", "127.0.0.1:11434", "[::1]:80"])
    told = properties(past)
    assert told["http.nonProxyHosts"] == "api.openai.com|127.0.0.1|[::1]"
    found = read_store(Path(told["javax.net.ssl.trustStore"]).read_bytes(), "changeit")
    assert len(found) > 50  # the usual ones
    assert len(re.findall("trustStore=", past["JAVA_TOOL_OPTIONS"])) == 1
