"""Where passages are searched for, and how."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from jade.config.section import Section


class RetrievalConfig(Section):
    index: str = ""
    """An index folder, or the URL of a server that speaks `POST /retrieve`."""
    kind: Literal["auto", "bm25", "dense", "hybrid"] = "auto"
    """How to search an index folder; auto takes the best it holds."""
    k: int = Field(5, ge=1)
    """Passages per search."""
    timeout_seconds: float = Field(30.0, gt=0.0)
    """For one remote search."""
    retries: int = Field(3, ge=0)
    """Further tries after a remote search failed in a way that may pass."""
    threads: int = Field(0, ge=0)
    """Threads that share a batch of bm25 searches; 0 takes the machine's cores, up to 8."""
    device: str = "auto"
    """Where the encoder of a dense index runs: cpu, cuda, or auto."""
    inline: bool = False
    """Search inside the event loop: slower to react, but every batch is the same in every run."""
