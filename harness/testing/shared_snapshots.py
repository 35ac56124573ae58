"""Snapshots shared by the tests of one process: replayed, or recorded and moved into place at the end."""

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
from stillweb.snapshots.extras import require

MODES = ("none", "once", "new_episodes", "all", "rewrite")


class SharedSnapshots:
    """Snapshot, in layers, of one process: replayed, or recorded and moved into place at the end.

    The last of `paths` is the top layer and the target of a recording. `rules` is a file of the user's own rules.
    """

    def __init__(
        self, paths: Sequence[Path], mode: str, upstream_ca: Path | None = None, rules: Path | None = None
    ) -> None:
        self.paths, self.mode = list(paths), mode
        self.target = self.paths[-1]
        self.recording = mode in ("new_episodes", "all", "rewrite") or (
            mode == "once" and not self.target.exists()
        )
        self.sessions: set[str] = set()  # sessions that are recorded anew
        self.replayed: set[str] = set()  # sessions with an answer from the old snapshot
        self._upstream_ca = upstream_ca
        self.rules = rules
        self._stack = ExitStack()
        self._snapshot: Any = None
        self._recorder: Any = None
        self._writer: Any = None
        self._work = self.target.with_name(self.target.name + ".recording")

    @property
    def snapshot(self) -> Any:
        """The snapshot as it was before this run. Raises UsageError if there is none."""
        if self._snapshot is None:
            from stillweb.snapshots.snapshot import Snapshot

            missing = [path for path in self.paths if not path.exists()]
            if missing:
                raise UsageError(f"{missing[0]}: there is no snapshot; record it with --stillweb-mode=once")
            self._snapshot = Snapshot.open(*self.paths)
            if self.rules is not None:
                self._snapshot.add_rules(self.rules)
        return self._snapshot

    @property
    def recorder(self) -> Any:
        """The recorder of this process, which writes to `<target>.recording`."""
        if self._recorder is None:
            with warnings.catch_warnings():  # some packages warn on import, which must not fail the test
                warnings.simplefilter("ignore", DeprecationWarning)
                recorder = require("stillweb.proxy.record.recorder")
            if self._work.exists():
                shutil.rmtree(self._work)
            self._work.parent.mkdir(parents=True, exist_ok=True)
            self._writer = self._stack.enter_context(self._open_writer())
            self._recorder = self._stack.enter_context(
                recorder.Recorder(self._writer, upstream_ca=self._upstream_ca)
            )
        return self._recorder

    def close(self) -> None:
        """End recording and move the result into place; close the snapshot."""
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
        from stillweb.snapshots.contents.provenance import provenance_now
        from stillweb.snapshots.snapshot import Snapshot
        from stillweb.snapshots.writer import Writer

        provenance = provenance_now("pytest", {"mode": self.mode})
        if not self._keeps_old:
            return Writer.open(self._work, provenance=provenance)
        with Snapshot.open(self.target) as old:
            return Writer.open(self._work, settings=old.settings, profile=old.profile, provenance=provenance)

    @property
    def _keeps_old(self) -> bool:
        """True if the recording is merged with the old target (the lower layers are not merged)."""
        return self.mode in ("all", "new_episodes") and self.target.exists()

    def _keep_old(self) -> None:
        """Copy old records into the recording.

        These are the records of sessions that were not recorded anew. For sessions that were answered from both, they
        are the captures whose exact request was not recorded anew.
        """
        from stillweb.snapshots.index.cdxj import capture_of
        from stillweb.snapshots.operations.importing import copy_capture, copy_view
        from stillweb.snapshots.snapshot import Snapshot

        recorded = filter(None, map(capture_of, self._writer.lines()))
        anew = {(capture.session, capture.exact) for capture in recorded}
        with Snapshot.open(self.target) as old:
            for capture in old.captures():
                name = capture.session
                kept = name in self.replayed and (name, capture.exact) not in anew
                if kept or name not in self.sessions:
                    copy_capture(old, capture, self._writer)
            for uri, conversation in old.conversations():
                if str(conversation.get("session", "")) not in self.sessions:
                    self._writer.metadata(uri, conversation)
            for view in old.views():
                if view.session not in self.sessions:
                    copy_view(old, view, self._writer)

    def _put_in_place(self) -> None:
        """Move the recording to the target. Raise GateFailed, and leave it, if it holds a secret that was learned late."""
        if self.target.suffix == ".wacz":
            from stillweb.snapshots.wacz import seal

            seal(self._work, self.target)
            shutil.rmtree(self._work)
            return
        from stillweb.snapshots.operations import late_secrets

        late_secrets.refuse(self._work)
        if self.target.exists():
            shutil.rmtree(self.target)
        os.replace(self._work, self.target)


def read_mode(text: str) -> str:
    """Return the mode. Raise UsageError, which lists the modes, if it is unknown."""
    if text not in MODES:
        raise UsageError(f"--stillweb-mode: {text!r} is none of {', '.join(MODES)}")
    return text


def close_all(shelves: Sequence[SharedSnapshots]) -> list[str]:
    """Close every shelf, even if one fails; return the errors."""
    problems: list[str] = []

    def close(shelf: SharedSnapshots) -> None:
        try:
            shelf.close()
        except StillwebError as error:
            problems.append(str(error))

    with contextlib.ExitStack() as stack:
        for shelf in shelves:
            stack.callback(close, shelf)
    return problems
