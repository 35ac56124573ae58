"""Hosts that a command reaches directly, past our proxy: for example a live model.

Only the command's environment is changed: the proxy still connects to nothing. The command trusts the usual
authorities besides ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from stillweb.proxy.clients import past, trusting
from stillweb.proxy.net.addresses import on_this_machine
from stillweb.proxy.net.told import told_files
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.warc.appending import write_whole

# A name or address, with or without a port, in the form of NO_PROXY.
_HOST = re.compile(r"(?:[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*|\[[0-9a-fA-F:.]+\])(?::[0-9]{1,5})?")


def direct_hosts(values: Iterable[object]) -> tuple[str, ...]:
    """Return host names, optionally with a port, in lower case and sorted.

    Raises UsageError for anything else.
    """
    found = {str(value).lower() for value in values}
    for value in sorted(found):
        if not _HOST.fullmatch(value):
            raise UsageError(f"{value!r} is no host; write it as api.openai.com or 127.0.0.1:11434")
    return tuple(sorted(found))


def let_in(hosts: Iterable[str]) -> list[tuple[str, int]]:
    """Return the ports of this machine that an isolated command must be let in to, from its direct hosts.

    A name of this machine without a port means the command's own loopback. Raises UsageError for another
    machine.
    """
    found = []
    for host in hosts:
        at = urlsplit(f"//{host}")
        if not on_this_machine(at.hostname or ""):
            raise UsageError(
                f"--isolate leaves no way to {host}: of what is asked directly only a port of this machine "
                "can be let in (127.0.0.1:11434)"
            )
        try:
            port = at.port
        except ValueError as error:
            raise UsageError(f"{host}: {error}") from error
        if port is not None:
            found.append((at.hostname or "", port))
    return found


def let_past(environment: Mapping[str, str], hosts: Sequence[str]) -> dict[str, str]:
    """Return an environment of `clients.client_environment` in which `hosts` bypass the proxy.

    Raises as `trust.usual_authorities`.
    """
    changed = dict(environment)
    if not hosts or "SSL_CERT_FILE" not in changed:  # without SSL_CERT_FILE it has no proxy of ours
        return changed
    hosts = [*filter(None, changed.get("NO_PROXY", "").split(",")), *hosts]
    return trusting(past(changed, hosts), with_usual(Path(changed["SSL_CERT_FILE"])))


def with_usual(ours: Path) -> Path:
    """Write a bundle of our authority and the usual ones beside ours; return its path.

    It is named by the hash of its content, so that an existing file never changes.
    """
    from stillweb.proxy.net.trust import (
        usual_authorities,  # it takes 13 ms to load, and few commands ask a host themselves
    )

    data = usual_authorities(ours)
    bundle = ours.with_name(f"stillweb-ca-and-usual-{sha256(data).hexdigest()[:16]}.pem")
    if not bundle.exists():
        # the bundle last, since its existence means that all files are there
        for path, content in {**told_files(bundle, data), bundle: data}.items():
            path.parent.mkdir(exist_ok=True)
            write_whole(path, [content])
    return bundle
