"""Write the hashes of the functions that the recorder changes, for versions of mitmproxy and what it reads with.

python -m tests.proxy.record.known_functions WHEEL…     adds the versions in these wheels and the installed ones

The libraries of a wheel need not be installed, and may be for another Python: their source is read from the file.
"""

import ast
import json
import sys
import zipfile
from importlib import metadata
from pathlib import Path

from stillweb.proxy.record.mitmproxy_compat import _patch


def functions_in(wheel: Path) -> dict[str, str]:
    """Return the hashes of the wheel's functions that the recorder changes, by their full names."""
    found: dict[str, str] = {}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for name in _patch.changed_functions():
            parts = name.split(".")
            for length in range(len(parts) - 1, 0, -1):
                module = "/".join(parts[:length])
                path = next((p for p in (f"{module}.py", f"{module}/__init__.py") if p in names), None)
                if path is not None:
                    source = _source(archive.read(path).decode(), parts[length:])
                    if source is not None:
                        found[name] = _patch.digest_of(source)
                    break
    return found


def _source(text: str, path: list[str]) -> str | None:
    """Return the source text of a function, with its decorators."""
    node: ast.AST = ast.parse(text)
    for name in path:
        inner = [n for n in ast.walk(node) if getattr(n, "name", None) == name]
        if not inner:
            return None
        node = inner[0]
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    start = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    return "\n".join(text.splitlines()[start - 1 : node.end_lineno])


def main(wheels: list[Path]) -> None:
    """Write the file."""
    path = Path(_patch.__file__).with_name(_patch.KNOWN)
    known: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.exists() else {}
    now: dict[str, dict[str, str]] = {
        name: known.get(name, {}) for name in sorted(_patch.changed_functions())
    }
    for name, function in _patch.changed_functions().items():
        now[name][metadata.version(name.partition(".")[0])] = _patch._digest(function)
    for wheel in wheels:
        for name, digest in functions_in(wheel).items():
            now[name][wheel.name.split("-")[1]] = digest
    ordered = {name: dict(sorted(digests.items())) for name, digests in now.items()}
    path.write_text(json.dumps(ordered, indent=1) + "\n")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
