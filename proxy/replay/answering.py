"""The reply to a request in a session, and its ledger line: from captures, recorded failures, long polls and preflights.

Knows no sockets.
Requested captures stay in memory, ready to send, and so do whole requests whose answer no state and no
sequence can change (`stillweb.proxy.replay.replies.ReplyCache`).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
import sys
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import unquote

from stillweb.proxy.net.addresses import host_of
from stillweb.proxy.replay.faults import older, read_pace, stale_fields
from stillweb.proxy.replay.hosting import VirtualHost, reset_hosts
from stillweb.proxy.replay.http1 import LARGE, MAX_BODY, MAX_HEAD
from stillweb.proxy.replay.ledger import EntryTails, Ledger
from stillweb.proxy.replay.memento import is_timegate, memento_fields, moment_of, without_date
from stillweb.proxy.replay.misses import (
    MARKED,
    MissedRequest,
    body_entry,
    masked_url_of,
    miss_body,
    missed_of,
    near_entry,
    why_unsure,
)
from stillweb.proxy.replay.polls import Polls
from stillweb.proxy.replay.replies import (
    ESTABLISHED,
    CachedCapture,
    DelayedReply,
    Memo,
    Reply,
    ReplyCache,
    SessionState,
    SessionStates,
    failure,
    with_verdict_fields,
)
from stillweb.proxy.replay.response import (
    AGED,
    BODILESS,
    PIECE,
    Refusal,
    clean,
    coding,
    cut,
    join,
    must_decode,
    plan,
    read_head,
    stored_pieces,
    with_ages,
)
from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.contents.failures import TUNNEL
from stillweb.snapshots.decompression import TooLarge
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.evidence import SERVED
from stillweb.snapshots.evidence.confidence import Confidence
from stillweb.snapshots.evidence.lookup import HANGS, MISS, Lookup
from stillweb.snapshots.evidence.lookup import confidence_of as doubt_of
from stillweb.snapshots.http import encodings
from stillweb.snapshots.http.encodings import EncodingProblem, decode
from stillweb.snapshots.identity.echoes import (
    Echo,
    Unrepeatable,
    echoes,
    in_address,
    repeated_values,
    with_echoes,
)
from stillweb.snapshots.identity.irrelevant import errand, irrelevant_url
from stillweb.snapshots.identity.keys import canonical_url, opens_socket, request_key
from stillweb.snapshots.identity.numbering import renumbered
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.identity.urlkeys import surt
from stillweb.snapshots.request import SAFE_METHODS, Headers, Request
from stillweb.snapshots.secrets.redact import TEXTUAL, mask
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.words import pluralize
from stillweb.snapshots.yielding import free

if TYPE_CHECKING:
    from stillweb.proxy.replay.faults import FaultHit, Faults, FaultSession
    from stillweb.proxy.replay.websocket_player import RecordedConversations
    from stillweb.snapshots.contents.failure_lookup import KnownFailure
    from stillweb.snapshots.evidence.lookup import Session
    from stillweb.snapshots.evidence.matcher import Matcher

STREAMED = 1 << 20  # stored bytes; a larger body is not held in memory
CACHE_BYTES = 64 << 20
MISSES_KEPT = 1 << 20  # approximate bytes of a session's remembered misses
LAST_FAILURES = 100
# how a frozen page asks for an event stream again: how often, and the id of its last event
AGAIN = re.compile(r"[?&]stillweb-stream=(\d{1,6})\.([^#&]*)(?=#|$)")
MANY = 40  # header fields; a request with more is prepared. Browsers send 10 to 25
TURN = 0.0002  # seconds for which the thread that prepares may keep the event loop waiting
MOST_LEFT = 2 * MAX_BODY  # bytes being worked on; above it, requests whose clients have left are dropped
# young collections before a full one while preparing: a full one takes 100 ms with a form of 1 MB
SELDOM = 1 << 20
RARELY = 1000  # the same at other times: a full one takes 15 ms with the rests of a JSON object of 1 MB
NEAREST = 3  # captures named in a miss
LOOKED_THROUGH = 400  # captures of a site among which a miss names pages
T = TypeVar("T")


class Live(Protocol):
    """A way to the real web; `proxy.record.live.LiveRequests` is one."""

    def submit(self, request: Request, session: str, /) -> Future[Reply]: ...


class Answerer:
    """A source of replies from a snapshot. Not thread-safe: one event loop uses it."""

    learnt_more: Callable[[], object] = staticmethod(lambda: None)  # called after a site was learnt

    def __init__(
        self,
        snapshot: Snapshot,
        ledger: Ledger,
        *,
        accept: str = "rule",
        min_confidence: float = SERVED,
        virtual_hosts: Mapping[str, VirtualHost] | None = None,
        cache_bytes: int = CACHE_BYTES,
        faults: Faults | None = None,
        timing: str = "none",
        live: Live | None = None,
        on_miss: Callable[[], None] | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.matcher: Matcher = snapshot.matcher()
        self.polls = Polls(self.matcher)
        self.ledger = ledger
        self.virtual_hosts = {host.lower(): answer for host, answer in (virtual_hosts or {}).items()}
        self.accept = accept
        self.min_confidence = min_confidence
        self.requests = 0
        self.misses = 0
        self.doubts = Confidence()  # in all answers so far
        self.failed = 0  # requests that failed as they did while recording
        self.failures: list[str] = []  # errors while answering, for the status page
        self.forgotten = 0  # errors dropped from that list, counted only
        self.kept = ReplyCache(snapshot, cache_bytes)
        self.faults = faults
        self.timing = read_pace(timing)
        self.faulted = 0  # answers that a fault changed
        # of web sockets, by (URL, session, begin) of the conversations
        self.talks: dict[Hashable, RecordedConversations] = {}
        self.live, self._on_miss = live, on_miss
        self._fault_sessions: dict[str, FaultSession] = {}
        self.states = SessionStates(self.matcher.session, self.kept.forget_state)
        self.state = self.states.state
        self.tail = EntryTails().of
        self._worker: ThreadPoolExecutor | None = None
        self._working = 0  # bytes of requests and messages that are worked on, at most
        self._closed = False

    # Sessions

    def reset(self, name: str) -> None:
        """Reset a session to its start. Its request count goes on."""
        if self.states.get(name) is not None:
            state = self.state(name)
            state.begin_anew(self.matcher.session(name))
            reset_hosts(self.virtual_hosts.values(), state.name)
            self._fault_sessions.pop(state.name, None)

    def missed(self, name: str) -> list[MissedRequest]:
        """Return the requests that a session missed, in the order in which they were answered."""
        state = self.states.get(name)
        return list(state.missed) if state is not None else []

    def faults_met(self, name: str) -> list[str]:
        """Return the verdicts of a session's answers that faults changed, in the order of the answers."""
        state = self.states.get(name)
        return list(state.faulted) if state is not None else []

    @property
    def sessions(self) -> dict[str, int]:
        """The number of requests by session."""
        return self.states.counts()

    # Answers

    def replay_memo(self, memo: Memo, state: SessionState) -> bytes:
        """Replay a memoized request: advance the session, write the ledger line, return the bytes to send.

        Returns b"" if the memo does not hold for the session, or if the session's ledger line needs more
        members. Most requests of a long run take only this path, so `note` is inlined.
        """
        session, site = state.session, memo.site
        if site in session.past or state.again or session.drawn_ids:
            return b""
        session.repeated(site, memo.capture, memo.followed)
        seq = state.seq
        state.seq = seq + 1
        self.requests += 1
        if memo.confidence is not None:
            self.doubts += memo.confidence
        self.ledger.write_timed(state.prefix, seq, memo.tail)
        return memo.wire

    def waits(self, request: Request, state: SessionState) -> bool:
        """Return True while earlier messages of the session are being matched, or an Engine.IO web socket may not open yet."""
        opens = not self.accept.startswith("rule") or self.polls.opens(request.url, state.polls)
        return state.judging or not opens

    async def due(self, request: Request, state: SessionState, *, left: bool = False) -> None:
        """Wait until `waits` is false.

        If the client leaves before, or has `left`, the ledger line of an unanswered request is written.
        """
        if state.judging:
            await self.run_to_end(state.wait_until(lambda: not state.judging), request.body)
        try:
            if left and self.waits(request, state):
                raise asyncio.CancelledError
            await state.wait_until(lambda: not self.waits(request, state))
        except asyncio.CancelledError:
            note_unanswered_poll(self, request, state, None)
            raise

    def answer(
        self, request: Request, state: SessionState, memo_key: tuple[str, bytes] | None = None
    ) -> Reply:
        """Return the reply to a request.

        `memo_key`, the tunnel's base and the request's bytes, lets the reply be found again without matching.
        """

        def make() -> Reply:
            if self.faults is None and not self.timing:
                reply = self._answer(request, state, memo_key)
            else:
                reply = self._answer_with_fault(request, state, self.fault_for(request, state))
            if (
                state.talks
                and request.method not in SAFE_METHODS
                and not waits_for_news(reply)
                and not irrelevant_url(request.url.partition("?")[0])
            ):
                state.wrote(reply.capture)
            return reply

        return self._reply_or_error(request, state, make)

    def _reply_or_error(self, request: Request, state: SessionState, make: Callable[[], Reply]) -> Reply:
        """Return the reply that `make` makes, or one that says why it could not."""
        reply = None
        try:
            reply = make()
        except DamagedInput as error:  # of a capture that was read only to choose
            reply = self._reply_damaged(request, state, None, error)
        except Exception as error:  # noqa: BLE001 -- a bug: reported to the client, ledger and status page
            reply = self._reply_failed(request, state, error)
        finally:
            if reply is None or not waits_for_news(reply):
                self._forget(request)  # the session may keep the request itself
        return reply

    def _forget(self, request: Request) -> None:
        """Drop the values derived from a request, on the preparing thread: freeing large ones takes time."""
        kept = request.forgetting()
        if kept and self._worker is not None:
            with contextlib.suppress(RuntimeError):  # the gateway ends
                self._worker.submit(run_in_turns, partial(free, kept))

    def slow(self, request: Request) -> bool:
        """Return True if a request should be prepared before it is answered: a large one, or the first to a site."""
        return needs_preparation(request) or not self.matcher.learnt(request)

    async def prepare(self, request: Request, state: SessionState) -> None:
        """Let a thread compute what the answer to a slow request needs, while others are answered.

        This goes on if the client leaves: the session advances, and the ledger has the answer. If too much is in preparation
        already, the work is dropped, and the ledger says that the request was not answered.
        """
        session = state.session.copy(site_of(request.url))
        derive = self.run_in_thread(lambda: self._derive(request.remembering(), session))
        with state.working():
            try:
                await self.run_to_end(derive, request.body)
            except asyncio.CancelledError:
                self.count(request, state, None)
                self.note(state, self.tail(request, None, "miss", "", 0, more={"why": GONE, "nearest": []}))
                raise

    async def run_to_end(self, work: Awaitable[T], read: Sized) -> T:
        """Finish work on bytes read from a client, even if the client leaves and the task is cancelled meanwhile."""
        task = asyncio.ensure_future(work)
        size = MAX_HEAD + len(read)
        self._working += size
        try:
            while True:
                try:
                    return await asyncio.shield(task)
                except asyncio.CancelledError:
                    if task.cancelled() or self._closed or self._working > MOST_LEFT:
                        task.cancel()
                        raise
        finally:
            self._working -= size

    async def run_in_thread(self, work: Callable[[], None]) -> None:
        """Do some work for an answer on the preparing thread. After a bug there, the answer computes the rest itself."""
        if self._worker is None:
            # one: it shares the interpreter with the loop
            self._worker = ThreadPoolExecutor(1, "stillweb-prepare")

        try:
            await asyncio.get_running_loop().run_in_executor(self._worker, run_in_turns, work)
        except Exception as error:  # noqa: BLE001 -- a bug
            self.fail(f"preparing: {type(error).__name__}: {error}")

    def _derive(self, request: Request, session: Session) -> None:
        """Compute what matching and the ledger derive from a request, for a copy of its session."""
        new = not self.matcher.learnt(request)
        dated = request.method == "GET" and request.header("accept-datetime") is not None
        others = as_get(request), restarted_stream(request), without_date(request) if dated else None
        for one in filter(None, (request, *others)):
            request_key(one)
            if needs_preparation(one) or not self.matcher.learnt(one):  # else nothing varies on its site
                stored = self.matcher.foresee(one, session, self.accept)
                for told in (one, stored):
                    request_key(mask(told))
        if new:
            self.learnt_more()

    def close(self) -> None:
        """End the thread of `prepare`, and all that waits for it."""
        self._closed = True
        if self._worker is not None:
            self._worker.shutdown(cancel_futures=True)

    def lookup(self, request: Request, state: SessionState, at: str = "") -> Lookup:
        """Look up a request of a session at the accepted levels."""
        return self.matcher.lookup(
            request,
            state.session,
            accept=self.accept,
            min_confidence=self.min_confidence,
            at=at,
            poll=partial(self.polls.next, state.polls),
        )

    # Faults

    def fault_for(self, request: Request, state: SessionState) -> FaultHit | None:
        """Count a request of a session, and return the fault that it meets."""
        if self.faults is None:
            return None
        known = self._fault_sessions.get(state.name)
        if known is None:
            known = self._fault_sessions[state.name] = self.faults.session(state.name)
        return known.meet(request)

    def fault_reply(self, request: Request, state: SessionState, fault: FaultHit) -> Reply | None:
        """Return the reply of a fault that replaces the recorded one, and write its ledger line; None if it replaces none."""
        if not fault.fault.replaces:
            return None
        response = fault.fault.response()
        self.count_fault(state, fault)
        reply = self._generated(response, fault.verdict) if response is not None else Reply(0, "Reset", ())
        if request.method == "HEAD":
            reply.body = b""
        self.note(state, self.tail(request, None, fault.verdict, "fault", reply.status, more=fault.members()))
        if fault.fault.kind == "reset":
            reply.held = DelayedReply(fault.delay, lambda: None, reset=True)
        return self.with_delay(reply, fault)

    def with_delay(self, reply: Reply, fault: FaultHit | None) -> Reply:
        """Return the reply, to be sent after the delay of a fault."""
        if fault is None or not fault.delay or reply.held is not None:
            return reply
        held = Reply(reply.status, "", (), capture=reply.capture)
        held.held = DelayedReply(fault.delay, lambda: reply)
        return held

    def _with_recorded_timing(self, reply: Reply, capture: Capture) -> Reply:
        """Return the reply with the recorded time to its first byte, and the recorded pace of its body."""
        recorded = self.snapshot.timing(capture)
        if recorded is None:
            return reply
        first, rest = (one * self.timing for one in recorded)
        size = reply.length or 0
        if rest and size and not reply.pace:
            cut_short = reply.cut
            reply = with_pace(reply, size / rest, -1)
            reply.cut = cut_short
        if not first:
            return reply
        held = Reply(reply.status, "", (), capture=reply.capture)
        held.held = DelayedReply(first, lambda: reply)
        return held

    def _answer_with_fault(self, request: Request, state: SessionState, fault: FaultHit | None) -> Reply:
        """Return the reply to a request that met a fault, or none. Nothing is remembered for the fast path."""
        if fault is None:
            return self._answer(request, state, None)
        return self.fault_reply(request, state, fault) or self.with_delay(
            self._answer(request, state, None, fault), fault
        )

    def _answer(
        self,
        request: Request,
        state: SessionState,
        memo_key: tuple[str, bytes] | None,
        fault: FaultHit | None = None,
    ) -> Reply:
        if (again := restarted_stream(request)) is not None:
            times = int(AGAIN.findall(request.url)[0][0])
            return self._reconnection(again, state, times)
        moment, wanted = "", request.header("accept-datetime")
        if wanted is not None and request.method == "GET" and is_timegate(self.snapshot, request):
            if not (moment := moment_of(wanted)):
                return self.miss(request, state, None, f"Accept-Datetime {wanted!r} is not an HTTP date")
            request, memo_key = without_date(request), None
        lookup = self.lookup(request, state, moment)
        if lookup.verdict == HANGS and state.polls.beyond is not None:
            return self._end_poll(request, state, lookup, state.polls.beyond)
        if lookup.verdict == HANGS:
            return delayed_reply(self, request, state, lookup.rule)
        if lookup.capture is None and lookup.failed is None and opens_socket(request):
            return self.miss(
                request,
                state,
                None,
                "no web socket was recorded there, or none with a subprotocol that its server is likely to choose from the client's offer",
            )
        if lookup.capture is None:
            return self._answer_derived(request, state, lookup)
        told = lookup
        if fault is not None and fault.fault.kind == "stale":
            old = older(self.snapshot, request, lookup.capture)
            if old is None:
                fault = None  # nothing older was recorded: the cache is fresh
            else:
                told = replace(lookup, capture=old)
        verdict = self.snapshot.verdict_of(told)
        if fault is not None:
            verdict = fault.verdict
        try:
            ids = {**state.session.drawn_ids, **lookup.ids}
            reply, derived, cached = self._reply(request, told, verdict, "", ids)
        except Refusal as refusal:
            return self.miss(request, state, lookup, str(refusal))
        except DamagedInput as error:
            return self._reply_damaged(request, state, lookup, error)
        state.session.answered(lookup)
        state.polls.answered(lookup.capture, lookup.polled)
        if state.waiting:
            state.wake_polls()
        if reply.pieces is not None:
            reply.broke = lambda error, sent: self._broke(request, state, lookup, error, sent)
        assert told.capture is not None
        more: dict[str, Any] = {} if verdict == lookup.verdict else {"under": lookup.verdict}
        if moment:
            reply = reply.with_fields(memento_fields(told.capture, request.url))
            more["memento"] = told.capture.timestamp
        if fault is not None:
            self.count_fault(state, fault)
            if fault.fault.kind == "stale":
                reply = reply.with_fields(stale_fields(told.capture, lookup.capture))
            reply = apply_fault(reply, fault)
            more |= fault.members()
        tail = self.tail(request, told, verdict, derived, reply.status, more=more or None)
        self.note(state, tail, told)
        if self.timing and told.capture is not None and reply.held is None:
            return self._with_recorded_timing(reply, told.capture)
        if memo_key is not None and lookup.inert and not derived:
            site = site_of(request.url)  # only the request decided, in a session without changes here
            if site not in state.session.past and cached is not None:
                if reply.whole is None:
                    self.kept.grow(cached, len(reply.wire()))
                named = None if memo_key[0] else state
                made = Memo(reply.wire(), tail, named, lookup.capture, site, request, doubt_of(lookup))
                self.kept.remember(memo_key, made, cached)
        return reply

    def _reconnection(self, again: Request, state: SessionState, count: int) -> Reply:
        """Answer an event stream that a frozen page asks for again, for the `count`-th time after the same event.

        Where no recorded page did, the generated answer keeps the stream silent.
        """
        key, last = request_key(again), again.headers[-1][1]
        recorded = sum(
            self.snapshot.read_request(capture).header("last-event-id") == last
            for capture in self.snapshot.candidates(key.urlkey)
            if capture.method == "GET" and capture.key == key.canonical
        )
        if count <= recorded:
            return self._answer(again, state, None)
        reply = self._generated(Response(200, "OK", (("Content-Type", "text/plain"),), b""), "synthetic")
        self.note(state, self.tail(again, None, "synthetic", "stream", 200))
        return reply

    def _end_poll(self, request: Request, state: SessionState, lookup: Lookup, last: Capture) -> Reply:
        """End a poll of Engine.IO with the packet that says nothing; `last` is the last recorded answer on its channel."""
        head = self.snapshot.head(last)
        fields = [
            (n, v) for n, v in head.headers if n.lower().startswith(("access-control-", "content-type"))
        ]
        packet = b"1:6" if "EIO=3" in request.url else b"6"
        reply = self._generated(Response(200, "OK", tuple(fields), packet), "synthetic", last)
        self.note(state, self.tail(request, lookup, "synthetic", "poll", 200, capture=last))
        return reply

    def _echoes(self, request: Request, lookup: Lookup) -> list[Echo]:
        """Return the drawn values of a request that the answer is to repeat in place of the recorded ones."""
        # another rule may have joined the requests by the same value
        rules = self.matcher.rules.rules if lookup.rule else ()
        if lookup.capture is None or not (asked := repeated_values(request, rules)):
            return []
        return echoes(asked, repeated_values(self.snapshot.read_request(lookup.capture), rules))

    def _answer_derived(self, request: Request, state: SessionState, missed: Lookup) -> Reply:
        """Answer from captures of other requests: HEAD from GET, a CORS preflight from its request."""
        # Range has no meaning for HEAD (RFC 9110, 14.2), yet some servers heed it
        if (get := as_get(request)) is not None and request.header("range") is None:
            lookup = self.lookup(get, state)
            if lookup.capture is not None:
                try:
                    reply, derived, _ = self._reply(
                        request, lookup, lookup.verdict, "head", state.session.drawn_ids
                    )
                except Refusal as refusal:
                    return self.miss(request, state, missed, str(refusal))
                except DamagedInput as error:
                    return self._reply_damaged(request, state, missed, error)
                tail = self.tail(request, lookup, lookup.verdict, derived, reply.status, missed)
                self.note(state, tail, lookup)
                return reply
        elif is_preflight(request):
            found = preflight_grant(self.snapshot, request)
            if isinstance(found, str):
                return self.miss(request, state, missed, found)
            made, capture = found
            reply = self._generated(made, "synthetic", capture)
            self.note(state, self.tail(request, missed, "synthetic", "preflight", 204, capture=capture))
            return reply
        return self.miss(request, state, missed, "")

    def _reply(
        self, request: Request, lookup: Lookup, verdict: str, derived: str, ids: Mapping[str, str]
    ) -> tuple[Reply, str, CachedCapture | None]:
        capture = lookup.capture
        assert capture is not None
        echoed = self._echoes(request, lookup)
        named = any(one.anywhere for one in echoed)
        # a body that the client's values are put into
        rewritten = named or ((ids or echoed) and TEXTUAL.search(capture.mime))
        if not rewritten and (capture.original[2] if capture.original else capture.length) > STREAMED:
            reply, how = self._large(request, lookup, capture, verdict, derived)
            return reply, how, None
        try:
            cached = self.kept.load(capture)
        except TooLarge:
            if named:
                raise Refusal(
                    "the answer is too large to replace recorded ids by the client's in it"
                ) from None
            reply, how = self._large(request, lookup, capture, verdict, derived)
            return reply, how, None
        own = with_ids(cached.response, ids) if ids else None
        if echoed:
            try:
                own = with_echoed(own or cached.response, echoed) or own
            except Unrepeatable as error:
                raise Refusal(str(error)) from error
        if own is not None:
            cached = CachedCapture(own, cached.aged)
        stored = cached.response
        decoded = must_decode(self.snapshot, capture, stored, request)
        conditional = bool(request.conditional())
        plain_get = request.method == "GET" and not conditional
        if plain_get:
            ready = cached.replies.get((verdict, decoded, lookup.ambiguous, lookup.reported_confidence))
            if ready is not None:
                return ready, _joined(derived, cached.aged), cached
        if (
            (conditional or request.method == "HEAD")
            and cached.recorded is None
            and capture.request_offset >= 0
        ):
            cached.recorded = self.snapshot.read_request(capture)
        body = stored.body
        if decoded:
            if cached.plain is None:
                try:
                    cached.plain = encodings.decode(body, coding(stored))
                except encodings.LongBody:
                    reply, how = self._large(request, lookup, capture, verdict, derived)
                    return reply, how, None
                except encodings.EncodingProblem:
                    cached.plain = body  # already damaged at the origin: served as recorded
                self.kept.grow(cached, len(cached.plain))
            if cached.plain is body:
                decoded = False
            else:
                body = cached.plain
        recorded = cached.recorded or Request(capture.method, capture.url)
        made = plan(stored, len(body), request, recorded, decoded=decoded)
        how = _joined(made.derived or derived, cached.aged, own is not None)
        fields = with_verdict_fields(
            made.headers, verdict, capture, how, lookup.ambiguous, lookup.reported_confidence
        )
        reply = Reply.of(made, fields, capture, join(made.parts, body))
        if not made.derived and not derived and plain_get:
            cached.replies[verdict, decoded, lookup.ambiguous, lookup.reported_confidence] = reply
            self.kept.grow(cached, len(reply.body) if decoded else 0)
        return reply, how, cached

    def _large(
        self, request: Request, lookup: Lookup, capture: Capture, verdict: str, derived: str
    ) -> tuple[Reply, str]:
        """Plan a reply whose body is read and sent piece by piece. Return it with its derivation."""
        stored, found = read_head(self.snapshot, capture)
        headers = with_ages(stored.headers, capture.timestamp)
        aged = headers is not stored.headers
        stored = replace(stored, headers=headers) if aged else stored
        size: int | None = found
        decoded = must_decode(self.snapshot, capture, stored, request)
        recorded = self.snapshot.read_request(capture) if capture.request_offset >= 0 else None
        encoding = coding(stored) if decoded else None
        if decoded:
            try:  # only decoding to the end shows whether the size is within bounds
                size = sum(len(p) for p in stored_pieces(self.snapshot, capture, encoding))
            except encodings.EncodingProblem:
                # already damaged at the origin, or a decompression bomb: served as recorded
                decoded, encoding, size = False, None, found
        made = plan(stored, size, request, recorded, decoded=decoded)
        how = _joined(made.derived or derived, aged)
        fields = with_verdict_fields(
            made.headers, verdict, capture, how, lookup.ambiguous, lookup.reported_confidence
        )

        def pieces() -> Iterator[bytes]:
            for part in made.parts:
                if isinstance(part, bytes):
                    yield part
                else:
                    yield from cut(stored_pieces(self.snapshot, capture, encoding), *part)

        if not made.parts:
            return Reply.of(made, fields, capture), how
        return Reply.of(made, fields, capture, pieces=pieces), how

    # Flags and ledger

    def _generated(
        self,
        response: Response,
        verdict: str,
        capture: Capture | None = None,
        *,
        doubted: bool = False,
        confidence: Confidence | None = None,
    ) -> Reply:
        """Build a reply from a generated response."""
        fields = clean(response.headers)
        names = {n.lower() for n, _ in fields}
        if "content-length" not in names and response.status not in BODILESS:
            fields = (*fields, ("Content-Length", str(len(response.body))))
        fields = with_verdict_fields(fields, verdict, capture, doubted=doubted, confidence=confidence)
        return Reply(response.status, response.reason, fields, response.body, capture=capture)

    def virtual(
        self, request: Request, state: SessionState, response: Response, fault: FaultHit | None = None
    ) -> Reply:
        """Return the reply for a virtual host's response, and write its ledger line."""
        verdict = response.header("stillweb-verdict") or "synthetic"
        doubted = response.header("stillweb-ambiguous") is not None
        confidence = Confidence.parse(response.header("stillweb-confidence"))
        if request.method == "HEAD":
            response = Response(response.status, response.reason, response.headers, b"")
        more: dict[str, Any] = {"ambiguous": True} if doubted else {}
        if fault is not None and verdict != "miss" and fault.fault.kind != "stale":
            more |= {"under": verdict, **fault.members()}
            verdict = fault.verdict
            self.count_fault(state, fault)
        reply = self._generated(response, verdict, doubted=doubted, confidence=confidence)
        if fault is not None and verdict == fault.verdict:
            reply = self.with_delay(apply_fault(reply, fault), fault)
        if verdict == "miss":
            self.count(request, state, None)
        if confidence is not None:
            self.doubts += confidence
            more |= confidence.members()
        self.note(state, self.tail(request, None, verdict, "virtual", reply.status, more=more or None))
        return reply

    def count_fault(self, state: SessionState, fault: FaultHit) -> None:
        """Count an answer that a fault changed, and remember it for the session."""
        self.faulted += 1
        if state.weight < MISSES_KEPT:
            state.weight += 100
            state.faulted.append(fault.verdict)

    def count(self, request: Request, state: SessionState, lookup: Lookup | None) -> None:
        """Count a miss and remember it for the session."""
        self.misses += 1
        if state.weight < MISSES_KEPT:
            missed = missed_of(request, bool(lookup is not None and lookup.irrelevant))
            state.weight += len(missed.url) + 100
            state.missed.append(missed)
        if self._on_miss is not None and not (lookup is not None and lookup.irrelevant):
            self._on_miss()

    def tunnel(self, authority: str, state: SessionState) -> tuple[Reply | None, float]:
        """Return the refusal of a CONNECT, and the delay in seconds with which a tunnel opens otherwise.

        It is refused if it failed while recording, or by a fault.
        """
        url = f"https://{authority}/"
        if host_of(url) in self.virtual_hosts:
            return None, 0.0
        asked = Request("CONNECT", url)
        if (fault := self.fault_for(asked, state)) is not None:
            if (reply := self.fault_reply(asked, state, fault)) is not None:
                return reply, 0.0
            self.count_fault(state, fault)
            self.note(state, self.tail(asked, None, fault.verdict, "fault", 200, more=fault.members()))
            return None, fault.delay
        request = Request(TUNNEL, url)
        try:
            failed = self.matcher.failing.tunnel(url)
        except DamagedInput as error:
            return self._reply_damaged(request, state, None, error), 0.0
        return (fail_as_recorded(self, request, state, None, failed) if failed is not None else None), 0.0

    def _explained_later(self, request: Request, state: SessionState, lookup: Lookup, why: str) -> Reply:
        """Return a reply to a miss that is held until the preparing thread has explained it."""

        async def until() -> None:
            await self.run_in_thread(lambda: explain(lookup))

        def late() -> Reply:
            return self._reply_or_error(
                request, state, lambda: self.miss(request, state, lookup, why, explained=True)
            )

        def left() -> None:
            self.count(request, state, lookup)
            self.note(state, self.tail(request, lookup, "miss", "", 0, more={"why": why, "nearest": []}))

        held = Reply(504, "Explaining", ())
        held.held = DelayedReply(0, late, wait_for_news=until, on_leave=left)
        return held

    def miss(
        self,
        request: Request,
        state: SessionState,
        lookup: Lookup | None,
        why: str,
        *,
        explained: bool = False,
    ) -> Reply:
        """Reply to a request that the snapshot lacks (504), or that failed while recording.

        The miss of a prepared request is explained on the preparing thread, as that may take long.
        """
        if lookup is not None and lookup.failed is not None:
            return fail_as_recorded(self, request, state, lookup, lookup.failed)
        if lookup is not None and request.remembers and not explained and self.faults is None:
            return self._explained_later(request, state, lookup, why)
        self.count(request, state, lookup)
        url = masked_url_of(request)
        text = f"stillweb: miss: {request.method} {url} is not in the snapshot"
        if why:
            text += f" ({why})"
        entry: dict[str, Any] = {}
        near: list[dict[str, Any]] = []
        if lookup is not None and not why and "confidence" in lookup.why:
            why, likeliest = why_unsure(lookup, self.min_confidence)
            text += f" ({why})"
            entry["likeliest"] = likeliest
        if lookup is not None:
            near = [near_entry(n) for n in lookup.explain()[:NEAREST]]
            if near and not why:
                text += f"; nearest is {near[0]['method']} {near[0]['url']}, which differs in " + "; ".join(
                    near[0]["differs"]
                )
                if near[0]["rule"]:
                    text += f" (rule {near[0]['rule']} would join them)"
        if why:
            entry["why"] = why
        entry["nearest"] = near
        entry |= body_entry(request if lookup is None else lookup.request)  # with its passwords recognised
        if self.live is not None:
            return self._ask(self.live, request, state, lookup, entry)
        self.note(state, self.tail(request, lookup, "miss", "", 504, more=entry))
        media, body = miss_body(request, " ".join(text.split()), near, self._recorded_there(request))
        fields = (
            ("Content-Type", media),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Stillweb-Verdict", "miss"),
            ("x-should-retry", "false"),  # heeded by the SDKs of OpenAI and Anthropic: a miss stays one
        )
        return Reply(504, "Not In Snapshot", fields, b"" if request.method == "HEAD" else body)

    def _recorded_there(self, request: Request) -> Iterator[str]:
        """Yield the addresses of pages that were recorded on the site of a request."""
        start = surt(f"{request.url.partition('://')[0]}://{site_of(request.url)}/").rpartition(")")[0]
        for capture in islice(self.snapshot.prefix(f"{start})"), LOOKED_THROUGH):
            if capture.method == "GET" and capture.status == 200 and "html" in capture.mime:
                yield capture.url

    def _ask(
        self, live: Live, request: Request, state: SessionState, lookup: Lookup | None, entry: dict[str, Any]
    ) -> Reply:
        """Return a reply that is held until the live server has answered a missed request."""
        answers: list[Reply] = []
        seq, session = state.seq, state.session

        async def ask() -> None:
            answers.append(await asyncio.wrap_future(live.submit(request, state.name)))

        def tell(status: int) -> None:
            self.note(state, self.tail(request, lookup, "miss", "", status, more={**entry, "live": True}))

        def late() -> Reply:
            reply = answers[0].with_fields((("Stillweb-Verdict", "miss"),))
            if reply.pieces is None:
                if state.seq != seq:  # the session's last note is of a later request: it must stay
                    session.missed_site = None
                self._forget(request)
                session.happened(request, Response(reply.status, "", reply.fields, reply.body))
            tell(reply.status)
            return reply

        held = Reply(504, "Asked Live", ())
        held.held = DelayedReply(0, late, wait_for_news=ask, on_leave=lambda: tell(0))
        return held

    def _reply_damaged(
        self, request: Request, state: SessionState, lookup: Lookup | None, error: DamagedInput
    ) -> Reply:
        """Reply with 502 to a request whose capture can't be read, and count a miss."""
        self.count(request, state, lookup)
        self.matcher.note_missed(state.session, request)
        why = f"its capture can't be read: {error}"
        self.note(state, self.tail(request, lookup, "miss", "", 502, more={"why": why, "nearest": []}))
        return failure(request, 502, "Damaged Capture", why)

    def _reply_failed(self, request: Request, state: SessionState, error: Exception) -> Reply:
        """Reply with 500 after a bug, and count a miss."""
        self.count(request, state, None)
        why = f"answering failed: {type(error).__name__}: {error}"
        self.fail(f"{type(error).__name__}: {error} ({request.method} {masked_url_of(request)})")
        self.matcher.note_missed(state.session, request)
        self.note(state, self.tail(request, None, "miss", "", 500, more={"why": why, "nearest": []}))
        return failure(request, 500, "Failed", why)

    def fail(self, what: str) -> None:
        """Record an error that broke off an answer, for the status page."""
        self.failures.append(what)
        self.forgotten += max(0, len(self.failures) - LAST_FAILURES)
        del self.failures[:-LAST_FAILURES]

    def _broke(
        self, request: Request, state: SessionState, lookup: Lookup, error: Exception, sent: int
    ) -> None:
        """Write a second ledger line, a miss, for a large answer that broke off while being sent."""
        self.count(request, state, lookup)
        why = f"the answer broke off after {pluralize(sent, 'byte')}: {error}"
        self.note(state, self.tail(request, lookup, "miss", "", 0, more={"why": why, "nearest": []}))

    def tunnel_failed(self, authority: str, state: SessionState, why: str, browser: bytes = b"") -> None:
        """Write the ledger line of a tunnel in which TLS failed, so that its requests are unknown.

        `browser` is the client's fingerprint (`tls.browser`).
        """
        known = (authority, browser) in state.trusting
        if not known:
            self.misses += 1
            if browser:
                state.broken.setdefault((authority, browser), []).append(state.seq)
        url = f"https://{authority}/"
        apart = known or irrelevant_url(url) or errand(url)
        more: dict[str, Any] = {"irrelevant": apart, "why": why, "nearest": []}
        self.note(state, self.tail(Request("CONNECT", url), None, "miss", "", 0, more=more))

    def note(self, state: SessionState, tail: str, lookup: Lookup | None = None) -> None:
        """Write a ledger line and count the request, and the doubt in the answer of its lookup."""
        if lookup is not None and (doubted := doubt_of(lookup)) is not None:
            self.doubts += doubted
        seq = state.seq
        state.seq = seq + 1
        self.requests += 1
        if state.again:
            tail = state.with_retried_tunnels(tail)
        self.ledger.write_timed(state.prefix, seq, tail)


