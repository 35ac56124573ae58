"""Misses are told to the right call when browser and gateway speak at different times."""

from types import SimpleNamespace
from typing import Any

from stillweb.harness.tools.browser_session import Browsing
from stillweb.proxy.browser.settle import BrowserResponse
from stillweb.proxy.replay.misses import MissedRequest
from stillweb.snapshots.profile import Profile

A = "https://a.test/lost"


class Told:
    """A session whose gateway and browser say what the test lets them."""

    def __init__(self) -> None:
        self.missed: list[MissedRequest] = []
        self.answers: list[BrowserResponse] = []
        gateway: Any = SimpleNamespace(missed=lambda name: list(self.missed))
        shared: Any = None
        self.session = Browsing(shared, gateway, None, "s", Profile())
        self.session.traffic = SimpleNamespace(answers=self.answers)  # type: ignore[assignment]

    def call(self, gateway: int = 0, browser: int = 0) -> list[str]:
        self.missed += [MissedRequest(A, "script", True)] * gateway
        self.answers += [BrowserResponse(A, "script", 504, "miss", "")] * browser
        return [one.url for one in self.session.new_misses()]


def test_a_browser_that_tells_late_says_nothing_new() -> None:
    told = Told()
    assert told.call(gateway=1) == [A]
    assert told.call(browser=1) == []
    assert told.call(gateway=1, browser=1) == [A]
    assert told.call() == []


def test_each_of_several_is_told_once() -> None:
    told = Told()
    assert told.call(gateway=2, browser=1) == [A]
    assert told.call(gateway=1, browser=1) == [A]
    assert told.call(browser=1) == []
    assert told.call(browser=1) == [A]  # more than the gateway keeps


def test_what_the_browser_never_tells_hides_nothing_later() -> None:
    told = Told()
    assert told.call(gateway=1) == [A]
    assert told.call(gateway=1, browser=1) == [A]
    assert told.call(gateway=1, browser=1) == [A]
