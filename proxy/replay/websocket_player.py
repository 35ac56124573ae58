"""Replay of web socket conversations (RFC 6455): which recorded one a client follows, what the server says next, and their frames."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import operator
import re
import time
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from functools import cached_property, partial
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from wsproto.frame_protocol import LOCAL_ONLY_CLOSE_REASONS, CloseReason, FrameProtocol, Opcode, ParseFailed

from stillweb.proxy.net.turns import TURN, Frames, websocket_size
from stillweb.proxy.replay.http1 import LARGE, MAX_BODY
from stillweb.snapshots.capture import Response
from stillweb.snapshots.evidence.conversations import WRITE, ClientMessages, SocketModel, Turn, message_event
from stillweb.snapshots.evidence.events import Event
from stillweb.snapshots.evidence.matcher import OTHER_SECRET
from stillweb.snapshots.evidence.parts import Given, cookie_parts, header_parts
from stillweb.snapshots.evidence.socket_messages import word
from stillweb.snapshots.http.bodies import JSON, spells_numbers_alike, unique_members
from stillweb.snapshots.identity import equality
from stillweb.snapshots.identity.differences import differences
from stillweb.snapshots.identity.drawn_ids import DRAWN
from stillweb.snapshots.identity.echoes import Echo, echoes, repeated_values, with_echoes
from stillweb.snapshots.identity.irrelevant import is_sign_of_life
from stillweb.snapshots.identity.keys import parse, request_key
from stillweb.snapshots.identity.moments import stamps_apart, with_moments, with_stamps
from stillweb.snapshots.identity.numbering import (
    WORD,
    ids_apart,
    ids_in,
    ids_in_text,
    ids_of,
    match_drawn_ids,
    plain_id,
    renumbered,
    words_in,
)
from stillweb.snapshots.identity.packets import Packets, Payload, join_packets, payload_text, split_numbered
from stillweb.snapshots.identity.recognising import Recogniser, other_secrets, pseudonyms_in
from stillweb.snapshots.identity.rules import apply_rules, builtin, rules_that_join
from stillweb.snapshots.identity.spelling import BLANK
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.secrets.detect import PSEUDONYM_TEXT, surely_drawn, varint
from stillweb.snapshots.secrets.redact import MASK, mask
from stillweb.snapshots.yielding import read_json

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot


_JSON = (("Content-Type", "application/json"),)


class RecordedMessage(NamedTuple):
    """A recorded message, or a packet of several or of a part of one.

    `event` is the number of the session's last event before it (that of the handshake in older records), `moment` when it passed the recorder, in seconds since 1970
    (None in older records), `word` the form in which `SocketMessages` counts it, several of one packet with spaces between.
    A server's message `waits` for a write by HTTP: its key, and how many of it are made before. A packet `continues` the message of the one before it.
    """

    from_client: bool
    what: Payload
    event: int = 0
    moment: float | None = None
    word: str = ""
    waits: tuple[str, int] | None = None
    continues: bool = False


@dataclass(frozen=True)
class Conversation:
    """One recorded web socket.

    `close` is (code, reason) or None. `begin` is the event number of its handshake in `session`, `protocol` the subprotocol
    that the server chose, `headers` the fields of its request (None in older records). `looks` are (steps done, messages so far) at each stored view: messages after a look came by time alone.
    """

    url: str
    session: str
    begin: int
    messages: tuple[RecordedMessage, ...]
    close: tuple[int, str] | None = None
    protocol: str = ""
    looks: tuple[tuple[int, int], ...] = ()
    headers: Headers | None = None

    @cached_property
    def request(self) -> Request | None:
        """The request of its handshake; None in older records."""
        return None if self.headers is None else Request("GET", self.url, self.headers).remembering()

    @cached_property
    def counts(self) -> Mapping[Spot, MessageCount]:
        """The spots in which its client counts its messages."""
        return _counted(self.messages)


def _places_of_turns(messages: Sequence[RecordedMessage]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield for each turn the places of the client's messages and of the server's after them, without signs of life."""
    asked: list[int] = []
    answered: list[int] = []
    for at, message in enumerate(messages):
        if _is_beat(message.what) is not False:
            continue
        if message.from_client and answered:
            yield asked, answered
            asked, answered = [], []
        (asked if message.from_client else answered).append(at)
    if asked or answered:
        yield asked, answered


def _weighed(asked: Sequence[RecordedMessage], answered: Sequence[RecordedMessage]) -> Turn:
    """Return a turn for the model. Its answer is a number, equal for answers that differ in times and drawn values only."""
    text = "\n".join(payload_text(one.what) for one in answered)
    moment = answered[-1].moment if answered else None
    date = (("Date", formatdate(moment, usegmt=True)),) if moment is not None else ()
    answer = equality.label_of(Response(200, "", date, text.encode("utf-8", "surrogatepass")))
    return Turn([_event(one.what) for one in asked], answer)


def _event(message: Payload) -> Event:
    bare = _numbered(message)[0] if isinstance(message, bytes) else message
    return message_event(_framed(bare)[2] or payload_text(bare))


def conversation(value: Mapping[str, Any]) -> Conversation | None:
    """Parse the conversation in a metadata record; return None if it is incomplete or foreign."""
    if not isinstance(value.get("messages"), list) or value.get("left_out"):
        return None
    try:
        return _read(value)
    except (KeyError, TypeError, ValueError, IndexError):  # another tool's record for the same address
        return None


def _read(value: Mapping[str, Any]) -> Conversation:
    protocol = str(value.get("protocol", ""))
    packets, begin = Packets(protocol), int(value.get("begin", 0))
    events = [operator.index(event) for event in value.get("events", ())]
    moments = [operator.index(time) / 1000 for time in value.get("times", ())]
    messages: list[RecordedMessage] = []
    ends: list[int] = []  # the message in which each packet ends
    words: dict[bool, list[str]] = {True: [], False: []}  # of the messages since the packet before
    for number, one in enumerate(value["messages"]):
        event = events[number] if number < len(events) else begin
        moment = moments[number] if number < len(moments) else None
        what: Payload = str(one["text"]) if "text" in one else base64.b64decode(one["base64"], validate=True)
        from_client = one["from"] == "client"
        words[from_client].append(word(one))
        for packet in packets.cut(from_client, what):
            said = " ".join(filter(None, words[from_client]))
            continues = ends[-1:] == [number]
            messages.append(RecordedMessage(from_client, packet, event, moment, said, continues=continues))
            ends.append(number)
            words[from_client].clear()
    rests = [
        RecordedMessage(from_client, rest, begin)
        for from_client in (True, False)
        if (rest := packets.rest(from_client))
    ]
    # older records have a single look
    looks = value.get("looks", [[0, value["looked"]]] if "looked" in value else [])
    close = value.get("close")
    return Conversation(
        str(value["url"]),
        str(value.get("session", "")),
        begin,
        (*messages, *rests),
        (int(close[0]), str(close[1])) if close else None,
        protocol,
        tuple((operator.index(steps), bisect_left(ends, operator.index(at))) for steps, at in looks),
        tuple((str(name), str(one)) for name, one in value["headers"]) if "headers" in value else None,
    )


def conversations(snapshot: Snapshot, url: str) -> list[Conversation]:
    """Return the conversations at an address, in recorded order."""
    found = [conversation(value) for value in snapshot.all_metadata(url) if isinstance(value, dict)]
    return sorted((one for one in found if one is not None), key=lambda one: (one.session, one.begin))


def _message(url: str, message: Payload) -> Request:
    """Return a message as a request to compare."""
    body = message if isinstance(message, bytes) else message.encode("utf-8", "replace")
    return Request("POST", url, _JSON, body)


def is_same_message(
    url: str, one: Payload, other: Payload, request: Callable[[str, Payload], Request] = _message
) -> bool | None:
    """Return True if a client's message equals the recorded one: the same bytes or the same JSON.

    `one` is the recorded message, `other` the client's. None means that they differ in secrets only. A secret
    that is proven to be the recorded one is equal; a password proven to be another one makes it False.
    """
    if one == other:
        return True
    if isinstance(one, bytes) is not isinstance(other, bytes):
        return False
    stored, asked = request(url, one), request(url, other)
    if has_same_key(stored, asked):
        return True
    if not has_same_key(mask(stored), mask(asked)):
        return False
    known = Recogniser()
    known.know(dict.fromkeys(pseudonyms_in(stored, headers=False), 1))
    recognised = known.request(asked)
    if has_same_key(stored, recognised):
        return True
    return False if other_secrets(recognised, stored)[1] else None


def has_same_key(one: Request, other: Request) -> bool:
    """Return True if two requests have the same key."""
    return request_key(one).canonical == request_key(other).canonical


