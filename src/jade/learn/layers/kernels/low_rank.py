# mypy: disable-error-code="misc, no-untyped-def, no-any-return, untyped-decorator"
"""The gradients of adapters.

Shapes: T = tokens of the row, O and I = a product's outputs and inputs, P = parts, W = O and I one behind the other,
N = the ranks of its adapters together.
"""

from __future__ import annotations

from functools import cache

import torch
import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor

from jade.learn.layers.kernels.sizes import cdiv, num_parts, power_of_2
from jade.learn.layers.launch import Kernel

LEARN_WIDTH, LEARN_RANKS, LEARN_TOKENS = 128, 128, 64
"""What a program takes at once: columns of a product's side, ranks, tokens. Of tokens twice as many where it has a
processor for itself, and that has the room."""
ROOM_BYTES = 200_000
"""Of a processor's shared memory, for three times two tiles of 128 by 128; an H200's has it, an RTX 4090's half."""
LEAST_DOT = 16
"""The narrowest product there is."""


@cache
def _shared_bytes(device: torch.device) -> int:
    """Of one processor, for one program; 0 where that is not said."""
    if device.type != "cuda":
        return 0
    return int(getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 0))


def add_low_rank(grad_TO: Tensor, low_TN: Tensor, input_TI: Tensor | None, above_TN: Tensor, sum_PWN: Tensor) -> None:
    """Add to the gradients of adapters: of their ups, which are grad^T low, and behind them of their downs, which are
    input^T above, unless there is no input. Each part is added up by a program of its own over its share of the tokens:
    whoever adds up the parts gets the same each time."""
    (num, num_outputs), (parts, num_rows, num_ranks) = grad_TO.shape, sum_PWN.shape
    num_inputs = num_rows - num_outputs
    ranks = min(LEARN_RANKS, max(LEAST_DOT, power_of_2(num_ranks)))
    tiles = cdiv(num_outputs, LEARN_WIDTH) + (0 if input_TI is None else cdiv(num_inputs, LEARN_WIDTH))
    tiles *= cdiv(num_ranks, ranks)
    input_TI = grad_TO if input_TI is None else input_TI  # no program reads it
    alone = ranks > 64
    tokens = LEARN_TOKENS * (2 if alone and _shared_bytes(grad_TO.device) >= ROOM_BYTES else 1)
    _add_low_rank(
        (tiles, num_parts(tiles, parts, alone=alone)),
        (grad_TO, low_TN, input_TI, above_TN, sum_PWN),
        (num,),
        (
            *(one.stride(0) for one in (grad_TO, low_TN, input_TI, above_TN)),
            *(num_outputs, num_inputs, num_ranks, LEARN_WIDTH, ranks, tokens),
        ),
        warps=8 if alone else 4,
    )


@Kernel
@triton.jit(do_not_specialize=["num"])
def _add_low_rank(
    grad, low, input, above, total, num,
    GRAD_STRIDE: tl.constexpr, LOW_STRIDE: tl.constexpr, INPUT_STRIDE: tl.constexpr, ABOVE_STRIDE: tl.constexpr,
    O: tl.constexpr, I: tl.constexpr, N: tl.constexpr,  # noqa: E741
    BLOCK_W: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """A program's tile belongs to the ups or to the downs. The code for both stands one behind the other, and what is
    not this program's is given no tokens. So both use the same shared memory, which two branches of an `if` would not.
    """
    OUT_TILES: tl.constexpr = (O + BLOCK_W - 1) // BLOCK_W
    RANK_TILES: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    tile = tl.program_id(0) // RANK_TILES
    rank_N = tl.program_id(0) % RANK_TILES * BLOCK_N + tl.arange(0, BLOCK_N)
    share = (num + tl.num_programs(1) * BLOCK_T - 1) // (tl.num_programs(1) * BLOCK_T) * BLOCK_T
    count = tl.minimum(share, num - tl.program_id(1) * share)
    first = tl.program_id(1).to(tl.int64) * share
    is_up = tile < OUT_TILES
    column_W = tl.where(is_up, tile, tile - OUT_TILES) * BLOCK_W + tl.arange(0, BLOCK_W)
    sum_WN = tl.zeros([BLOCK_W, BLOCK_N], tl.float32)
    sum_WN = _multiply(
        grad + first * GRAD_STRIDE, low + first * LOW_STRIDE, column_W, rank_N, tl.where(is_up, count, 0), sum_WN,
        GRAD_STRIDE, LOW_STRIDE, O, N, BLOCK_T,
    )  # fmt: skip
    sum_WN = _multiply(
        input + first * INPUT_STRIDE, above + first * ABOVE_STRIDE, column_W, rank_N, tl.where(is_up, 0, count), sum_WN,
        INPUT_STRIDE, ABOVE_STRIDE, I, N, BLOCK_T,
    )  # fmt: skip
    inside = (column_W < tl.where(is_up, O, I))[:, None] & (rank_N < N)[None, :]
    row_W = tl.where(is_up, 0, O) + column_W
    to = total + tl.program_id(1).to(tl.int64) * ((O + I) * N) + row_W[:, None] * N + rank_N[None, :]
    tl.store(to, tl.load(to, mask=inside, other=0.0) + sum_WN, mask=inside)


@triton.jit
def _multiply(
    wide, narrow, column_W, rank_N, count, sum_WN,
    WIDE_STRIDE: tl.constexpr, NARROW_STRIDE: tl.constexpr, W: tl.constexpr, N: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """sum + wide^T narrow, over so many tokens."""
    for start in range(0, count, BLOCK_T):
        token_T = start + tl.arange(0, BLOCK_T)
        wide_TW = tl.load(
            wide + token_T[:, None] * WIDE_STRIDE + column_W[None, :],
            mask=(token_T[:, None] < count) & (column_W[None, :] < W), other=0.0,
        )  # fmt: skip
        narrow_TN = tl.load(
            narrow + token_T[:, None] * NARROW_STRIDE + rank_N[None, :],
            mask=(token_T[:, None] < count) & (rank_N[None, :] < N), other=0.0,
        )  # fmt: skip
        sum_WN = tl.dot(tl.trans(wide_TW), narrow_TN, sum_WN, input_precision="ieee")
    return sum_WN
