"""The snapshots that the tests of one process share: replayed, or recorded and put in place at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from stillweb.snapshots.errors import StillwebError, UsageError

MODES = ("none", "once", "new_episodes", "all", "rewrite")


class Shelf:
    """One snapshot (with those that lie over it) in one process: replayed, or recorded and put in place at the end."""

    def __init__(self, paths: Sequence[Path], mode: str, upstream_ca: Path | None = None) -> None:
        self.paths, self.mode = list(paths), mode
        self.target = self.paths[-1]
        self.recording = mode in ("new_episodes", "all", "rewrite") or (
            mode == "once" and not self.target.exists()
        )
        self.sessions: set[str] = set()  # recorded anew as a whole
        self.replayed: set[str] = set()  # of which something was answered from the snapshot as it was
        self._upstream_ca = upstream_ca
        self._stack = ExitStack()
        self._snapshot: Any = None
        self._recorder: Any = None
        self._writer: Any = None
        self._work = self.target.with_name(self.target.name + ".recording")

    @property
    def snapshot(self) -> Any:
        """The snapshot as it was before this run. UsageError where there is none."""
        if self._snapshot is None:
            from stillweb.snapshots.snapshot import Snapshot

            missing = [path for path in self.paths if not path.exists()]
            if missing:
                raise UsageError(f"{missing[0]}: there is no snapshot; record it with --stillweb-mode=once")
            self._snapshot = Snapshot.open(*self.paths)
        return self._snapshot

    @property
    def recorder(self) -> Any:
        """The recorder of this process, writing beside the target."""
        if self._recorder is None:
            with warnings.catch_warnings():  # what old packages say on import is not the test's affair
                warnings.simplefilter("ignore", DeprecationWarning)
                from stillweb.proxy.record.recorder import Recorder

            if self._work.exists():
                shutil.rmtree(self._work)
            self._work.parent.mkdir(parents=True, exist_ok=True)
            self._writer = self._stack.enter_context(self._open_writer())
            self._recorder = self._stack.enter_context(Recorder(self._writer, upstream_ca=self._upstream_ca))
        return self._recorder

    def close(self) -> None:
        """Ends recording and puts the result in place; a snapshot that was only read is closed."""
        if self._recorder is not None:
            self._recorder.close()
            if self._keeps_old:
                self._keep_old()
            self._stack.close()
        if self._snapshot is not None:
            self._snapshot.close()
        if self._recorder is not None:
            self._put_in_place()

    def _open_writer(self) -> Any:
        from stillweb.snapshots.snapshot import Snapshot
        from stillweb.snapshots.writer import Writer

        if not self._keeps_old:
            return Writer.open(self._work)
        with Snapshot.open(self.target) as old:
            return Writer.open(self._work, settings=old.settings, profile=old.profile)

    @property
    def _keeps_old(self) -> bool:
        """Whether what is recorded comes to what is there; it is asked for without those that it lies over."""
        return self.mode in ("all", "new_episodes") and self.target.exists()

    def _keep_old(self) -> None:
        """Takes over what belongs to sessions that were not recorded anew, and the captures of those that used both."""
        from stillweb.snapshots.index.cdxj import capture_of
        from stillweb.snapshots.snapshot import Snapshot
        from stillweb.snapshots.upkeep.importing import copy_capture, copy_view

        recorded = filter(None, map(capture_of, self._writer.lines()))
        anew = {(capture.session, capture.exact) for capture in recorded}
        with Snapshot.open(self.target) as old:
            for capture in old.captures():
                name = capture.session
                kept = name in self.replayed and (name, capture.exact) not in anew
                if kept or name not in self.sessions:
                    copy_capture(old, capture, self._writer)
            for uri, said in old.conversations():
                if str(said.get("session", "")) not in self.sessions:
                    self._writer.metadata(uri, said)
            for view in old.views():
                if view.session not in self.sessions:
                    copy_view(old, view, self._writer)

    def _put_in_place(self) -> None:
        """Raises GateFailed where a secret that became known late stands in what was recorded, which stays beside the target."""
        if self.target.suffix == ".wacz":
            from stillweb.snapshots.wacz import seal

            seal(self._work, self.target)
            shutil.rmtree(self._work)
            return
        from stillweb.snapshots.upkeep import late

        late.refuse(self._work)
        if self.target.exists():
            shutil.rmtree(self.target)
        os.replace(self._work, self.target)


def read_mode(text: str) -> str:
    """A mode by its name. UsageError lists the names."""
    if text not in MODES:
        raise UsageError(f"--stillweb-mode: {text!r} is none of {', '.join(MODES)}")
    return text


def close_all(shelves: Sequence[Shelf]) -> list[str]:
    """Closes every shelf, even where one can't be; returns what could not be put in place, and why."""
    told: list[str] = []

    def close(shelf: Shelf) -> None:
        try:
            shelf.close()
        except StillwebError as error:
            told.append(str(error))

    with contextlib.ExitStack() as stack:
        for shelf in shelves:
            stack.callback(close, shelf)
    return told
