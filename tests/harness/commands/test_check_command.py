"""`stillweb check`: the thresholds, the page with both pictures, and which captures are held against a view."""

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from PIL import Image

import stillweb.proxy.check.check
from stillweb.harness.commands.check import command
from stillweb.harness.view.export import check_page
from stillweb.proxy.browser.browser import complete
from stillweb.proxy.check.check import CheckReport, ViewCheck
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.view import View
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import exchange
from tests.support.pages import chromium


def picture() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (1280, 720), (200, 30, 30)).save(out, "PNG")
    return out.getvalue()


def make(path: Path) -> None:
    """Two views: of the first an image was never there, and its text is right; both pictures are wrong."""
    gone = "http://example.test/gone.png"
    with Writer.open(path, profile=complete(Profile())) as writer:
        for number, (url, text, lost) in enumerate(
            [("http://example.test/a", "one", [gone]), ("http://example.test/b", "other", [])]
        ):
            writer.exchange(
                exchange(url, b"<title>T</title><p>one</p><img src='/gone.png' alt=''>", begin=number * 2, end=number * 2 + 1)
            )  # fmt: skip
            captures = ({"url": url, "method": "GET", "status": 200, "digest": ""},)
            captures += ({"url": f"{url}/never", "method": "GET", "status": 200, "digest": ""},)
            view = View(url, url, url, "T", (), captures=captures)
            resources = {
                "view": picture(),
                "text": text.encode(),
                "aria": b"- paragraph: one",
                "pageinfo": json.dumps({"lost": lost}).encode(),
            }
            writer.view(view, resources)


@pytest.mark.slow
def test_thresholds_page_and_captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "snap")
    real = stillweb.proxy.check.check.check

    @cache  # one browser for all
    def once() -> CheckReport:
        from stillweb.proxy.replay.gateway import Gateway
        from stillweb.snapshots import Snapshot

        with Snapshot.open(tmp_path / "snap") as snapshot, Gateway(snapshot) as gateway:
            return real(snapshot, gateway, parallel=2)

    def check(*_: Any, **options: Any) -> CheckReport:
        asked.append(options["parallel"])
        return once()

    asked: list[int | None] = []
    monkeypatch.setattr(stillweb.proxy.check.check, "check", check)
    page = tmp_path / "check.html"
    run = CliRunner().invoke(
        command, [str(tmp_path / "snap"), "--json", "--html", str(page), "--parallel", "3"], standalone_mode=False
    )  # fmt: skip
    assert run.exception is None, run.output
    assert run.return_value == 1
    assert asked == [3]
    rows = {row["view"]: row for row in json.loads(run.stdout)["views"]}
    first, second = rows["http://example.test/a"], rows["http://example.test/b"]
    assert (first["text"], first["missed"], first["error"]) == (1.0, [], None)
    assert first["pixels"] < 0.5
    assert first["unasked"] == ["http://example.test/a/never"]
    assert second["text"] < 1.0
    assert second["missed"] == ["http://example.test/gone.png"]  # nothing says that it was not there
    html = page.read_text()
    for label in ("recorded", "replayed", "difference"):
        assert html.count(f"<figcaption>{label}</figcaption>") == 2
    assert "http://example.test/a/never" in html

    # a share below each bar is exit code 1, and so is anything missed
    report = once()
    for view in report.views:
        view.missed.clear()
    for words, code, why in (
        (["--text", "0.5", "--pixels", "0"], 0, None),
        (["--text", "0.6", "--pixels", "0"], 1, "text equal in 50.0%, 60.0% asked for"),
        (["--text", "0.5", "--pixels", "0.1"], 1, "pixels equal in 0.0%, 10.0% asked for"),
    ):
        done = CliRunner().invoke(command, [str(tmp_path / "snap"), *words], standalone_mode=False)
        assert done.return_value == code, (words, done.output)
        assert (f"not passed: {why}\n" in done.output, "not passed" in done.output) == (why is not None,) * 2
    assert CliRunner().invoke(command, [str(tmp_path / "snap"), "--text", "2"]).exit_code == 2
    assert "text equal in 50.0%" in done.output


def test_without_views_nothing_is_called_equal(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "snap") as writer:
        writer.exchange(exchange("http://example.test/a", b"page", begin=0, end=1))
    done = CliRunner().invoke(command, [str(tmp_path / "snap")], standalone_mode=False)
    assert (done.return_value, "100" in done.output, "there is no view to compare" in done.output) == (
        1,
        False,
        True,
    )


@pytest.mark.slow
def test_the_page_fits_a_phone_and_follows_the_reader_s_light(tmp_path: Path) -> None:
    long = f"http://example.test/{'a' * 300}"
    views = [ViewCheck(long, "", ["click Apply"], 1.0, 1.0, 1.0), ViewCheck(long, "T", [], missed=[long])]
    (tmp_path / "check.html").write_text(check_page(CheckReport(views, 1.0), "site.wacz", "0" * 64))
    seen = []
    for scheme in ("light", "dark"):
        with chromium(viewport={"width": 375, "height": 700}, color_scheme=scheme) as page:
            page.goto((tmp_path / "check.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert page.locator("main h1").count() == 1  # as a screen reader finds them
            assert all(page.locator("th").all_inner_texts())
            seen.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(set(seen)) == 2
