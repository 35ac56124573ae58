"""The name in what is written is that of the installed distribution, whoever is asked for it."""

from importlib.metadata import version

import pytest

from stillweb.snapshots import software


def test_the_version_is_the_installed_one() -> None:
    assert software.software_name() == f"stillweb/{version('stillweb')}"


def test_where_nothing_is_installed_there_is_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software, "NAME", "no-such-distribution")
    assert software.software_name() == "no-such-distribution"
