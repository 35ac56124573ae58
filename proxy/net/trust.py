"""The authorities that may certify origins: the usual ones, the system's, and those requested."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import certifi

from stillweb.snapshots.errors import UsageError


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
            # load it as it is loaded later, to report errors now
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
        except ssl.SSLError as e:
            raise UsageError(f"{path}: holds no certificate in PEM form") from e
        except OSError as e:
            raise UsageError(f"{path}: can't be read ({e.strerror})") from e
        parts.append(content)
    return b"\n".join(parts)


def system_directory() -> str | None:
    """Return the system's directory of trusted certificates; None if there is none.

    Companies add their authorities there.
    """
    path = ssl.get_default_verify_paths().capath
    return path if path and os.path.isdir(path) else None
