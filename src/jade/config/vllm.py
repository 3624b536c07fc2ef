"""vLLM servers that sample the rollouts of a training run."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from jade.config.section import Section


class VllmConfig(Section):
    urls: tuple[str, ...] = ()
    """vLLM servers that sample the rollouts, all of the model in `backbone.model`; empty: the model samples in this
    process."""
    folder: Path | None = None
    """A folder that the servers read under the same path; new weights reach them through it."""
    timeout_seconds: float = Field(600.0, gt=0.0)
    """For one server to take new weights."""
