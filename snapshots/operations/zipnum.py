"""Foreign indexes: CDXJ, plain or as ZipNum (concatenated gzip members)."""

from __future__ import annotations

from collections.abc import Iterator

from stillweb.snapshots._os.places import Place, chunks, lines_in
from stillweb.snapshots.decompression import MOST, TooLarge, too_large, within
from stillweb.snapshots.http.encodings import decode_pieces
from stillweb.snapshots.warc import warc

LONGEST = 1 << 20  # most bytes of a line


def plain_lines(place: Place) -> Iterator[bytes]:
    """Yield the lines of an index that may be compressed.

    Raises TooLarge, and EncodingProblem if it is damaged.
    """
    pieces = chunks(place)
    if place.read(0, 2) == warc.GZIP_MAGIC:
        pieces = within(decode_pieces(pieces, "gzip"), MOST, lambda: TooLarge(too_large(place.name, MOST)))
    return lines_in(pieces, LONGEST)
