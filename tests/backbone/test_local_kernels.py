"""The kernels of the local backbone against plain formulas.

In float32 by Triton's interpreter (`make kernel-test`), and in bfloat16 by a GPU where there is one.
"""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

import pytest
import standin_kernels
import torch
from backbone_builders import make_model, make_prompt
from local_builders import opened
from torch import Tensor

from jade.backbone.local.attention import PIECE
from jade.backbone.local.fused import FusedDecoder
from jade.backbone.local.graphs import PrefillGraphs
from jade.backbone.local.job import as_words
from jade.backbone.local.packing import Admission, Sheet, pack
from jade.backbone.local.sampling import Draw, draw_tokens, uniforms
from jade.backbone.local.slots import CacheShape, Slots
from jade.types import Sampling
from triton_runs import DEVICE, INTERPRETS, mend_dots, need_triton

FORMULAS: Any = standin_kernels
WIDTH = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}

PROMPTS: dict[str, tuple[tuple[int, int], ...]] = {
    "whole": ((300, 0), (1, 0), (128, 0), (127, 0), (129, 0), (64, 0)),
    "after cached prefixes": ((301, 57), (58, 57), (200, 64), (129, 1), (190, 63)),
    "one token each": ((1, 0), (40, 39), (65, 64), (200, 199)),
}
"""Tokens of each prompt, and how many of them are cached."""


