"""What is sent for a request that came to no answer while recording: what its client was told then, under a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.serving.replies import Reply

if TYPE_CHECKING:
    from snapshots.matching.failing import Failed
    from snapshots.request import Request

STATUS = 502  # where nothing is known of what the client was told
REASON = "Bad Gateway"


def failed_reply(request: Request, failed: Failed) -> Reply:
    """As it was told while recording; of an archive that does not say, in our words."""
    failure, given = failed.failure, failed.failure.given
    if given is None or (failed.tunnel and request.method != failure.request.method):
        media, text = "text/plain; charset=utf-8", f"stillweb: {failure.verdict}: {failed.why}\n"
    else:
        media, text = given.media, given.body
    body = text.encode("utf-8", "replace")
    fields = [
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-store"),
        ("Stillweb-Verdict", failure.verdict),
    ]
    if media:
        fields.insert(0, ("Content-Type", media))
    status = STATUS if given is None else given.status
    return Reply(status, REASON, tuple(fields), b"" if request.method == "HEAD" else body)
