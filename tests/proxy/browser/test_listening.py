"""While recording, pages with streams wait for servers that are at work, and for what was asked of them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from stillweb.proxy.browser.browser import complete
from stillweb.proxy.browser.capture_view import Fetcher, FetchResult
from stillweb.proxy.browser.settle import SettleTimeouts
from stillweb.proxy.browser.steps import parse_steps
from stillweb.proxy.check.check import check
from stillweb.proxy.net.stream_idle import Silence
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.streaming import streaming_site
from tests.support.waiting import HANG

WORKING = """<!DOCTYPE html><meta charset=utf-8><title>Mills</title><h1>Mills</h1><p>The mills along the river were built over four centuries.</p>
<button id=work>Work</button><button id=ponder>Ponder</button><button id=soon>Soon</button><p id=state>idle</p><p id=ran>none</p>
<style>@keyframes turn { to { transform: rotate(1turn) } } .wheel::before { content: "+" } i.wheel { display: inline-block; animation: turn 1s infinite }</style>
<i id=wheel></i><script>
const socket = new WebSocket(`ws://${location.host}/talk?room=1`);
let ticks = 0, asked = 0;
setInterval(() => { ticks++; }, 100);
socket.onmessage = (e) => {
  if (e.data === "begun") { SIGN; return; }
  if (!e.data.startsWith("the end")) return;
  wheel.className = document.documentElement.className = ""; state.removeAttribute("aria-busy"); document.title = "Mills";
  state.textContent = e.data;
  if (e.data.endsWith("soon")) ran.textContent = `${ticks - asked} ticks`;
};
for (const b of document.querySelectorAll("button")) b.onclick = () => { asked = ticks; socket.send(b.id); };
</script>"""
SHADOWED = """<!DOCTYPE html><meta charset=utf-8><title>Mills</title><mill-page></mill-page><script>
const root = document.querySelector("mill-page").attachShadow({mode: "open"});
root.innerHTML = "<h1>Mills</h1><p>The mills along the river were built over four centuries.</p><button>Work</button><p id=state>idle</p>";
const [button, state] = root.querySelectorAll("button,#state"), socket = new WebSocket(`ws://${location.host}/talk?room=1`);
socket.onmessage = (e) => { if (e.data === "begun") SIGN; else if (/^the end/.test(e.data)) { state.removeAttribute("aria-busy"); state.textContent = e.data; } };
button.onclick = () => socket.send("work");
</script>"""
SIGNS = {
    "words": "state.textContent = 'Running…'",
    "role": "state.setAttribute('aria-busy', 'true')",
    "wheel": "wheel.className = 'wheel'",
    "root": "document.documentElement.className = 'app-busy'",
    "title": "document.title = 'Updating...'",
}


@pytest.fixture
def thinking(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the streams have been silent four times: the page's load needs one, a step without waiting another."""
    done, silences = threading.Event(), []
    real = Silence.kept

    async def counted(self: Silence, *given: Any) -> bool:
        silent = await real(self, *given)
        silences.extend([silent] * silent)
        if len(silences) == 4:
            done.set()
        return silent

    monkeypatch.setattr(Silence, "kept", counted)
    return done


def record(page: str, steps: str, path: Path, thinking: threading.Event | None = None) -> FetchResult:
    profile = complete(Profile())
    patience = SettleTimeouts(stuck=HANG, busy=HANG)
    with (
        streaming_site(page, thinking) as base,
        Writer.open(path, profile=profile) as writer,
        Recorder(writer) as recorder,
    ):
        (result,) = Fetcher(recorder, writer, profile, patience=patience).fetch(
            [f"{base}/"], parse_steps(steps)
        )
        if thinking is not None:
            thinking.set()
    assert result.ok, result.error
    return result


