"""What a program asked for stands in a report by address: each request says as which it came."""

import re
import sys
from pathlib import Path

from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.view.export import write_report
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import record
from tests.support.runs import bird_task


def test_requests_of_a_program_are_numbered_as_they_came(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "site") as writer:
        for name in ("a", "b", "favicon.ico"):
            record(writer, f"https://a.test/{name}", b"<p>page</p>")
    asks = "for name in ('b', 'favicon.ico', 'a'): print(u.urlopen('https://a.test/' + name).status)"
    (tmp_path / "agent.py").write_text(f"import urllib.request as u\n{asks}\n")
    agent = f"command:{sys.executable} {tmp_path / 'agent.py'}"
    files = start_run(
        tmp_path / "run", Settings(agent=agent, snapshots=(str(tmp_path / "site"),)), [bird_task("x")]
    )
    run_attempts(files.path, display=SilentDisplay())
    html = write_report(files.path).read_text()
    steps = re.findall(r"https://a\.test/(a|b)</dd>|asked as number (\d)", html)
    assert [one or two for one, two in steps] == ["3", "a", "1", "b"]
    assert "Also asked for, and irrelevant: 1" in html
    assert "GET https://a.test/favicon.ico: exact" in html
