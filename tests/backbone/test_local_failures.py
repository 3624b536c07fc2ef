"""What goes wrong ends the requests that it hit, with a reason; the backbone lives on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from backbone_builders import make_model, make_prompt
from local_builders import (
    ENDLESS,
    MODES,
    PROMPTS,
    TOKENIZER,
    alone,
    is_decode,
    make_endless,
    num_tokens,
    opened,
    opened_failing,
    together,
)

from jade.backbone.local.backbone import LocalBackbone
from jade.backbone.local.runner import Runner
from jade.backbone.local.slots import Slots
from jade.errors import BackboneFailed, ConfigError
from jade.types import Generation, Sampling
from patience import PATIENCE_SECONDS


async def test_a_prompt_the_model_cannot_read_fails_alone() -> None:
    poison = TOKENIZER("\x00")["input_ids"][0]

    def has_poison(kwargs: dict[str, Any]) -> bool:
        return bool((kwargs["input_ids"] == poison).any())

    async with opened_failing(has_poison, ValueError("poisoned")) as backbone:
        bad = backbone.generate(make_prompt("the \x00 byte"), Sampling(max_tokens=5))
        good = [backbone.generate(prompt, Sampling(max_tokens=5)) for prompt in PROMPTS[:3]]
        failed, *found = await asyncio.gather(bad, *good, return_exceptions=True)
    assert isinstance(failed, BackboneFailed)
    assert "ValueError: poisoned" in str(failed)
    for prompt, generation in zip(PROMPTS, found, strict=False):
        assert isinstance(generation, Generation)
        assert generation.token_ids == (await alone(prompt, Sampling(max_tokens=5))).token_ids


@MODES
async def test_an_engine_that_has_no_room_to_begin_in_fails_all_who_wait(
    inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(self: Runner) -> Slots:
        raise MemoryError("no room for keys and values")

    monkeypatch.setattr(Runner, "new_slots", no_room)
    async with opened(inline=inline) as backbone:
        asked = [backbone.generate(prompt, Sampling(max_tokens=5)) for prompt in PROMPTS[:3]]
        async with asyncio.timeout(PATIENCE_SECONDS):
            failed = await asyncio.gather(*asked, return_exceptions=True)
    assert [str(each) for each in failed] == ["the local engine failed: MemoryError: no room for keys and values"] * 3


@MODES
async def test_a_prompt_that_cannot_be_tokenised_fails_alone(inline: bool) -> None:
    async with opened(inline=inline) as backbone:
        bad = backbone.generate(make_prompt("half a character: \ud800"), Sampling(max_tokens=5))
        good = backbone.generate(PROMPTS[0], Sampling(max_tokens=5))
        failed, found = await asyncio.gather(bad, good, return_exceptions=True)
    assert isinstance(failed, BackboneFailed)
    assert isinstance(found, Generation)


@MODES
async def test_an_error_while_decoding_reaches_the_batch_and_the_backbone_lives_on(inline: bool) -> None:
    def two_at_once(kwargs: dict[str, Any]) -> bool:
        return is_decode(kwargs) and num_tokens(kwargs) == 2

    error = RuntimeError("the cable was pulled\nand a long story")
    async with opened_failing(two_at_once, error, make_endless(), inline=inline) as backbone:
        hit = await asyncio.gather(*(backbone.generate(p, ENDLESS) for p in PROMPTS[:2]), return_exceptions=True)
        assert [str(error) for error in hit] == ["the local model failed: RuntimeError: the cable was pulled"] * 2
        found = await backbone.generate(PROMPTS[0], Sampling(max_tokens=9))
    assert found.token_ids == (await alone(PROMPTS[0], Sampling(max_tokens=9), make_endless())).token_ids


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_a_model_whose_numbers_went_bad_fails_instead_of_babbling(temperature: float) -> None:
    model = make_model()
    model.model.norm.weight.data.fill_(torch.nan)
    async with opened(model) as backbone:
        with pytest.raises(BackboneFailed, match="not finite"):
            await backbone.generate(PROMPTS[0], Sampling(temperature, max_tokens=5))


@pytest.mark.parametrize("stage", ["prefill", "decode"])
async def test_out_of_memory_is_answered_by_a_smaller_batch(stage: str) -> None:
    refused = []

    def too_much(kwargs: dict[str, Any]) -> bool:
        if is_decode(kwargs) != (stage == "decode"):
            return False
        wanted = num_tokens(kwargs) > 3 if is_decode(kwargs) else kwargs["logits_to_keep"].shape[0] > 2
        refused.extend([stage] * wanted)
        return wanted

    async with opened_failing(too_much, torch.OutOfMemoryError("CUDA out of memory"), inline=True) as backbone:
        found = await together(backbone, lambda i: Sampling(1.0, max_tokens=9, seed=i))
    async with opened(inline=True) as roomy:
        expected = await together(roomy, lambda i: Sampling(1.0, max_tokens=9, seed=i))
    assert refused
    assert [g.token_ids for g in found] == [g.token_ids for g in expected]


async def test_one_long_prompt_gets_the_room_that_many_short_ones_had_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    allocate, refused = Slots._allocate, []

    def within_limits(self: Slots, num_slots: int, num_positions: int, num_new: int) -> None:
        held = self.num_slots * self.num_positions if hasattr(self, "kv") else 0
        if held + num_slots * num_positions > 4000:
            refused.append(num_slots)
            raise torch.OutOfMemoryError("CUDA out of memory")
        allocate(self, num_slots, num_positions, num_new)

    long, greedy = make_prompt("who wrote it " * 60), Sampling(max_tokens=5)
    expected = [(await alone(prompt, greedy)).token_ids for prompt in (long, PROMPTS[0])]
    monkeypatch.setattr(Slots, "_allocate", within_limits)
    async with opened(inline=True) as backbone:
        await together(backbone, lambda i: Sampling(1.0, max_tokens=9, seed=i))
        assert not refused
        found = [await backbone.generate(prompt, greedy) for prompt in (long, PROMPTS[0])]
    assert max(refused) > 1
    assert [generation.token_ids for generation in found] == expected


async def test_out_of_memory_for_one_request_alone_is_its_failure() -> None:
    async with opened_failing(is_decode, torch.OutOfMemoryError("CUDA out of memory")) as backbone:
        results = await asyncio.gather(
            *(backbone.generate(p, Sampling(max_tokens=5)) for p in PROMPTS[:3]), return_exceptions=True
        )
    assert all(isinstance(result, BackboneFailed) for result in results)


@pytest.mark.parametrize("device", ["cuda", "toaster"])
def test_a_device_that_is_not_there_is_named(device: str) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ConfigError, match=rf"backbone.device: '{device}'"):
        LocalBackbone(make_model(), TOKENIZER, device=device)
