"""A page that asks third parties which are gone: recorded, checked and looked at again without a miss."""

from pathlib import Path

import pytest

from stillweb.proxy.browser.browser import complete
from stillweb.proxy.browser.capture_view import Fetcher
from stillweb.proxy.check.check import check
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.proxy.dead import UNKNOWN, closed_port
from tests.proxy.lab import Lab
from tests.proxy.sites import Answer, serve

PAGE = """<!DOCTYPE html><title>T</title><h1>Mills</h1><ul id=o></ul><script>
function tell(what) { const li = document.createElement('li'); li.textContent = what; o.append(li) }
</script>
<script src="http://127.0.0.1:DEAD/counter.js?_=1" onerror="tell('no counter')"></script>
<script src="https://127.0.0.1:DEAD/ads.js" onerror="tell('no ads')"></script>
<script src="http://UNKNOWN/fonts.js" onerror="tell('no fonts')"></script>
<script>fetch('https://UNKNOWN/api').catch(() => tell('no api'))</script>"""


@pytest.mark.slow
def test_a_page_with_dead_third_parties_misses_nothing(lab: Lab, tmp_path: Path) -> None:
    with closed_port() as dead:
        page = PAGE.replace("DEAD", str(dead)).replace("UNKNOWN", UNKNOWN).encode()

        def handle(method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
            return 200, {"Content-Type": "text/html"}, page

        profile = complete(Profile())
        with (
            serve(handle) as base,
            Writer.open(tmp_path / "s", profile=profile) as writer,
            lab.recorder(writer) as recorder,
        ):
            (result,) = Fetcher(recorder, writer, profile).fetch([f"{base}/"])
        assert result.error is None
        site = seal(tmp_path / "s").path
        with Snapshot.open(site) as snapshot, Gateway(snapshot, authority=lab.ours) as gateway:
            text = (snapshot.resource("text", f"{base}/") or b"").decode()
            report = check(snapshot, gateway)
            (view,) = report.views
            lines = gateway.ledger.entries()
    assert all(what in text for what in ("no counter", "no ads", "no fonts", "no api"))
    assert report.passed(text=1.0, pixels=1.0)
    assert (view.missed, view.unasked, view.used) == ([], [], 1)
    assert gateway.stats.misses == 0
    failed = {
        (one["method"], one["url"], one["verdict"]) for one in lines if one["verdict"].startswith("failed:")
    }
    assert failed == {
        ("GET", f"http://127.0.0.1:{dead}/counter.js?_=1", "failed:refused"),
        ("CONNECT", f"https://127.0.0.1:{dead}/", "failed:refused"),
        ("GET", f"http://{UNKNOWN}/fonts.js", "failed:dns"),
        ("CONNECT", f"https://{UNKNOWN}/", "failed:dns"),
    }