def run_in_turns(work: Callable[[], None]) -> None:
    """Do work in a thread that shares the interpreter with the event loop, which gets its turn soon."""
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(min(interval, TURN))
    gc.set_threshold(*thresholds[:2], SELDOM)
    try:
        work()
    except DamagedInput:
        pass  # the answer meets it again, and says so to the client
    finally:
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)


def apply_fault(reply: Reply, hit: FaultHit) -> Reply:
    """Return a reply whose body is cut short or sent slowly, as the fault says."""
    fault = hit.fault
    if (fault.kind != "cut" and not fault.pace) or (reply.pieces is None and not reply.body):
        return reply
    kept = -1
    if fault.kind == "cut":
        kept = hit.bytes_left(reply.length or 0)
    made = with_pace(reply, fault.pace, kept)
    made.cut = kept >= 0
    return made


def with_pace(whole: Reply, pace: float, kept: int) -> Reply:
    """Return a reply whose body is sent at `pace` bytes per second (0: at once), up to `kept` bytes (-1: all)."""
    step = max(1, min(PIECE, int(pace / 10) or 1)) if pace else PIECE

    def pieces() -> Iterator[bytes]:
        source = whole.pieces() if whole.pieces is not None else iter((whole.body,))
        for piece in cut(source, 0, kept) if kept >= 0 else source:
            for at in range(0, len(piece), step):
                yield piece[at : at + step]

    made = whole.with_fields((), pieces)
    made.pace = pace
    return made


