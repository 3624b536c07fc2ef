"""The kernels of the local backbone against plain formulas.

In float32 by Triton's interpreter (`make kernel-test`), and in bfloat16 by a GPU where there is one.
"""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from standin_kernels import attend_prompts
from torch import Tensor

from jade.backbone.local_attention import PIECE
from jade.backbone.local_job import as_words
from jade.backbone.local_packing import Admission, Sheet, pack
from jade.types import Sampling
from triton_runs import DEVICE, mend_dots, need_triton

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
    from jade.backbone import local_attention_kernels

    return local_attention_kernels


def some(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, WIDTH)


@pytest.mark.parametrize("prompts", PROMPTS.values(), ids=PROMPTS.keys())
@pytest.mark.parametrize(("num_kv", "group", "size"), [(3, 3, 64), (2, 1, 32), (1, 7, 16)])
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
    wide = q_NHD.cpu().double(), kv_2SPKD.cpu().double(), sheet.bounds_3C.cpu()
    expected_NHD = attend_prompts(*wide, PIECE, scale)
    real = slice(sum(length - cached for length, cached in prompts))
    assert expected_NHD[real].isfinite().all()
    torch.testing.assert_close(
        found_NHD[real].cpu().double(), expected_NHD[real], atol=TOLERANCE[WIDTH], rtol=TOLERANCE[WIDTH]
    )
