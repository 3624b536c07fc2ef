"""What the engine knows of retrieval: queries go in, ranked passages come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from jade.types import Passage


@runtime_checkable
class Retriever(Protocol):
    """A searchable collection of passages."""

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The best passages for each query, best first, at most k; raises RetrievalFailed when it cannot."""
        ...

    async def close(self) -> None:
        """Release files, sockets and memory. Safe to call twice."""
        ...