def text_of(path: Path, result: FetchResult) -> str:
    """The last view's text, which replay shows, too."""
    with Snapshot.open(path) as snapshot, Gateway(snapshot) as gateway:
        report = check(snapshot, gateway)
        assert [(view.text_changes, view.error, view.missed) for view in report.views] == [([], None, [])] * 2
        return (snapshot.resource("text", result.views[-1]) or b"").decode()


@pytest.mark.slow
@pytest.mark.parametrize("sign", SIGNS)
def test_a_page_that_says_that_it_is_at_work_is_waited_for(
    sign: str, tmp_path: Path, thinking: threading.Event
) -> None:
    result = record(WORKING.replace("SIGN", SIGNS[sign]), "[{click: Work}]", tmp_path / "s", thinking)
    assert "the end of work" in text_of(tmp_path / "s", result)
    assert not [note for note in result.notes if "quiet" in note]


@pytest.mark.slow
@pytest.mark.parametrize("sign", ["words", "role"])
def test_so_is_one_that_says_it_in_a_shadow_tree(
    sign: str, tmp_path: Path, thinking: threading.Event
) -> None:
    result = record(SHADOWED.replace("SIGN", SIGNS[sign]), "[{click: Work}]", tmp_path / "s", thinking)
    assert "the end of work" in text_of(tmp_path / "s", result)


@pytest.mark.slow
def test_a_page_that_shows_all_in_a_shadow_tree_is_not_bare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bare one is waited for as long as a server may take, at each step."""

    async def waited(*_: object) -> bool:
        raise AssertionError("waited for more than the silence of its streams")

    monkeypatch.setattr(Silence, "broken", waited)
    assert record(SHADOWED, "[]", tmp_path / "s").views


@pytest.mark.slow
def test_a_server_that_was_asked_and_has_not_said_a_word_is_waited_for(
    tmp_path: Path, thinking: threading.Event
) -> None:
    result = record(WORKING, "[{click: Ponder}]", tmp_path / "s", thinking)
    assert "the end of ponder" in text_of(tmp_path / "s", result)


@pytest.mark.slow
def test_the_clock_stands_while_a_socket_is_asked(tmp_path: Path) -> None:
    """Else an answer would come at another time of the page than in replay, where it comes at once."""
    result = record(WORKING, "[{click: Soon}]", tmp_path / "s")
    assert text_of(tmp_path / "s", result).endswith("the end of soon\n\n0 ticks")


@pytest.mark.slow
def test_what_a_server_says_of_itself_is_in_the_view_after_the_step_that_waited_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, path = threading.Event(), tmp_path / "s"
    real = Recorder.looked

    def looked(self: Recorder, *given: Any) -> None:
        real(self, *given)
        seen.set()

    monkeypatch.setattr(Recorder, "looked", looked)
    page = WORKING.replace("room=1", "room=late").replace(
        'if (!e.data.startsWith("the end")) return;', "ran.textContent = `${ticks} ticks`;"
    )
    result = record(page, "[{wait: {text: news of itself}}]", path, seen)
    text = text_of(path, result)
    assert "news of itself" in text
    with Snapshot.open(path) as snapshot:
        assert "news" not in (snapshot.resource("text", result.views[0]) or b"").decode()


@pytest.mark.slow
def test_a_sign_that_nothing_follows_is_told_and_then_not_believed(tmp_path: Path) -> None:
    page = WORKING.replace("<i id=wheel>", "<p aria-label='Loading...'>of grain</p><i id=wheel>")
    profile, path = complete(Profile()), tmp_path / "s"
    patience = SettleTimeouts(busy=1.0)
    with (
        streaming_site(page) as base,
        Writer.open(path, profile=profile) as writer,
        Recorder(writer) as recorder,
    ):
        fetcher = Fetcher(recorder, writer, profile, patience=patience)
        first, again = (fetcher.fetch([f"{base}/{at}"])[0] for at in ("", "?again"))
    assert [note for note in first.notes if "quiet" in note] == [
        "never quiet: says that it is still at work: p Loading..."
    ]
    assert not [note for note in again.notes if "quiet" in note]
