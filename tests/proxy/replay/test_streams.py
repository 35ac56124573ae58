"""Web sockets and event streams: recorded, said again in order, and missed when the client strays."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import wsproto
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, CloseConnection, Event, Request, TextMessage

from stillweb.proxy.browser.browser import complete
from stillweb.proxy.browser.capture_view import Fetcher
from stillweb.proxy.browser.settle import SettleTimeouts
from stillweb.proxy.browser.steps import parse_steps
from stillweb.proxy.check.check import check
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.record.redaction import ExchangeRedactor
from stillweb.proxy.replay.gateway import Gateway
from stillweb.proxy.replay.websocket_player import (
    Conversation,
    Player,
    RecordedConversations,
    RecordedMessage,
    conversation,
    conversations,
    is_same_message,
)
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.secrets.redact import Redactor
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.proxy.recordings import recorded
from tests.proxy.streaming import streaming_site
from tests.support.waiting import HANG, until


@dataclass
class Recorded:
    base: str
    path: Path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    path = tmp_path_factory.mktemp("streams") / "s"
    profile = complete(Profile())
    with streaming_site() as base, Writer.open(path, profile=profile) as writer, Recorder(writer) as recorder:
        fetcher = Fetcher(recorder, writer, profile, patience=SettleTimeouts(stuck=HANG))
        (result,) = fetcher.fetch([f"{base}/"], parse_steps("[{click: More}]"))
        assert result.ok, result.error
        assert len(result.views) == 2
        told = [note for note in result.notes if "streams" in note]
        assert told == [f"open streams: {base}/events, ws:{base[5:]}/talk"]  # once for both views
        assert not [failure for failure in recorder.failures if "favicon" not in failure[0]]
    return Recorded(base, path)


@pytest.mark.slow
def test_a_secret_in_a_sockets_address_is_in_no_view(tmp_path: Path) -> None:
    """The secret is known before the view is stored, and not only when the socket has ended."""
    secret = "22110971-91ff-4340-9680-2b561439a6ce"
    page = f"<h1>Live</h1><script>new WebSocket(`ws://${{location.host}}/talk?session_id={secret}`)</script>"
    path, profile = tmp_path / "s", complete(Profile())
    with (
        streaming_site(page + "<p>" + "A mill and its wheel. " * 9) as base,
        Writer.open(path, profile=profile) as writer,
        Recorder(writer) as recorder,
    ):
        (result,) = Fetcher(recorder, writer, profile).fetch([f"{base}/"])
    with Snapshot.open(path) as snapshot:
        told = json.loads(snapshot.resource("pageinfo", result.views[0]) or b"")["streams"]
    assert len(told) == 1
    assert "session_id=stillweb-secret-" in told[0]


@pytest.mark.slow
def test_views_with_streams_are_reached_again(site: Recorded) -> None:
    with Snapshot.open(site.path) as snapshot, Gateway(snapshot) as gateway:
        report = check(snapshot, gateway, patience=SettleTimeouts(stuck=HANG))
        assert [view.text_changes for view in report.views] == [[], []]
        assert [(v.text, v.aria, v.missed, v.error) for v in report.views] == [(1.0, 1.0, [], None)] * 2
        texts = [(snapshot.resource("text", view.address) or b"").decode() for view in snapshot.views()]
        assert "welcome\nto the room\nthe list: a, b" in texts[0].replace("open\n", "")
        assert "7 first\nspecial of two lines\n7 third" in texts[0]
        assert texts[1].count("one more") == 1
        talks = [entry for entry in gateway.ledger.entries() if "/talk" in entry["url"]]
        assert [(entry["url"], entry["verdict"], entry["status"]) for entry in talks] == [
            (f"{site.base}/talk?room=1", "exact", 101)
        ]


@contextmanager
def asking(
    gateway: Gateway, base: str, target: str = "/talk?room=1"
) -> Iterator[tuple[socket.socket, wsproto.WSConnection]]:
    """Ask for a web socket as a plain client does."""
    host = base.removeprefix("http://")
    with socket.create_connection(("127.0.0.1", int(gateway.url.rpartition(":")[2]))) as peer:
        peer.settimeout(HANG)
        peer.sendall(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert b" 200 " in peer.recv(4096)
        ws = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        peer.sendall(ws.send(Request(host=host, target=target)))
        yield peer, ws


def talk(gateway: Gateway, base: str, messages: list[str], target: str = "/talk?room=1") -> list[str]:
    """Return the messages that a plain client hears."""
    heard: list[str] = []
    with asking(gateway, base, target) as (peer, ws):
        waiting = list(messages)
        while True:
            data = peer.recv(4096)
            ws.receive_data(data or None)
            for event in ws.events():
                heard += told(event)
                if isinstance(event, CloseConnection):
                    return heard
                if waiting and (len(heard) in (2, 3)):
                    for message in waiting.pop(0).split("\n"):
                        peer.sendall(ws.send(TextMessage(message)))
                elif not waiting and len(heard) > 1 and ws.state is ConnectionState.OPEN:
                    peer.sendall(ws.send(CloseConnection(1000)))
            if not data:
                return heard


def told(event: Event) -> list[str]:
    match event:
        case TextMessage():
            return [event.data]
        case CloseConnection():
            return [f"closed {event.code} {event.reason}"]
        case AcceptConnection():
            return []
    return [repr(event)]


@pytest.mark.slow
def test_what_was_not_recorded_is_a_miss_and_the_socket_goes_on(site: Recorded) -> None:
    with Snapshot.open(site.path) as snapshot, Gateway(snapshot) as gateway:
        recorded = conversations(snapshot, f"{site.base}/talk?room=1")[0]
        first = next(str(one.what) for one in recorded.messages if one.from_client)
        heard = talk(gateway, site.base, [f"something else\n{first}"])
        assert heard[:3] == ["welcome", "to the room", "the list: a, b"]
        (missed,) = gateway.ledger.misses()
        assert missed["url"] == f"{site.base}/talk?room=1"
        assert (
            missed["why"]
            == "the client sent a web socket message that was not recorded; another one was expected"
        )
        assert missed["body"] == "something else"
        assert [one.url for one in gateway.missed()] == [missed["url"]]  # a browser tells of it when it likes
    with Snapshot.open(site.path) as snapshot, Gateway(snapshot) as gateway:
        respaced = first.replace(",", " , ")  # another writing of the same JSON
        assert talk(gateway, site.base, [respaced])[2] == "the list: a, b"
        assert not gateway.ledger.misses()


def test_a_session_that_is_reset_hears_the_first_socket_again(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        for begin, text in ((1, "first"), (3, "second")):
            said = {"messages": [{"from": "server", "text": text}], "close": [4001, "bye"], "begin": begin}
            writer.metadata(url := "http://h.example/talk?room=1", {"url": url, "session": "s", **said})
    with Snapshot.open(tmp_path / "s") as snapshot, Gateway(snapshot) as gateway:

        def heard() -> list[str]:
            return [talk(gateway, "http://h.example", [])[0] for _ in range(2)]

        assert heard() == ["first", "second"]
        gateway.reset()
        assert heard() == ["first", "second"]


@pytest.mark.parametrize(
    ("closed", "sent", "heard"),
    [
        ([1005, ""], b"", b"\x88\x00"),  # a page is told 1005 of that, not 1000
        ([1006, ""], b"", b""),  # a drop: pages that are told 1000 do not connect again
        ([4001, "bye"], b"", b"\x88\x05\x0f\xa1bye"),
        (None, b"\x88\x80\0\0\0\0", b"\x88\x00"),
        (None, b"\x88\x82\0\0\0\0\x0f\xa1", b"\x88\x02\x0f\xa1"),
    ],
)
def test_a_socket_is_closed_as_it_was(
    tmp_path: Path, closed: list[object] | None, sent: bytes, heard: bytes
) -> None:
    with Writer.open(tmp_path / "s") as writer:
        said = {"messages": [{"from": "server", "text": "hi"}], **({"close": closed} if closed else {})}
        writer.metadata(url := "http://h.example/", {"url": url, "session": "s", "begin": 1, **said})
    fields = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    with (
        Snapshot.open(tmp_path / "s") as snapshot,
        Gateway(snapshot) as gateway,
        socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG) as peer,
    ):
        peer.sendall(f"GET http://h.example/ HTTP/1.1\r\nHost: h.example\r\n{fields}\r\n\r\n".encode() + sent)
        came = b""
        while data := peer.recv(4096):
            came += data
    assert came.partition(b"\r\n\r\n")[2] == b"\x81\x02hi" + heard


def test_no_socket_is_a_miss(site: Recorded) -> None:
    with Snapshot.open(site.path) as snapshot:
        assert conversations(snapshot, f"{site.base}/other") == []


def said(*words: str, session: str = "s", begin: int = 1) -> Conversation:
    """Words that begin with > are the client's."""
    messages = tuple(RecordedMessage(word.startswith(">"), word.lstrip(">")) for word in words)
    return Conversation("http://h/", session, begin, messages)


