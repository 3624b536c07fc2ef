"""A local backbone over a tiny model, prompts for it, and a model that goes wrong on demand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import torch
from backbone_builders import make_model, make_prompt, make_tokenizer

from jade.backbone.local.backbone import LocalBackbone
from jade.types import Generation, Prompt, Sampling
from patience import PATIENCE_SECONDS

TOKENIZER = make_tokenizer()
PROMPTS = [
    make_prompt(f"Question {index}: " + "where is the river " * (index % 4 + 1), role="QR" if index % 3 else "AG")
    for index in range(9)
]
MODES = pytest.mark.parametrize("inline", [False, True], ids=["thread", "inline"])
KINDS = pytest.mark.parametrize("kind", ["llama", "qwen2"])
ENDLESS = Sampling(max_tokens=50_000)
"""More than any machine samples while a test looks on."""


def make_endless() -> Any:
    return make_model(ends=False, max_position_embeddings=60_000)


@asynccontextmanager
async def opened(model: Any = None, **settings: Any) -> AsyncIterator[LocalBackbone]:
    backbone = LocalBackbone(model or make_model(), TOKENIZER, device="cpu", **settings)
    try:
        yield backbone
    finally:
        await backbone.close()


async def alone(prompt: Prompt, sampling: Sampling, model: Any = None) -> Generation:
    async with opened(model) as backbone:
        return await backbone.generate(prompt, sampling)


async def together(backbone: LocalBackbone, sampling: Callable[[int], Sampling]) -> list[Generation]:
    return await asyncio.gather(*(backbone.generate(prompt, sampling(i)) for i, prompt in enumerate(PROMPTS)))


async def first_step(backbone: LocalBackbone) -> None:
    gives_up = time.monotonic() + PATIENCE_SECONDS
    while not backbone.counts.decode_steps:
        assert time.monotonic() < gives_up, "the engine did not start"
        await asyncio.sleep(0.001)


@asynccontextmanager
async def opened_failing(
    when: Callable[[dict[str, Any]], bool], error: Exception, model: Any = None, **settings: Any
) -> AsyncIterator[LocalBackbone]:
    """Over a model that raises instead of computing where `when` says so of the call's arguments."""

    def check(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        if when(kwargs):
            raise error

    model = model or make_model()
    model.register_forward_pre_hook(check, with_kwargs=True)
    async with opened(model, fuse=False, **settings) as backbone:  # only its own layers call the hook
        yield backbone


def num_tokens(kwargs: dict[str, Any]) -> int:
    return int(kwargs["input_ids"].shape[1])


def is_decode(kwargs: dict[str, Any]) -> bool:
    return not isinstance(kwargs["logits_to_keep"], torch.Tensor)
