"""Installing the package: the wheel holds `stillweb/` alone, whole, and lives beside a package named `proxy`."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pip
import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("snapshots", "proxy", "harness")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
# Prints each file of a distribution that is missing or was changed since it was installed.
DAMAGED = """
import base64, hashlib, importlib.metadata, sys
for file in importlib.metadata.distribution(sys.argv[1]).files:
    path = file.locate()
    if not path.exists():
        print("missing", file)
    elif file.hash and file.hash.value != base64.urlsafe_b64encode(
        hashlib.new(file.hash.mode, path.read_bytes()).digest()
    ).decode().rstrip("="):
        print("changed", file)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the checkout, in which `stillweb/` links to the packages as it does here."""
    copy = tmp_path_factory.mktemp("checkout")
    for folder in ("stillweb", *PACKAGES):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignored, symlinks=True)
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, copy)
    options = ["-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", copy / "out"]
    subprocess.run([*PIP, "wheel", *options, copy], check=True, capture_output=True)
    [made] = (copy / "out").glob("*.whl")
    return made


@pytest.mark.slow
def test_a_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    wanted = {f"stillweb/{name}" for name in ("__init__.py", "__main__.py", "api.py", "py.typed")}
    for package in PACKAGES:
        files = [p for p in (ROOT / package).rglob("*") if p.is_file() and "__pycache__" not in p.parts]
        wanted |= {f"stillweb/{path.relative_to(ROOT)}" for path in files}
    assert {name for name in names if ".dist-info/" not in name} == wanted
    licenses = {Path(name).name for name in names if ".dist-info/licenses/" in name}
    assert licenses == {"LICENSE", "NOTICE"}


@pytest.mark.slow
def test_the_package_lives_beside_one_named_proxy(wheel: Path, tmp_path: Path) -> None:
    [other] = (ROOT / ".venv-peers" / "wheels").glob("proxy.py-*.whl")
    files = {"stillweb": wheel, "proxy.py": other}
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    python = tmp_path / "bin" / "python"
    runner = Path(pip.__file__).with_name("__pip-runner__.py")  # `pip --python` starts another Python with it
    there = [python, runner, "-q", "--disable-pip-version-check"]
    install = [*there, "install", "--no-deps", "--no-index", "--no-compile"]
    for name in files:
        subprocess.run([*install, files[name]], check=True, capture_output=True)
    # Each once as the first to be installed, and once as the last; what is put back is then the last.
    for removed in ("stillweb", "stillweb", "proxy.py", "proxy.py"):
        subprocess.run([*there, "uninstall", "-y", removed], check=True, capture_output=True)
        kept = "proxy.py" if removed == "stillweb" else "stillweb"
        done = subprocess.run([python, "-I", "-c", DAMAGED, kept], capture_output=True, text=True, check=True)
        assert done.stdout == "", removed
        subprocess.run([*install, files[removed]], check=True, capture_output=True)


def test_changelog_and_citation_have_the_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest is not None
    assert newest[1] in (version, "Unreleased")
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_module_runs_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stillweb", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("stillweb, version ")
