"""Heads that are read by their shape say what the long way says, or nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stillweb.snapshots.index.fast_path import LIMIT, Shapes
from stillweb.snapshots.warc import warc

BOTH = ("warc-record-id", "warc-target-uri", "warc-concurrent-to", "content-length")
ANSWERS = (
    *BOTH,
    "warc-date",
    "warc-payload-digest",
    "warc-protocol",
    "warc-stillweb-session",
    "warc-stillweb-events",
    "warc-refers-to-target-uri",
    "warc-refers-to-date",
)
PLAIN = [
    ("WARC-Type", "response"),
    ("WARC-Record-ID", "<urn:uuid:1>"),
    ("WARC-Date", "2025-01-02T03:04:05Z"),
    ("WARC-Target-URI", "https://example.test/"),
    ("Content-Type", "application/http; msgtype=response"),
    ("Content-Length", "4"),
]
fields = st.lists(
    st.one_of(
        st.sampled_from(PLAIN),
        st.tuples(
            st.sampled_from([name for name, _ in PLAIN] + ["WARC-Truncated", "warc-protocol", "WARC-Concurrent-To", "X"]),
            st.sampled_from(["request", "revisit", "response", "<urn:uuid:2>", "7", "2025-01-02T03:04:05.6Z", "http://a/", "a b",
                             "", " x", "x ", "ü", "h2", "http://a/#b", "x\r\n y"]),
        ),
    ),
    max_size=4,
)  # fmt: skip


def record(given_fields: list[tuple[str, str]], end: str = "\r\n") -> bytes:
    return ("WARC/1.1\r\n" + "".join(f"{n}: {v}{end}" for n, v in given_fields) + "\r\nbody\r\n\r\n").encode()


@given(
    st.lists(st.permutations(PLAIN), min_size=1, max_size=3), fields, st.sampled_from(["\r\n", "\r\n", "\n"])
)
def test_what_is_read_is_what_the_long_way_reads(
    orders: list[list[tuple[str, str]]], more: list[tuple[str, str]], end: str
) -> None:
    shapes = Shapes()
    for order in orders:
        for data in (record(order), record([*order, *more], end), record([*more, *order], end)):
            found = shapes.read(data)
            if found is None:
                continue
            head = warc.parse_head(data)
            assert head is not None
            told, block = head
            kind, at, values = found
            assert (kind.decode(), at) == (told["warc-type"], block)
            names = BOTH if kind == b"request" else ANSWERS
            assert values == tuple(told.get(name, "").encode() for name in names)
            assert not {"warc-truncated", "warc-refers-to"} & told.keys()


def test_plain_heads_are_read_in_any_order_of_fields() -> None:
    shapes = Shapes()
    for fields_ in (PLAIN, PLAIN[::-1], [*PLAIN, ("WARC-Protocol", "h2")], PLAIN):
        assert shapes.read(record(fields_)) is not None


def test_no_more_shapes_are_learned_than_there_is_room_for() -> None:
    shapes = Shapes()
    for number in range(LIMIT + 1):
        found = shapes.read(record([*PLAIN, *[("X", "x")] * number]))
        assert (found is None) == (number == LIMIT)
    assert shapes.read(record(PLAIN)) is not None
