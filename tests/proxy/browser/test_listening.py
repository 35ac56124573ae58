"""While recording, pages with streams wait for servers that are at work, and for what was asked of them."""

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
from tests.support.waiting import HANG, until

WORKING = """<!DOCTYPE html><meta charset=utf-8><title>Mills</title><h1>Mills</h1><p>The mills along the river were built over four centuries.</p>
<p id=state>idle</p><p id=ran>none</p><mill-state></mill-state>
<style>@keyframes turn { to { transform: rotate(1turn) } } .wheel::before { content: "+" } i.wheel { display: inline-block; animation: turn 1s infinite }</style>
<i id=wheel></i><script>
const shadow = document.querySelector("mill-state").attachShadow({mode: "open"}).appendChild(document.createElement("p"));
const signs = {
  words: () => { state.textContent = "Running…"; },
  role: () => { state.setAttribute("aria-busy", "true"); },
  wheel: () => { wheel.className = "wheel"; },
  root: () => { document.documentElement.className = "app-busy"; },
  title: () => { document.title = "Updating..."; },
  shadow: () => { shadow.textContent = "Running…"; },
  busy: () => { shadow.setAttribute("aria-busy", "true"); },
};
const socket = new WebSocket(`ws://${location.host}/talk?room=1`);
let ticks = 0, asked = 0, work = "";
setInterval(() => { ticks++; }, 100);
socket.onmessage = (e) => {
  if (e.data === "begun") { signs[work.split(" ")[1]](); return; }
  if (!e.data.startsWith("the end")) return;
  wheel.className = document.documentElement.className = shadow.textContent = ""; document.title = "Mills";
  for (const one of [state, shadow]) one.removeAttribute("aria-busy");
  state.textContent = e.data;
  if (work === "soon") ran.textContent = `${ticks - asked} ticks`;
};
for (const name of [...Object.keys(signs).map((sign) => `work ${sign}`), "ponder", "soon"]) {
  const b = document.createElement("button");
  b.textContent = name;
  b.onclick = () => { asked = ticks; work = name; socket.send(name); };
  document.body.append(b);
}
</script>"""
SIGNS = ["words", "role", "wheel", "root", "title", "shadow", "busy"]  # the last two in a shadow tree
WORKS = [*(f"work {sign}" for sign in SIGNS), "ponder", "soon"]
SHADOWED = """<!DOCTYPE html><meta charset=utf-8><title>Mills</title><mill-page></mill-page><script>
const root = document.querySelector("mill-page").attachShadow({mode: "open"});
root.innerHTML = "<h1>Mills</h1><p>The mills along the river were built over four centuries.</p>";
new WebSocket(`ws://${location.host}/talk?room=1`);
</script>"""


class Thinking(threading.Event):
    """Over when the streams have been silent twice since it began: a step that does not wait needs one."""

    silences = 0

    def wait(self, timeout: float | None = None) -> bool:
        enough = self.silences + 2
        return until(lambda: self.silences >= enough or self.is_set(), timeout or HANG)


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


def texts_of(path: Path, result: FetchResult) -> list[str]:
    """The views' texts, which replay shows, too."""
    with Snapshot.open(path) as snapshot, Gateway(snapshot) as gateway:
        report = check(snapshot, gateway)
        assert not [view for view in report.views if view.text_changes or view.error or view.missed]
        return [(snapshot.resource("text", view) or b"").decode() for view in result.views]


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The text of the page after each kind of work."""
    path, thinking, real = tmp_path_factory.mktemp("worked") / "s", Thinking(), Silence.holds

    async def counted(self: Silence, *given: Any) -> bool:
        silent = await real(self, *given)
        thinking.silences += silent
        return silent

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Silence, "holds", counted)
        result = record(WORKING, str([{"click": work} for work in WORKS]), path, thinking)
    assert not [note for note in result.notes if "quiet" in note]
    return dict(zip(WORKS, texts_of(path, result)[1:], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("sign", SIGNS)
def test_a_page_that_says_that_it_is_at_work_is_waited_for(worked: dict[str, str], sign: str) -> None:
    assert f"the end of work {sign}" in worked[f"work {sign}"]


@pytest.mark.slow
def test_a_server_that_was_asked_and_has_not_said_a_word_is_waited_for(worked: dict[str, str]) -> None:
    assert "the end of ponder" in worked["ponder"]


@pytest.mark.slow
def test_the_clock_stands_while_a_socket_is_asked(worked: dict[str, str]) -> None:
    """In replay an answer comes at once; a running clock would have it come at another time of the page."""
    assert "the end of soon\n\n0 ticks" in worked["soon"]


@pytest.mark.slow
def test_a_page_that_shows_all_in_a_shadow_tree_is_not_bare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bare one is waited for as long as a server may take, at each step."""

    async def waited(*_: object) -> bool:
        raise AssertionError("waited for more than the silence of its streams")

    monkeypatch.setattr(Silence, "breaks", waited)
    assert record(SHADOWED, "[]", tmp_path / "s").views


@pytest.mark.slow
def test_what_a_server_says_of_itself_is_in_the_view_after_the_step_that_waited_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, path = threading.Event(), tmp_path / "s"
    real = Recorder.mark_view_taken

    def watched(self: Recorder, *given: Any) -> None:
        real(self, *given)
        seen.set()

    monkeypatch.setattr(Recorder, "mark_view_taken", watched)
    page = WORKING.replace("room=1", "room=late").replace(
        'if (!e.data.startsWith("the end")) return;', "ran.textContent = `${ticks} ticks`;"
    )
    result = record(page, "[{wait: {text: news of itself}}]", path, seen)
    before, after = texts_of(path, result)
    assert "news of itself" in after
    assert "news" not in before


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
        "never quiet: says that it is still loading: p Loading..."
    ]
    assert not [note for note in again.notes if "quiet" in note]
