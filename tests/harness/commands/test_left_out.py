"""Each command that opens a HAR names the data that it lacks."""

import json
from pathlib import Path

import pytest

from stillweb.harness.cli import main


@pytest.mark.parametrize("command", ["ls", "verify"])
def test_a_har_without_bodies_says_why_there_is_nothing_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    asked = {"method": "GET", "url": "http://example.test/", "headers": []}
    answer = {"status": 200, "headers": [], "content": {"size": 5, "mimeType": "text/plain"}}
    entry = {"startedDateTime": "2025-01-02T03:04:05Z", "time": 1, "request": asked, "response": answer}
    Path("x.har").write_text(json.dumps({"log": {"entries": [entry] * 7}}))
    for _ in range(2):  # the second time from the cache
        with pytest.raises(SystemExit) as ended:
            main([command, "x.har"])
        assert not ended.value.code
        said = capsys.readouterr().err
        assert "left out: x.har: entry 0: its body is not in the HAR: http://example.test/\n" in said
        assert "left out: 2 more" in said
