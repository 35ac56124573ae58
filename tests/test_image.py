"""The image's steps in a clean root: no container engine is needed, and nothing of this environment is used."""

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from stillweb.snapshots.wacz import seal
from tests.snapshots.making import small_snapshot

ROOT = Path(__file__).resolve().parents[1]
# its packages take minutes to install: STILLWEB_IMAGE=all tests it, too
WHOLE = pytest.mark.skipif(os.environ.get("STILLWEB_IMAGE") != "all", reason="STILLWEB_IMAGE is not all")
STEPS = (ROOT / "Dockerfile").read_text()


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, those of the stages that it needs first."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in STEPS.splitlines():
        if stage := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            current = found[stage[2]] = list(found.get(stage[1], ()))
        elif copied := re.fullmatch(r"COPY --from=(\S+) (\S+) \2", line):
            current += found[copied[1]]
        elif step := re.fullmatch(r"([A-Z]+) (.+)", line):
            current.append((step[1], step[2]))
    return found


def built(stage: str, folder: Path) -> dict[str, str]:
    """Do the steps of a stage, with an environment of Python as the root; the variables of its container."""
    venv.create(folder / "root")
    pip = f"{sys.executable} -m pip --python {folder / 'root/bin/python'}"  # a pip of its own takes seconds to unpack
    variables = {"PATH": f"{folder / 'root/bin'}:/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}
    variables |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    variables["PIP_NO_COMPILE"] = "1"  # what is used is compiled as it is loaded
    work = folder
    for what, words in stages()[stage]:
        words = re.sub(r"(?<![\w.])/(src|wheels|data)\b", rf"{folder}/\1", words).replace(
            "python -m pip", pip
        )
        if what == "WORKDIR":
            work = Path(words)
            work.mkdir(parents=True, exist_ok=True)
        elif what == "COPY":
            listed = subprocess.run(
                ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
            ).stdout
            for name in filter(None, listed.decode().split("\0")):
                (folder / "src" / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / "src" / name, follow_symlinks=False)
        elif what == "ENV":
            name, _, value = words.partition("=")
            variables[name] = value
        elif (
            what == "RUN" and "apt-get" not in words
        ):  # the packages of the distribution are those of this machine
            done = subprocess.run(
                ["bash", "-ec", words], cwd=work, env=variables, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
    return variables


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["core", pytest.param("all", marks=WHOLE)])
def test_the_image_replays_a_snapshot(stage: str, tmp_path: Path) -> None:
    small_snapshot(tmp_path / "site")
    sealed = seal(tmp_path / "site").path
    variables = built(stage, tmp_path)
    run = ["stillweb", "replay", str(sealed), "--", "curl", "-s", "http://example.test/"]
    done = subprocess.run(run, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert (done.returncode, "Hello there" in done.stdout) == (0, True), done.stderr
    words = ["stillweb", "search", str(sealed), "hello"]
    found = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert (found.returncode == 0) == (stage == "all"), found.stderr
    size = sum(p.stat().st_size for p in (tmp_path / "root").rglob("*") if p.is_file() and not p.is_symlink())
    sys.stdout.write(f"{stage}: {size / 1e6:.0f} MB\n")
