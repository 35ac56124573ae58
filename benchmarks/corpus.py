"""The corpus: real pages, scripts, images and PDFs of the distribution's documentation packages, under one root."""

from __future__ import annotations

import hashlib
import mimetypes
import os
from pathlib import Path

ROOTS = ("/usr/share/doc", "/usr/share/javascript", "/usr/share/nginx", "/usr/lib/python3/dist-packages")
KINDS = (".html", ".css", ".js", ".png", ".svg", ".jpg", ".gif", ".pdf", ".txt")


def find(limit: int, low: int, high: int) -> list[Path]:
    """Up to `limit` distinct files of between `low` and `high` bytes, in a stable order that mixes directories."""
    found: list[tuple[str, Path]] = []
    seen = set()
    for root in ROOTS:
        for folder, _, names in os.walk(root):
            for name in names:
                path = Path(folder, name)
                if path.suffix not in KINDS or (path.is_symlink() and not path.exists()):
                    continue
                try:
                    size = path.stat().st_size
                except OSError:
                    continue
                real = os.path.realpath(path)
                if low <= size <= high and real not in seen:
                    seen.add(real)
                    found.append((hashlib.sha256(str(path).encode()).hexdigest(), path))
    return [path for _, path in sorted(found)[:limit]]


def media(path: Path) -> str:
    """The media type of a file."""
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


def small(root: Path, count: int = 500) -> list[tuple[str, int]]:
    """Pages of exactly 5,000 bytes, each cut from a real page, as files under `root`: (path, size)."""
    root.mkdir(parents=True, exist_ok=True)
    out = []
    for number, source in enumerate(p for p in find(4 * count, 5000, 1 << 20) if p.suffix == ".html"):
        if number == count:
            break
        name = f"/page-{number:04d}.html"
        (root / name[1:]).write_bytes(source.read_bytes()[:5000])
        out.append((name, 5000))
    return out


def mixed(root: Path, count: int = 600, mean: int = 40_000) -> list[tuple[str, int]]:
    """Whole files of all kinds with about `mean` bytes on average: (path, size)."""
    root.mkdir(parents=True, exist_ok=True)
    out: list[tuple[str, int]] = []
    total = 0
    large = find(count, mean, 1 << 20)
    little = find(4 * count, 200, mean)
    while len(out) < count and (large or little):
        source = (large if large and (not out or total / len(out) < mean) else little or large).pop()
        name = f"/mix-{len(out):04d}{source.suffix}"
        data = source.read_bytes()
        (root / name[1:]).write_bytes(data)
        out.append((name, len(data)))
        total += len(data)
    return out


def unique(root: Path, source: Path, urls: list[tuple[str, int]], count: int) -> list[tuple[str, int]]:
    """So many files under `root`, made from those under `source`, no two of them alike: (path, size)."""
    root.mkdir(parents=True, exist_ok=True)
    out = []
    for number in range(count):
        path, _ = urls[number % len(urls)]
        name = f"/new-{number:05d}{Path(path).suffix}"
        data = (source / path[1:]).read_bytes() + f"\n<!-- {number} -->\n".encode()
        (root / name[1:]).write_bytes(data)
        out.append((name, len(data)))
    return out