def test_a_player_releases_what_follows_the_clients_words() -> None:
    player = Player(RecordedConversations([said("a", ">b", ">c", "d", "e", ">f")]), 0)
    assert player.open() == ["a"]
    assert player.receive("b") == []
    assert player.receive("c") == ["d", "e"]
    assert player.next_expected() == "f"
    assert not player.ambiguous
    assert player.receive("g") is None
    assert player.ambiguous


def test_several_conversations_are_told_apart_by_what_is_said() -> None:
    known = [said("a", ">x", "1"), said("a", ">y", "2", begin=5), said("a", ">y", "3", begin=9)]
    player = Player(RecordedConversations(known), 0)
    assert player.open() == ["a"]
    assert player.receive("y") == ["2"]
    assert player.ambiguous  # the third said otherwise
    second = Player(RecordedConversations(known), 2)
    assert (second.open(), second.receive("y")) == (["a"], ["3"])


@pytest.mark.parametrize(
    ("told", "sent", "found"),
    [
        ({"a": [1, "x"]}, {"a": [1, "x"]}, True),
        ({"a": 1}, {"a": True}, False),
        ({"login": "ann", "password": "correct horse"}, {"password": "correct horse", "login": "ann"}, True),
        ({"login": "ann", "password": "correct horse"}, {"login": "ann", "password": "wrong horse"}, False),
        ({"login": "ann", "password": "correct horse"}, {"login": "bob", "password": "correct horse"}, False),
        ({"api_key": "Zk3qP9xT2vLm8Rw1Zk3q"}, {"api_key": "Zk3qP9xT2vLm8Rw1Zk3q"}, True),
        ({"api_key": "Zk3qP9xT2vLm8Rw1Zk3q"}, {"api_key": "Aw1Zk3qP9xT2vLm8Rw1Z"}, None),
    ],
)
@pytest.mark.parametrize("text", [True, False], ids=["text", "bytes"])
def test_a_message_with_another_secret_is_not_surely_the_recorded_one(
    told: object, sent: object, found: bool | None, text: bool
) -> None:
    secrets = ExchangeRedactor(Redactor(b"key"), None)
    kept = secrets.message("http://h/", json.dumps(told).encode(), from_client=True)
    asked = json.dumps(sent).encode()
    stored, now = (kept.decode(), asked.decode()) if text else (kept, asked)
    assert is_same_message("http://h/", stored, now) is found
    assert is_same_message("http://h/", stored, asked if text else asked.decode()) is False
    if text:
        player = Player(RecordedConversations([said(f">{stored!s}", "welcome")]), 0)
        assert player.open() == []
        assert player.receive(now) == (None if found is False else ["welcome"])
        assert player.ambiguous is (found is not True)


