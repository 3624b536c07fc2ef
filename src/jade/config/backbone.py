"""Which model speaks, and how it is run."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from jade.config.section import Section


class BackboneConfig(Section):
    model: str = "jade-135m"
    """The trained team that ships (jade-135m), its untrained base (smollm2-135m), a Hugging Face folder or name, or
    the URL of an OpenAI-compatible server, as URL#NAME where it has several models; else the first it lists speaks."""
    adapter: Path | None = None
    """A LoRA adapter (peft folder) over the model."""
    only_priced: bool = False
    """Of a role's own backbone: it speaks where the role is told prices (an effort); elsewhere the shared one does."""
    device: str = "auto"
    """cpu, cuda, or auto."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: float32 on CPU, bfloat16 on a GPU."""
    threads: int = Field(0, ge=0)
    """CPU threads of torch; 0 leaves torch's own choice."""
    max_batch: int = Field(64, ge=1)
    """Requests a local model works on at once."""
    max_prompt_tokens: int = Field(3072, ge=16)
    """Longer prompts lose passages' tails, never the question."""
    inline: bool = False
    """Run the model inside the event loop: slower to react, but every batch is the same in every run."""
    fuse: bool = True
    """Run models of the Llama family in fewer and larger operations (on a GPU: fused kernels); off: with transformers'
    own layers."""
    api_key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds a remote server's key."""
    timeout_seconds: float = Field(120.0, gt=0.0)
    """For one remote call."""
    retries: int = Field(4, ge=0)
    """Further tries after a remote call failed in a way that may pass."""
    concurrency: int = Field(64, ge=1)
    """Remote calls in flight at once."""
