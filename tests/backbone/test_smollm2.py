"""The real embedded model, where its weights are in the cache already."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch

from jade.backbone.local.backbone import LocalBackbone, load_model
from jade.backbone.weights import SHIPPED, default_cache
from jade.types import Generation, Prompt, Sampling

COUNTRIES = ("France", "Japan", "Peru", "Cuba")
PROMPTS = [
    Prompt("AG", "You answer questions about geography in one short sentence.", f"What is the capital of {name}?")
    for name in COUNTRIES
]


@pytest.fixture(scope="module")
def smollm2() -> tuple[Any, Any]:
    folder = default_cache() / "weights" / f"smollm2-135m-{SHIPPED['smollm2-135m'].sha256[:8]}"
    if not folder.is_dir():
        pytest.skip(f"no SmolLM2 in {folder.parent}; `jade ask` fetches it")
    return load_model(folder, torch.float32)


async def answers(loaded: tuple[Any, Any], prompts: list[Prompt], **settings: Any) -> list[Generation]:
    backbone = LocalBackbone(*loaded, device="cpu", **settings)
    found = await asyncio.gather(*(backbone.generate(prompt, Sampling(max_tokens=12)) for prompt in prompts))
    await backbone.close()
    return found


async def test_greedy_answers_are_the_same_alone_and_in_a_batch_and_true(smollm2: tuple[Any, Any]) -> None:
    together = await answers(smollm2, PROMPTS)
    alone = [await answers(smollm2, [prompt]) for prompt in PROMPTS[:2]]
    assert [generation.token_ids for generation in together[:2]] == [one.token_ids for (one,) in alone]
    assert "Paris" in together[0].text
    assert "Tokyo" in together[1].text
    assert all(generation.finish == "stop" for generation in together[:2])


def test_its_chat_format_is_the_published_one(smollm2: tuple[Any, Any]) -> None:
    model, tokenizer = smollm2
    chat = LocalBackbone(model, tokenizer, device="cpu").chat
    text = tokenizer.decode(chat.encode(PROMPTS[0], 512).ids)
    assert text == (
        f"<|im_start|>system\n{PROMPTS[0].system}<|im_end|>\n<|im_start|>user\n{PROMPTS[0].user}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert tokenizer.tokenize("in 1987") == ["in", "Ġ", "1", "9", "8", "7"]
    assert chat.encode_reply("Paris.")[-1] == tokenizer.convert_tokens_to_ids("<|im_end|>")