def waits_for_news(reply: Reply) -> bool:
    """Return True if a reply is held until something has happened."""
    return reply.held is not None and reply.held.wait_for_news is not None


def explain(lookup: Lookup) -> None:
    """Compute the explanation of a miss, and keep it."""
    lookup.explain()
    if lookup.rivals is not None:
        rivals = lookup.rivals(lookup.confidence)
        lookup.rivals = lambda _: rivals


def needs_preparation(request: Request) -> bool:
    """Return True if a request should be prepared before it is answered."""
    size = len(request.url) + len(request.body)
    if size > LARGE or len(request.headers) > MANY:
        return True
    return size + sum([len(value) for _, value in request.headers]) > LARGE


def as_get(request: Request) -> Request | None:
    """Return the GET whose answer also answers a HEAD; None for another request."""
    if request.method != "HEAD":
        return None
    return request.derived("as GET", lambda one: Request("GET", one.url, one.headers))


def restarted_stream(request: Request) -> Request | None:
    """Return the request that a frozen page marks as one for an event stream again; None for another request."""
    if request.method != "GET" or request.body or (found := AGAIN.search(request.url)) is None:
        return None
    named = (*request.headers, ("Last-Event-ID", unquote(found[2])))
    return request.derived("again", lambda one: replace(one, url=MARKED.sub("", one.url), headers=named))


