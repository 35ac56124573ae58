"""The secrets that a recording learned, kept until what it stored has been looked through for them.

A recording that is killed looks through nothing: sealing does it then, with what is kept here. It lies in the open
snapshot's directory, encrypted with a key that is derived from the user's master key, which isn't there; whoever has looked
through deletes it. Its name is hidden, so that it is no part of a snapshot.
"""

from __future__ import annotations

import base64
import hmac
import os
from pathlib import Path

FILE = "stillweb/.learned"


class Learned:
    """What is kept in a snapshot's directory. `key` is the one that its pseudonyms are made with."""

    def __init__(self, snapshot: Path, key: bytes) -> None:
        from cryptography.fernet import Fernet  # it takes time to load, and replay keeps nothing

        self._path = snapshot / FILE
        own = hmac.digest(key, b"stillweb learned secrets v1", "sha256")
        self._cipher = Fernet(base64.urlsafe_b64encode(own))

    def keep(self, secret: str) -> None:
        """Adds one, or raises OSError with nothing added."""
        line = self._cipher.encrypt(secret.encode()) + b"\n"
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "ab", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            try:
                while line:  # a disk that fills up takes what fits
                    line = line[file.write(line) :]
            except OSError:
                file.truncate(size)
                raise

    def read(self) -> tuple[list[str], bool]:
        """The secrets, and whether these are all: others may have been kept with another key, or the last one in part."""
        from cryptography.fernet import InvalidToken

        found, whole = [], True
        for line in self._path.read_bytes().splitlines() if self._path.exists() else ():
            try:
                found.append(self._cipher.decrypt(line).decode())
            except InvalidToken:
                whole = False
        return found, whole

    def forget(self) -> None:
        """Deletes all of them."""
        self._path.unlink(missing_ok=True)
