"""Fixtures for the tests of the recorder and of the gateway."""

from collections.abc import Iterator

import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.replay.gateway import Gateway
from tests.proxy.browsing import Browsing
from tests.proxy.gateways import serving
from tests.proxy.lab import Lab, answer
from tests.proxy.origin import Origin


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Running origins, and the authorities of both sides."""
    ca = Authority.load_or_create(tmp_path_factory.mktemp("origin-ca"))
    ours = Authority.load_or_create(tmp_path_factory.mktemp("state"))
    with (
        Origin(answer) as plain,
        Origin(answer, ca.context_for("demo.example", ("h2", "http/1.1"))) as secure,
    ):
        yield Lab(plain, secure, ca, ours)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The gateway's own."""
    return Authority.load_or_create(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Gateway]:
    """A running gateway; each test takes a session of its own."""
    with serving(tmp_path_factory.mktemp("gateway"), authority) as running:
        yield running


@pytest.fixture
def browser(chromium: Browsing) -> Iterator[Browsing]:
    """A browser without open pages, and none are left in it."""
    chromium.run(chromium.clear())
    yield chromium
    chromium.run(chromium.clear())
