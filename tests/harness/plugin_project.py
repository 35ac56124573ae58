"""A project of tests with a small snapshot, for the tests of the pytest plugin."""

from datetime import UTC, datetime

import pytest

from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.request import Request
from stillweb.snapshots.writer import Writer

PAGE = b"<html><title>Birds</title><body><p>A kestrel weighs 200 g.</p></body></html>"
URL = "http://shelf.example/birds"


@pytest.fixture
def project(pytester):
    with Writer.open(pytester.path / "site") as writer:
        request = Request("GET", URL, (("Host", "shelf.example"),))
        headers = (("Content-Type", "text/html"), ("Content-Length", str(len(PAGE))))
        writer.exchange(
            Exchange(request, 200, "OK", headers, PAGE, datetime(2025, 1, 1, tzinfo=UTC), begin=1, end=2)
        )
    return pytester


def run(project, code, *arguments):
    project.makepyfile(test_it=code)
    without = ("no:cacheprovider", "no:hypothesispytest")  # loading the latter takes longer than all else
    return project.runpytest_subprocess(*(f"-p{name}" for name in without), *arguments)