@pytest.fixture
def seeing(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    need_triton()
    mend_dots(monkeypatch)
    from jade.backbone.local import attention_kernels

    return attention_kernels


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    need_triton()
    mend_dots(monkeypatch)
    from jade.backbone.local import kernels

    return kernels


def some(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, WIDTH)


def wide(*tensors: Tensor) -> list[Tensor]:
    """The same numbers on the CPU, in float64 where they are broken ones."""
    return [tensor.cpu().double() if tensor.is_floating_point() else tensor.cpu() for tensor in tensors]


def assert_close(found: Tensor, expected: Tensor) -> None:
    """As far as their width goes: turned queries and keys are rounded to it before they meet."""
    torch.testing.assert_close(wide(found)[0], expected, atol=3 * TOLERANCE[WIDTH], rtol=TOLERANCE[WIDTH])


@pytest.mark.parametrize("prompts", PROMPTS.values(), ids=PROMPTS.keys())
@pytest.mark.parametrize(("num_kv", "group", "size"), [(3, 3, 64), (2, 1, 32), (2, 7, 16)])
@pytest.mark.parametrize("padded", [False, True])
def test_prompts_see_what_the_formula_says(
    seeing: ModuleType, prompts: tuple[tuple[int, int], ...], num_kv: int, group: int, size: int, padded: bool
) -> None:
    """In slots that stand in no order, and hold other things behind the prompts."""
    num_positions = 320
    slots = [(5 * number + 2) % 7 for number in range(len(prompts))]
    kv_2SPKD = some(2, 7, num_positions, num_kv, size)
    admitted = [
        Admission(slot, as_words(range(length)), cached, 9, Sampling())
        for slot, (length, cached) in zip(slots, prompts, strict=True)
    ]
    words, shape = pack(admitted, num_positions, padded=padded)
    sheet = Sheet.of(torch.from_numpy(words).to(DEVICE), shape)
    q_NHD = some(shape.num_tokens, num_kv * group, size, seed=4)
    scale = size**-0.5
    found_NHD = seeing.attend_prompts(q_NHD, kv_2SPKD, sheet.bounds_3C, PIECE, scale)
    plain = wide(q_NHD, kv_2SPKD, sheet.bounds_3C)
    expected_NHD = FORMULAS.attend_prompts(*plain, PIECE, scale)
    real = slice(sum(length - cached for length, cached in prompts))
    assert expected_NHD[real].isfinite().all()
    assert_close(found_NHD[real], expected_NHD[real])


def angles(num_positions: int, size: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines, the same for both halves of a head, as rotary embeddings have them."""
    turn_PD = torch.outer(torch.arange(num_positions), 100 ** -torch.linspace(0, 1, size // 2)).repeat(1, 2)
    return turn_PD.cos().to(DEVICE, WIDTH), turn_PD.sin().to(DEVICE, WIDTH)


@pytest.mark.parametrize(("num_kv", "group", "size"), [(3, 3, 64), (2, 1, 32), (2, 7, 16)])
def test_a_new_token_is_turned_stored_and_sees_all_before_it(
    seeing: ModuleType, num_kv: int, group: int, size: int
) -> None:
    """On both sides of a block's end, at the first position, and where a slot is done."""
    positions, done = (0, 1, 63, 64, 65, 127, 128, 130, 50), (False,) * 8 + (True,)
    position_B, done_S = torch.tensor(positions, device=DEVICE), torch.tensor((*done, False), device=DEVICE)
    kv_2SPKD = some(2, 10, 160, num_kv, size)
    qkv_BX = some(len(positions), (group + 2) * num_kv * size, seed=4)
    before = kv_2SPKD.clone()
    about = [qkv_BX, *angles(160, size), kv_2SPKD, position_B, done_S]
    plain = wide(*about)
    expected_BHD, expected_kv = FORMULAS.attend_one(*plain, group * num_kv, size**-0.5), plain[3]
    found_BHD = seeing.attend_one(*about, group * num_kv, size**-0.5)
    busy = ~done_S.cpu()[: len(positions)]
    assert_close(found_BHD.cpu()[busy], expected_BHD[busy])
    assert_close(kv_2SPKD, expected_kv)
    assert found_BHD.isfinite().all()
    assert torch.equal(kv_2SPKD[:, 8:], before[:, 8:])  # done, and beyond the rows


@pytest.mark.parametrize(("num_kv", "group", "size"), [(3, 3, 64), (1, 7, 16), (2, 7, 64)])
def test_prompts_are_turned_by_their_positions_and_stored_in_their_slots(
    kernels: ModuleType, num_kv: int, group: int, size: int
) -> None:
    slot_N = torch.tensor([4, 4, 4, 0, 0, 2, -1, -1], device=DEVICE)
    position_N = torch.tensor([0, 1, 2, 30, 31, 9, 0, 0], device=DEVICE)
    qkv_NX, kv_2SPKD = some(8, (group + 2) * num_kv * size), some(2, 5, 40, num_kv, size, seed=4)
    about = [qkv_NX, *angles(40, size), kv_2SPKD, slot_N, position_N]
    plain = wide(*about)
    expected_NHD, expected_kv = FORMULAS.turn_and_store(*plain, group * num_kv), plain[3]
    found_NHD = kernels.turn_and_store(*about, group * num_kv)
    assert_close(found_NHD, expected_NHD)
    assert_close(kv_2SPKD, expected_kv)


@pytest.mark.parametrize("vocabulary", [50, 2049, 49_152, 151_936])
def test_tokens_are_drawn_from_vocabularies_of_any_size(kernels: ModuleType, vocabulary: int) -> None:
    """Of one block, of many, and with a last one that is not full; also its first token and its last."""
    num = 8
    slots = Slots(CacheShape(1, 1, 8), DEVICE, WIDTH)
    slots.reserve(num, 8, 32)
    every = torch.arange(num, device=DEVICE)
    slots.seed.copy_(977 * every - 5)
    slots.num_sampled.copy_(every % 5)
    slots.limit.fill_(9)
    slots.done.copy_(every == num - 1)
    slots.temperature.copy_(torch.tensor([1.0, 0.7, 0.0, 1.0] * 2))
    logits_BV = 3 * some(num, vocabulary)
    for row, token in ((0, 0), (2, vocabulary // 2), (3, -1), (6, 7)):  # one each that is drawn whatever the number
        logits_BV[row, token] = 60.0
    step_B = slots.num_sampled.clone()
    uniform_B = uniforms(slots.seed, step_B)
    token_B, logp_B = draw_tokens(logits_BV.double(), slots.temperature, slots.top_p, uniform_B, Draw.MIXED)
    kernels.draw_and_record(logits_BV, every, slots, torch.tensor([vocabulary - 1, 1], device=DEVICE))
    busy = every[:-1]
    assert slots.token[every, step_B].tolist() == [*token_B[busy].tolist(), 0]
    torch.testing.assert_close(slots.logp[busy, step_B[busy]], logp_B[busy].float(), atol=1e-4, rtol=1e-5)
    assert token_B[[0, 2, 3, 6]].tolist() == [0, vocabulary // 2, vocabulary - 1, 7]
    assert bool(slots.done[3])
    assert slots.num_sampled.tolist() == [*(step_B[busy] + 1).tolist(), int(step_B[-1])]


@pytest.mark.skipif(not INTERPRETS, reason="a GPU has tests of the whole in test_local_cuda")
async def test_a_backbone_of_fused_kernels_draws_what_plain_layers_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts of one piece and of several, after a prefix and before one is known; some requests end before others."""
    need_triton()
    prompts = [make_prompt(f"{length} " + "river " * length) for length in (1, 30, 2, 9, 30)]
    samplings = [Sampling(float(i != 3), max_tokens=2 + i, seed=i) for i in range(len(prompts))]
    found = []
    for is_fused in (False, True):
        model = make_model(hidden_size=96, num_hidden_layers=2)
        async with opened(model, inline=True, max_batch=3, reports_behind=1, fuse=False) as backbone:
            runner: Any = backbone._runner
            if is_fused:
                runner._fused, runner._prefills = FusedDecoder(runner.model), PrefillGraphs()
                monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
                monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (0, 1))  # nothing is captured
            found.append(await asyncio.gather(*map(backbone.generate, prompts, samplings)))
    for plain, fused in zip(*found, strict=True):
        assert fused.token_ids == plain.token_ids
        assert fused.logprobs == pytest.approx(plain.logprobs, abs=1e-3)
