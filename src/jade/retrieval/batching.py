"""Many small searches become few large ones.

A team asks one query at a time, from many questions at once. What arrives while a search is running waits and goes
out together, so nothing is delayed when the retriever is idle and batches grow as it gets busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from jade.errors import JadeError, RetrievalFailed
from jade.types import Passage


class Searcher(Protocol):
    """A search that runs in the calling thread. Safe to use from several."""

    def find(self, queries: Sequence[str], k: int) -> list[list[Passage]]: ...

    def close(self) -> None: ...


class Waiting(NamedTuple):
    queries: tuple[str, ...]
    k: int
    answer: asyncio.Future[list[list[Passage]]]


class BatchedRetriever:
    """A retriever over a searcher.

    Searches run in a thread beside the event loop. With `inline` they run inside it, on all that arrived in one turn
    of the loop: the same program makes the same batches in every run, whatever the clock says.
    """

    def __init__(self, searcher: Searcher, *, inline: bool = False, max_batch: int = 1024) -> None:
        self._searcher = searcher
        self._inline = inline
        self._max_batch = max_batch
        self._waiting: list[Waiting] = []
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        if self._closed:
            raise RetrievalFailed("this retriever is closed")
        if not queries or k < 1:
            return [[] for _ in queries]
        request = Waiting(tuple(queries), k, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await request.answer

    async def _work(self) -> None:
        while self._waiting:
            batch = self._next_batch()
            queries = list(dict.fromkeys(query for request in batch for query in request.queries))
            try:
                if self._inline:
                    found = self._searcher.find(queries, batch[0].k)
                else:
                    found = await asyncio.to_thread(self._searcher.find, queries, batch[0].k)
            except Exception as error:
                _fail(batch, error)
            else:
                _answer(batch, dict(zip(queries, found, strict=True)))

    def _next_batch(self) -> list[Waiting]:
        """The oldest request and those like it, up to the limit. Requests for another k wait their turn."""
        batch: list[Waiting] = []
        rest: list[Waiting] = []
        num_queries = 0
        for request in self._waiting:
            fits = not batch or (request.k == batch[0].k and num_queries + len(request.queries) <= self._max_batch)
            (batch if fits else rest).append(request)
            num_queries += len(request.queries) if fits else 0
        self._waiting = rest
        return batch

    async def close(self) -> None:
        """Let the searches that are waiting finish, then release everything."""
        self._closed = True
        if self._worker is not None and not self._worker.done():
            await self._worker
        self._searcher.close()


def _answer(batch: Sequence[Waiting], found: dict[str, list[Passage]]) -> None:
    for request in batch:
        if not request.answer.done():  # whoever was cancelled meanwhile waits for nothing
            # A list of one's own: equal queries of several callers were searched once.
            request.answer.set_result([list(found[query]) for query in request.queries])


def _fail(batch: Sequence[Waiting], error: Exception) -> None:
    for request in batch:
        if not request.answer.done():
            known = isinstance(error, JadeError)
            request.answer.set_exception(error if known else RetrievalFailed(f"search failed: {error!r}"))