def message_differences(message: Payload, stored: Payload) -> Iterator[object]:
    """Yield in which members a client's message differs from a recorded one, in words when they are shown."""
    if isinstance(message, str) and isinstance(stored, str):
        message, stored = (_framed(one)[2] or one for one in (message, stored))
    yield from differences(*(parse(mask(_message("http://message/", one))) for one in (message, stored)))


# Socket.IO's packet type, namespace and number before JSON; SignalR's record separator after it
_FRAMED = re.compile(r"(\d*+-?(?:/[^,\[{]*,)?\d*+)([\[{].*[\]}])([\x00\x1e\s]*)", re.S)
TRIES = 100  # combinations of rules that are tried for a message
# numbers by their text: many are one double
_EXACT = json.JSONDecoder(
    parse_float=lambda text: (text,), parse_int=lambda text: (text,), object_pairs_hook=unique_members
)
_UNIQUE = json.JSONDecoder(object_pairs_hook=unique_members)
_DEEPEST = 24  # of JSON and protobuf messages that are compared without their order


def _framed(message: Payload) -> tuple[str, str, str]:
    """Return the text before the JSON of a message, the text after it, and the JSON; three empty texts if it has none."""
    found = _FRAMED.fullmatch(message) if isinstance(message, str) else None
    return (found[1], found[3], found[2]) if found else ("", "", "")


# What a client counts its messages by, which their answers repeat: Socket.IO's acknowledgement, Phoenix' references
_NUMBERED = re.compile(
    r'(4[2356](?:\d+-)?(?:/[^,\[{]*,)?)(\d+)()(\[.*)|(\[ *)(null|"\d+")( *, *"\d+")( *, *"[^"]+" *, *"[^"]+" *, *\{.*)',
    re.S,
)


def _numbered(message: Payload, *, from_client: bool = True) -> tuple[Payload, list[str]]:
    """Return a message without the numbers by which its client counts messages, and these numbers."""
    if isinstance(message, bytes):
        packet = split_numbered(message, from_client)
        return (packet.bare(), [packet.id.decode("latin-1")]) if packet else (message, [])
    found = _NUMBERED.fullmatch(message)
    if found is None:
        return message, []
    start, *numbers, rest = (part for part in found.groups() if part is not None)
    return start.replace("43", "42", 1) + rest, [re.sub("[^0-9]", "", number) for number in numbers]


def _renumbered(message: Payload, found: list[Echo]) -> Payload:
    """Return a server's message with the client's message numbers in place of the recorded ones."""
    _, numbers = _numbered(message, from_client=False)
    own = {echo.recorded: str(echo.own) for echo in found if not echo.name}
    if not own or not any(number in own for number in numbers):
        return message
    if isinstance(message, bytes):
        packet = split_numbered(message, False)
        assert packet is not None
        return packet.with_id(own[numbers[0]].encode("latin-1"))
    match = _NUMBERED.fullmatch(message)
    assert match is not None
    start, *numbered, rest = (part for part in match.groups() if part is not None)
    return "".join((start, *(re.sub(r"\d+", lambda m: own.get(m[0], m[0]), one) for one in numbered), rest))


def _echoing(message: Payload, found: list[Echo]) -> Payload:
    """Return a server's message with the client's values in place of the recorded ones that it repeats."""
    message = _renumbered(message, found)
    prefix, suffix, text = _framed(message)
    if not text or not found:
        return message
    return prefix + with_echoes(text.encode(), "application/json", found[::-1]).decode() + suffix


COUNTED = 3  # messages of different content, numbered one after the other, that show how a client counts
LONG = 100  # messages of an address from which on a thread plays them
AHEAD = 16  # messages in another order that are compared without drawn ids and counts
LONGEST = 1 << 16  # characters of a message in which numbers are looked for
_NUMBER = re.compile(r"([^\d]{0,16})(\d{1,15})")  # "7", "sub-7"
# https://stomp.github.io/stomp-specification-1.2.html#Augmented_BNF
_STOMP = re.compile(r"([A-Z]{3,12})\r?\n((?:[^\n:]+:[^\n]*\n)*)\r?\n(.*)", re.S)
Spot = tuple[str | int, ...]  # the place of a value in a message: names and indexes
_FRAME: Spot = ("", "")  # the spot of the text around the JSON, or of STOMP's command
# Header fields of STOMP in which a client names a thing that it makes, by command, and in which a server repeats the name
_STOMP_COMMANDS = "SEND SUBSCRIBE UNSUBSCRIBE BEGIN COMMIT ABORT ACK NACK DISCONNECT".split()  # noqa: SIM905
_STOMP_MAKES = {("SUBSCRIBE", "id"), ("BEGIN", "transaction"), *((one, "receipt") for one in _STOMP_COMMANDS)}
_STOMP_TELLS: dict[object, Spot] = {"MESSAGE": ("subscription",), "RECEIPT": ("receipt-id",)}


def _spots(message: Payload) -> dict[Spot, Any]:
    """Map each spot of a message to its value: of JSON (also behind Socket.IO's prefix) or a STOMP frame; else empty."""
    prefix, suffix, text = _framed(message)
    if text and len(text) <= LONGEST:
        try:
            return {_FRAME: prefix + suffix, **dict(_within(_UNIQUE.decode(text), (), 0))}
        except (ValueError, RecursionError):
            return {}
    frame = _STOMP.fullmatch(message) if isinstance(message, str) and len(message) <= LONGEST else None
    if frame is None:
        return {}
    lines = (line.rstrip("\r").partition(":") for line in frame[2].splitlines())
    return {_FRAME: frame[1], **{(name,): value for name, _, value in lines}, (0,): frame[3]}


def _within(value: Any, spot: Spot, depth: int) -> Iterator[tuple[Spot, Any]]:
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    if not isinstance(value, (dict, list)):
        yield spot, value
        return
    yield spot, type(value)
    for name, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _within(item, (*spot, name), depth + 1)


def _with_spots(message: Payload, values: Mapping[Spot, Any]) -> Payload:
    """Return a message with the values of some spots replaced."""
    if not values:
        return message
    prefix, suffix, text = _framed(message)
    if not text:
        lines = payload_text(message).split("\n")
        names = {str(spot[0]): value for spot, value in values.items()}
        for at, (name, colon, _) in enumerate(line.partition(":") for line in lines):
            if colon and name in names:
                lines[at] = f"{name}:{names.pop(name)}"
        return "\n".join(lines)
    whole = json.loads(text)
    form = (",", ":") if json.dumps(whole, separators=(",", ":"), ensure_ascii=False) == text else None
    for spot, value in values.items():
        item = whole
        for step in spot[:-1]:
            item = item[step]
        item[spot[-1]] = value
    return prefix + json.dumps(whole, separators=form, ensure_ascii=not form) + suffix


def _number(value: object) -> tuple[str, int] | None:
    """Return the word before a number, and the number; None for another value."""
    found = _NUMBER.fullmatch(str(value)) if type(value) in (int, str) else None
    return (found[1], int(found[2])) if found else None


class MessageCount(NamedTuple):
    """A spot in which a client counts its messages: the server's spots that repeat the number, and the number by turn."""

    repeated: frozenset[Spot]
    turns: Mapping[int, object]
    contents: int  # different messages that it numbers


def _counted(messages: Sequence[RecordedMessage]) -> dict[Spot, MessageCount]:
    """Return the spots in which a recorded client counts its messages and whose numbers the answers repeat.

    Each new number is the last plus one, under any name: Home Assistant, the DevTools protocol, subscriptions of GraphQL,
    WAMP, STOMP. Numbers of things (page 1, 2, 3) are told apart by their messages, which otherwise are equal.
    """
    rests: dict[tuple[Spot, str], dict[int, tuple[int, dict[Spot, Any]]]] = {}
    turns: dict[tuple[Spot, str], dict[int, object]] = {}
    answered: dict[Spot, set[object]] = {}
    turn = -1
    for message in messages:
        turn += message.from_client
        spots = _spots(_numbered(message.what)[0] if message.from_client else message.what)
        whole = sum(map(hash, spots.items()))
        spots.pop(_FRAME, None)
        for spot, value in spots.items():
            if not message.from_client:
                answered.setdefault(spot, set()).add(value)
            elif found := _number(value):
                rest = whole - hash((spot, value)), spots
                rests.setdefault((spot, found[0]), {}).setdefault(found[1], rest)
                turns.setdefault((spot, found[0]), {})[turn] = value
    counts: dict[Spot, MessageCount] = {}
    for (spot, before), found_rests in rests.items():
        first = min(found_rests)
        if len(found_rests) < COUNTED - 1 or [*found_rests] != [*range(first, first + len(found_rests))]:
            continue
        own = set(turns[spot, before].values())
        repeated = {
            other
            for other, values in answered.items()
            if (other == spot and values & own) or (len(values) > 1 and values <= own)
        }
        contents = len(set(_without_those_in_step(spot, found_rests, answered if spot in repeated else None)))
        if repeated and contents >= COUNTED - 1:
            counts[spot] = MessageCount(
                frozenset({spot} if spot in repeated else repeated), turns[spot, before], contents
            )
    return counts