def _joined(derived: str, aged: bool, own: bool = False) -> str:
    return "+".join(filter(None, (derived, AGED if aged else "", "ids" if own else "")))


GONE = "the client left before it was answered"
PATIENCE = 5.0  # seconds in which the client of a poll may still say what came before its answer, where it has said more
OVERTAKEN = "a long poll: its client said what was recorded after its answer alone, and not all that was recorded before it"
LEFT = "a long poll: its client left before there was news, or more of it than was recorded"


def delayed_reply(answerer: Answerer, request: Request, state: SessionState, rule: str | None) -> Reply:
    """Return a reply that is held until the request has an answer."""

    def due() -> bool:
        return answerer.lookup(request, state).verdict != HANGS or state.polls.beyond is not None

    async def news() -> None:
        await state.wait_until(lambda: due() or answerer.lookup(request, state).ambiguous)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(state.wait_until(due), PATIENCE)

    def make() -> Reply:
        return answerer.answer(request, state) if due() else answerer.miss(request, state, None, OVERTAKEN)

    state.wake_polls()  # a web socket may open once it was asked
    reply = Reply(504, "Hanging", ())
    reply.held = DelayedReply(
        0,
        make,
        wait_for_news=news,
        on_leave=lambda: note_unanswered_poll(answerer, request, state, rule),
    )
    return reply


