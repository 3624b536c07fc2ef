"""The same code on a GPU: packed prefill, captured decode steps, several steps between two looks at the host."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from backbone_builders import make_model, make_prompt, make_tokenizer, recomputed_logprobs

from jade.backbone.local import LocalBackbone
from jade.types import Generation, Sampling

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")
TOKENIZER = make_tokenizer()
PROMPTS = [make_prompt(f"Question {index}: " + "where is the river " * (index % 7 + 1)) for index in range(40)]
SIZES: dict[str, Any] = {
    "hidden_size": 192,
    "intermediate_size": 256,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
}


async def sampled(device: str, dtype: torch.dtype, rounds: int = 1) -> list[Generation]:
    backbone = LocalBackbone(make_model(**SIZES), TOKENIZER, device=device, dtype=dtype, max_batch=24)
    found: list[Generation] = []
    for number in range(rounds):
        draws = [
            backbone.generate(prompt, Sampling(1.0, max_tokens=10 + index % 30, seed=100 * number + index))
            for index, prompt in enumerate(PROMPTS)
        ]
        found += await asyncio.gather(*draws)
    await backbone.close()
    return found


async def test_float32_on_the_gpu_draws_what_the_cpu_draws() -> None:
    near, far = await sampled("cpu", torch.float32), await sampled("cuda", torch.float32)
    same = sum(one.token_ids == two.token_ids for one, two in zip(near, far, strict=True))
    assert same >= 38


async def test_log_probs_in_bfloat16_are_those_of_the_model_run_plainly() -> None:
    model = make_model(**SIZES)
    for weight in model.parameters():
        weight.data = weight.data.bfloat16().float()
    for generation in await sampled("cuda", torch.bfloat16, rounds=3):
        expected = recomputed_logprobs(model, generation.prompt_ids, generation.token_ids, 1.0)
        gap = (torch.tensor(generation.logprobs) - expected).abs()
        assert gap.mean() < 0.15


async def test_a_gpu_repeats_itself() -> None:
    one, two = await sampled("cuda", torch.bfloat16), await sampled("cuda", torch.bfloat16)
    same = sum(first.token_ids == second.token_ids for first, second in zip(one, two, strict=True))
    assert same >= 36
