"""Revisits: answers whose payload is another one's."""

from pathlib import Path

import pytest

from tests.snapshots.malformed import HEAD, NEXT, PAGE, bodies, http, opened, packed, record, revisit

DIGEST = b"WARC-Payload-Digest: sha1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


def test_revisits_of_another_url(tmp_path: Path) -> None:
    original = record(http(), fields=DIGEST)
    data = packed(original, revisit(fields=DIGEST, head=HEAD + b"X-Mine: 1\r\n"))
    with opened(tmp_path, data) as snapshot:
        answer = {c.url: snapshot.read(c) for c in snapshot.captures()}[NEXT]
        assert (answer.body, answer.header("x-mine")) == (PAGE, "1")
        assert answer.header("content-length") == str(len(PAGE))


def test_a_revisit_that_does_not_repeat_its_payload_is_not_cut_short(tmp_path: Path) -> None:
    """wget --warc-dedup marks such revisits by WARC-Truncated: length, as WARC 1.1 (6.7.2) says."""
    wget = revisit(fields=DIGEST + b"\r\nWARC-Truncated: length")
    with opened(tmp_path, packed(record(http(), fields=DIGEST), wget)) as snapshot:
        assert [(c.truncated, snapshot.cut_short(c)) for c in snapshot.captures()] == [("", "")] * 2


def test_revisits_before_their_original(tmp_path: Path) -> None:
    named = (
        b"WARC-Refers-To-Target-URI: http://example.test/\r\nWARC-Refers-To-Date: 2020-01-02T03:04:05Z\r\n"
        + DIGEST
    )
    with opened(tmp_path, packed(revisit(fields=named), record(http(), fields=DIGEST))) as snapshot:
        assert bodies(snapshot)[NEXT] == PAGE
    by_id = b"WARC-Refers-To: <urn:uuid:00000000-0000-4000-8000-000000000001>"
    with opened(tmp_path, packed(revisit(fields=by_id), record(http())), "y.warc.gz") as snapshot:
        assert bodies(snapshot)[NEXT] == PAGE


@pytest.mark.parametrize(
    "page", ['http://example.test/?q="a"', "http://example.test/a\\\\b\\n", "http://example.test/é ö"]
)
def test_revisits_name_an_original_of_any_address(tmp_path: Path, page: str) -> None:
    date = b"WARC-Refers-To-Date: 2020-01-02T03:04:05Z\r\n"
    named = b"WARC-Refers-To-Target-URI: %b\r\n" % page.encode() + date
    data = packed(record(http(), uri=page.encode(), fields=DIGEST), revisit(fields=named))
    with opened(tmp_path, data) as snapshot:
        assert bodies(snapshot)[NEXT] == PAGE
        original = next(c.original for c in snapshot.captures() if c.url == NEXT)
        assert original == next(
            (c.filename, c.offset, c.length) for c in snapshot.captures() if c.url != NEXT
        )


def test_not_modified_revisits(tmp_path: Path) -> None:
    fields = b"WARC-Profile: http://netpreserve.org/warc/1.0/revisit/server-not-modified\r\n" + DIGEST
    for head in (b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n", b""):
        data = packed(record(http(), fields=DIGEST), revisit(fields=fields, head=head))
        with opened(tmp_path, data, f"{len(head)}.warc.gz") as snapshot:
            capture = next(c for c in snapshot.captures() if c.url == NEXT)
            answer = snapshot.read(capture)
            assert (capture.status, answer.status, answer.body) == (200, 200, PAGE)


def test_revisits_without_their_original_are_no_answer(tmp_path: Path) -> None:
    with opened(tmp_path, packed(revisit(fields=DIGEST), record(http()))) as snapshot:
        assert list(bodies(snapshot)) == ["http://example.test/"]
        assert "is in none of the files" in snapshot.notes[0]


def test_a_revisit_is_not_answered_by_another_payload_than_it_names(tmp_path: Path) -> None:
    named = (
        b"WARC-Refers-To-Target-URI: http://example.test/\r\nWARC-Refers-To-Date: 2020-01-02T03:04:05Z\r\n"
    )
    other = DIGEST.replace(b"AAAA", b"BBBB")
    with opened(tmp_path, packed(record(http(), fields=DIGEST), revisit(fields=named + other))) as snapshot:
        assert list(bodies(snapshot)) == ["http://example.test/"]
        assert "is in none of the files" in snapshot.notes[0]
    nothing = (
        b"WARC-Payload-Digest: sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"  # as some tools give for all of them
    )
    data = packed(record(http(), fields=DIGEST), revisit(fields=named + nothing))
    with opened(tmp_path, data, "y.warc.gz") as snapshot:
        assert bodies(snapshot)[NEXT] == PAGE
