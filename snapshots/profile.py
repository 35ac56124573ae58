"""The profile of a snapshot: the browser settings that must be equal in recording and replay."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from stillweb.snapshots.shapes import convert


@dataclass(frozen=True, slots=True)
class Profile:
    """Browser settings, equal while recording and replaying.

    `clock` is the start of the page's time (ISO 8601, UTC), of a new recording its own moment; `seed` feeds
    every source of randomness. `chance` selects the random streams: 2 is a stream for each script that draws;
    1, the older way, is one for each document. `scale` is the number of device pixels to a CSS pixel. `headers`
    are sent with every request, and `storage` is the local storage to begin with (origin, name, value); both hold
    pseudonyms in place of secrets.
    """

    user_agent: str = ""
    viewport: tuple[int, int] = (1280, 800)
    locale: str = "en-US"
    timezone: str = "UTC"
    clock: str = "2025-01-01T00:00:00Z"
    seed: int = 1
    browser: str = ""  # build, such as "Chromium 140.0.7339.80"
    reduced_motion: bool = True
    chance: int = 2
    scale: float = 1.0
    mobile: bool = False
    touch: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    storage: tuple[tuple[str, str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; inverse of `from_json`."""
        value = asdict(self)
        # older profiles lack these members, and the profile is part of the snapshot's id
        if self.chance == 1:
            del value["chance"]
        for name, usual in (
            ("scale", 1.0),
            ("mobile", False),
            ("touch", False),
            ("headers", ()),
            ("storage", ()),
        ):
            if value[name] == usual:
                del value[name]
        for name in {"headers", "storage"} & value.keys():
            value[name] = [list(one) for one in value[name]]
        value["viewport"] = list(self.viewport)
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Profile:
        """Return the profile in a JSON object; unknown members are ignored, missing ones get their defaults.

        Without `chance` the recording was made with 1, and its pages must draw the same numbers again. Raises
        ValueError for a member of another type.
        """
        known = {"chance": 1} | {k: v for k, v in value.items() if k in cls.__dataclass_fields__}
        return convert(known, cls)
