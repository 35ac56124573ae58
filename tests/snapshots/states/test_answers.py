"""What two answers say: the quick ways give just what the patterns give."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.states.answers import _DRAWN, _HINTED, Answers, _drawn, _drawn_blanked, _hinted

_PIECES = st.one_of(
    st.text(alphabet="abcdefABCDEF0123456789-_+/= é\"'<>\n", max_size=30),
    st.text(max_size=8),
    st.text(alphabet="0123456789abcdef", min_size=20, max_size=40),
    st.sampled_from(
        [
            "stillweb-secret-0123456789abcdef01234567",
            "123e4567-e89b-12d3-a456-426614174000",
            "a8F3kQ9zP2mX7vB4nC6wR1",
            "aB3-dE5_gH7+jK9/mN1=pQ3rS5tU7vW9xY1zA",
            "/static/site/main-navigation-of-all-pages",
        ]
    ),
)


@given(st.lists(_PIECES, max_size=8).map("".join))
def test_what_is_drawn_is_found_where_the_pattern_finds_it(text: str) -> None:
    assert _drawn_blanked(text) == _DRAWN.sub(_drawn, text)


@given(
    st.lists(
        st.one_of(
            st.text(max_size=5),
            st.sampled_from(
                ["csrf", "XSRF", "c\u017frf", "__V\u0130EWSTATE", "nonce", "authenticity_to\u212aen"]
            ),
        ),
        max_size=4,
    ).map("".join)
)
def test_a_hint_is_never_overlooked(text: str) -> None:
    assert _hinted(text) or _HINTED.search(text) is None


def _captures(mime: str, digests: list[str], session: str = "s", status: int = 200) -> list[Capture]:
    return [
        Capture(
            "test,a)/", "20250101000000", "https://a.test/", "GET", status, mime, digest, "m", at, 1, session=session
        )
        for at, digest in enumerate(digests)
    ]  # fmt: skip


def _answers(mime: str, bodies: list[bytes]) -> tuple[Answers, list[int]]:
    """Of the captures of `_captures`; and which of them were read."""
    read: list[int] = []

    def answer(capture: Capture) -> Response:
        read.append(capture.offset)
        return Response(
            capture.status, "", (("Content-Type", mime), ("Location", "/")), bodies[capture.offset]
        )

    return Answers(answer), read


def test_of_equal_digests_one_answer_is_read() -> None:
    a, b = uuid4().hex, uuid4().hex  # which mean nothing
    answers, read = _answers("text/html", [a.encode(), b.encode(), b"other", b.encode(), b"other"])
    one, same, other, again, repeated = answers.classes(
        _captures("text/html", ["sha256:1", "sha256:2", "sha256:3", "sha256:2", "sha256:3"])
    )
    assert one == same == again != other == repeated
    assert read == [0, 1, 2]


def test_pictures_of_ours_are_told_apart_by_their_digests_alone() -> None:
    digests = ["sha256:1", "sha256:2", "sha256:1"]
    answers, read = _answers("image/png", [b"one", b"two", b"one"])
    one, two, again = answers.classes(_captures("image/png", digests))
    assert one == again != two
    assert read == []
    # a digest of others may be of the body with the headers of its chunks
    foreign = _captures("image/png", digests, session="")
    one, two, again = answers.classes(foreign)
    assert one == again != two
    assert read == [0, 1]


def test_where_an_answer_leads_counts_whatever_its_digest() -> None:
    answers, read = _answers("image/png", [b"", b"", b""])
    labels = answers.classes(_captures("image/png", ["sha256:1", "sha256:1", "sha256:1"], status=302))
    assert len(set(labels)) == 1
    assert read == [0, 1, 2]


def test_a_head_says_of_which_bytes_it_speaks() -> None:
    date = "Mon, 03 Mar 2025 00:00:00 GMT"
    heads: list[tuple[tuple[str, str], ...]] = [
        (("ETag", '"a"'), ("Content-Length", "3")),
        (("ETag", 'W/"a"'), ("Content-Length", "3"), ("Last-Modified", date)),
        (("ETag", '"b"'), ("Content-Length", "3")),
        (("Content-Length", "3"),),
        (("Content-Length", "4"),),
        (("Content-Length", "4"), ("Last-Modified", date)),
        (("Content-Length", "4"), ("Last-Modified", date), ("Date", date)),  # made as it was asked for
    ]
    answers = Answers(lambda capture: Response(200, "", heads[capture.offset], b""))
    captures = [replace(c, method="HEAD") for c in _captures("text/html", ["sha256:1"] * len(heads))]
    labels = answers.classes(captures)
    assert [labels.index(label) for label in labels] == [0, 0, 2, 3, 4, 5, 4]


def test_digests_that_are_not_known_are_not_the_same() -> None:
    answers, _ = _answers("text/html", [b"one", b"two"])
    assert not answers.same(*_captures("text/html", ["", ""]))
