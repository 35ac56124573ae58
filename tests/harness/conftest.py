"""Fixtures for the tests of whole commands and of model calls."""

from collections.abc import Iterator

import pytest

from tests.harness.small_site import answer
from tests.proxy.origin import Origin
from tests.support.openai_endpoint import KEY


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    """A running site of pages and noise."""
    with Origin(answer) as running:
        yield running


@pytest.fixture
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of the user's own, not the real one."""
    monkeypatch.setenv("STILLWEB_STATE", str(tmp_path_factory.getbasetemp() / "state"))


@pytest.fixture
def openai_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key for model endpoints."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
