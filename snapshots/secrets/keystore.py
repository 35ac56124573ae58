"""Keys of pseudonyms, the secrets that an open recording has learned, and the proofs at the end of pseudonyms.

A snapshot's key is derived from the user's master key and from a salt that the snapshot carries.

At its end, a recording is searched for secrets that were learned late. If it is killed first, sealing does that, with
the secrets in `SecretFile`. They are stored in the open snapshot's directory, encrypted with a key that is derived from
the master key, which isn't stored there, and are deleted after the search. The file's name begins with a dot, so that
it is no part of a snapshot.

A pseudonym ends in its proof: `k`, six hex digits of salt and five of a slow hash (20 bits). With it, anyone who
replays a snapshot, with or without the key of its pseudonyms, can test whether a password is the recorded one. A wrong
one passes once in a million times. So whoever has the snapshot can rule out all but a millionth of his guesses, at
some 30 ms and 16 MB (scrypt, RFC 7914, N = 2^14, r = 8) each. A password from a short list can be found that way; a
password that is on no list can't, since far too many guesses still fit. For random values the hash is a quick one: 20
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
from pathlib import Path

from stillweb.snapshots.cache import cached
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.secrets.detect import looks_random

LEARNED = "stillweb/.learned"
SALT, DIGITS = 6, 5  # hex digits of a proof
COST = {"n": 1 << 14, "r": 8, "p": 1}
DRAWN = 20  # characters from which a value that looks random is taken for one

_TAIL = re.compile(r"k([0-9a-f]{6})([0-9a-f]{5})\Z")


KEY_FILES = (MASTER, AUTHORITY) = ("redaction.key", "mitmproxy-ca.pem")  # in the state directory


def state_dir() -> Path:
    """Return the directory of this user's key and certificate authority: `$STILLWEB_STATE`, else the platform's."""
    override = os.environ.get("STILLWEB_STATE")
    if override:
        return Path(override)
    import platformdirs  # imported late: not needed if `$STILLWEB_STATE` is set

    return platformdirs.user_state_path("stillweb")


def salt_of(snapshot: Path) -> str:
    """Return the salt of an open snapshot directory, in its `stillweb/redaction.json`; make it if missing.

    Raises DamagedInput if the file has no salt.
    """
    # not beside datapackage.json, where py-wacz reports it as an unlisted file
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
    """Return the key of the snapshot that carries `salt`; make the user's master key in `directory` at first use.

    Raises DamagedInput if the file there is no master key, OSError if it can't be read or written.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = directory / MASTER
    try:
        # written elsewhere and linked into place, so that two processes that start together agree on one key
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


class SecretFile:
    """Encrypted file of secrets in a snapshot's or a run's directory; `key` is that of the pseudonyms."""

    def __init__(self, directory: Path, key: bytes, name: str = LEARNED) -> None:
        from cryptography.fernet import Fernet  # imported late: it loads slowly, and replay stores no secrets

        self._path = directory / name
        own = hmac.digest(key, b"stillweb learned secrets v1", "sha256")
        self._cipher = Fernet(base64.urlsafe_b64encode(own))

    def keep(self, secret: str) -> None:
        """Append a secret; on OSError nothing is added."""
        line = self._cipher.encrypt(secret.encode()) + b"\n"
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "ab", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            try:
                while line:  # a full disk may take a part of the line before it raises
                    line = line[file.write(line) :]
            except OSError:
                file.truncate(size)
                raise

    def read(self) -> tuple[list[str], bool]:
        """Return the secrets, and True if these are all.

        False: some lines were written with another key, or the last one only in part.
        """
        from cryptography.fernet import InvalidToken

        found, whole = [], True
        for line in self._path.read_bytes().splitlines() if self._path.exists() else ():
            try:
                found.append(self._cipher.decrypt(line).decode())
            except InvalidToken:
                whole = False
        return found, whole

    def forget(self) -> None:
        """Delete the file."""
        self._path.unlink(missing_ok=True)


def proof_tail(secret: str, key: bytes) -> str:
    """Return the proof at the end of a pseudonym made with `key`: `k`, salt and hash."""
    salt = hmac.digest(key, b"salt of proofs", "sha256").hex()[:SALT]
    return f"k{salt}{proof_of(secret, salt)}"


def split(pseudonym: str) -> tuple[str, str] | None:
    """Return salt and hash in a pseudonym's proof; None if it has none, as in older snapshots."""
    found = _TAIL.search(pseudonym)
    return (found[1], found[2]) if found else None


def has_quick_proof(secret: str) -> bool:
    """Return True if the proof of a secret is a quick one, as nobody chose it."""
    return len(secret) >= DRAWN and looks_random(secret)


@cached
def proof_of(secret: str, salt: str) -> str:
    """Return the hash of a secret for its proof; it takes about 30 ms for a secret that somebody may have chosen."""
    text, mixed = secret.encode("utf-8", "surrogatepass"), b"stillweb proof 1\n" + salt.encode()
    if has_quick_proof(secret):
        return hmac.digest(mixed, text, "sha256").hex()[:DIGITS]
    return hashlib.scrypt(text, salt=mixed, maxmem=1 << 26, dklen=16, **COST).hex()[:DIGITS]
