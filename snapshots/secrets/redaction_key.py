"""The key that makes pseudonyms: derived from the user's master key and from a salt that the snapshot carries."""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
from pathlib import Path

from stillweb.snapshots.errors import DamagedInput


def state_dir() -> Path:
    """Where this user's key and certificate authority live: `$STILLWEB_STATE`, else the platform's state directory."""
    override = os.environ.get("STILLWEB_STATE")
    if override:
        return Path(override)
    import platformdirs  # only whoever has no other

    return platformdirs.user_state_path("stillweb")


def salt_of(snapshot: Path) -> str:
    """The salt of an open snapshot directory, in its `stillweb/redaction.json`; made if missing.

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
    """The key of the snapshot that carries `salt`; makes the user's master key in `directory` at first use.

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