def note_unanswered_poll(answerer: Answerer, request: Request, state: SessionState, rule: str | None) -> None:
    """Write the ledger line of a poll whose client left without an answer."""
    asked = Lookup(f"rule:{rule}" if rule else "exact", None, rule, request_key(request), request)
    answerer.note(state, answerer.tail(request, asked, asked.verdict, "", 0, more={"why": LEFT}))


async def wait_forever() -> None:
    """Wait forever."""
    await asyncio.get_running_loop().create_future()


STATUS = 502  # if the client's answer is unknown
REASON = "Bad Gateway"
MOST_HELD = 30  # seconds; a request that took longer fails at once, to save time
SPARE = 2  # extra seconds for a client to leave, since the recorded wait is in whole seconds


def fail_as_recorded(
    answerer: Answerer, request: Request, state: SessionState, lookup: Lookup | None, failed: KnownFailure
) -> Reply:
    """Return the reply to a request that failed while recording, and write its ledger line.

    A tunnel comes without a `lookup`.
    """
    reply = _reply(request, failed)
    more: dict[str, Any] = {"why": failed.why}
    if lookup is None:
        more["irrelevant"] = irrelevant_url(request.url) or errand(request.url)
    if failed.failure.seconds_waited and not failed.tunnel and answerer.polls.on(request.method, request.url):
        # the client left together with its page
        reply.held = DelayedReply(0, lambda: None, wait_for_news=wait_forever)
    elif 0 < failed.failure.seconds_waited <= MOST_HELD:
        reply.held = DelayedReply(
            failed.failure.seconds_waited + SPARE,
            lambda: _miss_after_failure(answerer, request, state, lookup, failed),
            ESTABLISHED if failed.failure.is_silent_tunnel else b"",
        )
    status = 0 if reply.held is not None else reply.status
    answerer.failed += 1
    answerer.note(state, answerer.tail(request, lookup, failed.failure.verdict, "", status, more=more))
    return reply


