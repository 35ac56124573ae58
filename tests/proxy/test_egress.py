"""Packets that leave a browser by any protocol, in a network that sees each of them."""

import ast
import sys
from pathlib import Path

import pytest

import stillweb.harness
import stillweb.proxy
from tests.proxy.frozen import Site
from tests.proxy.small_internet import WAYS, Packet, sent_by, why_not

pytestmark = pytest.mark.whole_browser
in_small_internet = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
LAB = (sys.executable, "-m", "tests.proxy.small_internet")
BY_WEBRTC = {
    "STUN", "TURN by UDP", "data channel by UDP", "data channel by IPv6", "data channel to loopback", "multicast DNS",
}  # fmt: skip


def taken(sent: set[Packet]) -> set[str]:
    """The ways out that were taken."""
    return {way for way, packet in WAYS.items() if packet in sent}


def replayed(folder: Path, *options: str) -> tuple[str, ...]:
    """The command that runs a plain browser under `stillweb replay`."""
    with Site(folder / "snapshot").open():
        pass
    stillweb = [sys.executable, "-c", "from stillweb.harness.cli import run; run()"]
    return (*stillweb, "replay", str(folder / "snapshot"), *options, "--", *LAB, "plain")


@pytest.mark.slow
@in_small_internet
def test_a_plain_browser_takes_every_way(tmp_path: Path) -> None:
    """Each listener is reached by a browser that nothing holds, so that the tests below can fail."""
    assert taken(sent_by(replayed(tmp_path), tmp_path)) == set(WAYS)


@pytest.mark.slow
@in_small_internet
def test_our_browser_takes_none(tmp_path: Path) -> None:
    assert sent_by((*LAB, "ours"), tmp_path) == set()


@pytest.mark.slow
@in_small_internet
def test_without_its_switches_our_browser_sends_by_webrtc(tmp_path: Path) -> None:
    """The same page, proxy and time: only the arguments are others."""
    less = ("webrtc-ip-handling-policy", "WebRtcHideLocalIpsWithMdns")
    assert taken(sent_by((*LAB, "ours", *less), tmp_path)) == BY_WEBRTC


@pytest.mark.slow
@in_small_internet
def test_a_recorded_browser_sends_nothing_that_the_recorder_does_not_see(tmp_path: Path) -> None:
    """The recorder's own requests leave by TCP; nothing goes by UDP, or to a host that can't be asked by HTTP."""
    sent = sent_by((*LAB, "record"), tmp_path)
    assert {packet for packet in sent if packet[0] == "udp"} == set()
    assert {"fetch", "picture"} <= taken(sent)


@pytest.mark.slow
@in_small_internet
def test_an_isolated_program_has_no_way_out(tmp_path: Path) -> None:
    """The plain browser of the first test, which heeds no proxy."""
    assert sent_by(replayed(tmp_path, "--isolate"), tmp_path) == set()


def test_one_module_starts_browsers() -> None:
    """A property of that module's browser holds for record, replay, check, explore and runs."""
    starters = ("launch", "launch_persistent_context", "launch_server", "connect_over_cdp")
    found = set()
    for package in (stillweb.proxy, stillweb.harness):
        root = Path(package.__file__ or "").parent
        for path in root.rglob("*.py"):
            source = path.read_text("utf-8")
            if not any(name in source for name in starters):
                continue
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Attribute) and node.attr in starters:
                    value = node.value
                    if not (
                        isinstance(value, ast.Name) and value.id == "click"
                    ):  # which opens a file for a person
                        found.add(path.relative_to(root).as_posix())
    assert found == {"browser/browser.py"}
