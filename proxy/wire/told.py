"""An authority in the forms in which clients are told of it that read no variable for its PEM file: files beside that.

A file of settings for wget (where it is built with GnuTLS), a directory of them for PHP, a trust store for Java.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import struct
from pathlib import Path

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
# Java's own format, which each Java reads: https://docs.oracle.com/javase/8/docs/technotes/guides/security/crypto/CryptoSpec.html
_JKS_MAGIC, _JKS_VERSION, _TRUSTED = 0xFEEDFEED, 2, 2
_WHITENER = b"Mighty Aphrodite"  # what the format mixes into its digest
JAVA_PASSWORD = "changeit"  # Java's usual one; it keeps nothing secret


def wget_settings(pem: Path) -> Path:
    """Where wget's settings are."""
    return pem.with_suffix(".wgetrc")


def php_settings(pem: Path) -> Path:
    """The directory with PHP's settings."""
    return pem.with_suffix(".php")


def java_store(pem: Path) -> Path:
    """Where Java's trust store is."""
    return pem.with_suffix(".jks")


def told_files(pem: Path, content: bytes) -> dict[Path, bytes]:
    """What those files hold for authorities in PEM form, which are or will be in the file `pem`."""
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
        created = 0  # the same authorities make the same file
        data += struct.pack(">I", _TRUSTED) + _text(f"stillweb-{number}") + struct.pack(">Q", created)
        data += _text("X.509") + struct.pack(">I", len(der)) + der
    salted = JAVA_PASSWORD.encode("utf-16-be") + _WHITENER + data
    return data + hashlib.sha1(salted, usedforsecurity=False).digest()


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()
