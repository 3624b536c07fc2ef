"""BM25 over an index folder: bm25s makes the scores, which are then only mapped, never loaded.

The folder is bm25s's own format, so `bm25s.BM25.load(folder)` opens it too. Passages that share no term with the
query are not results.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from jade.errors import IndexUnusable
from jade.retrieval.index import BM25, Index
from jade.retrieval.kernel import Best, Postings, best_by_numba, best_by_numpy, check_postings
from jade.retrieval.manifest import damaged
from jade.retrieval.store import PassageStore
from jade.retrieval.terms import TERMS_VERSION, Vocabulary, known_numbers, weighted
from jade.types import Passage

K1, B = 1.2, 0.75
SETTINGS = {"k1": K1, "b": B, "method": "lucene", "terms": TERMS_VERSION}
SCORES, ROWS, STARTS = "data.csc.index.npy", "indices.csc.index.npy", "indptr.csc.index.npy"
VOCABULARY = "vocab.index.json"
WORTH_COMPILING = 4_000_000
"""Passages times queries, asked so far, from which numba's second of loading is won back."""
QUERIES_PER_THREAD = 8
MOST_THREADS = 8


def write_bm25(passages: Iterable[Passage], folder: Path) -> None:
    """Count the terms of all passages and write their scores."""
    vocabulary = Vocabulary()
    numbers = [vocabulary.numbers(weighted(passage.title, passage.text)) for passage in passages]
    known = vocabulary.known()
    if not known:  # a corpus of stop words is still an index; no query has the empty term
        known, numbers = {"": 0}, [[0]] * len(numbers)
    with _jax_on_cpu():
        import bm25s
    scorer = bm25s.BM25(k1=K1, b=B, method="lucene", backend="numpy")
    scorer.index((numbers, known), create_empty_token=False, show_progress=False)
    scorer.save(folder, show_progress=False)


def open_bm25(index: Index, settings: dict[str, Any], threads: int = 0) -> Bm25Searcher:
    """The searcher of an index folder's bm25 part."""
    if settings != SETTINGS:
        raise IndexUnusable(f"index {index.folder} counts words in another way than this JADE; build it with --fresh")
    try:
        return Bm25Searcher(index.data / BM25, index.passages, threads)
    except (OSError, ValueError, EOFError, AttributeError, RecursionError) as error:
        raise damaged(index.folder, f"its bm25 part cannot be opened ({error})") from None


class Bm25Searcher:
    """Finds passages by the words they share with the query. Safe to use from several threads."""

    def __init__(self, folder: Path, store: PassageStore, threads: int) -> None:
        scores, rows, starts = (np.load(folder / name, mmap_mode="r") for name in (SCORES, ROWS, STARTS))
        self._postings = Postings(scores, rows, starts, len(store))
        self._vocabulary: dict[str, int] = json.loads((folder / VOCABULARY).read_bytes())
        check_postings(self._postings, self._vocabulary.values())
        self._store = store
        self._threads = threads or min(os.cpu_count() or 1, MOST_THREADS)
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="bm25")
        self._work = 0

    def find(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The k best passages of each query, best first; of equal ones the earlier in the index."""
        k = min(k, len(self._store))
        numbers = [known_numbers(query, self._vocabulary) for query in queries]
        # Without a lock, though threads share it: a count that is a little off only moves the switch to numba.
        self._work += len(queries) * len(self._store)
        return [
            [self._store.passage(int(row), float(score)) for score, row in zip(scores, rows, strict=True) if row >= 0]
            for best in self._in_threads(numbers, k)
            for scores, rows in zip(*best, strict=True)
        ]

    def _in_threads(self, numbers: Sequence[Sequence[int]], k: int) -> Iterator[Best]:
        size = max(QUERIES_PER_THREAD, -(-len(numbers) // self._threads))
        parts = [numbers[first : first + size] for first in range(0, len(numbers), size)]
        if len(parts) < 2:  # handing it to another thread would cost more than the search
            return map(self._top, parts, [k] * len(parts))
        return self._pool.map(self._top, parts, [k] * len(parts))

    def _top(self, numbers: Sequence[Sequence[int]], k: int) -> Best:
        terms_T = np.array([number for query in numbers for number in query], np.int32)
        splits_B = np.cumsum([0, *map(len, numbers)], dtype=np.int64)
        best = best_by_numba if self._work >= WORTH_COMPILING else best_by_numpy
        return best(self._postings, terms_T, splits_B, k)

    def close(self) -> None:
        self._pool.shutdown()
        self._store.close()


@contextmanager
def _jax_on_cpu() -> Iterator[None]:
    """bm25s starts jax where it finds it, and jax takes most of a GPU's memory: keep it off the GPU meanwhile."""
    before: Any = os.environ.get("JAX_PLATFORMS")
    os.environ["JAX_PLATFORMS"] = "cpu"
    try:
        yield
    finally:
        del os.environ["JAX_PLATFORMS"]
        if before is not None:
            os.environ["JAX_PLATFORMS"] = before
