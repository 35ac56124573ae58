"""Offline token counting, with vocabularies packaged in rs-bpe."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.extras import require

TOKENIZERS = ("o200k_base", "cl100k_base")
# A text with known ids in both vocabularies; its encoding identifies a vocabulary without reading its file.
_PROBE = "Stillweb \u2014 the web, held still. \u9759\u6b62\u7684\u7f51\u7edc \U0001f578 1234567890\n\tnaïve\u00a0café"


class Tokenizer:
    """Tokenizer that counts and encodes text in one vocabulary; counts are cached by the text's digest.

    `identity` is "name:sha256 of the ids of a fixed probe text". It changes with the vocabulary and the way
    text is split, not with the package that carries them.
    """

    def __init__(self, name: str) -> None:
        if name not in TOKENIZERS:
            raise UsageError(f"no tokenizer {name!r}; known are {', '.join(TOKENIZERS)}")
        self.name = name
        self._encoding: Any = getattr(require("rs_bpe.bpe").openai, name)()
        self._counts: dict[bytes, int] = {}
        ids = ",".join(map(str, self.encode(_PROBE)))
        self.identity = f"{name}:{hashlib.sha256(ids.encode()).hexdigest()}"

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; special tokens in it are read as plain text."""
        ids: list[int] = self._encoding.encode(_sound(text))
        return ids

    def count(self, text: str) -> int:
        """Return the number of ids of a text."""
        key = _key(text)
        found = self._counts.get(key)
        if found is None:
            found = self._counts[key] = self._encoding.count(_sound(text))
        return found


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _sound(text: str) -> str:
    """Return the text with lone surrogates, which UTF-8 can't encode, replaced."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode() if _has_surrogate(text) else text


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


@lru_cache(maxsize=2)
def load_tokenizer(name: str) -> Tokenizer:
    """Return the tokenizer of that name, one per process."""
    return Tokenizer(name)
