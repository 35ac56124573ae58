"""The CA certificate in the formats of clients that ignore `SSL_CERT_FILE`, in files beside the PEM file.

They are a wgetrc (for wget built with GnuTLS), a directory with a php.ini, and a Java trust store.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import struct
from pathlib import Path

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


def told_files(pem: Path, content: bytes) -> dict[Path, bytes]:
    """Map each of those files to its content, for the authorities `content` (PEM) in the file `pem`."""
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
    return data + hashlib.sha1(salted, usedforsecurity=False).digest()


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()
