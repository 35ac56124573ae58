"""A web socket whose address holds a secret is found again by who has it, and told what was said, to the byte."""

from base64 import b64encode
from pathlib import Path

import pytest

from stillweb.proxy.browser.browser import complete
from stillweb.proxy.browser.capture_view import Fetcher
from stillweb.proxy.check.check import check
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.proxy.replay.websocket_player import found_at
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.secrets.redact import Redactor
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.proxy.streaming import streaming_site

MINE, OTHERS = "22110971-91ff-4340-9680-2b561439a6ce", "0b1c2d3e-4f50-4617-8829-9a0bacbdcedf"
PAGE = """<!DOCTYPE html><title>Kernel</title><h1>Kernel</h1><p>It has a name that the page has made for itself.</p><p id=said>none</p>
<script>
const id = crypto.randomUUID(), socket = new WebSocket(`ws://${location.host}/talk?session_id=${id}&room=1`);
socket.binaryType = "arraybuffer";
socket.onopen = () => socket.send(new TextEncoder().encode(`I am ${id}`));
socket.onmessage = ({ data }) => { if (typeof data !== "string") said.textContent =
  `${data.byteLength} bytes, ${new TextDecoder().decode(data).endsWith(id) ? "mine" : "another's"}`; };
</script>"""


@pytest.mark.slow
def test_a_page_that_names_itself_to_its_socket_is_told_the_same(tmp_path: Path) -> None:
    profile, path = complete(Profile()), tmp_path / "s"
    with (
        streaming_site(PAGE) as base,
        Writer.open(path, profile=profile) as writer,
        Recorder(writer) as recorder,
    ):
        (result,) = Fetcher(recorder, writer, profile).fetch([f"{base}/"])
    assert result.ok, result.error
    with Snapshot.open(seal(path).path) as snapshot, Gateway(snapshot) as gateway:
        text = (snapshot.resource("text", result.views[0]) or b"").decode()
        assert "48 bytes, mine" in text
        ((address, told),) = snapshot.conversations()
        assert "stillweb-secret-" in address
        assert all(
            "base64" in message or "welcome" in message["text"] or "room" in message["text"]
            for message in told["messages"]
        )
        report = check(snapshot, gateway)
        assert [(view.text_changes, view.missed, view.error) for view in report.views] == [([], [], None)]
        assert not [entry for entry in gateway.ledger.entries() if entry["ambiguous"]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    stored = Redactor(b"key").url(f"http://h.example/talk?room=1&session_id={MINE}")
    messages = [{"from": "server", "text": f"welcome {stored.rpartition('=')[2]}"}]
    with Writer.open(tmp_path / "s") as writer:
        for address in (stored, "http://h.example/talk?room=2", "http://h.example/talker?session_id=3"):
            writer.metadata(address, {"url": address, "session": "s", "begin": 1, "messages": messages})
    return tmp_path / "s"


def test_a_secret_whose_name_here_says_nothing_is_recognised(tmp_path: Path) -> None:
    stored = Redactor(b"key").learn("s_rhohcn")
    with Writer.open(tmp_path / "s") as writer:
        address = f"http://h.example/talk?room=1&session_id={stored}"
        writer.metadata(address, {"url": address, "session": "s", "begin": 1, "messages": []})
    with Snapshot.open(tmp_path / "s") as snapshot:
        mine = found_at(snapshot, "http://h.example/talk?session_id=s_rhohcn&room=1")
        assert (len(mine.conversations), mine.sure) == (1, True)
        assert mine.secrets.to_stored("I am s_rhohcn") == f"I am {stored}"
        other = found_at(snapshot, "http://h.example/talk?room=1&session_id=s_other")
        assert (len(other.conversations), other.sure) == (1, False)


@pytest.mark.parametrize(
    ("query", "count", "sure"),
    [
        (f"room=1&session_id={MINE}", 1, True),
        (f"session_id={MINE}&room=1", 1, True),
        (f"room=1&session_id={OTHERS}", 1, False),
        (f"room=3&session_id={MINE}", 0, True),
        ("room=1", 0, True),
        ("room=2", 1, True),
    ],
)
def test_whose_it_is_is_told_from_the_secret(path: Path, query: str, count: int, sure: bool) -> None:
    with Snapshot.open(path) as snapshot:
        found = found_at(snapshot, f"http://h.example/talk?{query}")
        assert (len(found.conversations), found.sure) == (count, sure)
        if MINE in query and count:
            stored = found.conversations[0].messages[0][1]
            assert found.secrets.to_live(stored) == f"welcome {MINE}"
            assert found.secrets.to_stored(f"welcome {MINE}") == stored
            assert (
                found.secrets.to_stored(found.secrets.to_live(str(stored).encode())) == str(stored).encode()
            )


def test_who_has_another_secret_is_told_that_one(tmp_path: Path) -> None:
    """Recorded under two of them, each with its own in what was said; the later one's address is first by its text."""
    with Writer.open(tmp_path / "s") as writer:
        for begin, secret in ((5, TAB), (1, MINE)):
            address = Redactor(b"key").url(f"http://h.example/talk?room=1&session_id={secret}")
            said = [
                {"from": "client", "text": f"{begin}: I am {address.rpartition('=')[2]}"},
                {
                    "from": "server",
                    "base64": b64encode(b"\xff" + address.rpartition("=")[2].encode()).decode(),
                },
            ]
            told = {"url": address, "session": "s", "begin": begin, "messages": said}
            writer.metadata(address, told)
    with Snapshot.open(tmp_path / "s") as snapshot:
        found = found_at(snapshot, f"http://h.example/talk?session_id={OTHERS}&room=1")
        assert not found.sure
        assert [one.begin for one in found.conversations] == [1, 5]
        for one in found.conversations:
            asked = found.secrets.to_stored(f"{one.begin}: I am {OTHERS}")
            assert asked == one.messages[0][1]
            assert found.secrets.to_live(one.messages[1][1]) == b"\xff" + OTHERS.encode()


TAB, TAB2 = "3f2b8c1e-5d6a-4b7c-8d9e-0a1b2c3d4e5f", "9c1e3f2b-5d6a-4b7c-8d9e-0a1b2c3d4e5f"


@pytest.mark.parametrize(
    ("asked", "given", "found"),
    [
        (f"client=7&view={TAB}", (), (1, True, "redacted")),
        (f"client=7&view={TAB2}", (), (1, False, "visit-id")),
        (
            f"client=7&view={TAB2}",
            (TAB2,),
            (0, True, "redacted"),
        ),  # the site named it: another thing than the recorded one
        (f"client=8&view={TAB2}", (), (0, True, "redacted")),
        (f"view={TAB2}&client=7", (), (0, True, "redacted")),
        ("client=7&view=plain", (), (0, True, "redacted")),
    ],
)
def test_an_address_that_differs_in_what_its_page_drew_is_unsure(
    tmp_path: Path, asked: str, given: tuple[str, ...], found: tuple[int, bool, str]
) -> None:
    stored = f"http://h.example/talk?client=7&view={TAB}"
    with Writer.open(tmp_path / "s") as writer:
        writer.metadata(
            stored,
            {"url": stored, "session": "s", "begin": 1, "messages": [{"from": "server", "text": "hi"}]},
        )
    with Snapshot.open(tmp_path / "s") as snapshot:
        got = found_at(snapshot, f"http://h.example/talk?{asked}", lambda value: value in given)
    assert (len(got.conversations), got.sure, got.rule) == found