@pytest.mark.parametrize(("word", "found"), [("correct horse 7", True), ("another horse 7", None)])
def test_a_password_in_a_message_with_lengths_is_known_again(word: str, found: bool | None) -> None:
    def message(password: str) -> bytes:
        return b"\x82\xa2op\xa5login\xa8password" + bytes((0xA0 + len(password),)) + password.encode()

    stored = ExchangeRedactor(Redactor(b"key"), None).message(
        "http://h/", message("correct horse 7"), from_client=True
    )
    assert b"correct" not in stored
    assert is_same_message("http://h/", stored, message(word)) is found


def test_a_doubt_is_in_the_ledger_and_can_be_refused(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        for number, text in enumerate(("to the room", "to another room")):
            messages = [{"from": "server", "text": "welcome"}, {"from": "server", "text": text}]
            said = {
                "url": "http://h.example/talk?room=1",
                "session": "s",
                "begin": number,
                "messages": messages,
            }
            writer.metadata("http://h.example/talk?room=1", said)
    for accept, refused in (("rule", 0), ("rule+unambiguous", 1)):
        with Snapshot.open(tmp_path / "s") as snapshot, Gateway(snapshot, accept=accept) as gateway:
            if refused:  # the socket stays open, for messages that were recorded
                with asking(gateway, "http://h.example"):
                    assert until(gateway.ledger.misses)
            else:
                assert talk(gateway, "http://h.example", [])[:2] == ["welcome", "to the room"]
            assert [entry["ambiguous"] for entry in gateway.ledger.entries()] == [False, True]
            assert len(gateway.ledger.misses()) == refused


def test_a_socket_with_another_secret_in_its_address_is_unsure(tmp_path: Path) -> None:
    stored = Redactor(b"key").url("http://h.example/talk?session_id=22110971-91ff-4340-9680-2b561439a6ce")
    messages = [{"from": "server", "text": "welcome"}, {"from": "server", "text": "to the room"}]
    with Writer.open(tmp_path / "s") as writer:
        writer.metadata(stored, {"url": stored, "session": "s", "begin": 1, "messages": messages})
    for secret, accept, heard in (
        ("22110971-91ff-4340-9680-2b561439a6ce", "exact", True),
        ("0b1c2d3e-4f50-4617-8829-9a0bacbdcedf", "rule", True),
        ("0b1c2d3e-4f50-4617-8829-9a0bacbdcedf", "varies", False),
        ("0b1c2d3e-4f50-4617-8829-9a0bacbdcedf", "rule+unambiguous", False),
    ):
        with Snapshot.open(tmp_path / "s") as snapshot, Gateway(snapshot, accept=accept) as gateway:
            if heard:
                assert talk(gateway, "http://h.example", [], f"/talk?session_id={secret}")[1] == "to the room"
            else:
                fields = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "AAAA"}
                url = f"http://h.example/talk?session_id={secret}"
                answer = httpx.get(url, headers=fields, proxy=gateway.url, trust_env=False, timeout=HANG)
                assert answer.status_code == 504
            (entry,) = gateway.ledger.entries()
            assert (entry["verdict"] == "miss", bool(entry["ambiguous"])) == (not heard, accept == "rule")