def _without_those_in_step(
    spot: Spot, rests: Mapping[int, tuple[int, dict[Spot, Any]]], answered: Mapping[Spot, Any] | None
) -> Iterator[int]:
    """Yield the hashes of messages without a spot, and without the spots whose numbers always grow with its number.

    Either may be the count, as in `{"id": 1, "page": 1}`, unless answers have only the first: `answered` holds the others' spots.
    """
    numbers: dict[Spot, set[int | None]] = {}
    for number, (_, spots) in rests.items():
        for other in spots:
            found = _number(spots[other])
            numbers.setdefault(other, set()).add(found[1] - number if found else None)
    in_step = [
        other
        for other, apart in numbers.items()
        if other != spot
        and len(apart) == 1
        and None not in apart
        and (answered is None or other in answered)
        and all(other in spots for _, spots in rests.values())
    ]
    for rest, spots in rests.values():
        yield rest - sum(hash((other, spots[other])) for other in in_step)


def _is_beat(message: Payload) -> bool | None:
    """Return True for a sign of life (a ping or pong), None for a receipt, which may also matter."""
    return is_sign_of_life(payload_text(message))


def _form(message: Payload) -> str:
    """Return a sign of life with all numbers replaced by 0."""
    return re.sub(r"\d+", "0", payload_text(message))


def without_order(message: Payload) -> object:
    """Return a value that is equal for messages that differ in the order of repeated members; None if it can't be parsed.

    Reads JSON, also behind Socket.IO's prefix, frames of STOMP, and protobuf's wire format
    (https://protobuf.dev/programming-guides/encoding).
    """
    if isinstance(message, bytes):
        fields = _protobuf(message, 0)
        return None if fields is None else ("protobuf", fields)
    found = _FRAMED.fullmatch(message)
    try:
        return (
            (found[1], _sorted(read_json(_EXACT, found[2]), 0))
            if found
            else sorted(_spots(message).items(), key=repr) or None
        )
    except (ValueError, RecursionError):
        return None


