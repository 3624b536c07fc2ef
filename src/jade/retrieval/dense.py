"""Dense retrieval: passages and queries as vectors, the nearest by inner product (faiss).

Encoding is slow on a CPU, so vectors of passages that did not change are taken over from the index before. An index
that FlashRAG or Search-R1 made (`*.index`) can be brought along with its corpus.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jade.errors import IndexUnusable, WeightsMissing
from jade.retrieval.encoder import INSTALL, Encoder, EncoderSpec
from jade.retrieval.index import DENSE, Index
from jade.retrieval.store import PassageStore
from jade.types import Passage

VECTORS = "vectors.faiss"
IMPORTED = "imported"
"""Whether the vectors were brought along; then nothing is known of how to make more."""
CHUNK = 512
"""Passages encoded between two reports of progress."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Passages whose vectors an older index already has: `count` of them from row `old` there, from `new` here."""

    new: int
    old: int
    count: int


def write_dense(
    passages: PassageStore,
    folder: Path,
    encoder: Encoder,
    older: Path | None,
    kept: Sequence[Kept],
    encoded: Callable[[int], None],
) -> None:
    """Encode every passage that `older` has no vector of. `encoded` hears how many passages are done."""
    faiss = import_faiss()
    old = read_vectors(older / VECTORS) if older is not None and kept else None
    index: Any = None
    for vectors in _vectors(passages, encoder, old, kept):
        index = index if index is not None else faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        encoded(index.ntotal)
    folder.mkdir()
    faiss.write_index(index, str(folder / VECTORS))


def _vectors(passages: PassageStore, encoder: Encoder, old: Any, kept: Sequence[Kept]) -> Iterator[NDArray[np.float32]]:
    """Vectors of all passages in order, in chunks."""
    row = 0
    for run in sorted(kept, key=lambda run: run.new) if old is not None else ():
        yield from _encode(passages, encoder, row, run.new)
        yield old.reconstruct_n(run.old, run.count)
        row = run.new + run.count
    yield from _encode(passages, encoder, row, len(passages))


def _encode(passages: PassageStore, encoder: Encoder, first: int, end: int) -> Iterator[NDArray[np.float32]]:
    rows = iter(range(first, end))
    while chunk := list(islice(rows, CHUNK)):
        yield encoder.passages([text_of(passages.passage(row)) for row in chunk])


def text_of(passage: Passage) -> str:
    return f"{passage.title}\n{passage.text}" if passage.title else passage.text


def import_vectors(file: Path, folder: Path, num_passages: int) -> None:
    """Take over a faiss index whose row i is passage i."""
    index = read_vectors(file)
    if index.ntotal != num_passages:
        raise IndexUnusable(
            f"{file} holds {index.ntotal:,} vectors, but the corpus has {num_passages:,} passages: "
            "give the corpus that it was made from, and nothing else"
        )
    folder.mkdir()
    shutil.copyfile(file, folder / VECTORS)


def open_dense(index: Index, settings: dict[str, Any], device: str) -> DenseSearcher:
    """The searcher of an index folder's dense part."""
    spec = EncoderSpec(**{key: value for key, value in settings.items() if key != IMPORTED})
    vectors = read_vectors(index.data / DENSE / VECTORS)
    return DenseSearcher(vectors, index.passages, Encoder(spec, device))


class DenseSearcher:
    """Finds passages by meaning. Safe to use from several threads."""

    def __init__(self, vectors: Any, passages: PassageStore, encoder: Encoder) -> None:
        if vectors.ntotal != len(passages) or vectors.d != encoder.dimension:
            raise IndexUnusable(
                f"the dense part holds {vectors.ntotal:,} vectors of {vectors.d} numbers, for {len(passages):,} "
                f"passages and an encoder of {encoder.dimension}; build it again, or name the encoder it was made with"
            )
        self._vectors = vectors
        self._passages = passages
        self._encoder = encoder

    def find(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The k nearest passages of each query, nearest first."""
        scores_BK, rows_BK = self._vectors.search(self._encoder.queries(queries), min(k, len(self._passages)))
        return [
            [
                self._passages.passage(int(row), float(score))
                for score, row in zip(scores, rows, strict=True)
                if row >= 0
            ]
            for scores, rows in zip(scores_BK, rows_BK, strict=True)
        ]

    def close(self) -> None:
        self._passages.close()


def read_vectors(file: Path) -> Any:
    try:
        return import_faiss().read_index(str(file))
    except RuntimeError as error:
        reason = str(error).strip().rpartition("\n")[-1]
        raise IndexUnusable(f"{file} is not a faiss index that can be read ({reason[:200]})") from None


def import_faiss() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of the wrapper generator, about itself
            import faiss
    except ImportError as error:  # it may be there, and built for another numpy
        raise WeightsMissing(f"dense retrieval needs faiss ({error}); {INSTALL}") from None
    return faiss