def test_a_conversation_that_was_cut_is_none() -> None:
    base = {"url": "http://h/", "messages": [{"from": "server", "text": "a"}]}
    whole = conversation(base | {"close": [4001, "bye"]})
    assert whole is not None
    assert Player(RecordedConversations([whole]), 0).open() == ["a"]
    assert conversation(base | {"left_out": 3}) is None
    binary = conversation(base | {"messages": [{"from": "client", "base64": "AAE="}]})
    assert binary is not None
    assert [one[:2] for one in binary.messages] == [(True, b"\0\1")]


def test_what_time_brought_after_the_view_is_no_part_of_it() -> None:
    messages = [{"from": who, "text": text} for who, text in
                [("server", "a"), ("server", "late"), ("client", "b"), ("server", "c")]]  # fmt: skip
    found = conversation({"url": "http://h/", "messages": messages, "looked": 1})
    assert found is not None
    player = Player(RecordedConversations([found]), 0)
    assert player.open() == ["a"]
    assert player.receive("b") == ["late", "c"]  # it had come when that was said


def test_what_time_brought_comes_with_the_step_after_which_it_was_seen() -> None:
    texts = ["a", "at 1", "at 2", "ask", "answer", "at 4", "after all"]
    messages = [{"from": "client" if text == "ask" else "server", "text": text} for text in texts]
    looks = [[0, 1], [1, 2], [2, 3], [3, 5], [4, 6]]
    found = conversation({"url": "http://h/", "messages": messages, "looked": 1, "looks": looks})
    assert found is not None
    player = Player(RecordedConversations([found]), 0)
    assert [player.open(), player.step(1), player.step(2)] == [["a"], ["at 1"], ["at 2"]]
    assert [player.step(3), player.receive("ask")] == [[], ["answer"]]
    assert [player.step(4), player.step(5), player.ambiguous] == [["at 4"], [], False]
    hasty = Player(RecordedConversations([found]), 0)
    assert [hasty.open(), hasty.step(9)] == [["a"], ["at 1", "at 2"]]
    assert hasty.receive("ask") == ["answer", "at 4"]
    other = conversation({"url": "http://h/", "messages": messages[:1] + messages[3:], "looked": 1})
    assert other is not None
    both = Player(RecordedConversations([found, other]), 0)
    assert [both.open(), both.receive("ask")] == [["a"], ["at 1", "at 2", "answer"]]
    assert both.ambiguous


