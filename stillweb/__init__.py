"""Record the web an agent saw once; replay it for ever after: no network, the same bytes, an honest score.

Importing this package loads neither mitmproxy nor Playwright; each name below is loaded on first use.
The whole interface, with an example: docs/api.md.
"""

from __future__ import annotations

from importlib import import_module

# As type checkers read it: `typing` takes 10 ms, for which every confined program waits.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from stillweb.api import (
        Recording,
        Replay,
        Run,
        Tools,
        certify,
        check,
        compare,
        coverage,
        cut,
        diff,
        drift,
        env,
        fetch,
        fork,
        lookup,
        open,
        publish,
        pull,
        record,
        refresh,
        replay,
        run,
        score,
        serve,
        serve_live,
        tables,
        tools,
    )
    from stillweb.proxy import Gateway, Recorder
    from stillweb.snapshots import Request, Snapshot, Writer, seal, verify
    from stillweb.snapshots.errors import (
        DamagedInput,
        GateFailed,
        MissingCapability,
        StillwebError,
        UsageError,
    )

    __version__: str

# names that are not of `stillweb.api`
_HOME = {
    **dict.fromkeys(("Request", "Snapshot", "Writer", "seal", "verify"), "stillweb.snapshots"),
    **dict.fromkeys(("Gateway", "Recorder"), "stillweb.proxy"),
    **dict.fromkeys(
        ("DamagedInput", "GateFailed", "MissingCapability", "StillwebError", "UsageError"),
        "stillweb.snapshots.errors",
    ),
}

__all__ = [
    "DamagedInput", "GateFailed", "Gateway", "MissingCapability", "Recorder", "Recording", "Replay",
    "Request", "Run", "Snapshot", "StillwebError", "Tools", "UsageError", "Writer", "__version__",
    "certify", "check", "compare", "coverage", "cut", "diff", "drift", "env", "fetch", "fork", "lookup",
    "open", "publish", "pull", "record", "refresh", "replay", "run", "score", "seal", "serve", "serve_live",
    "tables", "tools", "verify"
]  # fmt: skip


def __getattr__(name: str) -> Any:
    value: Any
    if name == "__version__":
        from importlib.metadata import version

        value = version("stillweb")
    elif name in __all__:
        try:
            value = getattr(import_module(_HOME.get(name, "stillweb.api")), name)
        except ModuleNotFoundError as error:
            from stillweb.snapshots.extras import missing_extra

            raise missing_extra(error) or error from error
    else:
        raise AttributeError(f"module 'stillweb' has no attribute {name!r}")
    globals()[name] = value
    return value
