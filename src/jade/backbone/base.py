"""What the engine knows of a language model: a prompt goes in, a generation comes out."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jade.types import Generation, Prompt, Sampling


@runtime_checkable
class Backbone(Protocol):
    """A source of text. A local one batches the calls that are waiting together."""

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        """Sample one completion. Raises BackboneFailed when none can be had."""
        ...

    async def close(self) -> None:
        """Release sockets, threads and memory. Safe to call twice."""
        ...
