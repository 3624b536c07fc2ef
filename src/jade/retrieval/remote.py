"""Search somewhere else: a server that speaks `POST /retrieve` (ours, Search-R1's, or any that copies it).

Every search ends in bounded time: a timeout for each try, a bound on tries, a bound on what is read of an answer.
What may pass (a busy or failing server, a lost connection) is tried again; what will not (a refusal, an answer that
is no answer) fails at once.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from typing import Any

import httpx

from jade.errors import ConfigError, RetrievalFailed
from jade.received import MOST_BYTES, UNPACKED, NotTaken, read_answer, whole, without_password
from jade.retrieval.wire import ROUTE, from_result
from jade.types import Passage

TRY_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
LONGEST_WAIT_SECONDS = 10.0
QUERIES_PER_CALL = 256


class Passing(Exception):
    """A failure that another try may not see."""


class RemoteRetriever:
    """A retriever behind a URL."""

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float = 30.0,
        retries: int = 3,
        wait_seconds: float = 0.25,
        concurrency: int = 16,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._url = endpoint(url)
        self._shown = without_password(self._url)
        self._timeout_seconds = timeout_seconds
        self._tries = retries + 1
        self._wait_seconds = wait_seconds
        self._most_bytes = most_bytes
        self._slots = asyncio.Semaphore(concurrency)
        self._client = httpx.AsyncClient(headers=UNPACKED, timeout=timeout_seconds, follow_redirects=False)

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        if not queries or k < 1:
            return [[] for _ in queries]
        calls = [queries[first : first + QUERIES_PER_CALL] for first in range(0, len(queries), QUERIES_PER_CALL)]
        found = await asyncio.gather(*(self._call(call, k) for call in calls))
        return [passages for part in found for passages in part]

    async def _call(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        body = {"queries": [whole(query) for query in queries], "topk": k, "return_scores": True}
        attempt = 0
        while True:
            attempt += 1
            try:
                async with self._slots:
                    # httpx limits the time between two pieces of an answer; this limits the whole.
                    answer = await asyncio.wait_for(self._post(body), self._timeout_seconds)
                return self._read(answer, len(queries), k)
            except (Passing, TimeoutError, httpx.RequestError) as error:
                if attempt == self._tries:
                    tries = f"{attempt} tries" if attempt > 1 else "1 try"
                    raise self._failed(f"{_reason(error, self._timeout_seconds)} ({tries})") from None
                await asyncio.sleep(self._pause(attempt))

    async def _post(self, body: dict[str, Any]) -> bytes:
        async with self._client.stream("POST", self._url, json=body) as response:
            try:  # before the status is looked at: what a refusal says stands in its body
                data = await read_answer(response, self._most_bytes)
            except NotTaken as error:
                raise self._failed(str(error)) from None
            if response.status_code in TRY_AGAIN:
                raise Passing(f"status {response.status_code}")
            if response.status_code != 200:
                raise self._failed(f"status {response.status_code}: {data[:200].decode('utf-8', 'replace')}")
            return data

    def _read(self, answer: bytes, num_queries: int, k: int) -> list[list[Passage]]:
        try:
            result = json.loads(answer)["result"]
            if not isinstance(result, list) or len(result) != num_queries:
                raise ValueError(f"it did not answer {num_queries} queries with as many lists")
            return [[from_result(item, self._shown) for item in found][:k] for found in result]
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise self._failed(f"its answer is not of the protocol ({type(error).__name__}: {error})") from None

    def _pause(self, attempt: int) -> float:
        """Doubling, with jitter, so that many clients do not come back together."""
        return min(LONGEST_WAIT_SECONDS, self._wait_seconds * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.0)

    def _failed(self, why: str) -> RetrievalFailed:
        return RetrievalFailed(f"retrieval server {self._shown}: {' '.join(why.split())}")

    async def close(self) -> None:
        await self._client.aclose()


def endpoint(url: str) -> str:
    """The address to post to, whether the server's or the route's was given."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigError(f"retrieval.index {url!r} is not a URL: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError(f"retrieval.index {url!r} is not an http(s) URL")
    path = parsed.path.rstrip("/")
    return str(parsed.copy_with(path=path if path.endswith(ROUTE) else path + ROUTE))


def _reason(error: Exception, timeout_seconds: float) -> str:
    if isinstance(error, (TimeoutError, httpx.TimeoutException)):
        return f"no answer within {timeout_seconds:g} s"
    return str(error) or type(error).__name__