def _sorted(value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        return "[]", sorted((_sorted(item, depth + 1) for item in value), key=repr)
    if isinstance(value, dict):
        return "{}", sorted((name, _sorted(item, depth + 1)) for name, item in value.items())
    return repr(value)


def _protobuf(data: bytes, depth: int) -> list[Any] | None:
    """Return the fields of a protobuf message, sorted; None for other bytes."""
    fields: list[Any] = []
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        size, start = {1: 8, 5: 4}.get(tag & 7, 0), at
        if tag & 7 == 0:
            _, at = varint(data, at)
        elif tag & 7 == 2:
            size, start = varint(data, at)
        if tag >> 3 == 0 or tag & 7 in (3, 4, 6, 7) or at < 0 or start < 0 or start + size > len(data):
            return None
        at = at if tag & 7 == 0 else start + size
        part = data[start:at]
        inner = None if tag & 7 != 2 or depth > _DEEPEST or _is_text(part) else _protobuf(part, depth + 1)
        fields.append((tag, repr(part if inner is None else inner)))
    return sorted(fields) or None


def _is_text(data: bytes) -> bool:
    try:
        return data.decode().isprintable()
    except UnicodeDecodeError:
        return False


class MessagePlace(NamedTuple):
    """A client's message in the conversation of a number, as an event, with the places of the server's answer to its turn and its number."""

    number: int
    at: int
    event: Event
    answered_at: list[int]
    answer: int


class RecordedConversations:
    """The conversations recorded at an address, and the model learnt from them at first use, which may take seconds."""

    def __init__(self, known: Sequence[Conversation]) -> None:
        self.conversations = known

    @cached_property
    def _turns(self) -> list[list[tuple[list[int], list[int], Turn]]]:
        """The turns of each conversation, with the places of the client's messages and of the server's."""
        return [
            [
                (asked, answered, _weighed([said[at] for at in asked], [said[at] for at in answered]))
                for asked, answered in _places_of_turns(said)
            ]
            for said in (one.messages for one in self.conversations)
        ]

    @cached_property
    def model(self) -> SocketModel:
        """The model of the server's answers."""
        return SocketModel([turn for *_, turn in turns] for turns in self._turns)

    @cached_property
    def places(self) -> dict[tuple[str, int], list[MessagePlace]]:
        """The places of answered messages, by type and by the sum of the keys of the other messages of their turn."""
        found: dict[tuple[str, int], list[MessagePlace]] = defaultdict(list)
        for number, turns in enumerate(self._turns):
            for places, answered, turn in turns:
                total = sum(event.key for event in turn.messages)
                for at, event in zip(places, turn.messages, strict=True) if answered else ():
                    found[event.type, total - event.key].append(
                        MessagePlace(number, at, event, answered, turn.answer)
                    )
        return found


@dataclass(slots=True)
class _Learned:
    """Values that the client has in place of a conversation's recorded ones, and the rules that were needed to see it."""

    ids: dict[str, str] = field(default_factory=dict)  # recorded id -> the client's
    # recorded number or name in a count -> the client's
    numbers: dict[object, object] = field(default_factory=dict)
    stamps: dict[str, str] = field(default_factory=dict)  # recorded timestamp -> the client's
    echoes: list[Echo] = field(default_factory=list)  # values that the server repeats
    rules: dict[str, None] = field(default_factory=dict)  # ids of the rules, in the order of their use

    def copy(self) -> _Learned:
        new = _Learned()
        new.add(self)
        return new

    def add(self, other: _Learned) -> None:
        self.ids.update(other.ids)
        self.numbers.update(other.numbers)
        self.stamps.update(other.stamps)
        self.echoes += other.echoes
        self.rules.update(other.rules)


@dataclass(frozen=True, slots=True, eq=False)
class _Followed:
    """A conversation as a player follows it: its messages are moved, left out and put in as its client sends them."""

    recorded: Conversation
    messages: tuple[RecordedMessage, ...]
    looks: tuple[tuple[int, int], ...]
    learned: _Learned

    def client_places(self) -> list[int]:
        """Return the indexes of the client's messages."""
        return [at for at, message in enumerate(self.messages) if message.from_client]

    @property
    def waiting(self) -> list[tuple[int, str, int]]:
        """The indexes of the messages that wait for a write, with its key and count."""
        return [(at, *message.waits) for at, message in enumerate(self.messages) if message.waits]


class Player:
    """The replay of an address's conversations to one client. Sans-io: messages in, messages out.

    `turn` is the number of sockets that the session opened at this address before. `written` returns the writes (event
    numbers and keys) that a recorded session sent by HTTP to the socket's site: a server message recorded after such a
    write waits until the client has made it, too. `given` returns True if the site issued an id by HTTP; without
    `given`, a message with other ids than the recorded ones is a different message. `named` collects the ids sent to
    all sockets of the session.

    `url` is the address of the conversation that is followed at first. `ambiguous` is set once the conversations that
    still fit differ in the server's next messages, or a message was not recorded here; an answer's confidence is `most` at most
    then. `long`: a turn may take seconds.
    """

    def __init__(
        self,
        recorded: RecordedConversations,
        turn: int,
        written: Callable[[Conversation], Sequence[tuple[int, str]]] = lambda one: (),
        given: Callable[[str], bool] | None = None,
        named: set[str] | None = None,
        now: Callable[[], float] = time.time,
        most: float = DRAWN,
    ) -> None:
        self._known = [
            _Followed(one, _waiting(one, written(one)), one.looks, _Learned())
            for one in recorded.conversations
        ]
        self._number = min(turn, len(self._known) - 1)
        own = self._known[self._number]
        self._alive = [own, *(one for one in self._known if one is not own)]
        self._at = 0  # messages of the leading conversation so far
        self._sent = 0  # of these, sent since the client's last message
        self.lives = False  # the client's last message was no more than a sign of life
        self.silent = False  # the real server would have sent more messages after the last write
        self._made = Counter[str]()
        # writes after which something was said, in any conversation
        self._pushing = {key for one in self._known for _, key, _ in one.waiting}
        # messages that wait for a write, and were passed by what the client said
        self._held: list[RecordedMessage] = []
        self.unsaid = False  # and nothing was in the one that is followed
        self._steps = 0  # steps that the client has done
        self._count = 0  # the client's messages so far
        self._given = given
        self._now = now
        self._named = set[str]() if named is None else named
        self._messages: dict[tuple[str, Payload], Request] = {}  # those that are being compared
        self._reordered = False  # a message, or a member of one, came in another place than recorded
        self.ambiguous = False
        self._recorded = recorded
        self.long = sum(len(one.messages) for one in self._known) > LONG
        self._client_messages = ClientMessages(max((len(one.messages) for one in self._known), default=0))
        self._most = most
        self.protocol = own.recorded.protocol
        self.url = own.recorded.url

    def open(self) -> list[Payload]:
        """Return the server's first messages."""
        return self._next_messages()

    def receive(self, message: Payload) -> list[Payload] | None:
        """Return the server's messages after a client's message; None if it was not recorded here."""
        try:
            return self._replies_to(message)
        finally:
            self._messages.clear()

    def _message(self, url: str, message: Payload) -> Request:
        """Return a message as a request; what is derived from it is cached until the message is answered."""
        found = self._messages.get((url, message))
        if found is None:
            found = self._messages[url, message] = _message(url, message).remembering()
        return found

    def _same(self, url: str, stored: Payload, message: Payload) -> bool | None:
        return is_same_message(url, stored, message, self._message)

    def _has_same_numbers(self, url: str, stored: Payload, message: Payload) -> bool:
        one, other = (self._message(url, said) for said in (stored, message))
        return parse(one).body.kind != JSON or spells_numbers_alike(one.body, other.body)

    def _unordered(self, url: str, message: Payload) -> object:
        return self._message(url, message).derived("unordered", lambda _: without_order(message))

    def _replies_to(self, message: Payload) -> list[Payload] | None:
        self.lives = False
        fits, doubtful, reordered = self._fitting(message)
        while not (fits or doubtful) and self._given is not None and self._skip_signs_of_life():
            fits, doubtful, reordered = self._fitting(message)
        unknown = not (fits or doubtful or reordered) and self._given is not None
        if (
            unknown
            and _is_beat(message) is not False
            and (answer := self._answer_sign_of_life(message)) is not None
        ):
            return answer
        if not (fits or doubtful or reordered) and (likeliest := self._elsewhere(message)) is not None:
            reordered = [likeliest]
        if not fits and not doubtful and reordered:
            self._reordered = True
            doubtful = reordered
        if not fits and doubtful:  # with another secret or id the server may have said something else
            self.ambiguous = True
            one = doubtful[0]
            own = renumbered(message, _turned(one.learned.ids))
            stored = one.messages[one.client_places()[self._count]].what
            if self._same(one.recorded.url, stored, own) is None:
                self._most = min(self._most, OTHER_SECRET)
        fits = fits or doubtful
        if not fits:
            # the real server would have received it, and may answer otherwise from here on
            self._doubt(_event(message))
            return None
        # server messages that came by time before this message
        late = [self._late(one) for one in fits]
        waiting = [[m for m in one.messages[slice(*self._span(one))] if not self._due(m)] for one in fits]
        self._held += waiting[0]
        said = [[message.what for message in messages] for messages in late]
        self.ambiguous = self.ambiguous or any(one != said[0] for one in said[1:])
        if any(waiting):
            self._doubt(WRITE)
        self._alive = fits
        self._count += 1
        self._at = fits[0].client_places()[self._count - 1] + 1
        self._note_sent(late[0])
        if _is_beat(message) is False:
            self._client_messages.add(_event(fits[0].messages[self._at - 1].what))
        self._sent = 0
        return _whole(late[0], self._with_own_ids(late[0])) + self._next_messages()

    def _fitting(self, message: Payload) -> tuple[list[_Followed], list[_Followed], list[_Followed]]:
        """Return the conversations in which a client's message comes next: surely, doubtfully, and after reordering."""
        fits: list[_Followed] = []
        doubtful: list[_Followed] = []
        reordered: list[_Followed] = []
        for one in self._alive:
            places = one.client_places()
            if self._count < len(places):
                at = places[self._count]
                found = self._compared(one, at, message)
                if found is not False:
                    (fits if found else doubtful).append(one)
                elif (moved := self._in_order(one, at, message)) is not None:
                    reordered.append(moved)
        return fits, doubtful, reordered

    def _compared(self, one: _Followed, at: int, message: Payload) -> bool | None:
        """Return True if a client's message is the recorded one, None if that is unsure; else False."""
        recorded, learned, url = one.messages[at], one.learned, one.recorded.url
        stored, own = recorded.what, learned.ids
        known_ids = renumbered(message, _turned(own))
        if self._names_another(one, stored, known_ids):
            return False
        if own and any(own.get(name, name) != name for name in ids_in(payload_text(message))):
            return False  # a recorded id for which the client has another one by now
        found = self._same(url, stored, known_ids)
        if found is not False or self._given is None:
            return found and (self._has_same_numbers(url, stored, known_ids) or None)
        timed = known_ids
        if recorded.moment is not None:
            timed = with_moments(stored, known_ids, recorded.moment, self._now())
        ids = self._drawn_ids(one, at, stored, timed)
        known = renumbered(timed, _turned(ids))
        found = (
            None
            if known is not known_ids and self._same(url, stored, known)
            else self._by_rule(one, stored, known)
        )
        if found is not False:
            own.update(ids)
            if timed is not known_ids:
                learned.rules["timestamp"] = None
                learned.stamps |= stamps_apart(stored, known_ids)
        return None if known is not known_ids and found else found

    def _skip_signs_of_life(self) -> bool:
        """Skip the recorded signs of life that would come next, with their answers; return False if there are none."""
        before = self._alive
        self._alive = [self._without_sign_of_life(one) for one in before]
        return any(one is not own for one, own in zip(before, self._alive, strict=True))

    def _without_sign_of_life(self, one: _Followed) -> _Followed:
        places = one.client_places()
        if self._count >= len(places):
            return one
        at, end = places[self._count], (*places, len(one.messages))[self._count + 1]
        if (beat := _is_beat(one.messages[at].what)) is False:
            return one
        self.ambiguous = self.ambiguous or beat is None  # a missing receipt shows in the order
        answers = (n for n in range(at + 1, end) if _is_beat(one.messages[n].what))
        gone = {at, next(answers, at)}
        return replace(
            one,
            messages=tuple(message for n, message in enumerate(one.messages) if n not in gone),
            looks=tuple((steps, n - sum(g < n for g in gone)) for steps, n in one.looks),
        )

    def _answer_sign_of_life(self, message: Payload) -> list[Payload] | None:
        """Return the recorded answer to a sign of life of the same form: how many are sent depends on time alone.

        Return None for a receipt if none was recorded.
        """
        recorded = self._alive[0].recorded.messages
        alike = (
            at
            for at, one in enumerate(recorded)
            if one.from_client and _is_beat(one.what) is not False and _form(one.what) == _form(message)
        )
        found = next(alike, None)
        if _is_beat(message) is None:
            self.ambiguous = True
            if found is None:
                return None
        self.lives = True
        if found is None:
            return []
        self._by_rule(self._alive[0], recorded[found].what, message)
        after = recorded[found + 1 : found + 2]
        return self._with_own_ids([one for one in after if not one.from_client and _is_beat(one.what)])

    def _by_rule(self, one: _Followed, stored: Payload, message: Payload) -> bool | None:
        """Return True if certain rules join a message and the recorded one, None if other rules do; else False."""
        if self._given is None:
            return False
        learned, url = one.learned, one.recorded.url
        (was_bare, numbers), (own_bare, own_numbers) = _numbered(stored), _numbered(message)
        if (
            len(numbers) == len(own_numbers)
            and numbers != own_numbers
            and self._same(url, was_bare, own_bare)
        ):
            learned.echoes += [Echo("", *pair) for pair in zip(numbers, own_numbers, strict=True)]
            if isinstance(message, bytes) and (packet := split_numbered(message, True)) and packet.client:
                learned.rules["visit-id"] = None
                return None
            return True
        (*around, recorded), (*own_around, own) = _framed(stored), _framed(message)
        names = None
        if around == own_around and recorded and own:
            was, asked = (self._message(url, text) for text in (recorded, own))
            names = rules_that_join(asked, was, builtin().rules, tries=TRIES)
        if not names:
            return None if self._but_for_count(one, stored, message) else False
        rules = [rule for rule in builtin().rules if rule.id in names.split("+")]
        learned.rules.update(dict.fromkeys(rule.id for rule in rules))
        learned.echoes += echoes(*(repeated_values(each, builtin().rules) for each in (asked, was)))
        return True if all(rule.certain for rule in rules) else None

    def _but_for_count(self, one: _Followed, stored: Payload, message: Payload) -> bool:
        """Return True if a message differs from the recorded one only in numbers by which its client counts.

        Two recorded numbers are enough to see a count if the client now sends the same number in the same turn.
        """
        was, own = _spots(stored), _spots(message)
        apart = [spot for spot in was if was[spot] != own.get(spot)]
        if not apart or was.keys() != own.keys():
            return False
        known, new = one.learned.numbers, dict[object, object]()
        for spot in apart:
            if was[spot] in known:
                if known[was[spot]] != own[spot]:
                    return False  # it names another call than the recorded message does
                continue
            if (was[_FRAME], *spot) not in _STOMP_MAKES:
                then, now = _number(was[spot]), _number(own[spot])
                if type(was[spot]) is not type(own[spot]) or not then or not now or then[0] != now[0]:
                    return False
                count = one.recorded.counts.get(spot)
                if count is None or (count.contents < COUNTED and count.turns.get(self._count) != own[spot]):
                    return False
            new[was[spot]] = own[spot]
        one.learned.rules["counted"] = None
        known.update(new)
        return True

    @staticmethod
    def _names_another(one: _Followed, stored: Payload, message: Payload) -> bool:
        """Return True if a STOMP frame uses the recorded name of a subscription or transaction that now has another name."""
        names = one.learned.numbers
        was, own = (_spots(what) for what in (stored, message)) if names else ({}, {})
        spot = ("id",) if was.get(_FRAME) == "UNSUBSCRIBE" else ("transaction",)
        return was.get(_FRAME) in _STOMP_COMMANDS and names.get(was.get(spot), own.get(spot)) != own.get(spot)

    def _in_order(self, one: _Followed, at: int, message: Payload) -> _Followed | None:
        """Return a conversation, reordered if need be, in which the client's message comes next; None if it does not hold it.

        Messages between which the server sent nothing may come in any order, and so may repeated members.
        """
        if self._given is None:  # other orders are served by rules only
            return None
        url, renamed = one.recorded.url, renumbered(message, _turned(one.learned.ids))
        value = self._unordered(url, renamed)
        servers = (n for n in range(at, len(one.messages)) if not one.messages[n].from_client)
        end = next(servers, len(one.messages))
        for place in range(at, end):
            stored = one.messages[place].what
            if (place > at and self._same(url, stored, renamed)) or (
                value is not None and self._unordered(url, stored) == value
            ):
                return self._moved(one, at, place)
        for place in range(at + 1, min(end, at + AHEAD)):
            if self._compared(one, place, message) is not False:
                return self._moved(one, at, place)
        return None

    @staticmethod
    def _moved(one: _Followed, at: int, place: int) -> _Followed:
        """Return a copy of a conversation in which the message at `place` comes at `at`."""
        before, between, after = one.messages[:at], one.messages[at:place], one.messages[place + 1 :]
        return replace(one, messages=(*before, one.messages[place], *between, *after))

    def _elsewhere(self, message: Payload) -> _Followed | None:
        """Return the leading conversation with the likeliest recorded turn inserted that ends in the client's message; None if there is none."""
        if self._given is None:
            return None
        asked, pending = _event(message), self._client_messages.pending()
        alike = self._recorded.places.get((asked.type, sum(pending)), [])
        alike = [found for found in alike if found.event.key == asked.key] or alike[:AHEAD]
        likeliest: tuple[float, _Followed, list[int]] | None = None
        answers = set[tuple[int, int]]()
        for number, at, event, answered, answer in alike:
            one = self._known[number]
            if (event.key, answer) not in answers and self._compared(one, at, message) is not False:
                answers.add((event.key, answer))
                chance = self._recorded.model.chance(self._client_messages, answer, self._number, event)[0]
                if likeliest is None or chance > likeliest[0]:
                    likeliest = chance, one, [at, *answered]
        return self._inserted(*likeliest[1:]) if likeliest is not None else None

    def _inserted(self, one: _Followed, places: list[int]) -> _Followed:
        """Return a copy of the leading conversation in which messages of another one come next; they replace the rest of a turn that has begun."""
        leads, begun = self._alive[0], bool(self._client_messages.pending())
        end = stop = self._span(leads)[1]
        for from_client in (True, False) if begun else ():
            while stop < len(leads.messages) and leads.messages[stop].from_client is from_client:
                stop += 1
        more = len(places) - (stop - end)
        others = (one.messages[place]._replace(waits=None) for place in places)
        if one.learned is not leads.learned:
            leads.learned.add(one.learned)
        return replace(
            leads,
            messages=(*leads.messages[:end], *others, *leads.messages[stop:]),
            looks=tuple((steps, n if n <= end else max(n, stop) + more) for steps, n in leads.looks),
        )

    def step(self, number: int) -> list[Payload]:
        """Return the server's messages up to the view after `number` steps.

        Call it when the last of these steps is about to be done.
        """
        self._steps = number
        return self._next_messages()

    def note_write(self, key: str | None) -> list[Payload]:
        """Return the server's messages after a write by HTTP.

        `key` is the key with which the write was recorded; None if it was not.
        """
        before, leading = self._sent, self._alive[0].waiting
        if key is not None:
            self._made[key] += 1
        passed = [message for message in self._held if self._due(message)]
        self._held = [message for message in self._held if not self._due(message)]
        new = _whole(passed, self._with_own_ids(passed)) + self._next_messages()
        sent = range(self._at - self._sent + before, self._at)
        due = any(own == key and count == self._made[own] for at, own, count in leading if at not in sent)
        self.unsaid = key in self._pushing - {own for _, own, _ in leading}
        # the real server would now say something that was recorded later, or was never recorded
        self.silent = self.unsaid or (bool(leading) and (key is None or due))
        if self.silent:
            self._doubt(WRITE)
        return new

    @property
    def owes(self) -> bool:
        """True while a message is pending whose write has been made: it waits for other writes, or was recorded in another conversation."""
        waiting = self._alive[0].waiting
        return self.unsaid or any(at >= self._at and self._made[key] >= count for at, key, count in waiting)

    def _doubt(self, event: Event) -> None:
        """Tell the model of an event that was not recorded here, or not at this place."""
        self.ambiguous = True
        self._client_messages.add(event, recorded=False)

    def confidence(self) -> tuple[float, list[str]]:
        """Return the chance that the real server would send the next messages, and the grounds in words; 1 without doubt."""
        if not self.ambiguous:
            return 1.0, []
        one, answered = self._alive[0], list[RecordedMessage]()
        for message in one.messages[self._span(one)[0] :]:
            if message.from_client and answered:
                break
            if not message.from_client and _is_beat(message.what) is False:
                answered.append(message)
        chance, grounds = self._recorded.model.chance(
            self._client_messages, _weighed((), answered).answer, self._number
        )
        return min(chance, self._most), grounds

    def word(self) -> str:
        """Return the client's last message in the form that `SocketMessages` counts; "" if there is none."""
        if not self._count or self.lives:
            return ""
        leads = self._alive[0]
        return leads.messages[leads.client_places()[self._count - 1]].word

    def next_expected(self) -> Payload | None:
        """Return the client's next recorded message; None after the last."""
        places = self._alive[0].client_places()
        return self._alive[0].messages[places[self._count]].what if self._count < len(places) else None

    def was_recorded(self, message: Payload) -> bool:
        """Return True if a client's message was recorded, at whatever place near this one."""
        return any(
            self._compared(one, at, message) is not False
            for one in (replace(one, learned=one.learned.copy()) for one in self._alive)
            for at in one.client_places()[max(0, self._count - AHEAD) : self._count + AHEAD]
        )

    @property
    def rules(self) -> str:
        """Return the rules needed to match the client's messages, joined by "+"; "" if none was."""
        learned = self._alive[0].learned
        needed = {
            "timestamp": "timestamp" in learned.rules,
            "visit-id": learned.ids,
            "order": self._reordered,
        }
        return "+".join(
            dict.fromkeys([*(rule for rule, is_needed in needed.items() if is_needed), *learned.rules])
        )

    @property
    def close(self) -> tuple[int, str] | None:
        """Return the server's close code and reason once all messages are sent; else None."""
        leads = self._alive[0]
        return leads.recorded.close if self._at >= len(leads.messages) else None

    def _next_messages(self) -> list[Payload]:
        """Return the leading conversation's messages up to the client's next one, or to the next view.

        If the other fitting conversations differ here in more than drawn ids and moments, the replay becomes ambiguous.
        """
        turns = [self._turn(one) for one in self._alive]
        new = turns[0][self._sent :]
        own = self._with_own_ids(new)
        for one, turn in zip(self._alive[1:], turns[1:], strict=True):
            if not self._align(one, turn[self._sent :], new, own):
                self.ambiguous = True
        self._sent += len(new)
        self._at += len(new)
        self._note_sent(new)
        return _whole(new, own)

    def _note_sent(self, messages: list[RecordedMessage]) -> None:
        if any(_is_beat(message.what) is False for message in messages):
            self._client_messages.note_answer()

    def _align(
        self,
        one: _Followed,
        messages: list[RecordedMessage],
        leading: list[RecordedMessage],
        sent: list[Payload],
    ) -> bool:
        """Learn which ids of the messages `sent`, recorded as the `leading` ones, replace those in a conversation's own `messages`.

        Return True if the messages differ in such ids and in times only.
        """
        ids, alike = one.learned.ids, len(messages) == len(sent)
        for stored, leads, own_message in zip(messages, leading, sent, strict=False):
            if renumbered(stored.what, ids) == own_message:
                continue
            timed = own_message
            if stored.moment is not None and leads.moment is not None:
                timed = with_moments(stored.what, own_message, stored.moment, leads.moment)
            apart = (
                match_drawn_ids(stored.what, timed, _words)
                if self._given and len(own_message) <= LONGEST
                else None
            )
            if apart is None or not all(
                any(map(surely_drawn, pair)) and ids.get(*pair) == pair[1] for pair in apart.items()
            ):
                alike = False
            else:
                ids.update(apart)
        return alike

    def _with_own_ids(self, messages: Sequence[RecordedMessage]) -> list[Payload]:
        """Return messages to send, with the client's own ids and timestamps in place of the recorded ones."""
        learned = self._alive[0].learned
        timed = (with_stamps(one.what, learned.stamps) for one in messages)
        own = [self._with_own_counts(_echoing(renumbered(one, learned.ids), learned.echoes)) for one in timed]
        self._named.update(plain_id(value) for one in own for value in ids_in(one))
        return own

    def _with_own_counts(self, message: Payload) -> Payload:
        """Return a server's message with the client's message numbers in place of the recorded ones."""
        one = self._alive[0]
        numbers = one.learned.numbers
        if not numbers:
            return message
        values = _spots(message)
        spots = {spot for count in one.recorded.counts.values() for spot in count.repeated}
        if subscription := _STOMP_TELLS.get(values.get(_FRAME)):
            spots.add(subscription)
        return _with_spots(message, {s: numbers[v] for s, v in values.items() if s in spots and v in numbers})

    def _drawn_ids(self, one: _Followed, at: int, stored: Payload, message: Payload) -> dict[str, str]:
        """Map the recorded ids of a message to the client's; empty unless the client drew all of them itself."""
        apart = ids_apart(words_in(stored), words_in(message))
        given = self._given
        if not apart or given is None:
            return {}
        ids = one.learned.ids
        before, after = (
            "\n".join(payload_text(said.what) for said in part if not said.from_client)
            for part in (one.messages[:at], one.messages[at:])
        )
        known = self._named | ids_in_text(before) | {plain_id(value) for value in (*ids, *ids.values())}

        def chosen(value: str) -> bool:
            unanswered = value in payload_text(stored) and value not in after and not ids_in(value)
            return unanswered or value in before or plain_id(value) in known or given(value)

        return {} if any(map(chosen, chain(*apart.items()))) else apart

    def _turn(self, one: _Followed) -> list[RecordedMessage]:
        """Return the server's messages since the client's last one, up to the view after the steps done."""
        start, stop = self._span(one)
        # no look: the messages are an answer after the last view
        seen = [(steps, at) for steps, at in one.looks if at >= start]
        if seen:
            stop = min(stop, next((at for steps, at in seen if steps >= self._steps), seen[-1][1]))
        return [*takewhile(self._due, one.messages[start:stop])]

    def _late(self, one: _Followed) -> list[RecordedMessage]:
        """Return the server's messages before the client's next one that were not sent yet, without those that wait for a write."""
        start, stop = self._span(one)
        return [message for message in one.messages[start + self._sent : stop] if self._due(message)]

    def _span(self, one: _Followed) -> tuple[int, int]:
        """Return the index after the client's last message, and the index of its next one."""
        places = one.client_places()
        start = places[self._count - 1] + 1 if self._count else 0
        return start, places[self._count] if self._count < len(places) else len(one.messages)

    def _due(self, message: RecordedMessage) -> bool:
        """Return True if the write recorded before a message has been made as often as in the recording."""
        key, count = message.waits or ("", 0)
        return self._made[key] >= count


def _whole(messages: Sequence[RecordedMessage], packets: list[Payload]) -> list[Payload]:
    """Return the packets of messages, those that were recorded in one message as one."""
    whole: list[Payload] = []
    for message, packet in zip(messages, packets, strict=True):
        if message.continues and whole:
            packet = join_packets(whole.pop(), packet)
        whole.append(packet)
    return whole


def _words(message: Payload) -> list[str]:
    """Return the words of a message that are long enough for ids."""
    return [match[0] for match in WORD.finditer(payload_text(message))]


def _turned(ids: Mapping[str, str]) -> dict[str, str]:
    return {own: recorded for recorded, own in ids.items()}


def _waiting(one: Conversation, written: Sequence[tuple[int, str]]) -> tuple[RecordedMessage, ...]:
    """Return a conversation's messages; those of the server after a write by HTTP since the client's last message wait for that.

    Writes are counted from the socket's opening.
    """
    found: list[RecordedMessage] = []
    since = one.begin
    for message in one.messages:
        if message.from_client:
            since = message.event
        elif (keys := [at for at in written if one.begin < at[0] <= message.event]) and keys[-1][0] > since:
            last = keys[-1][1]
            message = message._replace(waits=(last, sum(key == last for _, key in keys)))
        found.append(message)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Secrets:
    """Pseudonyms of a recording, mapped to the secrets of this replay."""

    known: Mapping[str, str] = field(default_factory=dict)

    def to_stored(self, message: Payload) -> Payload:
        """Return a client's message in its stored form."""
        for name, secret in self.known.items():
            message = _replaced(message, secret, name)
        return message

    def to_live(self, message: Payload) -> Payload:
        """Return a stored message with its secrets put back."""
        for name, secret in self.known.items():
            message = _replaced(message, name, secret)
        return message


@dataclass(frozen=True, slots=True)
class FoundConversations:
    """The conversations recorded at an address. `sure` is False if the client's secret or ids differ."""

    conversations: list[Conversation]
    sure: bool = True
    secrets: Secrets = field(default_factory=Secrets)
    rule: str = "redacted"  # the rule that matched the address, if not `sure`


def found_at(
    snapshot: Snapshot,
    url: str,
    given: Callable[[str], bool] = lambda value: True,
    recorded: Callable[[Conversation, str], bool] = lambda one, value: True,
) -> FoundConversations:
    """Find the conversations of an address, also if it was stored with pseudonyms.

    They are not sure if the address differs in what rules leave out, or in ids that the client drew itself. `given` returns True if
    a value may come from the site, `recorded` if one in the path was named before a conversation.
    """
    if plain := conversations(snapshot, url):
        return FoundConversations(plain)
    rules, drawn_path = snapshot.rules.without("redacted").rules, ids_of(url)
    start, blank, _ = apply_rules(rules, parse(Request("GET", url))).url.partition(BLANK)
    if not (blank or drawn_path or "?" in url):
        return FoundConversations([])
    starts = [start if blank else url.partition("?")[0], *(url.partition(one)[0] for one in drawn_path)]
    rule = ""
    others: list[Conversation] = []
    names: dict[str, str] = {}  # query field -> pseudonym of the value in `url`
    drawn: list[Conversation] = []
    proven: dict[str, str] = {}  # the client's secrets by pseudonym
    for address in snapshot.metadata_addresses(min(starts, key=len)):
        ids = path_ids(address, url)
        found = conversations(snapshot, address)
        if ids:
            found = [one for one in found if not any(recorded(one, recorded_id) for recorded_id in ids)]
            if not found or any(map(given, ids.values())):
                continue
        here = renumbered(url, {own_id: recorded_id for recorded_id, own_id in ids.items()})
        stored, asked = Request("GET", address), Request("GET", here)
        if PSEUDONYM_TEXT.search(address) is None:
            own = _drawn_apart(address, here)
            joined = (
                "visit-id" if own or has_same_key(asked, stored) else rules_that_join(asked, stored, rules)
            )
            if joined and not any(map(given, own)):
                rule = joined
                drawn += found
            continue
        recogniser = Recogniser()
        recogniser.know(dict.fromkeys(pseudonyms_in(stored, headers=False), 1))
        # A value may be a secret because of another place, such as a header; its query name may not show it.
        for value in _asked_for(address, here):
            recogniser.learn(value)
        recognised = recogniser.request(asked)
        if has_same_key(recognised, stored):
            proven |= _values(recognised.url, here)
            if not ids:
                return FoundConversations(found, True, Secrets(proven))
            rule = "visit-id"
            drawn += found
            continue
        # what the recording learnt from a header to be a secret looks like none in the query
        hidden = mask(Request("GET", _in_places_of(address, here)))
        if has_same_key(mask(stored), hidden) and hidden.url != here:
            others += [_as(one, names, dict(_pairs(address))) for one in found]
    for some in (drawn, others):
        some.sort(key=lambda one: (one.session, one.begin))
    if drawn and not others:
        return FoundConversations(drawn, False, Secrets(proven), rule)
    values = dict(_pairs(url))
    return FoundConversations(
        others, not others, Secrets({name: values[place] for place, name in names.items()})
    )


def path_ids(stored: str, asked: str) -> dict[str, str]:
    """Return the ids in the path of an asked address by those of a stored one, where they differ one for one."""
    return ids_apart(ids_of(stored), ids_of(asked)) or {}


def _as(one: Conversation, names: dict[str, str], own: Mapping[str, str]) -> Conversation:
    """Replace a conversation's pseudonyms by those of the first conversation, which fills `names`."""
    for place, name in own.items():
        if PSEUDONYM_TEXT.fullmatch(name):
            first = names.setdefault(place, name)
            messages = tuple(said._replace(what=_replaced(said.what, name, first)) for said in one.messages)
            one = replace(one, messages=messages)
    return one


def _pairs(url: str) -> list[tuple[str, str]]:
    pairs = (one.partition("=") for one in urlsplit(url).query.split("&"))
    return [(name, unquote(value)) for name, _, value in pairs]


def _drawn_apart(stored: str, asked: str) -> list[str]:
    """Return the client's query values that differ from the stored ones, if all of both look random; else none."""
    recorded, own = _pairs(stored), _pairs(asked)
    if stored.partition("?")[0] != asked.partition("?")[0] or [n for n, _ in recorded] != [n for n, _ in own]:
        return []
    apart = [(one, other) for (_, one), (_, other) in zip(recorded, own, strict=True) if one != other]
    return [other for _, other in apart] if all(surely_drawn(v) for pair in apart for v in pair) else []


# Names of values that a page may draw itself; keys, tokens and passwords belong to somebody.
_SESSION = re.compile(r"sess(?:ion)?(?:[-_]?id)?$|(?:^|[-_])sid$", re.I)


def drawn_sessions(stored: str, asked: str, given: Callable[[str], bool]) -> dict[str, str]:
    """Map pseudonyms of session ids in a stored query to the ids that the client drew itself."""
    values = dict(_pairs(asked))
    return {
        name: values[place]
        for place, name in _pairs(stored)
        if PSEUDONYM_TEXT.fullmatch(name) and _SESSION.search(place) and not given(values[place])
    }


def _asked_for(stored: str, asked: str) -> list[str]:
    """Return the client's values for the pseudonyms of a stored query, if both queries have the same names."""
    recorded, own = _pairs(stored), _pairs(asked)
    if sorted(name for name, _ in recorded) != sorted(name for name, _ in own):
        return []
    names = {name for name, value in recorded if PSEUDONYM_TEXT.fullmatch(value)}
    return [value for name, value in own if name in names]


def _in_places_of(stored: str, asked: str) -> str:
    """Return the client's URL with its values replaced by the pseudonyms of the stored query."""
    names = {name: value for name, value in _pairs(stored) if PSEUDONYM_TEXT.fullmatch(value)}
    start, _, query = asked.partition("?")
    pairs = (one.partition("=") for one in query.split("&"))
    return f"{start}?" + "&".join(
        f"{name}{is_}{value and names.get(name, value)}" for name, is_, value in pairs
    )


def _values(stored: str, asked: str) -> dict[str, str]:
    """Map the pseudonyms of a stored query to the client's values."""
    both = zip(urlsplit(stored).query.split("&"), urlsplit(asked).query.split("&"), strict=True)
    pairs = ((one.partition("=")[2], other.partition("=")[2]) for one, other in both)
    return {name: unquote(secret) for name, secret in pairs if PSEUDONYM_TEXT.fullmatch(name)}


def _replaced(message: Payload, one: str, other: str) -> Payload:
    if isinstance(message, str):
        return message.replace(one, other)
    return message.replace(one.encode(), other.encode())


_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
# how freeze.js marks the streams of a page that waits for them
STREAM = re.compile(r"[?&]stillweb-stream(?=#|$)")
MISSED = "stillweb-miss"  # sent to such a page for a message that was not recorded
REST = "stillweb-rest"  # sent to such a page when nothing more comes by itself
STEP = re.compile(r"stillweb-step (\d{1,9})")  # sent by such a page before each step, with the step's number


def is_socket_request(request: Request) -> bool:
    """Return True if the request asks for a web socket."""
    return (
        (request.header("upgrade") or "").lower() == "websocket"
        and request.method == "GET"
        and bool(request.header("sec-websocket-key"))
    )


def _subprotocols(offer: str | None) -> list[str]:
    return [one.strip() for one in (offer or "").split(",") if one.strip()]


def chosen_protocol(request: Request, recorded: str) -> str | None:
    """Return the subprotocol of a client's offer that the recorded server chose, "" if it chose none; None if it is not offered."""
    # some hold a key
    offered, public = (
        _subprotocols(asked.combined("sec-websocket-protocol")) for asked in (request, mask(request))
    )
    known = PSEUDONYM_TEXT.sub(MASK, recorded)
    if known and known not in public:
        return None
    return offered[public.index(known)] if known else ""


UNTOLD_OFFER = 0.9  # the chance that a server chooses as recorded, where the recorded offer is unknown
OTHER_OFFER = 0.5  # the chance that a server chooses as recorded from an offer that may lead it elsewhere


def chance_of_choice(request: Request, recorded: Conversation) -> float:
    """Return the chance that a server which chose a subprotocol from the recorded offer chooses it from a client's.

    Some servers take the first of the offer that they know, others the one that they like best. The choice is certain of both
    kinds if what stands before it stood before it, and nothing is offered that was not.
    """
    known = PSEUDONYM_TEXT.sub(MASK, recorded.protocol)
    offered = _subprotocols(mask(request).combined("sec-websocket-protocol"))
    if known and known not in offered:
        return 0.0
    before = offered[: offered.index(known)] if known else offered
    if recorded.request is None:  # an older record, or another tool's
        return 1.0 if offered in ([], [known]) else UNTOLD_OFFER
    then = _subprotocols(mask(recorded.request).combined("sec-websocket-protocol"))
    passed = then[: then.index(known)] if known in then else then
    return 1.0 if {*before} <= {*passed} and {*offered} <= {*then} else OTHER_OFFER


def parts_apart(request: Request, known: Request, recorded: Sequence[Conversation]) -> list[list[str]]:
    """Return for each of the sockets recorded at an address the parts of a client's request that are other ones there: fields and cookies.

    `known` is the request with the pseudonyms of the secrets that are known of the client. Of another secret nothing is known where
    only one was recorded: it may be the client's own.
    """
    asked, hidden = _parts_of(known), _parts_of(mask(request))
    then = [asked if one.request is None else _parts_of(one.request) for one in recorded]
    several = {
        part for part in asked.keys() | {p for t in then for p in t} if len({t.get(part) for t in then}) > 1
    }
    found = []
    for one, parts in zip(recorded, then, strict=True):
        differ = sorted(part for part in parts.keys() | asked.keys() if parts.get(part) != asked.get(part))
        if one.request is not None and not several.issuperset(differ):
            masked = _parts_of(mask(one.request))
            differ = [part for part in differ if part in several or masked.get(part) != hidden.get(part)]
        found.append(differ)
    return found


def _parts_of(request: Request) -> dict[str, str]:
    found = header_parts(request, ()) | cookie_parts(request, Given())
    return {part: value for part, value in found.items() if "sec-websocket-" not in part}


def handshake(request: Request, protocol: str) -> bytes:
    """Return the head of the 101 response."""
    key = (request.header("sec-websocket-key") or "").encode("latin-1", "replace")
    accept = base64.b64encode(hashlib.sha1(key + _GUID.encode()).digest()).decode()
    subprotocol = chosen_protocol(request, protocol)
    chosen = f"Sec-WebSocket-Protocol: {subprotocol}\r\n" if subprotocol else ""
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n{chosen}\r\n"
    ).encode("latin-1")


