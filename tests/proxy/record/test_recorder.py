"""The recorder against real origins: sessions, order, quiet, status, commands."""

import gc
import sys
import threading
from pathlib import Path

import httpx
import pytest

from stillweb.proxy.record.recorder import RecorderStats, record_command
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.writer import Writer
from tests.proxy.lab import Lab, by_path, client, gate
from tests.proxy.recordings import recorded
from tests.support.waiting import HANG, until


def test_protocols_sessions_and_order(lab: Lab, tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder:
        with client(recorder, "first") as one, client(recorder, "zweite Sitzung, ü", http2=False) as two:
            assert one.get("https://demo.example/a?x=1&x=2").http_version == "HTTP/2"
            assert two.get("https://demo.example/b").http_version == "HTTP/1.1"
            assert one.get("http://plain.example/c").text == "you asked for /c"
        assert recorder.wait_quiet("first", 0)
        assert recorder.wait_quiet("zweite Sitzung, ü", 0)
        first = recorder.captures_of("first")
        assert [(c.url, c.begin, c.end) for c in first] == [
            ("https://demo.example/a?x=1&x=2", 1, 2),
            ("http://plain.example/c", 3, 4),
        ]
        assert recorder.captures_of("first", since=3) == first[1:]
        stats = recorder.stats
    assert (stats.requests, stats.captures, stats.failures, stats.under_way, stats.queued) == (3, 3, 0, 0, 0)
    found = by_path(recorded(tmp_path / "s"))
    assert found["/a?x=1&x=2"].warc["WARC-Protocol"] == "h2"
    assert found["/b"].warc["WARC-Protocol"] == "http/1.1"
    assert found["/b"].events == (1, 2)
    assert found["/a?x=1&x=2"].asked("Host") == "demo.example"
    assert found["/a?x=1&x=2"].warc["WARC-IP-Address"] == "127.0.0.1"
    assert all(r.asked("Proxy-Authorization") is None for r in found.values())
    assert all(a.header("Proxy-Authorization") is None for a in lab.plain.asked + lab.secure.asked)
    assert all(
        a.header("Host") in ("demo.example", "plain.example") for a in lab.plain.asked + lab.secure.asked
    )


def test_quiet_waits_for_what_is_under_way(lab: Lab, tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder, client(recorder) as c:
        assert recorder.wait_quiet(seconds=0.05)
        thread = threading.Thread(target=lambda: c.get("http://plain.example/slow"))
        gate.open.clear()
        thread.start()
        assert until(lambda: recorder.stats.under_way)
        assert not recorder.wait_quiet(seconds=0, timeout=0.1)
        assert recorder.wait_quiet("someone else", seconds=0, timeout=HANG)
        gate.open.set()
        assert recorder.wait_quiet(seconds=0.05, timeout=HANG)
        assert [c.url for c in recorder.captures_of()] == ["http://plain.example/slow"]
        thread.join()


def test_its_own_pages(lab: Lab, tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder, client(recorder) as c:
        assert c.get("http://stillweb.local/").json()["recording"] is True
        assert c.get("http://stillweb.local/ca.pem").content == lab.ours.certificate_pem
        assert c.get("http://stillweb.local/other").status_code == 404
        with pytest.raises(httpx.ProxyError):
            c.get("https://stillweb.local/")
    assert recorded(tmp_path / "s") == []
    assert recorder.stats.requests == 0


def test_a_browser_is_asked_for_its_session(lab: Lab, tmp_path: Path) -> None:
    """Browsers send credentials only after a 407; without named sessions nobody is asked."""
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder:
        with httpx.Client(proxy=recorder.url, trust_env=False, timeout=HANG) as c:
            assert c.get("http://plain.example/unasked").status_code == 200
            recorder.proxy_url("tab")
            refused = c.get("http://plain.example/asked")
            assert refused.status_code == 407
            assert refused.headers["proxy-authenticate"].startswith("Basic")
            with pytest.raises(httpx.ProxyError, match="407"):
                c.get("https://demo.example/asked")
        assert recorder.failures == []
    assert [r.url for r in recorded(tmp_path / "s")] == ["http://plain.example/unasked"]


@pytest.mark.parametrize("name", ["", " x", "a\nb", "a\x00b", "a:b", "100%"])
def test_impossible_session_names(lab: Lab, tmp_path: Path, name: str) -> None:
    with Writer.open(tmp_path / "s") as writer:
        recorder = lab.recorder(writer)
        with pytest.raises(UsageError, match="session"):
            recorder.proxy_url(name)
        recorder.close()


def test_status_is_reported(lab: Lab, tmp_path: Path) -> None:
    seen: list[RecorderStats] = []
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer, on_status=seen.append) as recorder:
        with client(recorder) as c:
            c.get("http://plain.example/x")
        assert until(lambda: seen and seen[-1].captures)
    assert seen[-1].captures == 1
    assert "1 captured" in seen[-1].line()
    assert "queued" in seen[-1].line()


def test_what_was_delivered_is_written_when_it_stops(lab: Lab, tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        with lab.recorder(writer) as recorder, client(recorder) as c:
            for number in range(100):
                c.get(f"http://plain.example/{number}")
        assert recorder.stats.queued == 0
        recorder.close()  # again: no harm
    assert sorted(int(r.url.rpartition("/")[2]) for r in recorded(tmp_path / "s")) == list(range(100))


def test_a_command_is_recorded_and_its_exit_code_given(lab: Lab, tmp_path: Path) -> None:
    code = (
        "import sys, urllib.request\n"
        "for url in ('https://demo.example/from-command', 'http://plain.example/too'):\n"
        "    assert urllib.request.urlopen(url).status == 200\n"
        "sys.exit(5)\n"
    )
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer) as recorder:
        assert record_command([sys.executable, "-c", code], recorder) == 5
        assert [c.url for c in recorder.captures_of()] == [
            "https://demo.example/from-command",
            "http://plain.example/too",
        ]
        assert record_command([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], recorder) == 137
        with pytest.raises(UsageError, match="no-such-command"):
            record_command(["no-such-command"], recorder)


def test_a_recorder_sets_nothing_for_the_whole_process(lab: Lab, tmp_path: Path) -> None:
    before = sys.getswitchinterval(), gc.get_threshold()
    with Writer.open(tmp_path / "s") as writer, lab.recorder(writer):
        assert (sys.getswitchinterval(), gc.get_threshold()) == before
