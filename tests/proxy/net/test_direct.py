"""Hosts that a program asks itself: they answer it, under their own certificates, and all else goes through the proxy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.net.client_env import CA_VARIABLES, add_no_proxy, client_environment, direct_hosts
from stillweb.snapshots.errors import UsageError
from tests.proxy.origin import Answer, Asked, Origin
from tests.support.waiting import STARTS

CLIENTS = {
    "urllib": "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())",
    "httpx": "import sys, httpx; print(httpx.get(sys.argv[1]).text)",
    "requests": "import sys, requests; print(requests.get(sys.argv[1]).text)",
}


def live(asked: Asked) -> Answer:
    return Answer(body=b"live")


@pytest.mark.parametrize("value", ["", "a b", "https://api.openai.com", "a,b", "a/b", "*", "-o\n"])
def test_what_is_no_host_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match="is no host"):
        direct_hosts(["api.openai.com", value])


def test_hosts_are_sorted_and_said_once() -> None:
    told = ("api.openai.com", "127.0.0.1:11434", "API.openai.com", "[::1]:8080")
    assert direct_hosts(told) == ("127.0.0.1:11434", "[::1]:8080", "api.openai.com")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CLIENTS, "curl"])
def test_a_direct_host_answers_under_its_own_certificate(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, company = (Authority.load_or_create(tmp_path / folder) for folder in ("ours", "company"))
    monkeypatch.setenv("SSL_CERT_FILE", str(company.certificate_path))  # as a company has it set
    dead = "http://127.0.0.1:9"  # where no proxy answers
    base = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = ["curl", "-sS"] if name == "curl" else [sys.executable, "-c", CLIENTS[name]]
    with Origin(live, company.context_for("127.0.0.1")) as origin:
        url = f"https://127.0.0.1:{origin.port}/"

        def asked(*hosts: str) -> subprocess.CompletedProcess[str]:
            environment = add_no_proxy(client_environment(dead, ours.certificate_path, base), hosts)
            return subprocess.run(
                [*command, url], env=environment, capture_output=True, text=True, timeout=STARTS, check=False
            )

        through = asked()
        assert through.returncode != 0
        assert origin.asked == []
        past = asked("127.0.0.1")
        assert (past.returncode, past.stdout.strip()) == (0, "live"), past.stderr


def test_only_what_was_named_is_past(tmp_path: Path) -> None:
    ours = Authority.load_or_create(tmp_path)
    before = client_environment("http://127.0.0.1:9", ours.certificate_path, {"HOME": str(tmp_path)})
    after = add_no_proxy(before, ["api.openai.com", "127.0.0.1:11434"])
    assert after["NO_PROXY"] == after["no_proxy"] == "api.openai.com,127.0.0.1:11434"
    ours_alone = {n for n, v in before.items() if "stillweb-ca." in v}
    assert {*CA_VARIABLES, "WGETRC", "PHP_INI_SCAN_DIR", "JAVA_TOOL_OPTIONS"} == ours_alone
    changed = {*ours_alone, "NO_PROXY", "no_proxy"}
    assert {n: v for n, v in after.items() if n not in changed} == {
        n: v for n, v in before.items() if n not in changed
    }
    for name in ours_alone:
        assert "stillweb-ca-and-usual-" in after[name]
        assert "stillweb-ca." not in after[name]
    assert ours.certificate_path.read_bytes().strip() in Path(after["SSL_CERT_FILE"]).read_bytes()
    assert add_no_proxy(before, []) == before
    assert add_no_proxy({"PATH": "/bin"}, ["api.openai.com"]) == {"PATH": "/bin"}
    kept = {**before, "NO_PROXY": "127.7.7.7", "no_proxy": "127.7.7.7"}
    assert add_no_proxy(kept, ["api.openai.com"])["NO_PROXY"] == "127.7.7.7,api.openai.com"
