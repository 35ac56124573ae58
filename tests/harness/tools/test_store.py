"""A snapshot asked as a client without cookies asks: what is served in whatever order, and what never is."""

from __future__ import annotations

from pathlib import Path

import pytest

from stillweb.harness.tools.store import Store
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.harness.tools.frozen import SITE, Recorder


def test_what_had_one_answer_is_had_in_any_order_but_a_part_is_not_the_whole(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "snap") as writer:
        site = Recorder(writer)
        site.add(
            f"{SITE}/login", status=303, method="POST", sent=b'{"user":"ann"}', headers=(("Location", "/"),)
        )
        site.add(f"{SITE}/home", "<p>home</p>")
        site.add(f"{SITE}/part", "abcde", status=206, headers=(("Content-Range", "bytes 0-4/10"),))
        site.add(f"{SITE}/same", "", status=304)
    with Snapshot.open(tmp_path / "snap") as snapshot:
        visit = Store(snapshot).session("a")
        found = visit.follow(f"{SITE}/home")
        assert found.capture is not None
        assert found.ambiguous
        for path in ("part", "same"):
            found = visit.follow(f"{SITE}/{path}")  # recorded so for the very same request
            assert (found.verdict, found.ambiguous) == ("exact", True)


def test_a_redirect_of_several_is_never_guessed(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "snap") as writer:
        site = Recorder(writer)
        for name, target in (("ann", "/one"), ("bob", "/two")):
            sent = b'{"user":"%b"}' % name.encode()
            site.add(f"{SITE}/login", status=303, method="POST", sent=sent, headers=(("Location", "/"),))
            site.add(f"{SITE}/go", status=302, headers=(("Location", target),))
    with Snapshot.open(tmp_path / "snap") as snapshot:
        found = Store(snapshot).session("a").follow(f"{SITE}/go")
        assert found.chain == []
        assert (found.verdict, found.capture) == ("miss", None)


def test_locations_are_read_as_the_real_client_reads_them(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "snap") as writer:
        site = Recorder(writer)
        site.add(f"{SITE}/a", status=302, headers=(("Location", "/caf\u00e9".encode().decode("latin-1")),))
        site.add(f"{SITE}/caf%C3%A9", "<p>coffee</p>")
        site.add(f"{SITE}/b", status=302, headers=(("Location", "//[oops"),))
        site.add(f"{SITE}/c", status=302, headers=(("Location", "http://[::1"),))
    with Snapshot.open(tmp_path / "snap") as snapshot:
        visit = Store(snapshot).session("a")
        found = visit.follow(f"{SITE}/a")
        assert found.capture is not None
        assert found.capture.url == f"{SITE}/caf%C3%A9"
        # a host that isn't there, as the real client has it
        found = visit.follow(f"{SITE}/b")
        assert (found.capture, found.error) == (None, None)
        problem = "RemoteProtocolError(\"Invalid URL in location header: Invalid port: ':1'.\")"
        assert visit.follow(f"{SITE}/c").error == problem


def test_a_redirect_that_leads_nowhere_ends_as_the_real_clients_does(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "snap") as writer:
        site = Recorder(writer)
        site.add(f"{SITE}/empty", status=302, headers=(("Location", ""),))
        site.add(f"{SITE}/ftp", status=302, headers=(("Location", "ftp://files.test/"),))
        site.add(f"{SITE}/tab", status=302, headers=(("Location", "/a\tb"),))
    with Snapshot.open(tmp_path / "snap") as snapshot:
        visit = Store(snapshot).session("a")
        assert visit.follow(f"{SITE}/empty").redirects
        found = visit.follow(f"{SITE}/ftp")
        assert (found.verdict, found.capture) == ("exact", None)
        assert found.error == "UnsupportedProtocol(\"Request URL has an unsupported protocol 'ftp://'.\")"
        assert "Invalid non-printable ASCII character" in (visit.follow(f"{SITE}/tab").error or "")


@pytest.mark.parametrize("signed_in", [False, True])
def test_of_two_orders_of_a_query_each_gets_its_own_answer(tmp_path: Path, signed_in: bool) -> None:
    """Whoever asked for the second alone got the first, and where nobody had signed in it was sure."""
    with Writer.open(tmp_path / "snap") as writer:
        site = Recorder(writer)
        if signed_in:
            sent = b'{"user":"ann"}'
            site.add(f"{SITE}/login", status=303, method="POST", sent=sent, headers=(("Location", "/"),))
        site.add(f"{SITE}/q?a=1&b=2", "<p>one</p>")
        site.add(f"{SITE}/q?b=2&a=1", "<p>two</p>")
    with Snapshot.open(tmp_path / "snap") as snapshot:
        store = Store(snapshot)
        visit = store.session("as recorded")
        for address in (f"{SITE}/q?a=1&b=2", f"{SITE}/q?b=2&a=1"):
            for found in (visit.follow(address), store.session(address).follow(address)):
                assert found.capture is not None
                assert (found.capture.url, found.verdict) == (address, "exact")
            by_rule = visit.follow(f"{address}&")
            assert by_rule.capture is not None
            assert (by_rule.capture.url, by_rule.verdict) == (address, "rule:empty-query")
