"""A certificate authority, and a time-stamp authority on loopback that openssl answers for."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

CONFIG = """
[tsa]
default_tsa = one
[one]
serial = {folder}/serial
signer_cert = {folder}/tsa.pem
certs = {folder}/root.pem
signer_key = {folder}/tsa.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256, sha512
"""


def issued(folder: Path, name: str, *, usage: Any = None, domain: str = "") -> Path:
    """A P-384 key (NAME.key) and its certificate (NAME.pem), issued by root.pem, which is made where it is missing."""
    key = ec.generate_private_key(ec.SECP384R1())
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    root = name == "root"
    if not root and not (folder / "root.pem").exists():
        issued(folder, "root")
    above = key if root else serialization.load_pem_private_key((folder / "root.key").read_bytes(), None)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "root")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(
        issuer,
        subject,
        key.public_key(),
        x509.random_serial_number(),
        now - timedelta(days=1),
        now + timedelta(days=9),
    )
    made = made.add_extension(x509.BasicConstraints(ca=root, path_length=None), critical=root)
    made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    theirs = above.public_key()  # type: ignore[union-attr]
    made = made.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(theirs), critical=False)  # type: ignore[arg-type]
    signs, certifies = not root, root
    made = made.add_extension(
        x509.KeyUsage(signs, False, False, False, False, certifies, certifies, False, False), critical=True
    )
    if usage is not None:
        timestamping = usage == x509.ExtendedKeyUsageOID.TIME_STAMPING
        made = made.add_extension(x509.ExtendedKeyUsage([usage]), critical=timestamping)
    if domain:
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(domain)]), critical=False)
    path = folder / f"{name}.pem"
    path.write_bytes(made.sign(above, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))  # type: ignore[arg-type]
    return path


@contextmanager
def timestamps(folder: Path) -> Iterator[str]:
    """The URL of a time-stamp authority, whose certificate root.pem of the folder issued."""
    issued(folder, "tsa", usage=x509.ExtendedKeyUsageOID.TIME_STAMPING)
    (folder / "serial").write_text("01")
    (folder / "tsa.cnf").write_text(CONFIG.format(folder=folder))

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            return

        def do_POST(self) -> None:
            (folder / "query").write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
            words = ["openssl", "ts", "-reply", "-config", folder / "tsa.cnf", "-queryfile", folder / "query"]
            data = subprocess.run(words, capture_output=True, check=True).stdout
            self.send_response(200)
            self.send_header("Content-Type", "application/timestamp-reply")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
