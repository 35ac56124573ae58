"""What two answers say: the quick ways give just what the patterns give."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from snapshots.answers import _DRAWN, _HINTED, _drawn, _drawn_blanked, _hinted

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
