"""Environment variables that send a client program's traffic through a proxy and make it trust the CA.

Java gets them as system properties, in a variable that every JVM reads (and reports on stderr).
java.net.http, HttpURLConnection, OkHttp and libraries built on them use these properties; Apache HttpClient
does if it is configured to use system properties. None of them sends proxy credentials by properties.
Clients that ignore `SSL_CERT_FILE` read files beside the PEM file: a wgetrc (for wget built with GnuTLS), a
directory with a php.ini, a Java trust store. Loading this module loads no cryptography, which takes 60 ms.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha1, sha256
from pathlib import Path
from urllib.parse import urlsplit

import certifi

from stillweb.proxy.net.addresses import on_this_machine
from stillweb.snapshots._os.signals import handle_signals, installed_handlers
from stillweb.snapshots.errors import MissingCapability, UsageError
from stillweb.snapshots.warc.appending import write_whole

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
# JKS, which every Java reads: https://docs.oracle.com/javase/8/docs/technotes/guides/security/crypto/CryptoSpec.html
_JKS_MAGIC, _JKS_VERSION, _TRUSTED = 0xFEEDFEED, 2, 2
_WHITENER = b"Mighty Aphrodite"  # salt of the format's digest
JAVA_PASSWORD = "changeit"  # Java's default password; the store holds no secret


def wget_settings(pem: Path) -> Path:
    """Return the path of the wgetrc."""
    return pem.with_suffix(".wgetrc")


def php_settings(pem: Path) -> Path:
    """Return the directory with the php.ini."""
    return pem.with_suffix(".php")


def java_store(pem: Path) -> Path:
    """Return the path of the Java trust store."""
    return pem.with_suffix(".jks")


def trust_store_files(pem: Path, content: bytes) -> dict[Path, bytes]:
    """Map each of the files beside `pem` to its content, for the authorities `content` (PEM) in it."""
    place = str(pem.absolute())
    php = f'curl.cainfo="{place}"\nopenssl.cafile="{place}"\n'
    return {
        wget_settings(pem): f"ca_certificate = {place}\n".encode(),
        php_settings(pem) / "stillweb.ini": php.encode(),
        java_store(pem): _jks(content),
    }


def _jks(pem: bytes) -> bytes:
    found = dict.fromkeys(_CERTIFICATE.findall(pem.decode("ascii", "replace")))
    data = struct.pack(">III", _JKS_MAGIC, _JKS_VERSION, len(found))
    for number, one in enumerate(found):
        der = ssl.PEM_cert_to_DER_cert(one)
        created = 0  # fixed, so that the same authorities give the same file
        data += struct.pack(">I", _TRUSTED) + _text(f"stillweb-{number}") + struct.pack(">Q", created)
        data += _text("X.509") + struct.pack(">I", len(der)) + der
    salted = JAVA_PASSWORD.encode("utf-16-be") + _WHITENER + data
    return data + sha1(salted, usedforsecurity=False).digest()


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


VARIABLE = "JAVA_TOOL_OPTIONS"


def java_proxy(proxy_url: str) -> dict[str, str]:
    at = urlsplit(proxy_url)
    return {
        f"{scheme}.proxy{part}": str(value)
        for scheme in ("http", "https")
        for part, value in (("Host", at.hostname), ("Port", at.port))
    }


def java_past(hosts: Sequence[str]) -> dict[str, str]:
    """Return the property of hosts that bypass the proxy.

    Java takes no ports there. An empty list means that no host bypasses it, not even localhost.
    """
    return {"http.nonProxyHosts": "|".join(dict.fromkeys(re.sub(r":\d+$", "", host) for host in hosts))}


def java_trust(store: Path) -> dict[str, str]:
    return {
        "javax.net.ssl.trustStore": str(store),
        "javax.net.ssl.trustStoreType": "JKS",
        "javax.net.ssl.trustStorePassword": JAVA_PASSWORD,
    }


def with_properties(environment: Mapping[str, str], properties: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with these Java properties in place of earlier values of the same ones."""
    present = environment.get(VARIABLE, "")
    words = []
    for name, value in properties.items():
        present = re.sub(rf"""-D{re.escape(name)}=(?:"[^"]*"|'[^']*'|[^\s"'])*\s*""", "", present)
        quote = "'" if '"' in value else '"'
        words.append(
            f"-D{name}={quote}{value}{quote}" if re.search(r"""[\s"'|]""", value) else f"-D{name}={value}"
        )
    return {**environment, VARIABLE: " ".join(filter(None, [present.strip(), *words]))}


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
    return with_no_proxy(with_trust(with_properties(environment, java_proxy(proxy_url)), Path(ca_path)), ())