def test_an_event_stream_that_goes_on_after_the_view_says_that_it_was_cut(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Writer.open(tmp_path / "s") as writer,
        Recorder(writer, resolve={"h.example": ("127.0.0.1", listener.getsockname()[1])}) as recorder,
        socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as client,
    ):
        client.sendall(b"GET http://h.example/events HTTP/1.1\r\nHost: h.example\r\n\r\n")
        origin, _ = listener.accept()
        with origin:
            origin.recv(4096)
            origin.sendall(head + b"9\r\ndata: 0\n\n\r\n")
            heard = b""
            while b"data: 0" not in heard:
                heard += client.recv(4096)
            recorder.mark_view_taken()
            origin.sendall(b"9\r\ndata: 1\n\n\r\n0\r\n\r\n")
            while b"data: 1" not in heard:
                heard += client.recv(4096)
        assert recorder.wait_quiet(seconds=0.2)
    (one,) = recorded(tmp_path / "s")
    assert one.body == b"data: 0\n\n"
    assert one.warc["WARC-Truncated"] == "time"
    for path in (tmp_path / "s", seal(tmp_path / "s").path):
        for accept, status in (("rule", 200), ("rule+unambiguous", 504)):
            with Snapshot.open(path) as snapshot, Gateway(snapshot, accept=accept) as gateway:
                for _ in range(2):  # nor is a repeated one more sure
                    answer = httpx.get(
                        "http://h.example/events", proxy=gateway.url, trust_env=False, timeout=60
                    )
                    assert answer.status_code == status
                    assert gateway.ledger.entries()[-1]["ambiguous"] is (status == 200)


@pytest.mark.parametrize(
    "more",
    [
        {"messages": [{"text": "hello"}]},
        {"messages": ["hello"]},
        {"messages": [{"from": "client", "base64": "@@@"}]},
        {"close": [1000]},
        {"begin": "first"},
        {"looked": "3"},
        {"looks": [["0", 3]]},
        {"looks": [3]},
    ],
)
def test_metadata_that_is_no_conversation_is_none(more: dict[str, object]) -> None:
    assert conversation({"url": "http://a.test/", "messages": [], **more}) is None