def _miss_after_failure(
    answerer: Answerer, request: Request, state: SessionState, lookup: Lookup | None, failed: KnownFailure
) -> Reply | None:
    """Write a miss for a client that waits longer than it did while recording, and return its reply.

    The recording ends there, so the miss gets a ledger line after that of the failure. Return None for a tunnel, whose
    connection is ended.
    """
    seconds = pluralize(failed.failure.seconds_waited, "second")
    why = f"while recording, its client left after {seconds} without an answer; what comes later is not known"
    if lookup is None:
        answerer.tunnel_failed(request.url.partition("//")[2].rstrip("/"), state, why)
        return None
    answerer.matcher.note_missed(state.session, request)
    return answerer.miss(request, state, replace(lookup, failed=None, verdict=MISS), why)


def _reply(request: Request, failed: KnownFailure) -> Reply:
    """Return the error that the client got while recording; if the archive lacks it, one in our words."""
    failure, given = failed.failure, failed.failure.proxy_response
    if (
        given is None
        or failure.is_silent_tunnel
        or (failed.tunnel and request.method != failure.request.method)
    ):
        status, media = STATUS, "text/plain; charset=utf-8"
        text = f"stillweb: {failure.verdict}: {failed.why}\n"
    else:
        status, media, text = given.status, given.media, given.body
    body = text.encode("utf-8", "replace")
    fields = [
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-store"),
        ("Stillweb-Verdict", failure.verdict),
    ]
    if media:
        fields.insert(0, ("Content-Type", media))
    return Reply(status, REASON, tuple(fields), b"" if request.method == "HEAD" else body)


