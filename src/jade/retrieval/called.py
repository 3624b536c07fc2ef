"""A retriever that is somebody's own function: a query and a number go in, passages come out, best first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from inspect import isawaitable
from itertools import islice
from typing import Any, TypeAlias

from jade.errors import RetrievalFailed
from jade.types import Passage

Found: TypeAlias = Iterable[Passage | str]
Find: TypeAlias = Callable[[str, int], Found] | Callable[[str, int], Awaitable[Found]]
MOST_AT_ONCE = 64


class CalledRetriever:
    """Plain functions are called in threads, many at once; asynchronous ones are awaited. A text without a title is a
    passage as well."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="search")

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return list(await asyncio.gather(*(self._search(query, k) for query in queries)))

    async def _search(self, query: str, k: int) -> list[Passage]:
        try:
            called: Any = await asyncio.get_running_loop().run_in_executor(self._threads, self._find, query, k)
            found: Found = await called if isawaitable(called) else called
            return [_passage(item) for item in islice(found, k)]
        except Exception as error:
            name = getattr(self._find, "__name__", type(self._find).__name__)
            raise RetrievalFailed(f"{name}: {type(error).__name__}: {error}") from error

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _passage(item: Passage | str) -> Passage:
    if isinstance(item, Passage):
        return item
    if not isinstance(item, str):
        raise TypeError(f"found {type(item).__name__}; give jade.Passage or text")
    return Passage(blake2b(item.encode("utf-8", "replace"), digest_size=6).hexdigest(), "", item)
