"""Steps that lead to a file: it is fetched, no view of the browser's own is stored, and the flow goes on."""

from pathlib import Path

import pytest

from stillweb.proxy.browser.browser import complete
from stillweb.proxy.browser.capture_view import Fetcher, FetchResult
from stillweb.proxy.browser.steps import Flow, parse_steps
from stillweb.proxy.check.check import check
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.sites import Answer, serve

PDF = b"%PDF-1.4\n%%EOF"
FLOWS = {
    # saved, shown and clicked
    "/?way": "- goto: /data.zip\n- click: More\n- goto: /moved\n- goto: /?back\n- click: Report\n- goto: /more\n",
    "/?stuck": "- goto: /report.pdf\n- click: More\n",
    "/?gone": "- goto: /gone.pdf\n- goto: /more\n",
    "/report.pdf": "- click: More\n",
}


def answer(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    if path == "/data.zip":
        return (
            200,
            {"Content-Type": "application/zip", "Content-Disposition": "attachment"},
            b"PK\5\6" + b"\0" * 18,
        )
    if path == "/moved":
        return 302, {"Location": "/report.pdf?v=2"}, b""
    if path == "/gone.pdf":
        return 404, {"Content-Type": "application/pdf"}, PDF
    if path.startswith("/report.pdf"):
        return 200, {"Content-Type": "application/pdf"}, PDF
    said = "more" if path == "/more" else "less"
    return (
        200,
        {"Content-Type": "text/html"},
        f"<p>{said}</p><a href=/more>More</a> <a href=/report.pdf>Report</a>".encode(),
    )


@pytest.mark.slow
@pytest.mark.whole_browser
def test_a_file_is_fetched_and_the_steps_go_on(tmp_path: Path) -> None:
    profile, authority = complete(Profile()), Authority.load_or_create(tmp_path / "state")
    with (
        serve(answer) as base,
        Writer.open(tmp_path / "snap", profile=profile) as writer,
        Recorder(writer, authority=authority) as recorder,
    ):
        flows = [Flow(base + path, parse_steps(steps)) for path, steps in FLOWS.items()]
        results = Fetcher(recorder, writer, profile).fetch([], flows)
    found = dict(zip(FLOWS, results, strict=True))

    def told(path: str) -> tuple[bool, int, list[tuple[str, str | None]]]:
        one: FetchResult = found[path]
        return one.ok, len(one.views), [(d.url.removeprefix(base), d.error) for d in one.documents]

    way = ["/report.pdf?v=2", "/report.pdf", "/data.zip"]  # what is saved comes last
    assert told("/?way") == (True, 4, [(file, None) for file in way])
    assert told("/?gone") == (True, 2, [("/gone.pdf", "status 404")])
    assert found["/?gone"].notes == [f"{base}/gone.pdf: status 404"]
    assert told("/?stuck")[:2] == (False, 1)
    assert found["/?stuck"].error == (
        f"step 2: click: {base}/report.pdf is a PDF, with nothing to act on; write a goto to a page before it"
    )
    assert told("/report.pdf") == (False, 0, [("/report.pdf", None)])
    assert found["/report.pdf"].error == (
        f"{base}/report.pdf: is a file, with nothing to act on: its steps were not done"
    )
    with Snapshot.open(tmp_path / "snap") as snapshot:
        seen = {snapshot.resource("text", view.address) for view in snapshot.views()}
        assert seen == {b"less\n\nMore Report", b"more\n\nMore Report"}
        with Gateway(snapshot, authority=authority) as gateway:
            report = check(snapshot, gateway)
    assert len(report.views) == 7
    assert [(view.same, view.missed, view.error) for view in report.views] == [(True, [], None)] * 7
