"""A page's event stream that was asked for again after its end, with its last event's id, is so in replay, too."""

import json
from pathlib import Path

import pytest

from stillweb.proxy.browser.browser import complete
from stillweb.proxy.check.check import check
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.view import View
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import exchange

PAGE = b"""<!doctype html><title>feed</title><p id=t></p><script>
const told = (text) => { t.textContent += text + " "; };
const e = new EventSource(location.pathname + "/events?of=all");
e.onmessage = (m) => told(m.data);
e.onerror = () => told(["waits", "open", "closed"][e.readyState]);
</script>"""
STREAM = (("Content-Type", "text/event-stream"),)


def told(*ids: int) -> bytes:
    return "".join(f"id: {n}\ndata: bird {n}\n\n" for n in ids).encode()


# for each page the answers, with the id that the browser sent and the status, and what the page then shows
PAGES = {
    "closed": ([("", 200, told(1, 2)), ("2", 200, told(3)), ("3", 204, b"")],
               "bird 1 bird 2 waits bird 3 waits closed"),
    "open": ([("", 200, told(1)), ("1", 200, told(2))], "bird 1 waits bird 2"),
    "empty": ([("", 200, told(1)), ("1", 200, b""), ("1", 200, told(2))], "bird 1 waits waits bird 2"),
    "never": ([("", 200, told(1))], "bird 1"),
    "nameless": ([("", 200, b"data: bird\n\n"), ("", 200, b"data: owl\n\n")], "bird"),
    "quoted": ([("", 200, b"id: a&b#c/1\ndata: bird\n\n"), ("a&b#c/1", 200, told(2))], "bird waits bird 2"),
}  # fmt: skip


@pytest.mark.slow
def test_an_event_stream_goes_on_after_its_last_event(tmp_path: Path) -> None:
    path, event = tmp_path / "snap", 0
    with Writer.open(path, profile=complete(Profile())) as writer:
        for name, (answers, text) in PAGES.items():
            url = f"http://example.test/{name}"
            for last, status, body in [("page", 200, PAGE), *answers]:
                event += 2
                named = (("Last-Event-ID", last),) if last not in ("", "page") else ()
                address, fields = (
                    (url, (("Content-Type", "text/html"),))
                    if last == "page"
                    else (f"{url}/events?of=all", STREAM)
                )
                writer.exchange(
                    exchange(
                        address, body, status=status, headers=fields, request_headers=named,
                        begin=event, end=event + 1, session=name,
                    )
                )  # fmt: skip
            resources = {
                "text": text.encode(),
                "aria": f"- paragraph: {text}".encode(),
                "pageinfo": json.dumps({}).encode(),
            }
            writer.view(View(name, url, url, "feed", ()), resources)
    with Snapshot.open(path) as snapshot, Gateway(snapshot) as gateway:
        report = check(snapshot, gateway)
        assert {v.address.rpartition("/")[2]: v.text_changes for v in report.views} == {
            name: [] for name in PAGES
        }
        assert not [v.missed for v in report.views if v.missed]
        entries = list(gateway.ledger.entries())
    assert not [entry["url"] for entry in entries if "stillweb-stream" in entry["url"]]
    assert [
        entry["url"] for entry in entries if entry["verdict"] == "synthetic"
    ]  # the streams that stay silent
