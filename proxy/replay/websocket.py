"""A session's web sockets: the player of each, and their ledger lines."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from stillweb.proxy.replay.misses import body_entry, masked_url_of
from stillweb.proxy.replay.websocket_player import (
    Player,
    RecordedConversations,
    Secrets,
    Socket,
    chance_of_choice,
    drawn_sessions,
    found_at,
    message_differences,
    parts_apart,
    path_ids,
)
from stillweb.snapshots.evidence.confidence import Confidence
from stillweb.snapshots.evidence.explain import MANY
from stillweb.snapshots.evidence.matcher import OTHER_SECRET
from stillweb.snapshots.evidence.priors import of_part
from stillweb.snapshots.evidence.socket_messages import STRAYED
from stillweb.snapshots.identity.drawn_ids import DRAWN
from stillweb.snapshots.identity.equality import LIMIT
from stillweb.snapshots.identity.issued_values import is_shown_in, text_of
from stillweb.snapshots.identity.numbering import ids_in_text, plain_id
from stillweb.snapshots.identity.packets import Payload
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.request import Request

if TYPE_CHECKING:
    from stillweb.proxy.replay.answering import Answerer
    from stillweb.proxy.replay.faults import FaultHit
    from stillweb.proxy.replay.replies import SessionState
    from stillweb.snapshots.capture import Capture

SILENCE = 0.5  # seconds after a write in which what its answer waits for may still be written
BREATH = 0.02  # seconds for the client to receive a message before polls on other connections go on


def _field_of(part: str) -> str:
    """Return the name of the header field that holds a part of a request."""
    kind, name, *_ = part.removeprefix("~").split()
    return "cookie" if kind == "cookie" else name


class SessionSocket:
    """A web socket that a session opened. `player` knows the messages to send."""

    def __init__(
        self, answerer: Answerer, request: Request, state: SessionState, player: Player, secrets: Secrets
    ) -> None:
        self.player = player
        self.secrets = secrets
        self.met: FaultHit | None = None  # fault of the handshake
        self.socket: Socket | None = None
        self._answerer = answerer
        self._request = request
        self._state = state

    @classmethod
    def begin(cls, answerer: Answerer, request: Request, state: SessionState) -> SessionSocket | None:
        """Open a recorded web socket and write its handshake to the ledger, unless a fault refuses it.

        Return None if no web socket was recorded at that address, or none whose subprotocol would be chosen from the client's offer.
        """
        drawing = answerer.matcher.drawing
        found = found_at(
            answerer.snapshot, request.url, partial(_given, answerer, state), drawing.named_before
        )
        confidence = 1.0 if found.sure else OTHER_SECRET if found.rule == "redacted" else DRAWN
        secrets = state.session.secrets
        apart = parts_apart(request, secrets.request(request) if secrets else request, found.conversations)
        chances = [
            chance_of_choice(request, one) * math.prod([1 - of_part(part) for part in parts])
            for one, parts in zip(found.conversations, apart, strict=True)
        ]
        chosen = max(chances, default=0.0)
        talks = [one for chance, one in zip(chances, found.conversations, strict=True) if chance == chosen]
        sure = found.sure and chosen == 1.0
        confidence *= chosen
        presumed = answerer.accept == "rule" and confidence >= answerer.min_confidence
        if not chosen or not (sure or presumed):
            return None
        # pages that draw a session id have different addresses
        known = tuple((one.url, one.session, one.begin) for one in talks)
        turn = state.sockets[known]
        state.sockets[known] += 1
        socket_messages = answerer.matcher.socket_messages
        given = partial(_named, answerer, state, {}) if answerer.accept == "rule" else None
        player = Player(
            answerer.talks.setdefault(known, RecordedConversations(talks)),
            turn,
            lambda one: [(c.begin, c.key) for c in socket_messages.writes(one.url, one.session)],
            given,
            state.named,
            most=min(confidence, DRAWN),
        )
        if not found.sure:
            state.session.draws(drawn_sessions(player.url, request.url, partial(_given, answerer, state)))
            state.session.drawn_ids |= path_ids(player.url, request.url)
        talk = cls(answerer, request, state, player, found.secrets)
        talk.met = fault = answerer.fault_for(request, state)
        other = apart[found.conversations.index(talks[0])]
        field = _field_of(other[0]) if other else "sec-websocket-protocol"
        verdict = "exact" if sure else f"varies:{field}" if found.sure else f"rule:{found.rule}"
        more = talk._count_doubt(confidence)
        if fault is not None:
            if fault.fault.replaces:
                return talk  # the refusal gets the ledger line
            answerer.count_fault(state, fault)
            more |= {"under": verdict, **fault.members()}
            verdict = fault.verdict
        talk._note(verdict, "websocket", 101, more)
        return talk

    def note_message(self) -> None:
        """Process a recorded message of the client: it may change the site's answers and end polls."""
        state = self._state
        for word in self.player.word().split():
            state.session.says(site_of(self._request.url), word)
        state.polls.opened(self._request.url)
        if state.waiting:  # polls on other connections; the client is to receive this answer first
            asyncio.get_running_loop().call_later(BREATH, state.wake_polls)

    def note_doubt(self) -> bool:
        """Note the doubt in the socket's next messages. Return False to refuse them."""
        answerer = self._answerer
        confidence, grounds = self.player.confidence()
        refused = answerer.accept.endswith("+unambiguous") or confidence < answerer.min_confidence
        if refused:
            answerer.count(self._request, self._state, None)
            why = f"the web socket's answer is not sure: {Confidence.of(confidence)}"
            more = {"ambiguous": True, "why": ": ".join((why, "; ".join(grounds))), "nearest": []}
        else:
            more = self._count_doubt(confidence) | {"grounds": grounds}
        served = f"rule:{self.player.rules}" if self.player.rules else "exact"
        verdict, derived, status = ("miss", "", 0) if refused else (served, "websocket", 101)
        self._note(verdict, derived, status, more)
        if self.player.owes:
            asyncio.get_running_loop().call_later(SILENCE, self._note_lack, self.player.unsaid)
        return not refused

    def _note_lack(self, unsaid: bool) -> None:
        """Note a miss if the client still waits for what the server says after something was written; `unsaid` if it was never recorded here."""
        if (unsaid or self.player.owes) and self.socket is not None and not self.socket.closed:
            self._answerer.count(self._request, self._state, None)
            why = "the web socket's messages after this write were recorded after other writes"
            self._note("miss", "", 0, {"why": why, "nearest": []})
            self.socket.tell_missed()

    def note_stray(self, expected: Payload | None, message: Payload) -> Callable[[], None]:
        """Return a function that notes a miss for a client's message that was not recorded."""
        request = self._request
        sent = message.encode("utf-8", "replace") if isinstance(message, str) else message
        if expected is None:
            why = "the client sent a web socket message that was not recorded; the recording has no more of them"
        elif self.player.was_recorded(message):
            why = "the client sent a web socket message that was recorded, but at another place; another one was expected"
        else:
            why = "the client sent a web socket message that was not recorded; another one was expected"
        near: list[dict[str, Any]] = []
        if expected is not None:
            differs = [*islice(map(str, message_differences(message, expected)), MANY)]
            near = [{"method": "GET", "url": masked_url_of(request), "differs": differs, "rule": None}]
        more = {"why": why, "nearest": near}
        body = Request("POST", request.url, (("Content-Type", "application/json"),), sent)
        more |= body_entry(body)

        def note() -> None:
            self._answerer.count(request, self._state, None)
            self._state.session.says(site_of(request.url), STRAYED)
            self._note("miss", "", 0, more)

        return note

    async def judge_in_thread(self, judge: Callable[[], None], message: Payload) -> None:
        """Let a thread judge a message, even if the client leaves meanwhile."""
        try:
            with self._state.working():
                await self._answerer.run_to_end(self._answerer.run_in_thread(judge), message)
        finally:
            # requests that wait for what comes of it
            asyncio.get_running_loop().call_soon(self._state.wake_polls)

    def _count_doubt(self, chance: float) -> dict[str, Any]:
        """Return the members that tell the confidence in an answer, and count its doubt."""
        confidence = Confidence.of(chance)
        if confidence.millionths:
            self._answerer.doubts += confidence
        return ({"ambiguous": True} if confidence.presumed else {}) | confidence.members()

    def _note(self, verdict: str, derived: str, status: int, more: dict[str, Any] | None = None) -> None:
        answerer = self._answerer
        answerer.note(self._state, answerer.tail(self._request, None, verdict, derived, status, more=more))


def _given(answerer: Answerer, state: SessionState, value: str) -> bool:
    """Return True if a session was served a value, or requested a URL with it."""
    return any(
        value in one.url or is_shown_in(value, text_of(answerer.snapshot.read_start(one, LIMIT + 1)))
        for one in tuple(state.session.served)  # others may be answered while a thread judges a message
    )


def _named(answerer: Answerer, state: SessionState, known: dict[Capture, set[str]], value: str) -> bool:
    """Return True if an answer that a session was served names an id. `known` caches the ids read."""
    wanted = plain_id(value)
    for one in tuple(state.session.served):
        if one not in known:
            known[one] = ids_in_text(one.url + "\n" + text_of(answerer.snapshot.read_start(one, LIMIT + 1)))
        if wanted in known[one]:
            return True
    return False
