"""Build the search index of a snapshot before it is needed, with progress output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stillweb.harness.console import progress, say

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot
    from stillweb.snapshots.text.search import SearchIndex


def search_index(snapshot: Snapshot) -> SearchIndex:
    """Return the index over all frozen texts; build it with a progress bar if it is not ready."""
    from stillweb.snapshots.searching import index_of, is_ready

    say_unfrozen(snapshot)
    if is_ready(snapshot):
        return index_of(snapshot)
    say(
        f"indexing {snapshot.count_texts():,} texts for search; this is kept, and done once for a snapshot "
        "(stillweb seal --search-index does it beforehand)"
    )
    with progress("indexing texts") as advance:
        return index_of(snapshot, progress=advance)


def make_search_ready(snapshot: Snapshot) -> None:
    """Build the search index if it is not ready, so that no search has to wait."""
    from stillweb.snapshots.searching import is_ready

    if not is_ready(snapshot):
        search_index(snapshot).close()
    else:
        say_unfrozen(snapshot)


def say_unfrozen(snapshot: Snapshot) -> None:
    """Print a note if no text is frozen: the snapshot is not sealed, or is an archive from elsewhere."""
    if not snapshot.count_texts():
        say(
            "no text is frozen in it, so no search finds anything: 'stillweb seal DIR' freezes them, after "
            "'stillweb import FILE -o DIR' where it is an archive of others"
        )
