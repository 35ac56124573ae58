"""Two screenshots compared."""

from __future__ import annotations

import io
from dataclasses import dataclass

TOLERANCE = 8  # of 255 in any channel: less is the rounding of a blend, and nobody sees it


@dataclass(frozen=True, slots=True)
class Difference:
    """`share` of the pixels that differ (0 to 1) and where they are, as a PNG (b"" when none do)."""

    share: float
    picture: bytes


def compare_pictures(before: bytes, after: bytes) -> Difference:
    """Compare two PNGs; a different size counts as different where only one has a pixel.

    Raises ValueError when one of them can't be read, or the second is none.
    """
    if before == after:
        return Difference(0.0, b"")
    if not after:
        raise ValueError("the page draws nothing: its document has no root")
    from PIL import Image, ImageChops, UnidentifiedImageError

    try:
        old = Image.open(io.BytesIO(before)).convert("RGB")
        new = Image.open(io.BytesIO(after)).convert("RGB")
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"a screenshot can't be read: {error}") from None
    width, height = max(old.width, new.width), max(old.height, new.height)
    if old.size != new.size:  # what only one has, is compared with a colour that neither has
        wide_old = Image.new("RGB", (width, height), (255, 0, 255))
        wide_new = Image.new("RGB", (width, height), (0, 255, 0))
        wide_old.paste(old)
        wide_new.paste(new)
        old, new = wide_old, wide_new
    channels = ImageChops.difference(old, new).split()
    most = ImageChops.lighter(ImageChops.lighter(channels[0], channels[1]), channels[2])
    mask = most.point([0] * (TOLERANCE + 1) + [255] * (255 - TOLERANCE))
    count = mask.histogram()[255]
    if not count:
        return Difference(0.0, b"")
    faded = Image.blend(new, Image.new("RGB", new.size, (255, 255, 255)), 0.7)
    faded.paste((220, 0, 60), mask=mask)
    out = io.BytesIO()
    faded.save(out, "PNG")
    return Difference(count / (width * height), out.getvalue())


def small(png: bytes) -> tuple[str, bytes]:
    """A screenshot for a report: (media type, bytes), as WebP where Pillow can write that."""
    from PIL import Image, features

    if not features.check("webp"):
        return "image/png", png
    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").save(out, "WEBP", quality=80, method=2)
    return "image/webp", out.getvalue()
