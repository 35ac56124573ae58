"""`stillweb score`."""

from __future__ import annotations

from pathlib import Path

import click

from harness.commands.show import show_summary
from harness.console import say


@click.command("score")
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--write", is_flag=True, help="Put scores that came out differently in place of the old ones.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def command(run: Path, write: bool, as_json: bool) -> int:
    """Compute every score of RUN anew, from its traces alone, and say where it is not the one they hold.

    \b
    stillweb score run1              exit code 1 if a score came out differently
    """
    from harness.results.certificate import check_traces, write_certificate
    from harness.results.kept_certificate import differing, kept_hash, short
    from harness.results.left_out import failed_attempts
    from harness.results.summary import score_run
    from harness.trace import hashed_part

    different = score_run(run, write=write)
    for one in different:
        place, was, now = differing(hashed_part(one.before), hashed_part(one.after))
        say(f"{one.trace.name}: a score came out differently: {place}: {short(was)}, now {short(now)}")
    before = kept_hash(run)
    certificate = write_certificate(run) if write else None if different else check_traces(run)
    if certificate is not None and not write and before not in (None, certificate["hash"]):
        say(
            f"{run}: the certificate that lay there ({before}) is not that of its traces, or of other code; made anew"
        )
    summary = show_summary(run, certificate, as_json)
    if failed := failed_attempts(summary):
        say(failed)
    return 1 if different else 0
