"""Work and output of `stillweb record --explore`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from stillweb.harness.console import say, table
from stillweb.snapshots.words import counted

if TYPE_CHECKING:
    from stillweb.proxy.explore.explorer import Limits
    from stillweb.proxy.explore.moves import Choices
    from stillweb.proxy.record.recorder import Recorder
    from stillweb.snapshots.profile import Profile
    from stillweb.snapshots.writer import Writer

MOST_FILES = 5  # linked files named that were not fetched


def explore_all(
    recorder: Recorder,
    writer: Writer,
    profile: Profile | None,
    launch: Mapping[str, Any],
    urls: list[str],
    limits: Limits,
    choices: Choices,
    pdfs: bool,
    show: Callable[[str], None],
) -> int:
    """Explore each URL; with `pdfs` fetch linked PDFs. Return 1 if a URL has no view or a PDF failed, else 0."""
    from stillweb.proxy.explore.explorer import Explorer
    from stillweb.proxy.explore.moves import FILE

    explorer = Explorer(recorder, writer, profile, limits=limits, choices=choices, launch=launch)
    failed = 0
    documents: dict[str, None] = {}
    for url in urls:
        graph = explorer.explore(url, lambda count, newest: show(f"{counted(count, 'view')}: {newest}"))
        rows = [[node.address, str(node.depth), node.title] for node in graph.views]
        click.echo(table(["view", "depth", "title"], rows))
        for steps, why in [*graph.failed, *graph.walls]:
            say(f"not stored: {steps}: {why}")
        for line in graph.robots:
            say(line)
        say(
            f"{url}: {counted(len(graph.views), 'view')}, {counted(len(graph.edges), 'way')} between them; {graph.ended or 'interrupted'}"
        )
        files = [address for address, why in graph.left if why == FILE]
        if pdfs:
            documents |= dict.fromkeys(address for address in files if _is_pdf(address))
            files = [address for address in files if not _is_pdf(address)]
        if files:
            say(
                f"{url}: {counted(len(files), 'linked file')} not fetched ({', '.join(files[:MOST_FILES])}"
                f"{', …' if len(files) > MOST_FILES else ''}); 'stillweb record -o {writer.path} URL …' adds them"
            )
        failed += not graph.views
    failed += _fetch(recorder, writer, explorer.profile, launch, list(documents), show)
    return 1 if failed else 0


def _is_pdf(address: str) -> bool:
    return urlsplit(address).path.lower().endswith(".pdf")


def _fetch(
    recorder: Recorder,
    writer: Writer,
    profile: Profile,
    launch: Mapping[str, Any],
    urls: list[str],
    show: Callable[[str], None],
) -> int:
    """Fetch linked PDFs and print how many; return the number that failed."""
    if not urls:
        return 0
    from stillweb.proxy.browser.capture_view import Fetcher

    fetcher = Fetcher(recorder, writer, profile, prefix="pdf", launch=launch)
    results = fetcher.fetch(urls, progress=lambda url, event: show(f"{event}: {url}"))
    for result in results:
        if not result.ok:
            say(f"not fetched: {result.error}")
    fetched = sum(result.ok for result in results)
    say(f"{fetched} of {counted(len(urls), 'linked PDF')} fetched")
    return len(urls) - fetched
