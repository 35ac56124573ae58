"""The certificate authority and its certificates of hosts, and the certificates of clients."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
import ssl
import sys
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import ada_url
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from stillweb.proxy.net.client_env import trust_store_files
from stillweb.snapshots.errors import DamagedInput, MissingCapability, UsageError
from stillweb.snapshots.secrets.keystore import AUTHORITY, state_dir


def client_certificates(asked: Path) -> str:
    """Return the path of a client's certificate, or of a directory of them, if each file can be used.

    OpenSSL drops a key of another certificate without a word and asks the terminal for the password of an encrypted
    one. Raises UsageError.
    """
    for path in sorted(asked.glob("*.pem")) if asked.is_dir() else [asked]:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(path, password="")
        except ssl.SSLError as e:
            raise UsageError(
                f"{path}: no client certificate with its key. Name a PEM file of both, the key without a password"
            ) from e
        except OSError as e:
            raise UsageError(f"{path}: can't be read ({e.strerror})") from e
    return str(asked)


def system_directory() -> str | None:
    """Return the system's directory of trusted certificates; None if there is none.

    Companies add their authorities there.
    """
    path = ssl.get_default_verify_paths().capath
    return path if path and os.path.isdir(path) else None


KEY_FILE = AUTHORITY  # where mitmproxy looks for it
CERTIFICATE_FILE = "stillweb-ca.pem"
CA_DAYS = 3650
LEAF_DAYS = 90
# Leaves start in the past, for programs whose clock is set to the time of the recording. Apple's clients refuse a leaf
# that is valid for more than 825 days in all; others have no limit for private authorities.
EARLIER_DAYS = 700 if sys.platform == "darwin" else CA_DAYS
RENEW_DAYS = 30  # a leaf or an authority that expires sooner is replaced
CACHED_CONTEXTS = 4096


class Authority:
    """A certificate authority with its cache of TLS server contexts. Thread-safe."""

    def __init__(
        self, directory: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
    ) -> None:
        self.directory = directory
        self.certificate = certificate
        self._key = key
        # All leaves use the authority's own key, as in mitmproxy. Chromium is given the key's hash and accepts each
        # leaf by it. So the authority is not sent along, which would cost each side the decoding of a certificate.
        self._key_pem = _key_pem(key)
        self._form = _leaf_form(certificate)
        self._contexts: OrderedDict[tuple[str, tuple[str, ...]], tuple[ssl.SSLContext, x509.Certificate]] = (
            OrderedDict()
        )
        self._spare: ssl.SSLContext | None = None
        self._lock = threading.Lock()

    @classmethod
    def load_or_create(cls, directory: Path | None = None) -> Authority:
        """Load the authority in `directory` (default `state_dir()`), or create it on first use.

        An authority is replaced if it has expired or soon will, or is not valid yet (made while the clock was
        ahead). A key file that others can read gets mode 0600 again. Raises UsageError if the key file
        belongs to another user, DamagedInput if it holds no usable key, and MissingCapability if the
        directory can't be written.
        """
        directory = directory or state_dir()
        path = directory / KEY_FILE
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not path.exists():
                _write_new(path, _new_authority())
            _guard(path)
            key, certificate = _read(path)
            if not _in_force(certificate):
                path.unlink()
                _write_new(path, _new_authority())
                key, certificate = _read(path)
            public = certificate.public_bytes(serialization.Encoding.PEM)
            public_path = directory / CERTIFICATE_FILE
            for kept, content in {public_path: public, **trust_store_files(public_path, public)}.items():
                if not kept.exists() or kept.read_bytes() != content:
                    kept.parent.mkdir(exist_ok=True)
                    _replace(kept, content)
        except OSError as e:
            raise MissingCapability(
                f"{directory}: the certificate authority can't be stored there ({e.strerror or e}); "
                "set STILLWEB_STATE to a directory that can be written"
            ) from e
        return cls(directory, key, certificate)

    @property
    def certificate_path(self) -> Path:
        """Return the file with the authority's certificate alone (PEM), for clients to trust."""
        return self.directory / CERTIFICATE_FILE

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def context_for(self, host: str, alpn: tuple[str, ...] = ("http/1.1",)) -> ssl.SSLContext:
        """Return a server context with a certificate for `host` (a name, an IDN or an IP literal).

        Contexts are cached, so a host's session tickets resume. `alpn` are the protocols offered, best first;
        a host has one context for each `alpn`. Raises UsageError for an impossible name.
        """
        slot = (normal_host(host), alpn)
        with self._lock:
            known = self._contexts.get(slot)
            if known is not None and _in_force(known[1]):
                self._contexts.move_to_end(slot)
                return known[0]
            context = self._spare or _blank()
            self._spare = None
        if alpn:
            context.set_alpn_protocols(list(alpn))
        leaf = self.mint(slot[0])
        with _readable(leaf + self._key_pem) as path:
            context.load_cert_chain(path)
        with self._lock:
            # if two threads made a context at once, all callers get the first
            known = self._contexts.get(slot)
            if known is not None and _in_force(known[1]):
                return known[0]
            self._contexts[slot] = (context, x509.load_pem_x509_certificate(leaf))
            while len(self._contexts) > CACHED_CONTEXTS:
                self._contexts.popitem(last=False)
        return context

    def spare(self) -> None:
        """Prepare the next context, an eighth of its cost. Call it while waiting for clients."""
        if self._spare is None:
            self._spare = _blank()

    def mint(self, host: str) -> bytes:
        """Issue a leaf certificate for `host`, as PEM. Its key is the authority's own."""
        name = normal_host(host)
        now = datetime.now(UTC)
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)] if len(name) < 64 else []
        return (
            self._form.subject_name(x509.Name(subject))
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=EARLIER_DAYS))
            .not_valid_after(now + timedelta(days=LEAF_DAYS))
            # RFC 5280, 4.2.1.6: critical when the subject is empty.
            .add_extension(x509.SubjectAlternativeName([_general_name(name)]), critical=not subject)
            .sign(self._key, hashes.SHA256())
            .public_bytes(serialization.Encoding.PEM)
        )


