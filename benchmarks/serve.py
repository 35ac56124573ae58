"""A gateway or a recorder in a process of its own, until its standard input ends.

python -m benchmarks.serve SNAPSHOT PORT                    replays
python -m benchmarks.serve --record SNAPSHOT PORT CA        records
"""

from __future__ import annotations

import sys
from pathlib import Path

from stillweb.proxy.replay.gateway import Gateway
from stillweb.proxy.replay.ledger import Ledger
from stillweb.snapshots.snapshot import Snapshot


def replay(path: str, port: str) -> None:
    """As `stillweb replay` does, with a ledger."""
    with (
        Snapshot.open(path) as snapshot,
        Ledger(Path(path).with_suffix(".ledger")) as ledger,
        Gateway(snapshot, port=int(port), ledger=ledger, challenge=False),
    ):
        sys.stdin.readline()


def record(path: str, port: str, ca: str) -> None:
    """As `stillweb record` does, with redaction."""
    from stillweb.proxy.record.recorder import Recorder, tune_process
    from stillweb.snapshots.writer import Writer

    tune_process()
    with Writer.open(path) as writer, Recorder(writer, port=int(port), upstream_ca=Path(ca), challenge=False):
        sys.stdin.readline()


if __name__ == "__main__":
    if sys.argv[1] == "--record":
        record(*sys.argv[2:])
    else:
        replay(*sys.argv[1:])
