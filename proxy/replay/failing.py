"""Replies to requests that failed while recording: the same error, under its verdict.

A client that got no answer and left gets none again. It leaves by itself, and reports that in its own words.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from stillweb.proxy.replay.long_polls import Desk as PollDesk
from stillweb.proxy.replay.long_polls import never
from stillweb.proxy.replay.replies import ESTABLISHED, Held, Reply
from stillweb.snapshots.evidence.lookup import MISS
from stillweb.snapshots.identity.irrelevant import errand, irrelevant_url
from stillweb.snapshots.words import counted

if TYPE_CHECKING:
    from stillweb.proxy.replay.replies import Line
    from stillweb.snapshots.contents.failing import Failed
    from stillweb.snapshots.evidence.lookup import Lookup
    from stillweb.snapshots.request import Request

STATUS = 502  # if it is unknown what the client was told
REASON = "Bad Gateway"
MOST_HELD = 30  # seconds; a request that took longer fails at once, since nobody has the time
SPARE = 2  # extra seconds for a client to leave, since the recorded wait is in whole seconds


class Desk(PollDesk, Protocol):
    """The part of `stillweb.proxy.replay.answering.Answerer` that is used here."""

    failed: int

    def miss(self, request: Request, line: Line, lookup: Lookup | None, why: str, /) -> Reply: ...
    def tunnel_failed(self, authority: str, line: Line, why: str, /) -> None: ...


def fails(desk: Desk, request: Request, line: Line, lookup: Lookup | None, failed: Failed) -> Reply:
    """Return the reply to a request that failed while recording, and write its ledger line.

    A tunnel comes without a `lookup`.
    """
    reply = _reply(request, failed)
    more: dict[str, Any] = {"why": failed.why}
    if lookup is None:
        more["irrelevant"] = irrelevant_url(request.url) or errand(request.url)
    if (
        failed.failure.waited
        and not failed.tunnel
        and desk.matcher.hanging.polls(request.method, request.url)
    ):
        reply.held = Held(0, lambda: None, until=never)  # the client left together with its page
    elif 0 < failed.failure.waited <= MOST_HELD:
        reply.held = Held(
            failed.failure.waited + SPARE,
            lambda: _outstayed(desk, request, line, lookup, failed),
            ESTABLISHED if failed.failure.opened else b"",
        )
    status = 0 if reply.held is not None else reply.status
    desk.failed += 1
    desk.note(line, desk.tail(request, lookup, failed.failure.verdict, "", status, more=more))
    return reply


def _outstayed(
    desk: Desk, request: Request, line: Line, lookup: Lookup | None, failed: Failed
) -> Reply | None:
    """Note a miss for a client that waits longer than it did while recording, and return its reply.

    Later events are unknown, so the miss gets a ledger line after that of the failure. Returns None for a
    tunnel, whose connection is ended.
    """
    seconds = counted(failed.failure.waited, "second")
    why = f"while recording, its client left after {seconds} without an answer; what comes later is not known"
    if lookup is None:
        desk.tunnel_failed(request.url.partition("//")[2].rstrip("/"), line, why)
        return None
    desk.matcher.note_missed(line.session, request)
    return desk.miss(request, line, replace(lookup, failed=None, verdict=MISS), why)


def _reply(request: Request, failed: Failed) -> Reply:
    """Return the error that the client got while recording; if the archive lacks it, one in our words."""
    failure, given = failed.failure, failed.failure.given
    if given is None or failure.opened or (failed.tunnel and request.method != failure.request.method):
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
