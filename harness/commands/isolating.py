"""Isolation of a command and all that it starts, and what is said of the ways that are left."""

from __future__ import annotations

from collections.abc import Sequence

from harness.console import say
from proxy.isolation import enter_isolation
from proxy.wire.addresses import host_port


def isolate_program(let_in: Sequence[tuple[str, int]]) -> None:
    """Enters a namespace that has only loopback; says which ports of this machine are let in. Raises MissingCapability."""
    enter_isolation(let_in)
    if let_in:
        ports = ", ".join(host_port(*port) for port in let_in)
        say(f"let in from this machine, and nothing else: {ports}")