_UNSAFE = re.compile(r"[\r\n\0]+")


def is_preflight(request: Request) -> bool:
    """Return True if the request asks for permission to send another one."""
    return (
        request.method == "OPTIONS"
        and request.header("origin") is not None
        and request.header("access-control-request-method") is not None
    )


def preflight_grant(snapshot: Snapshot, request: Request) -> tuple[Response, Capture] | str:
    """Return the response that grants a CORS preflight and the capture that shows the grant, or the reason for a miss."""
    why = ""
    for capture in captures_at(snapshot, request.url, _asked(request)):
        try:
            refusal = why_not_granted(
                request, snapshot.read_request(capture), answer := snapshot.head(capture)
            )
        except DamagedInput:
            continue
        if not refusal:
            return grant_preflight(request, answer), capture
        why = why or refusal
    return why


def captures_at(snapshot: Snapshot, url: str, method: str) -> Iterator[Capture]:
    """Return the captures of that URL (in canonical form) and method, whatever their bodies."""
    wanted = canonical_url(url)
    # for other methods, the index key is the URL's with __wb_method and the body in its query
    key = request_key(Request(method, url)).urlkey
    found = iter(snapshot.candidates(key)) if method == "GET" else snapshot.prefix(key)
    return (c for c in found if c.method == method and canonical_url(c.url) == wanted)


