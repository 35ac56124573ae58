"""Set-up of clients: the environment that sends a command's traffic through a proxy of ours.

The variables trust our authority *alone*: everything goes through the proxy, so no other certificate is ever
presented, and a client that goes round the proxy fails instead of recording nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from snapshots.errors import UsageError
from snapshots.machine.signals import heard_signals, hearing

NODE_SCRIPT = Path(__file__).with_name("node_proxy.cjs")

# variable -> who reads it
CA_VARIABLES = {
    "SSL_CERT_FILE": "OpenSSL: Python's ssl, httpx, Ruby, Go, wget, PHP, Rust's native-tls",
    "REQUESTS_CA_BUNDLE": "requests",
    "CURL_CA_BUNDLE": "curl, and requests as second choice",
    "GIT_SSL_CAINFO": "Git",
    "NODE_EXTRA_CA_CERTS": "Node",
    "DENO_CERT": "Deno",
    "AWS_CA_BUNDLE": "boto",
    "PIP_CERT": "pip",
    "npm_config_cafile": "npm, where its settings name another",
    "PERL_LWP_SSL_CA_FILE": "Perl's LWP",
    "CARGO_HTTP_CAINFO": "Cargo",
    "NIX_SSL_CERT_FILE": "Nix's builds of OpenSSL",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": "gRPC",
}
# Those that would bring other certificates or a bypass back.
CLEARED = ("SSL_CERT_DIR", "NODE_TLS_REJECT_UNAUTHORIZED", "GIT_SSL_NO_VERIFY", "GIT_PROXY_SSL_CAINFO")
# ftp_proxy and the like are left alone: an HTTP proxy can't be theirs.
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "WS_PROXY", "WSS_PROXY")


def client_environment(
    proxy_url: str, ca_path: Path | str, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment (a copy of `base`, default this process's) that sends a command through `proxy_url`.

    Proxy variables are set in upper and lower case, `NO_PROXY` is emptied so that not even localhost goes
    round, and `ca_path` (PEM) becomes the only authority trusted, as far as each client can be told.
    """
    environment = dict(os.environ if base is None else base)
    for name in CLEARED:
        environment.pop(name, None)
    for name in PROXY_VARIABLES:
        environment[name] = environment[name.lower()] = proxy_url
    environment["NO_PROXY"] = environment["no_proxy"] = ""
    for name in CA_VARIABLES:
        environment[name] = str(ca_path)
    if (settings := _wget_settings(Path(ca_path), environment)) is not None:
        environment["WGETRC"] = str(settings)
    environment["NODE_USE_ENV_PROXY"] = "1"
    environment["NODE_OPTIONS"] = _node_options(environment.get("NODE_OPTIONS", ""))
    return environment


def _wget_settings(ca_path: Path, environment: Mapping[str, str]) -> Path | None:
    """Settings of wget that trust our authority; None where they would take the place of the user's own."""
    from proxy.wire.certificates import WGETRC_FILE  # loads cryptography

    home = environment.get("HOME") or os.path.expanduser("~")
    if "WGETRC" in environment or "WGETRC" in os.environ or Path(home, ".wgetrc").exists():
        return None
    settings = ca_path.with_name(WGETRC_FILE)
    return settings if settings.exists() else None


def run_command(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs a command to its end and gives its exit code (128 + n when signal n ended it).

    Ctrl-C reaches the command by itself (same terminal); we wait for it to finish. A command that isn't there
    or can't be run is a UsageError.
    """
    child: subprocess.Popen[bytes] | None = None
    with _interrupts_left_to_the_command():
        try:
            with _signals_held_back():
                try:
                    child = subprocess.Popen(list(command), env=dict(environment))
                except OSError as e:
                    raise UsageError(f"{command[0]}: can't be run ({e.strerror})") from e
            code = child.wait()
        except BaseException:
            if child is not None:
                child.send_signal(signal.SIGTERM)
                child.wait()
            raise
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _interrupts_left_to_the_command() -> Iterator[None]:
    """Ctrl-C does nothing here meanwhile. A KeyboardInterrupt in `wait` could lose the exit code just got."""
    if threading.current_thread() is not threading.main_thread():
        yield  # no signal is handled on this thread
        return
    before = signal.signal(signal.SIGINT, lambda *_: None)  # not SIG_IGN, which the command would inherit
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _signals_held_back() -> Iterator[None]:
    """What ends us comes a moment later: a command that is just being started would be left behind."""
    came: list[int] = []
    # neither ignored nor blocked, which the command would inherit
    with hearing(heard_signals(), lambda number, _: came.append(number)):
        yield
    for number in came:
        signal.raise_signal(number)


def _node_options(present: str) -> str:
    script = str(NODE_SCRIPT).replace("\\", "\\\\").replace('"', '\\"')
    ours = f'--require "{script}"'
    return present if ours in present else f"{present} {ours}".strip()
