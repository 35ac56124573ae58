"""Isolation of a command and all that it starts, and what is said of the ways that are left."""

from __future__ import annotations

from collections.abc import Sequence

from stillweb.harness.console import say
from stillweb.proxy.direct import with_usual
from stillweb.proxy.isolation import enter_isolation
from stillweb.proxy.system_trust import replace_system_list
from stillweb.proxy.wire.addresses import host_port
from stillweb.proxy.wire.certificates import Authority


def isolate_program(let_in: Sequence[tuple[str, int]]) -> None:
    """Enters a namespace that has only loopback; says which ports of this machine are let in. Raises MissingCapability.

    In it the system's list of authorities is ours, for programs that no variable tells.
    """
    enter_isolation(let_in)
    ours = Authority.load_or_create().certificate_path
    if (why := replace_system_list(with_usual(ours) if let_in else ours)) is not None:
        say(why)
    if let_in:
        ports = ", ".join(host_port(*port) for port in let_in)
        say(f"let in from this machine, and nothing else: {ports}")