def _in_force(certificate: x509.Certificate) -> bool:
    """Return True if a certificate is valid now and for at least RENEW_DAYS more."""
    now = datetime.now(UTC)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return begin <= now <= end - timedelta(days=RENEW_DAYS)


def _blank() -> ssl.SSLContext:
    """Return a server context without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    # each ticket slows the handshake, and clients open more connections than they resume
    context.num_tickets = 1
    return context


def normal_host(host: str) -> str:
    """Return a host as written in a certificate: lower case, IDN in ASCII, IPv6 without brackets.

    Raises UsageError for an impossible name.
    """
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    address = _address(bare)
    if address is not None:
        return str(address)
    bare = bare.rstrip(".").lower()
    if not bare.isascii():
        bare = ada_url.idna.encode(bare).decode("ascii")
    if not bare or len(bare) > 253 or not bare.isprintable() or " " in bare:
        raise UsageError(f"{host!r} is not a host name that a certificate can be made for")
    return bare


def _general_name(name: str) -> x509.GeneralName:
    address = _address(name)
    return x509.DNSName(name) if address is None else x509.IPAddress(address)


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    if ":" not in name and not name[-1:].isdigit():
        return None  # the exception would take five times as long
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _leaf_form(authority: x509.Certificate) -> x509.CertificateBuilder:
    """Return a builder with the fields that all leaves share."""
    issuer = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        x509.CertificateBuilder()
        .issuer_name(authority.subject)
        .public_key(authority.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
    )


def _key_usage(*, digital_signature: bool = False, signs_certificates: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _new_authority() -> bytes:
    """Return a new P-256 key and its self-signed certificate, both as PEM, key first."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    # A random part in the name distinguishes the authorities of two machines in a trust store.
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, f"Stillweb {secrets.token_hex(4)}"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Stillweb (local, this user only)"),
        ]
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=CA_DAYS))
        .not_valid_after(now + timedelta(days=CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _key_pem(key) + certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _read(path: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    raw = path.read_bytes()
    try:
        key = serialization.load_pem_private_key(raw, None)
        certificate = x509.load_pem_x509_certificate(raw)
    except (ValueError, TypeError, UnsupportedAlgorithm) as e:
        raise DamagedInput(
            f"{path}: no readable key and certificate ({e}); delete it to get a new one"
        ) from e
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise DamagedInput(f"{path}: its certificate is not for its key; delete it to get a new one")
    return key, certificate


def _guard(path: Path) -> None:
    """Make the key file private. Raises UsageError if it belongs to another user."""
    status = path.stat()
    if status.st_uid != os.getuid():
        raise UsageError(f"{path}: belongs to another user (uid {status.st_uid}); set STILLWEB_STATE")
    if status.st_mode & 0o077:
        path.chmod(0o600)


def _write_new(path: Path, content: bytes) -> None:
    """Write a private file atomically; if another process was faster, its file stays."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    _write_private(draft, content)
    try:
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def _write_private(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def _replace(path: Path, content: bytes) -> None:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    draft.write_bytes(content)
    draft.chmod(0o644)
    draft.replace(path)


@contextlib.contextmanager
def _readable(content: bytes) -> Iterator[str]:
    """Yield a path to `content`, since ssl loads keys from files only."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("stillweb", os.MFD_CLOEXEC)  # in memory: the key never reaches the disk
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "leaf.pem"
            _write_private(path, content)
            yield str(path)
