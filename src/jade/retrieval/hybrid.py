"""Several retrievers as one, by reciprocal rank: a passage earns 1 / (60 + rank) from every list it stands in.

Ranks, not scores, are added, so retrievers whose scores mean different things can work together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

from jade.retrieval.base import Retriever
from jade.types import Passage

RANK_CONSTANT = 60
DEPTH = 50
"""How far down each list is read, whatever k is, so that a larger k only adds passages at the end."""


def fuse(rankings: Sequence[Sequence[Passage]], k: int) -> list[Passage]:
    """The k best by summed reciprocal rank; of equal ones, that which some list ranks higher, then by id."""
    earned: dict[str, float] = {}
    best_rank: dict[str, int] = {}
    passages: dict[str, Passage] = {}
    for ranking in rankings:
        distinct: dict[str, Passage] = {}
        for passage in ranking:
            distinct.setdefault(passage.id, passage)
        for rank, passage_id in enumerate(distinct, start=1):
            earned[passage_id] = earned.get(passage_id, 0.0) + 1.0 / (RANK_CONSTANT + rank)
            best_rank[passage_id] = min(rank, best_rank.get(passage_id, rank))
        passages = distinct | passages
    order = sorted(earned, key=lambda found: (-earned[found], best_rank[found], found))
    return [replace(passages[found], score=earned[found]) for found in order[:k]]


class HybridRetriever:
    """Asks all its retrievers at once and fuses what they find."""

    def __init__(self, retrievers: Sequence[Retriever], depth: int = DEPTH) -> None:
        self._retrievers = tuple(retrievers)
        self._depth = depth

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        if not queries or k < 1:
            return [[] for _ in queries]
        depth = max(k, self._depth)
        found = await asyncio.gather(*(retriever.search(queries, depth) for retriever in self._retrievers))
        return [fuse(rankings, k) for rankings in zip(*found, strict=True)]

    async def close(self) -> None:
        # So that each is closed, whatever the others raise.
        async with AsyncExitStack() as stack:
            for retriever in self._retrievers:
                stack.push_async_callback(retriever.close)
