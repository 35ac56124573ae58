"""Write docs/api.md from the docstrings of the public names: `python docs/build_api.py`."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import stillweb

PAGE = Path(__file__).with_name("api.md")
HEAD = """# Python interface

<!-- Written by docs/build_api.py from the docstrings; `make api` writes it again. -->

`import stillweb` is light: it loads neither mitmproxy nor Playwright, and each name on first use. What needs an
[extra](index.md) that is not installed raises an error with the command that installs it.

All expected errors are `sw.StillwebError`; its kinds, named below, are `sw.UsageError`, `sw.DamagedInput`, `sw.GateFailed` and
`sw.MissingCapability`. Calls may come from any thread, also where an event loop runs (a notebook), which waits until they return.

```python
{example}```
"""
EXAMPLE = """import httpx, stillweb as sw

with sw.record("site") as rec:                       # a Writer and a Recorder
    rec.visit("https://example.org/")                  # with a browser
    rec.run(["python", "agent.py"])                  # any program
sw.seal("site")                                      # -> site.wacz
snap = sw.open("site.wacz")
hit = snap.lookup("https://example.org/")            # a URL or a Request
print(hit.verdict, hit.confidence, hit.response.status, hit.nearest)
with sw.replay(snap) as web, httpx.Client(**web.httpx()) as client:   # web.playwright(), web.env() too
    client.get("https://example.org/")
run = sw.run(tasks="tasks.jsonl", agent=my_agent, snapshot=snap, out="run1")
print(run.scores["em"].mean, run.certificate["hash"], sw.compare("run0", run))
sw.tools(snap, "fetch").call("fetch", url="https://example.org/")
"""
# name shown -> object, in the order of the example; of other classes only what is named
SHOWN = {
    "record": stillweb.record,
    "Recording": stillweb.Recording,
    "seal": stillweb.seal,
    "open": stillweb.open,
    "Snapshot.lookup": stillweb.Snapshot.lookup,
    "Request": stillweb.Request,
    "lookup": stillweb.lookup,
    "fetch": stillweb.fetch,
    "tables": stillweb.tables,
    "replay": stillweb.replay,
    "Replay": stillweb.Replay,
    "coverage": stillweb.coverage,
    "run": stillweb.run,
    "Run": stillweb.Run,
    "score": stillweb.score,
    "fork": stillweb.fork,
    "certify": stillweb.certify,
    "compare": stillweb.compare,
    "tools": stillweb.tools,
    "Tools": stillweb.Tools,
    "serve": stillweb.serve,
    "serve_live": stillweb.serve_live,
    "env": stillweb.env,
    "verify": stillweb.verify,
    "check": stillweb.check,
    "refresh": stillweb.refresh,
    "diff": stillweb.diff,
    "drift": stillweb.drift,
    "cut": stillweb.cut,
    "publish": stillweb.publish,
    "pull": stillweb.pull,
}


def page() -> str:
    """Return docs/api.md as the docstrings say it now."""
    from stillweb.harness.results.summary import Mean
    from stillweb.snapshots.snapshot import Hit

    parts = [HEAD.format(example=EXAMPLE)]
    for name, shown in SHOWN.items():
        parts.append(_entry(name, shown))
        if name == "Snapshot.lookup":
            parts.append(_entry("Hit", Hit))
        if name == "Run":
            parts.append(_entry("Mean", Mean))
    return "\n".join(parts)


def _entry(name: str, shown: Any) -> str:
    if not isinstance(shown, type):
        return f"## {name}\n\n```python\n{_signature(name, shown)}\n```\n\n{_prose(shown)}\n"
    text = f"## {name}\n\n{_prose(shown)}\n"
    rows = [
        _member(member, value)
        for member, value in vars(shown).items()
        if not member.startswith("_") and inspect.getdoc(value) and _documented(value)
    ]
    return text + ("\n" + "\n".join(rows) + "\n" if rows else "")


def _documented(value: Any) -> bool:
    return inspect.isfunction(value) or isinstance(value, property) or hasattr(value, "attrname")


def _member(name: str, value: Any) -> str:
    head = f"{name}{_arguments(value)}" if inspect.isfunction(value) else name
    return f"- `{head}`: " + _prose(value).replace("\n\n", " ").replace("\n", " ")


def _signature(name: str, shown: Any) -> str:
    """Return `name(…)`, one parameter a line where it would be long."""
    text = f"{name.rpartition('.')[2]}{_arguments(shown)}"
    if len(text) <= 100:
        return text
    inner = [str(one) for one in _plain(shown).parameters.values()]
    keyword = next(
        i for i, one in enumerate(_plain(shown).parameters.values()) if one.kind is one.KEYWORD_ONLY
    )
    inner.insert(keyword, "*")
    return f"{name.rpartition('.')[2]}(\n" + "".join(f"    {_short(one)},\n" for one in inner) + ")"


def _arguments(shown: Any) -> str:
    return _short(str(_plain(shown)))


def _plain(shown: Any) -> inspect.Signature:
    """Return the signature without `self` and the return annotation."""
    signature = inspect.signature(shown)
    kept = [one for one in signature.parameters.values() if one.name != "self"]
    return signature.replace(parameters=kept, return_annotation=signature.empty)


def _short(text: str) -> str:
    text = re.sub(r": (['\"])(.*?)\1(?=[,)=\s]|$)", r": \2", text)
    return re.sub(r"\bos\.PathLike\[str\]", "PathLike", text)


def _prose(shown: Any) -> str:
    return inspect.getdoc(shown) or ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
