"""Provenance of a snapshot: what recorded it, with which settings, when and from where.

Each recording into a snapshot adds an entry to the settings in the WARC files' `warcinfo` records and in
datapackage.json. It is no part of the snapshot's id: the same records made on another machine are the same snapshot.
A signature covers it, as it covers every byte of the file.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from stillweb.snapshots.dates import iso_date
from stillweb.snapshots.shapes import convert
from stillweb.snapshots.software import software_name

KEY = "recordings"  # member of the settings


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of a recording: the software, when it began, the kind of machine, and the chosen settings.

    `origin` says what asked for the pages: "browser", "program NAME", "ledger". No secret, path or host name of the
    machine is in it.
    """

    software: str
    began: str
    machine: str
    origin: str
    settings: Mapping[str, str | int | float | bool] = field(default_factory=dict)

    def __str__(self) -> str:
        chosen = [
            f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
            for name, value in sorted(self.settings.items())
        ]
        return " ".join([f"{self.began} by {self.software} on {self.machine}: {self.origin}", *chosen])


def provenance_now(origin: str, settings: Mapping[str, str | int | float | bool]) -> Provenance:
    """Return the entry of a recording that begins now on this machine."""
    return Provenance(software_name(), iso_date(None), _machine(), origin, dict(settings))


def with_entry(settings: Mapping[str, Any], entry: Provenance) -> dict[str, Any]:
    """Return the settings of a snapshot with one more recording."""
    known = settings.get(KEY)
    return {**settings, KEY: [*(known if isinstance(known, list) else ()), asdict(entry)]}


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}"


def provenance_of(settings: Mapping[str, Any]) -> list[Provenance]:
    """Return the recordings in a snapshot's settings, in their order. Raises ValueError if they can't be read."""
    return convert(settings.get(KEY, []), list[Provenance])
