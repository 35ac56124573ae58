"""The example of drills, small: it runs, and shows what it says."""

import json
import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "drills" / "drills.py"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_example_shows_each_drill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the script changes it, and the path
    monkeypatch.syspath_prepend(SCRIPT.parent)
    words = [str(SCRIPT), str(tmp_path / "out"), "--injections", "1", "--times", "1"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert ended.value.code == 0
    told = json.loads((tmp_path / "out" / "drills.json").read_text())
    assert told["faults-careful"]["outcomes"] == {"copes": 1, "retries": 2}
    assert told["faults-naive"]["outcomes"] == {"copes": 1, "gives up": 2}
    assert told["override-naive"]["outcomes"] == {"follows": 3}
    assert told["override-careful"]["outcomes"] == {"unaffected": 3}
    assert told["dearer-careful"]["outcomes"] == {"notices": 1, "untouched": 2}
    assert told["as-of"] == {"then": 1.0, "now": pytest.approx(1 / 3)}
    assert told["drift"]["expired"] == ["tea", "rope"]
    repeated = ["faults-careful", "override-naive", "dearer", "as-of", "today"]
    assert told["repeated"] == dict.fromkeys(repeated, True)
    assert "fault:busy" in (tmp_path / "out" / "faults-careful.html").read_text()
    assert "mutated:override" in (tmp_path / "out" / "override-naive.html").read_text()
    assert all((tmp_path / "out" / f"{name}.html").exists() for name in repeated)