def why_not_granted(request: Request, recorded: Request, answer: Response) -> str:
    """Return why a recorded exchange does not show that a preflight would be granted, "" if it does."""
    allowed, origin = answer.header("access-control-allow-origin"), request.header("origin")
    if allowed is None:
        return "the recorded answer allows no other origin"
    if allowed not in ("*", origin):
        return f"the recorded answer is for the origin {allowed}"
    sent = {name.lower() for name, _ in recorded.headers}
    more = [name for name in _fields(request) if name not in sent]
    return f"the recorded request had no {more[0]}" if more else ""


def grant_preflight(request: Request, answer: Response) -> Response:
    """Return the response that grants a preflight, in the words of the recorded answer."""
    headers = [
        ("Access-Control-Allow-Origin", answer.header("access-control-allow-origin") or ""),
        ("Access-Control-Allow-Methods", _asked(request)),
    ]
    if answer.header("access-control-allow-credentials") == "true":
        headers.append(("Access-Control-Allow-Credentials", "true"))
    if fields := _fields(request):
        headers.append(("Access-Control-Allow-Headers", ", ".join(fields)))
    if (request.header("access-control-request-private-network") or "").lower() == "true":
        # the browser asks because it sees the gateway's address, not the site's
        headers.append(("Access-Control-Allow-Private-Network", "true"))
    headers.append(("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"))
    return Response(204, "No Content", tuple((n, _UNSAFE.sub(" ", v)) for n, v in headers), b"")


def _asked(request: Request) -> str:
    return (request.header("access-control-request-method") or "").upper()


def _fields(request: Request) -> list[str]:
    names = (request.header("access-control-request-headers") or "").split(",")
    return [name.strip().lower() for name in names if name.strip()]


_OF_THE_BYTES = frozenset({"content-encoding", "content-length"})


def with_ids(stored: Response, ids: Mapping[str, str]) -> Response | None:
    """Return the answer with a client's own ids in its text and fields; None if it names none of them."""
    headers = tuple((name, renumbered(value, ids)) for name, value in stored.headers)
    media = (stored.header("content-type") or "").partition(";")[0].strip().lower()
    body = plain = stored.body
    if body and TEXTUAL.search(media):
        try:
            plain = decode(body, stored.header("content-encoding"))
        except EncodingProblem:  # already damaged at the origin: served as recorded
            plain = body
        body = renumbered(plain, ids)
    return _altered(stored, headers, plain, body)


def with_echoed(stored: Response, found: list[Echo]) -> Response | None:
    """Return the answer with the asked values in place of the recorded ones; None if it repeats none of them. Raises Unrepeatable."""
    try:
        plain = decode(stored.body, stored.header("content-encoding"))
    except EncodingProblem:  # already damaged at the origin
        plain = stored.body
    media = (stored.header("content-type") or "").partition(";")[0].strip().lower()
    mirrored = [one for one in found if one.mirrored]
    body = plain if len(mirrored) == len(found) and not TEXTUAL.search(media) else with_echoes(plain, media, found)  # fmt: skip
    headers = tuple(
        (n, in_address(v, found if n.lower() == "location" else mirrored)) for n, v in stored.headers
    )
    return _altered(stored, headers, plain, body)


def _altered(stored: Response, headers: Headers, plain: bytes, body: bytes) -> Response | None:
    """Return the answer with other fields, and another body in place of the decoded one; None if both are as they were."""
    if body == plain:
        return replace(stored, headers=headers) if headers != stored.headers else None
    left = tuple(field for field in headers if field[0].lower() not in _OF_THE_BYTES)
    return replace(stored, headers=(*left, ("Content-Length", str(len(body)))), body=body)


def tune_process() -> None:
    """Set the garbage collector of this process for replay: full collections are rare, and spare start-up objects and models.

    A full collection would hold all requests for 60 to 150 ms. For a program that does little else, such as the command
    line; a gateway alone changes nothing for its process.
    """
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], RARELY)
    Answerer.learnt_more = staticmethod(gc.freeze)
