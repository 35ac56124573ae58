"""An answer of others whose request can't be read any more is no answer to a plain GET."""

from collections.abc import Callable
from pathlib import Path

import pytest

from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.snapshot import Snapshot
from tests.snapshots.malformed import http, packed, record

ASKED = "http://example.test/"
POSTED = "http://example.test/posted"
GET = b"GET / HTTP/1.1\r\nHost: example.test\r\n\r\n"
POST = b"POST /posted HTTP/1.1\r\nHost: example.test\r\nContent-Length: 3\r\n\r\na=1"


def named(number: int) -> bytes:
    return b"WARC-Concurrent-To: <urn:uuid:00000000-0000-4000-8000-%012d>" % number


def question(number: int, block: bytes, uri: str, fields: bytes = b"") -> bytes:
    return record(block, kind=b"request", uri=uri.encode(), number=number, fields=fields)


def told(number: int, uri: str, fields: bytes = b"") -> bytes:
    return record(http(b"told %d" % number), uri=uri.encode(), number=number, fields=fields)


def as_wget() -> list[bytes]:
    """The answer names its request, which stands before it."""
    return [
        question(1, GET, ASKED),
        told(2, ASKED, named(1)),
        question(3, POST, POSTED),
        told(4, POSTED, named(3)),
    ]


def as_crawlers() -> list[bytes]:
    """The request names its answer, which stands before it."""
    return [
        told(2, ASKED),
        question(1, GET, ASKED, named(2)),
        told(4, POSTED),
        question(3, POST, POSTED, named(4)),
    ]


def unnamed() -> list[bytes]:
    """Neither names the other: they stand side by side."""
    return [question(1, GET, ASKED), told(2, ASKED), question(3, POST, POSTED), told(4, POSTED)]


def urls(path: Path) -> list[str]:
    with Snapshot.open(path) as snapshot:
        return [f"{c.method} {c.url}" for c in snapshot.captures()]


ALL = "of its member", "of its kind", "of its id", "removed"
# of the others nothing tells that one was removed, and side by side the id does not matter
HARMS = (
    [(as_wget, harm) for harm in ALL]
    + [(as_crawlers, harm) for harm in ALL[:2]]
    + [(unnamed, harm) for harm in ALL[:2]]
)


@pytest.mark.parametrize(("records", "harm"), HARMS)
def test_of_a_damaged_request(tmp_path: Path, records: Callable[[], list[bytes]], harm: str) -> None:
    whole = records()
    path = tmp_path / "x.warc.gz"
    path.write_bytes(packed(*whole))
    assert urls(path) == [f"GET {ASKED}", f"POST {POSTED}"]
    at = next(n for n, one in enumerate(whole) if b"POST /posted" in one)
    members = [packed(one) for one in whole]
    if harm == "of its member":
        members[at] = members[at][:40] + bytes(20) + members[at][60:]
    elif harm == "of its kind":
        members[at] = packed(whole[at].replace(b"Type: request", b"Type: requesu"))
    elif harm == "of its id":
        members[at] = packed(whole[at].replace(b"-4000-8000-", b"-4000-8001-"))
    else:
        members[at] = b""
    path.write_bytes(b"".join(members))
    assert urls(path) == [f"GET {ASKED}"]
    with Snapshot.open(path) as snapshot:
        assert any(f"the request of this response of {POSTED} is missing" in note for note in snapshot.notes)
    assert any(problem.check == "pair" for problem in verify(path))


def test_answers_alone_are_those_to_plain_gets(tmp_path: Path) -> None:
    path = tmp_path / "x.warc.gz"
    # taken out of an archive, without what they name; beside damage, where nothing was asked
    path.write_bytes(packed(told(2, ASKED, named(1)), told(4, POSTED)) + packed(told(6, ASKED))[:-20])
    assert urls(path) == [f"GET {ASKED}", f"GET {POSTED}"]
    # beside others that have theirs
    path.write_bytes(packed(*as_wget()[:2], told(4, POSTED)))
    assert urls(path) == [f"GET {ASKED}", f"GET {POSTED}"]
    # named is an answer
    path.write_bytes(packed(*as_wget()[:2], told(4, POSTED, named(2))))
    assert urls(path) == [f"GET {ASKED}", f"GET {POSTED}"]
