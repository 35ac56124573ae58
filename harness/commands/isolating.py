"""Network isolation of a command and all its child processes."""

from __future__ import annotations

from collections.abc import Sequence

from stillweb.harness.console import say
from stillweb.proxy.net.addresses import host_port
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.net.client_env import with_usual
from stillweb.proxy.net.isolation import enter_isolation, replace_system_list


def isolate_program(let_in: Sequence[tuple[str, int]]) -> None:
    """Enter a network namespace that has only loopback, and print which ports of this machine are reachable.

    The system's list of CA certificates is replaced by ours, for programs that ignore the environment variables.
    Raise MissingCapability if this machine can't do it.
    """
    enter_isolation(let_in)
    ours = Authority.load_or_create().certificate_path
    if (why := replace_system_list(with_usual(ours) if let_in else ours)) is not None:
        say(why)
    if let_in:
        ports = ", ".join(host_port(*port) for port in let_in)
        say(f"let in from this machine, and nothing else: {ports}")
