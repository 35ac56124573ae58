"""What `pip install` of the clone puts in place: all that the three packages hold, data too."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("snapshots", "proxy", "harness")


def test_a_wheel_holds_every_file_of_the_packages(tmp_path: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    here = {
        str(path.relative_to(tmp_path))
        for p in PACKAGES
        for path in (tmp_path / p).rglob("*")
        if path.is_file()
    }
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "-w", tmp_path / "out", tmp_path], check=True, capture_output=True)
    [wheel] = (tmp_path / "out").glob("*.whl")
    assert {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n} == here
