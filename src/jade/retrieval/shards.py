"""A corpus too large for one index: shards by passage range, made with little memory and searched as one.

    DIR/shards.json       how many passages, and where each shard begins
    DIR/shard-00000/ ...  ordinary index folders, each mapped, each searched by itself

The words of all shards are counted together (`shards_build`), so a passage's score is the one that it has in a single
index, bit for bit, and so is the merged ranking: best first, of equal ones the earlier in the corpus.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from pathlib import Path

from jade.errors import IndexUnusable
from jade.retrieval.base import Retriever
from jade.types import Passage

LIST = "shards.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class ShardList:
    """What a folder of shards says of itself."""

    passages: int
    starts: list[int]
    """The corpus position of each shard's first passage."""
    words: int
    """Different words in the corpus."""
    format: int = FORMAT

    def names(self) -> list[str]:
        return [shard_name(number) for number in range(len(self.starts))]


def shard_name(number: int) -> str:
    return f"shard-{number:05d}"


def is_sharded(folder: Path) -> bool:
    return (folder / LIST).is_file()


def read_shards(folder: Path) -> ShardList:
    try:
        fields = json.loads((folder / LIST).read_bytes())
        if fields["format"] > FORMAT:
            raise IndexUnusable(f"index {folder} has shards of a newer format; use a newer JADE")
        shards = ShardList(**fields)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise IndexUnusable(f"index {folder}: {LIST} cannot be read ({type(error).__name__}); build it again") from None
    missing = [name for name in shards.names() if not (folder / name).is_dir()]
    if missing:
        raise IndexUnusable(f"index {folder} is damaged: {missing[0]} is missing; build it again")
    return shards


class ShardedRetriever:
    """Several retrievers, each over a part of the corpus, in its order; their best become the best of all."""

    def __init__(self, parts: Sequence[Retriever]) -> None:
        self._parts = parts

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        found = await asyncio.gather(*(part.search(queries, k) for part in self._parts))
        return [merge_best([part[query] for part in found], k) for query in range(len(queries))]

    async def close(self) -> None:
        await asyncio.gather(*(part.close() for part in self._parts))


def merge_best(lists: Sequence[Sequence[Passage]], k: int) -> list[Passage]:
    """The k best of lists that are each sorted; of equal scores the earlier list's first."""
    return list(islice(merge(*lists, key=lambda passage: -passage.score), k))
