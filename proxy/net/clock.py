"""A program's clock set to the time of a recording; from there it runs on as usual.

It uses libfaketime, from the package `libfaketime` (extra `clock`). The library is loaded into the program
and its children, but not into statically linked ones such as Go programs: these read the real clock.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from stillweb.snapshots.dates import parse_timestamp
from stillweb.snapshots.errors import MissingCapability, UsageError

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot

RECORDED = "recorded"
NEAR = timedelta(minutes=1)  # largest error of a clock that counts as set
# not Debian's package, which is older: Python can't sleep under it
_INSTALL = "pip install libfaketime"
_PROBE = "import time; time.sleep(0.001); print(time.time())"
_PRELOAD = {"linux": ("LD_PRELOAD", "libfaketime.so.1"), "darwin": ("DYLD_INSERT_LIBRARIES", "libfaketime.1.dylib")}  # fmt: skip


def moment_of(text: str, snapshot: Snapshot | None = None) -> datetime:
    """Parse a time in ISO 8601 or 14 digits; `recorded` is the first capture's. Raises UsageError."""
    if text == RECORDED and snapshot is not None:
        text = snapshot.began
        if not text:
            raise UsageError("the snapshot has no capture; give the clock a time instead of 'recorded'")
    found = parse_timestamp(text)
    if found is None:
        raise UsageError(
            f"clock {text!r}: must be {'recorded or ' if snapshot is not None else ''}a time as 2026-11-24T10:00:00Z"
        )
    return found


def with_clock(environment: Mapping[str, str], moment: datetime) -> dict[str, str]:
    """Return an environment in which a program's clock shows `moment` now, after testing it.

    Raises UsageError if our certificates aren't valid at that time, MissingCapability if the clock can't be
    set.
    """
    from stillweb.proxy.net.ca import EARLIER_DAYS, LEAF_DAYS  # loads cryptography

    now = datetime.now(UTC)
    if not timedelta(days=1 - LEAF_DAYS) < now - moment < timedelta(days=EARLIER_DAYS - 1):
        raise UsageError(
            f"clock {moment:%Y-%m-%d}: our certificates are valid from {EARLIER_DAYS} days before today to "
            f"{LEAF_DAYS} days after; a program would refuse them"
        )
    variable, library = _library()
    before = environment.get(variable)
    changed = {
        **environment,
        variable: f"{library}:{before}" if before else str(library),
        # a relative offset, so that all child processes agree
        "FAKETIME": f"{(moment - now).total_seconds():+.6f}",
        "DONT_FAKE_MONOTONIC": "1",  # else waits never end
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # else Chromium's processes crash
        "NO_FAKE_STAT": "1",  # Python compares a source file's date with that in its .pyc
    }
    _try(changed, moment)
    return changed


def _library() -> tuple[str, Path]:
    variable, name = _PRELOAD.get(sys.platform, ("", ""))
    if not variable:
        raise MissingCapability(
            f"a program's clock can be frozen on Linux and macOS only; this is {sys.platform}"
        )
    spec = find_spec("libfaketime")
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    found = sorted(folder.rglob(name)) if folder is not None else []
    if not found:
        raise MissingCapability(f"freezing a program's clock needs libfaketime: {_INSTALL}")
    return variable, found[0]


def _try(environment: Mapping[str, str], moment: datetime) -> None:
    """Raise MissingCapability unless a program's clock is set, and the program can sleep."""
    clean = {name: value for name, value in environment.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _PROBE], env=clean, capture_output=True, text=True, check=False
    )
    shown = done.stdout.strip()
    if done.returncode or abs(datetime.fromtimestamp(float(shown), UTC) - moment) > NEAR:
        error = (done.stderr.strip().splitlines() or [f"it shows {shown}"])[-1]
        raise MissingCapability(f"libfaketime does not freeze the clock here: {error}")
