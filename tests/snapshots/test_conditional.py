"""Which of parts, wholes and "not modified" answers a request for a part, or with a condition."""

from __future__ import annotations

import pytest

from snapshots.capture import Response
from tests.support.memory_store import Recorded, Replay, get, matcher

URL = "http://a.test/film"


def whole(text: str) -> Response:
    return Response(200, "OK", (("Content-Type", "video/mp4"), ("ETag", f'"{text}"')), text.encode())


def part(text: str) -> Response:
    told = (("Content-Type", "video/mp4"), ("ETag", f'"{text}"'), ("Content-Range", "bytes 0-0/3"))
    return Response(206, "Partial Content", told, text[:1].encode())


def unmodified(text: str) -> Response:
    return Response(304, "Not Modified", (("ETag", f'"{text}"'),), b"")


@pytest.mark.parametrize(
    ("fields", "old"),
    [({"range": "bytes=0-0"}, part("old")), ({"if_none_match": '"old"'}, unmodified("old"))],
)
def test_a_whole_that_lies_over_a_part_answers_for_it(fields: dict[str, str], old: Response) -> None:
    """It is newer: the part, and that nothing was modified, were said of the one below."""
    below = [Recorded(get(URL), whole("old")), Recorded(get(URL, **fields), old)]
    over = Recorded(get(URL), whole("new"), layer=2)
    replay = Replay(matcher(*below, over))
    assert (replay.ask(get(URL, **fields)), replay.last.verdict) == ("new", "exact")
    replay = Replay(matcher(*below))
    assert replay.ask(get(URL, **fields)) == old.body.decode()
    assert replay.last.capture is not None
    assert replay.last.capture.status == old.status
    above = [Recorded(get(URL), whole("new")), Recorded(get(URL, **fields), old, layer=2)]
    assert Replay(matcher(*above)).ask(get(URL, **fields)) == old.body.decode()
