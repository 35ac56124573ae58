"""Client set-up: an environment that sends a command's traffic through our proxy.

The variables make clients trust *only* our authority. All traffic goes through the proxy, so no other
certificate is ever presented, and a client that bypasses the proxy fails instead of going unrecorded.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from stillweb.proxy.java import java_past, java_proxy, java_trust, with_properties
from stillweb.proxy.net.told import java_store, php_settings, wget_settings
from stillweb.snapshots._os.signals import heard_signals, hearing
from stillweb.snapshots.errors import MissingCapability, UsageError

NODE_SCRIPT = Path(__file__).with_name("node_proxy.cjs")

# variable -> programs that read it
CA_VARIABLES = {
    "SSL_CERT_FILE": "OpenSSL: Python's ssl, httpx, Ruby, wget, Rust's native-tls; Go",
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
# Variables that would add other certificates, or disable verification.
CLEARED = ("SSL_CERT_DIR", "NODE_TLS_REJECT_UNAUTHORIZED", "GIT_SSL_NO_VERIFY", "GIT_PROXY_SSL_CAINFO")
# Turns off the update checks of runtimes and package managers: they happen on some days only, and replay would miss.
QUIET = {
    "DENO_NO_UPDATE_CHECK": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "npm_config_update_notifier": "false",
}
# ftp_proxy and similar variables stay: an HTTP proxy can't serve those protocols.
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "WS_PROXY", "WSS_PROXY")


def client_environment(
    proxy_url: str, ca_path: Path | str, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return an environment that sends a command through the proxy at `proxy_url`.

    It is a copy of `base` (default: this process's). Proxy variables are set in upper and lower case,
    `NO_PROXY` is emptied so that not even localhost bypasses the proxy, and `ca_path` (PEM) becomes the only
    trusted authority, as far as each client can be configured.
    """
    environment = dict(os.environ if base is None else base)
    for name in CLEARED:
        environment.pop(name, None)
    for name in PROXY_VARIABLES:
        environment[name] = environment[name.lower()] = proxy_url
    environment["NODE_USE_ENV_PROXY"] = "1"
    environment["NODE_OPTIONS"] = _node_options(environment.get("NODE_OPTIONS", ""))
    environment |= QUIET
    return past(trusting(with_properties(environment, java_proxy(proxy_url)), Path(ca_path)), ())


def trusting(environment: Mapping[str, str], ca_path: Path) -> dict[str, str]:
    """Return an environment that trusts the authorities in `ca_path`, by every setting in `wire.told`."""
    # an earlier bundle of ours, whose settings are replaced
    before = Path(environment.get("SSL_CERT_FILE") or os.devnull)
    changed = {**environment, **dict.fromkeys(CA_VARIABLES, str(ca_path))}
    if wget_settings(ca_path).exists() and not _has_wget_settings(environment, before):
        changed["WGETRC"] = str(wget_settings(ca_path))
    if php_settings(ca_path).exists():
        # an empty part means PHP's built-in directory
        parts = environment.get("PHP_INI_SCAN_DIR", "").split(os.pathsep)
        parts = [
            part for part in parts if part not in (str(php_settings(before)), str(php_settings(ca_path)))
        ]
        changed["PHP_INI_SCAN_DIR"] = os.pathsep.join([*parts, str(php_settings(ca_path))])
    if java_store(ca_path).exists():
        changed = with_properties(changed, java_trust(java_store(ca_path)))
    return changed


def client_files(environment: Mapping[str, str]) -> list[Path]:
    """Return the files named in an environment of `client_environment`, libraries in LD_PRELOAD included."""
    pem = Path(environment.get("SSL_CERT_FILE") or os.devnull)
    found = [pem, wget_settings(pem), php_settings(pem), java_store(pem), NODE_SCRIPT]
    found += [Path(name) for name in environment.get("LD_PRELOAD", "").split(":") if name]
    return [path for path in found if path.exists() and path != Path(os.devnull)]


def past(environment: Mapping[str, str], hosts: Sequence[str]) -> dict[str, str]:
    """Return an environment in which only these hosts bypass the proxy."""
    return with_properties(
        {**environment, **dict.fromkeys(("NO_PROXY", "no_proxy"), ",".join(hosts))}, java_past(hosts)
    )


def _has_wget_settings(environment: Mapping[str, str], before: Path) -> bool:
    """Return True if the user has a wgetrc, which ours would replace."""
    home = environment.get("HOME") or os.path.expanduser("~")
    named = environment.get("WGETRC") or os.environ.get("WGETRC")
    return Path(home, ".wgetrc").exists() or named not in (None, "", str(wget_settings(before)))


_SHORT = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}


def run_command(command: Sequence[str], environment: Mapping[str, str], files: Sequence[int] = ()) -> int:
    """Run a command to its end and return its exit code (128 + n if signal n ended it).

    It inherits the open `files`. Ctrl-C reaches the command by itself (same terminal); this process waits for
    it to finish. Raises UsageError if the command doesn't exist or can't be run, and MissingCapability if
    files, memory or processes are short.
    """
    child: subprocess.Popen[bytes] | None = None
    with _interrupts_left_to_the_command():
        try:
            with _signals_held_back():
                try:
                    child = subprocess.Popen(list(command), env=dict(environment), pass_fds=files)
                except OSError as e:
                    kind = MissingCapability if e.errno in _SHORT else UsageError
                    raise kind(f"{command[0]}: can't be run ({e.strerror})") from e
            code = child.wait()
        except BaseException:
            if child is not None:
                child.send_signal(signal.SIGTERM)
                child.wait()
            raise
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _interrupts_left_to_the_command() -> Iterator[None]:
    """Ignore Ctrl-C in this process: a KeyboardInterrupt in `wait` could lose the exit code just read."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread handles signals
        return
    before = signal.signal(signal.SIGINT, lambda *_: None)  # not SIG_IGN, which the command would inherit
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _signals_held_back() -> Iterator[None]:
    """Delay terminating signals: a command that is just being started would be left running."""
    came: list[int] = []
    # a handler, since the command would inherit ignored or blocked signals
    with hearing(heard_signals(), lambda number, _: came.append(number)):
        yield
    for number in came:
        signal.raise_signal(number)


def _node_options(present: str) -> str:
    script = str(NODE_SCRIPT).replace("\\", "\\\\").replace('"', '\\"')
    ours = f'--require "{script}"'
    return present if ours in present else f"{present} {ours}".strip()