def with_trust(environment: Mapping[str, str], ca_path: Path) -> dict[str, str]:
    """Return an environment that trusts the authorities in `ca_path`, by every setting in `trust_store_files`."""
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


def with_no_proxy(environment: Mapping[str, str], hosts: Sequence[str]) -> dict[str, str]:
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


def run_command(
    command: Sequence[str],
    environment: Mapping[str, str],
    files: Sequence[int] = (),
    *,
    started: Callable[[subprocess.Popen[bytes]], None] = lambda _: None,
) -> int:
    """Run a command to its end and return its exit code (128 + n if signal n ended it).

    It inherits the open `files`. `started` is called with its process. Ctrl-C reaches the command by itself (same terminal); this process waits for
    it to finish. Raises UsageError if the command doesn't exist or can't be run, and MissingCapability if
    files, memory or processes are short.
    """
    if isinstance(command, str) or not command:
        raise UsageError(f"the command {command!r}: must be a list of words, the program first")
    child: subprocess.Popen[bytes] | None = None
    with _interrupts_left_to_the_command():
        try:
            with _signals_held_back():
                try:
                    child = subprocess.Popen(list(command), env=dict(environment), pass_fds=files)
                except OSError as e:
                    kind = MissingCapability if e.errno in _SHORT else UsageError
                    raise kind(f"{command[0]}: can't be run ({e.strerror})") from e
            started(child)
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
    with handle_signals(installed_handlers(), lambda number, _: came.append(number)):
        yield
    for number in came:
        signal.raise_signal(number)


def _node_options(present: str) -> str:
    script = str(NODE_SCRIPT).replace("\\", "\\\\").replace('"', '\\"')
    ours = f'--require "{script}"'
    return present if ours in present else f"{present} {ours}".strip()


# A name or address, with or without a port, in the form of NO_PROXY.
_HOST = re.compile(r"(?:[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*|\[[0-9a-fA-F:.]+\])(?::([0-9]{1,5}))?")


def direct_hosts(values: Iterable[object]) -> tuple[str, ...]:
    """Return host names, optionally with a port, in lower case and sorted.

    Raises UsageError for anything else.
    """
    found = {str(value).lower() for value in values}
    for value in sorted(found):
        match = _HOST.fullmatch(value)
        if not match or int(match[1] or 1) > 65535:
            raise UsageError(f"{value!r} is not a host; write it as api.openai.com or 127.0.0.1:11434")
    return tuple(sorted(found))


def ports_to_let_in(hosts: Iterable[str]) -> list[tuple[str, int]]:
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


def add_no_proxy(environment: Mapping[str, str], hosts: Sequence[str]) -> dict[str, str]:
    """Return an environment of `clients.client_environment` in which `hosts` bypass the proxy.

    Raises as `trust.usual_authorities`.
    """
    changed = dict(environment)
    if not hosts or "SSL_CERT_FILE" not in changed:  # without SSL_CERT_FILE it has no proxy of ours
        return changed
    hosts = [*filter(None, changed.get("NO_PROXY", "").split(",")), *hosts]
    return with_trust(with_no_proxy(changed, hosts), with_usual(Path(changed["SSL_CERT_FILE"])))


def usual_authorities(asked: Path | None) -> bytes:
    """Return the usual authorities, those of SSL_CERT_FILE and those in `asked`, as PEM.

    Raises UsageError.
    """
    parts = [Path(certifi.where()).read_bytes()]
    named = os.environ.get("SSL_CERT_FILE")
    for path in (Path(named) if named else None, asked):
        if path is None or (path != asked and not path.is_file()):
            continue
        try:
            content = path.read_bytes()
            _check_loads(path, content)
        except ssl.SSLError as e:
            raise UsageError(f"{path}: holds no certificate in PEM form") from e
        except OSError as e:
            raise UsageError(f"{path}: can't be read ({e.strerror})") from e
        parts.append(content)
    return b"\n".join(parts)


@lru_cache(maxsize=8)
def _check_loads(path: Path, content: bytes) -> None:
    """Load a file of authorities as it is loaded later, to report errors now. A system's takes 20 ms."""
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)


def with_usual(ours: Path) -> Path:
    """Write a bundle of our authority and the usual ones beside ours; return its path.

    It is named by the hash of its content, so that an existing file never changes.
    """
    data = usual_authorities(ours)
    bundle = ours.with_name(f"stillweb-ca-and-usual-{sha256(data).hexdigest()[:16]}.pem")
    if not bundle.exists():
        # the bundle last, since its existence means that all files are there
        for path, content in {**trust_store_files(bundle, data), bundle: data}.items():
            path.parent.mkdir(exist_ok=True)
            write_whole(path, [content])
    return bundle