PART = 128  # bytes that a part of a message takes in memory beside its payload


class Socket:
    """The server side of one web socket.

    `write` takes bytes. `on_stray(expected, message)` is called on a message that was not recorded; its result is called when
    the player has taken its turn. `on_message()` is called on a recorded one. `on_doubt()` is called where the recorded
    conversations differ, and with each later answer; it returns whether to go on. `in_thread` runs the matching of a large
    message, or of any in a long conversation, on a thread; frames that come meanwhile wait. `read_on()` is called when all
    bytes that were fed have been processed. `marked`: a page waits for marks between the server's messages (`MISSED`, `REST`).
    """

    def __init__(
        self,
        player: Player,
        write: Callable[[bytes], None],
        close: Callable[[], None],
        on_stray: Callable[[Payload | None, Payload], Callable[[], None]],
        on_doubt: Callable[[], bool],
        on_message: Callable[[], None] = lambda: None,
        *,
        in_thread: Callable[[Callable[[], None], Payload], Awaitable[None]] | None = None,
        read_on: Callable[[], None] = lambda: None,
        secrets: Secrets | None = None,
        marked: bool = False,
    ) -> None:
        self._player = player
        self._read_on = read_on
        self._write = write
        self._close = close
        self._on_stray = on_stray
        self._on_message = on_message
        self._on_doubt = on_doubt
        self._doubt_noted = False  # the doubt is in the ledger
        self._secrets = secrets or Secrets()
        self._marked = marked
        self._in_thread = in_thread
        self._matching: asyncio.Task[None] | None = None
        # what came while a message was judged, or waited for its turn
        self._waiting: list[Callable[[], None]] = []
        self._frame_ends = Frames(websocket_size)
        self._arrived: deque[bytes] = deque()  # pieces that no turn has come to yet
        self._size = 0  # of the parts
        self._frames: Any = FrameProtocol(client=False, extensions=[])
        self._packets = Packets(player.protocol)
        self._parts: list[Payload] = []
        self.closed = False  # True once nothing more is sent

    def start(self) -> None:
        """Send the server's first messages."""
        self._play(lambda: partial(self._send, self._player.open()))

    @property
    def judging(self) -> bool:
        """True while a thread matches a message."""
        return self._matching is not None

    def lost(self) -> None:
        """Send nothing more: the client has left. Messages that it sent before are still matched."""
        if self._matching is not None or self.behind:
            self._waiting.append(self.lost)
        else:
            self.closed = True

    @property
    def behind(self) -> bool:
        """Return True while bytes wait for another turn: no more are to be read."""
        return bool(self._arrived)

    def feed(self, data: bytes) -> None:
        """Process bytes from the client, in turns with other connections."""
        if self.closed:
            return
        waiting = self.behind
        self._arrived.extend(self._frame_ends.cut(data))
        if not waiting:
            self._take_turn()

    def _take_turn(self) -> None:
        end = time.monotonic() + TURN
        try:
            while self._arrived and not self.closed and self._matching is None:
                self._frames.receive_bytes(self._arrived.popleft())
                for frame in self._frames.received_frames():
                    self._frame(frame)
                if self._arrived and time.monotonic() > end:
                    asyncio.get_running_loop().call_soon(self._next_turn)
                    break
        except ParseFailed as failure:
            self._end(int(failure.code), str(failure))
        if self.closed:
            self._arrived.clear()

    def _next_turn(self) -> None:
        if self._matching is None:
            self._take_turn()
        if self._matching is None and not self.behind:
            later, self._waiting = self._waiting, []
            for one in later:
                one()
            self._read_on()

    def tell_missed(self) -> None:
        """Tell a frozen page that its message was not recorded."""
        if self._marked:
            self._write(self._frames.send_data(MISSED, fin=True))

    def note_write(self, key: str | None) -> None:
        """Send the messages that follow a write of the client by HTTP; see `Player.note_write`."""

        def turn() -> Callable[[], None]:
            answer = self._player.note_write(key)
            # doubt is noted again, as with the answer to a message
            return partial(self._send, answer, again=bool(answer) or self._player.silent)

        self._play(turn)

    def _frame(self, frame: Any) -> None:
        if self.closed:
            return
        if self._matching is not None:
            self._waiting.append(lambda: self._frame(frame))
        elif frame.opcode is Opcode.CLOSE:
            code, reason = frame.payload
            self._end(int(code), reason or "")
        elif frame.opcode is Opcode.PING:
            self._write(self._frames.pong(frame.payload))
        elif frame.opcode is not Opcode.PONG:
            if frame.payload or not self._parts:  # empty frames without an end take no memory
                self._parts.append(frame.payload)
                self._size += len(frame.payload) + PART
            if self._size > MAX_BODY:
                self._end(CloseReason.MESSAGE_TOO_BIG, f"a message of more than {MAX_BODY:,} bytes")
            elif frame.message_finished:
                parts, self._parts, self._size = self._parts, [], 0
                whole: Payload
                if isinstance(parts[0], str):
                    whole = "".join(part for part in parts if isinstance(part, str))
                else:
                    whole = b"".join(part for part in parts if not isinstance(part, str))
                step = self._marked and isinstance(whole, str) and STEP.fullmatch(whole)
                for one in [whole] if step else self._packets.cut(True, whole):
                    self._receive(one)
                if self._packets.begun > MAX_BODY:
                    self._end(CloseReason.MESSAGE_TOO_BIG, f"a packet of more than {MAX_BODY:,} bytes")

    def _receive(self, message: Payload) -> None:
        if self._marked and isinstance(message, str) and (step := STEP.fullmatch(message)):
            self._play(lambda: partial(self._send, self._player.step(int(step[1]))))
        else:
            self._play(lambda: self._match(message), message)

    def _play(self, turn: Callable[[], Callable[[], None]], message: Payload = "") -> None:
        """Let the player take a turn, on a thread if it may take long; `turn` returns a function that sends the answer."""
        if self.closed:
            return
        if self._matching is not None:
            self._waiting.append(lambda: self._play(turn, message))
            return
        if self._in_thread is None or not (self._player.long or len(message) > LARGE):
            turn()()
            return
        in_thread = self._in_thread

        async def match() -> None:
            done: list[Callable[[], None]] = []

            def play() -> None:
                done.append(turn())
                self._player.confidence()  # what the model derives for it is remembered

            await in_thread(play, message)
            self._matching, later, self._waiting = None, self._waiting, []
            try:
                for one in (*(done or [turn()]), *later):
                    one()
                if self.behind:
                    self._next_turn()
            except BaseException:
                self._close()
                raise

        self._matching = asyncio.get_running_loop().create_task(match())

    def _match(self, message: Payload) -> Callable[[], None]:
        """Match a client's message with the recorded ones; return a function that sends the answer."""
        message = self._secrets.to_stored(message)
        expected = self._player.next_expected()
        answer = self._player.receive(message)
        if answer is None:  # the socket stays open: recorded messages may still come
            note_miss = self._on_stray(expected, message)
            return lambda: self._stray(note_miss)
        # a client that is told of no doubt takes this answer as certain
        again = bool(answer) and not self._player.lives

        def tell() -> None:
            self._on_message()
            self._send(answer, again=again)

        return tell

    def _stray(self, note_miss: Callable[[], None]) -> None:
        note_miss()
        self.tell_missed()

    def _send(self, messages: list[Payload], *, again: bool = False) -> None:
        """Send messages and note their doubt; with `again`, also doubt that was noted before."""
        self._doubt_noted = self._doubt_noted and not again
        telling = any(_is_beat(one) is False for one in messages)  # a sign of life is right after anything
        due = telling or self._player.silent or self._player.close is not None
        if due and self._player.ambiguous and not self._doubt_noted:
            self._doubt_noted = True
            if not self._on_doubt():
                self.tell_missed()  # as after a message that was not recorded, the socket stays open
                messages = []
        for what in map(self._secrets.to_live, messages):
            self._write(self._frames.send_data(what if isinstance(what, str) else bytes(what), fin=True))
        if self._player.close is not None:
            self._end(*self._player.close)
        elif self._marked:
            self._write(self._frames.send_data(REST, fin=True))

    def _end(self, code: int, reason: str) -> None:
        self.closed = True
        if code == CloseReason.NO_STATUS_RCVD:  # the frame had no code: a page sees 1005, not 1000
            self._write(self._frames.close())
        elif code not in LOCAL_ONLY_CLOSE_REASONS:  # others tell of a drop (RFC 6455, 7.4.1)
            self._write(self._frames.close(code, reason))
        self._close()
