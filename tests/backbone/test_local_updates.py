"""New weights are taken whole, between two generations, and what was cached of the old ones is gone."""

from __future__ import annotations

import asyncio

import pytest
import torch
from backbone_builders import make_model
from local_builders import MODES, PROMPTS, alone, first_step, opened

from jade.errors import BackboneFailed
from jade.types import Sampling


@MODES
async def test_new_weights_are_used_with_their_version_and_no_old_prefix(inline: bool) -> None:
    new = make_model(seed=5)
    async with opened(inline=inline) as backbone:
        before = await backbone.generate(PROMPTS[0], Sampling(max_tokens=8))
        await backbone.update_weights(new.state_dict(), version=7)
        after = await backbone.generate(PROMPTS[0], Sampling(max_tokens=8))
        assert (before.policy_version, after.policy_version, backbone.policy_version) == (0, 7, 7)
    expected = await alone(PROMPTS[0], Sampling(max_tokens=8), make_model(seed=5))
    assert after.token_ids == expected.token_ids != before.token_ids
    assert after.logprobs == pytest.approx(expected.logprobs, abs=1e-6)


async def test_a_generation_under_way_ends_with_the_weights_it_began_with() -> None:
    async with opened(make_model(ends=False)) as backbone:
        running = asyncio.create_task(backbone.generate(PROMPTS[0], Sampling(max_tokens=50)))
        await first_step(backbone)
        update = asyncio.create_task(backbone.update_weights(make_model(seed=5).named_parameters(), version=1))
        await asyncio.sleep(0)
        late = await backbone.generate(PROMPTS[0], Sampling(max_tokens=50))
        assert update.done()
    early = await running
    assert (early.policy_version, late.policy_version) == (0, 1)
    assert early.token_ids == (await alone(PROMPTS[0], Sampling(max_tokens=50), make_model(ends=False))).token_ids


async def test_a_learner_that_trains_this_very_model_only_has_to_say_so() -> None:
    model = make_model()
    async with opened(model) as backbone:
        before = await backbone.generate(PROMPTS[0], Sampling(max_tokens=8))
        model.load_state_dict(make_model(seed=5).state_dict())
        await backbone.update_weights({}, version=2)
        after = await backbone.generate(PROMPTS[0], Sampling(max_tokens=8))
    expected = await alone(PROMPTS[0], Sampling(max_tokens=8), make_model(seed=5))
    assert after.token_ids == expected.token_ids != before.token_ids


@pytest.mark.parametrize(
    ("named", "complaint"),
    [({"no.such.weight": torch.zeros(1)}, "no.such.weight"), ({"model.norm.weight": torch.zeros(1)}, r"\(1,\)")],
)
async def test_weights_that_do_not_fit_change_nothing(named: dict[str, torch.Tensor], complaint: str) -> None:
    async with opened() as backbone:
        weights = {"model.embed_tokens.weight": make_model(seed=9).get_input_embeddings().weight, **named}
        with pytest.raises(BackboneFailed, match=complaint):
            await backbone.update_weights(weights, version=1)
        found = await backbone.generate(PROMPTS[0], Sampling(max_tokens=8))
    assert found.policy_version == 0
    assert found.token_ids == (await alone(PROMPTS[0], Sampling(max_tokens=8))).token_ids
