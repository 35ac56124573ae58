"""Keys of pseudonyms, the secrets that an open recording has learned, and the proofs in which pseudonyms end.

A snapshot's key is derived from the user's master key and from a salt that the snapshot carries.

A recording that is killed looks through nothing: sealing does it then, with the secrets in `Learned`. They lie in the open
snapshot's directory, encrypted with a key that is derived from the master key, which isn't there; whoever has looked
through deletes them. The file's name is hidden, so that it is no part of a snapshot.

A pseudonym ends in `k`, six hex digits of salt and five of a slow hash (20 bits): its proof. Whoever replays a snapshot,
with or without the key that made its pseudonyms, can so say whether a password is the recorded one; another one passes
once in a million times. What it gives away: who has the snapshot can throw out all but a millionth of his guesses, at some
30 ms and 16 MB (scrypt, RFC 7914, N = 2^14, r = 8) for each. A password from a short list can be found that way; one that
is on no list can't, since a million times too many still fit. For what was drawn at random the hash is a quick one: 20
bits of 128 help nobody.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import secrets
from functools import lru_cache
from pathlib import Path

from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.secrets.detect import looks_random

LEARNED = "stillweb/.learned"
SALT, DIGITS = 6, 5  # hex digits of a proof
COST = {"n": 1 << 14, "r": 8, "p": 1}
DRAWN = 20  # characters from which a value that looks random is as good as one

_TAIL = re.compile(r"k([0-9a-f]{6})([0-9a-f]{5})\Z")


def state_dir() -> Path:
    """Return the directory of this user's key and certificate authority: `$STILLWEB_STATE`, else the platform's."""
    override = os.environ.get("STILLWEB_STATE")
    if override:
        return Path(override)
    import platformdirs  # only whoever has no other

    return platformdirs.user_state_path("stillweb")


def salt_of(snapshot: Path) -> str:
    """Return the salt of an open snapshot directory, in its `stillweb/redaction.json`; made if missing.

    Raises DamagedInput for a file without one.
    """
    # py-wacz takes files beside datapackage.json for unlisted
    path = snapshot / "stillweb" / "redaction.json"
    path.parent.mkdir(exist_ok=True)
    try:
        return str(json.loads(path.read_text())["salt"])
    except FileNotFoundError:
        salt = secrets.token_hex(16)
        temporary = path.with_name(f".redaction-{os.getpid()}.json")
        temporary.write_text(json.dumps({"salt": salt, "version": 1}) + "\n")
        os.replace(temporary, path)
        return salt
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedInput(f"{path}: no salt in it; delete it to get new pseudonyms") from error


def snapshot_key(salt: str, directory: Path) -> bytes:
    """Return the key of the snapshot that carries `salt`; makes the user's master key in `directory` at first use.

    Raises DamagedInput when the file there is no such key, OSError when it can't be read or written.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = directory / "redaction.key"
    try:
        # linked into place whole, so that two processes that start together agree on one key
        temporary = directory / f".redaction-{os.getpid()}-{secrets.token_hex(4)}"
        if not path.exists():
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_hex(32).encode() + b"\n")
            try:
                os.link(temporary, path)
            finally:
                temporary.unlink()
    except FileExistsError:
        pass  # another process was first
    text = path.read_bytes().strip()
    if not re.fullmatch(rb"[0-9a-f]{64}", text):
        raise DamagedInput(f"{path}: not a redaction key (64 hex digits); delete it to get a new one")
    return hmac.digest(bytes.fromhex(text.decode()), b"stillweb snapshot key v1\n" + salt.encode(), "sha256")


class Learned:
    """Secrets in a file of a snapshot's or a run's directory, encrypted with the key that makes their pseudonyms."""

    def __init__(self, directory: Path, key: bytes, name: str = LEARNED) -> None:
        from cryptography.fernet import Fernet  # it takes time to load, and replay keeps nothing

        self._path = directory / name
        own = hmac.digest(key, b"stillweb learned secrets v1", "sha256")
        self._cipher = Fernet(base64.urlsafe_b64encode(own))

    def keep(self, secret: str) -> None:
        """Add a secret, or raise OSError with nothing added."""
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
        """Return the secrets, and whether these are all: another key may have kept some, or the last one in part."""
        from cryptography.fernet import InvalidToken

        found, whole = [], True
        for line in self._path.read_bytes().splitlines() if self._path.exists() else ():
            try:
                found.append(self._cipher.decrypt(line).decode())
            except InvalidToken:
                whole = False
        return found, whole

    def forget(self) -> None:
        """Delete all of them."""
        self._path.unlink(missing_ok=True)


def proof_tail(secret: str, key: bytes) -> str:
    """Return the end of a pseudonym made with `key`."""
    salt = hmac.digest(key, b"salt of proofs", "sha256").hex()[:SALT]
    return f"k{salt}{proof_of(secret, salt)}"


def split(pseudonym: str) -> tuple[str, str] | None:
    """Return the salt and proof of a pseudonym; None for one that has none, as those of older snapshots."""
    found = _TAIL.search(pseudonym)
    return (found[1], found[2]) if found else None


@lru_cache(maxsize=1024)
def proof_of(secret: str, salt: str) -> str:
    """Return the digits that prove a secret; takes about 30 ms for one that somebody may have chosen."""
    text, mixed = secret.encode("utf-8", "surrogatepass"), b"stillweb proof 1\n" + salt.encode()
    if len(secret) >= DRAWN and looks_random(secret):
        return hmac.digest(mixed, text, "sha256").hex()[:DIGITS]
    return hashlib.scrypt(text, salt=mixed, maxmem=1 << 26, dklen=16, **COST).hex()[:DIGITS]
