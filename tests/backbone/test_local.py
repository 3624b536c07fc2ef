"""The local backbone samples what the model would sample, whoever else is in the batch."""

from __future__ import annotations

import asyncio

import pytest
import torch
from backbone_builders import make_model, make_prompt, recomputed_logprobs
from local_builders import KINDS, PROMPTS, alone, opened, together

from jade.types import Sampling


@KINDS
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
async def test_log_probs_are_those_a_learner_recomputes(kind: str, temperature: float) -> None:
    async with opened(make_model(kind)) as backbone:
        found = await together(backbone, lambda i: Sampling(temperature, max_tokens=12, seed=i))
    for generation in found:
        expected = recomputed_logprobs(
            make_model(kind), generation.prompt_ids, generation.token_ids, temperature or 1.0
        )
        assert generation.logprobs == pytest.approx(expected.tolist(), abs=1e-4)
        assert len(generation.token_ids) == generation.completion_tokens > 0


@KINDS
async def test_greedy_output_is_the_same_alone_in_a_batch_and_from_plain_generate(kind: str) -> None:
    async with opened(make_model(kind), inline=True) as backbone:
        found = await together(backbone, lambda i: Sampling(max_tokens=12))
        assert backbone.counts.largest_batch == len(PROMPTS)
    model = make_model(kind)
    for prompt, generation in list(zip(PROMPTS, found, strict=True))[::2]:
        assert (await alone(prompt, Sampling(max_tokens=12), make_model(kind))).token_ids == generation.token_ids
        ids = torch.tensor([generation.prompt_ids])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False)
        assert generation.token_ids == tuple(out[0, ids.shape[1] :].tolist())


async def test_a_seed_draws_the_same_tokens_alone_and_in_a_batch_and_another_seed_others() -> None:
    async with opened() as backbone:
        found = await together(backbone, lambda i: Sampling(1.0, top_p=0.95, max_tokens=15, seed=i))
        repeated = await together(backbone, lambda i: Sampling(1.0, top_p=0.95, max_tokens=15, seed=i))
        other = await together(backbone, lambda i: Sampling(1.0, top_p=0.95, max_tokens=15, seed=i + 1000))
    assert [g.token_ids for g in found] == [g.token_ids for g in repeated]
    assert all(one.token_ids != two.token_ids for one, two in zip(found, other, strict=True))
    for index in (0, 4):
        sampling = Sampling(1.0, top_p=0.95, max_tokens=15, seed=index)
        assert (await alone(PROMPTS[index], sampling)).token_ids == found[index].token_ids


async def test_the_end_of_turn_token_is_part_of_the_action_and_not_of_the_text() -> None:
    async with opened(make_model(seed=3)) as backbone:
        samples = [backbone.generate(PROMPTS[0], Sampling(1.0, max_tokens=60, seed=seed)) for seed in range(20)]
        found = await asyncio.gather(*samples)
    ended = [generation for generation in found if generation.finish == "stop"]
    assert ended
    assert all(g.token_ids[-1] == 2 and 2 not in g.token_ids[:-1] and "im_end" not in g.text for g in ended)
    assert all(len(g.token_ids) == 60 for g in found if g.finish == "length")


async def test_bfloat16_weights_keep_exact_positions_and_close_log_probs() -> None:
    model = make_model()
    async with opened(model, dtype=torch.bfloat16) as backbone:
        found = await backbone.generate(make_prompt("river " * 60), Sampling(1.0, max_tokens=20))
    assert model.dtype == torch.bfloat16
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32
    expected = recomputed_logprobs(model, found.prompt_ids, found.token_ids, 1.0).float()
    assert found.logprobs == pytest.approx(expected.tolist(), abs=0.15)
