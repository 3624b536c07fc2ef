"""Passages in another order than they were found in.

Search puts what is needed first so often that a selector which learns from what was found learns the places, and reads
little of what stands there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jade.engine.seeds import derive_seed
from jade.retrieval.base import Retriever
from jade.types import Passage


class Reordered:
    """A retriever that finds what another finds; the order follows from the seed and the query alone."""

    def __init__(self, retriever: Retriever, seed: int) -> None:
        self._retriever = retriever
        self._seed = seed

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        found = await self._retriever.search(queries, k)
        return [self._reorder(query, passages) for query, passages in zip(queries, found, strict=True)]

    async def close(self) -> None:
        """The retriever behind it serves others too."""

    def _reorder(self, query: str, passages: list[Passage]) -> list[Passage]:
        order = np.random.default_rng(derive_seed(self._seed, query)).permutation(len(passages))
        return [passages[place] for place in order]
