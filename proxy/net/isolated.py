"""A program isolated in a network namespace with only loopback, while its proxy stays outside.

Traffic that bypasses the proxy then fails, instead of going unrecorded. A launcher enters the namespace and
execs the program; the helper of `stillweb.proxy.net.relaying` forwards the proxy's port into it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from stillweb.proxy.net.client_env import run_command
from stillweb.proxy.net.isolation import can_isolate, canary, enter_isolation, replace_system_list
from stillweb.proxy.net.relaying import Port, Relay
from stillweb.snapshots.errors import MissingCapability, StillwebError, UsageError


def run_isolated(command: Sequence[str], environment: Mapping[str, str], let_in: Sequence[Port]) -> int:
    """Run a command as `clients.run_command` does, in a namespace without a network.

    `environment` is made by `clients.client_environment`. The command reaches only the ports `let_in` of this
    machine. Raises MissingCapability if the machine can't isolate, UsageError if there is no such program.
    """
    if (reason := can_isolate()) is not None:
        raise MissingCapability(reason)
    if shutil.which(command[0], path=environment.get("PATH")) is None:
        raise UsageError(f"{command[0]}: can't be run (no such program)")
    with Relay(let_in) as relay:
        # -I: the launcher ignores the Python variables and the folder of the program
        launcher = [sys.executable, "-I", "-m", "stillweb.proxy.net.isolated", str(relay.control)]
        launcher += [part for host, port in let_in for part in (host, str(port))]
        return run_command([*launcher, "--", *command], environment, [relay.control])


def _main(words: Sequence[str]) -> int:
    end = words.index("--")
    control, *places = words[:end]
    ports = [(host, int(port)) for host, port in zip(places[::2], places[1::2], strict=True)]
    try:
        enter_isolation(ports, Relay.inherited(int(control), ports))
        proof = canary()
        sys.stderr.write(f"stillweb: {proof.line()}\n")
        if proof.escaped:
            raise MissingCapability("the namespace has a way out, so it does not isolate")
        if (why := replace_system_list(Path(os.environ["SSL_CERT_FILE"]))) is not None:
            sys.stderr.write(f"stillweb: {why}\n")
        os.execvp(words[end + 1], list(words[end + 1 :]))
    except StillwebError as error:
        sys.stderr.write(f"stillweb: {error}\n")
        return 4
    except OSError as error:
        sys.stderr.write(f"stillweb: {words[end + 1]}: can't be run ({error.strerror})\n")
        return 2


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
