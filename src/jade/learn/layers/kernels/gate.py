# mypy: disable-error-code="misc, no-untyped-def, no-any-return, untyped-decorator"
"""What a feed-forward part does between its products, and its way back, with or without its adapters' gradients.

Shapes: T = tokens of the row, F = feed-forward width, P = parts, W = rows of the sums, N = the ranks of a product's
adapters together.
"""

from __future__ import annotations

from math import e, log2

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor

from jade.learn.layers.kernels.sizes import TILE, cdiv, num_parts
from jade.learn.layers.launch import Kernel

FEED_BLOCK = 512
GATE_WIDTH, GATE_RANKS, GATE_TOKENS = 128, 64, 32
"""What a program that makes adapters' gradients on the way takes at once: columns, ranks, tokens. Of ranks these are
the most, and as many as the fast products take at least."""
MINUS_LOG2_E: tl.constexpr = tl.constexpr(-log2(e))
"""e^-x is two to the power of x times this."""


def gated(both_TF: Tensor) -> Tensor:
    """silu(first half) * second half."""
    num, width = both_TF.shape[0], both_TF.shape[1] // 2
    out_TF = both_TF.new_empty(num, width)
    rows = TILE // FEED_BLOCK // 2
    grid = cdiv(num, rows), cdiv(width, FEED_BLOCK)
    _gated(grid, (both_TF, out_TF), (num,), (width, both_TF.stride(0), rows, FEED_BLOCK))
    return out_TF


@triton.jit
def _open_by(wide):
    """The sigmoid, by five instructions a number where a division and an exponential of base e take twelve."""
    root = tl.rsqrt(1.0 + tl.exp2(wide * MINUS_LOG2_E))
    return root * root


@Kernel
@triton.jit(do_not_specialize=["num"])
def _gated(
    both, out, num, WIDTH: tl.constexpr, STRIDE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < num) & (column < WIDTH)
    gate = tl.load(both + row * STRIDE + column, mask=inside, other=0.0)
    value = tl.load(both + row * STRIDE + WIDTH + column, mask=inside, other=0.0)
    wide = gate.to(tl.float32)
    opened = (wide * _open_by(wide)).to(gate.dtype).to(tl.float32)
    tl.store(out + row * WIDTH + column, opened * value.to(tl.float32), mask=inside)


def gated_back(grad_TF: Tensor, both_TF: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient at both halves, and once more what came out: making it again costs less than keeping it."""
    num, width = grad_TF.shape
    out_TF, again_TF = both_TF.new_empty(both_TF.shape), both_TF.new_empty(num, width)
    rows = TILE // FEED_BLOCK // 2
    _gated_back(
        (cdiv(num, rows), cdiv(width, FEED_BLOCK)),
        (grad_TF, both_TF, out_TF, again_TF),
        (num,),
        (width, grad_TF.stride(0), both_TF.stride(0), rows, FEED_BLOCK),
    )
    return out_TF, again_TF


@Kernel
@triton.jit(do_not_specialize=["num"])
def _gated_back(
    grad, both, out, again, num,
    WIDTH: tl.constexpr, GRAD_STRIDE: tl.constexpr, BOTH_STRIDE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < num) & (column < WIDTH)
    place = row * 2 * WIDTH + column
    gate = tl.load(both + row * BOTH_STRIDE + column, mask=inside, other=0.0)
    value = tl.load(both + row * BOTH_STRIDE + WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    above = tl.load(grad + row * GRAD_STRIDE + column, mask=inside, other=0.0).to(tl.float32)
    wide = gate.to(tl.float32)
    open_by = _open_by(wide)
    opened = (wide * open_by).to(gate.dtype).to(tl.float32)
    # silu(x) = x s(x), and s' = s (1 - s): so its derivative is s (1 + x (1 - s)).
    tl.store(out + place, above * value * open_by * (1.0 + wide * (1.0 - open_by)), mask=inside)
    tl.store(out + place + WIDTH, above * opened, mask=inside)
    tl.store(again + row * WIDTH + column, opened * value, mask=inside)


def gated_back_learning(grad_TF: Tensor, both_TF: Tensor, above_TN: Tensor, sum_PWN: Tensor) -> Tensor | None:
    """The gradient at both halves; what came out is made again only to be multiplied with what adapters' ups made of
    the gradient, which is added to the last rows of the sums, as `add_low_rank` does it. None where ranks are many."""
    (num, width), (parts, num_rows, num_ranks) = grad_TF.shape, sum_PWN.shape
    if num_ranks > GATE_RANKS:
        return None
    out_TF = both_TF.new_empty(both_TF.shape)
    tiles = cdiv(width, GATE_WIDTH)
    _gated_back_learning(
        (tiles, num_parts(tiles, parts)),
        (grad_TF, both_TF, above_TN, out_TF, sum_PWN),
        (num,),
        (
            *(width, grad_TF.stride(0), both_TF.stride(0), above_TN.stride(0)),
            *(num_rows, num_ranks, GATE_WIDTH, GATE_RANKS, GATE_TOKENS),
        ),
        warps=8,
    )
    return out_TF


@Kernel
@triton.jit(do_not_specialize=["num"])
def _gated_back_learning(
    grad, both, above, out, total, num,
    WIDTH: tl.constexpr, GRAD_STRIDE: tl.constexpr, BOTH_STRIDE: tl.constexpr, ABOVE_STRIDE: tl.constexpr,
    SUMS: tl.constexpr, N: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """What came out is the product's second factor, and reaches it through the processor's shared memory. As the first
    factor it would have to be transposed, and all of it would be computed twice: once laid out as it is stored, once as
    it is multiplied. The gradient that comes in is loaded a step ahead by hand, since it is no factor of a product: for
    those the compiler does so.
    """
    column_F, rank_N = tl.program_id(0) * BLOCK_F + tl.arange(0, BLOCK_F), tl.arange(0, BLOCK_N)
    share = (num + tl.num_programs(1) * BLOCK_T - 1) // (tl.num_programs(1) * BLOCK_T) * BLOCK_T
    count = tl.minimum(share, num - tl.program_id(1) * share)
    first = tl.program_id(1).to(tl.int64) * share
    grad += first * GRAD_STRIDE
    both += first * BOTH_STRIDE
    above += first * ABOVE_STRIDE
    out += first * (2 * WIDTH)
    sum_NF = tl.zeros([BLOCK_N, BLOCK_F], tl.float32)
    next_TF = _load_part(grad, 0, count, column_F, GRAD_STRIDE, WIDTH, BLOCK_T)
    for start in range(0, count, BLOCK_T):
        token_T = start + tl.arange(0, BLOCK_T)
        gate_TF = _load_part(both, start, count, column_F, BOTH_STRIDE, WIDTH, BLOCK_T)
        value_TF = _load_part(both + WIDTH, start, count, column_F, BOTH_STRIDE, WIDTH, BLOCK_T).to(tl.float32)
        above_TN = _load_part(above, start, count, rank_N, ABOVE_STRIDE, N, BLOCK_T)
        grad_TF = next_TF.to(tl.float32)
        next_TF = _load_part(grad, start + BLOCK_T, count, column_F, GRAD_STRIDE, WIDTH, BLOCK_T)
        wide_TF = gate_TF.to(tl.float32)
        open_TF = _open_by(wide_TF)
        opened_TF = (wide_TF * open_TF).to(gate_TF.dtype).to(tl.float32)
        inside = (token_T[:, None] < count) & (column_F[None, :] < WIDTH)
        to = out + token_T[:, None] * (2 * WIDTH) + column_F[None, :]
        tl.store(to, grad_TF * value_TF * open_TF * (1.0 + wide_TF * (1.0 - open_TF)), mask=inside)
        tl.store(to + WIDTH, grad_TF * opened_TF, mask=inside)
        again_TF = (opened_TF * value_TF).to(gate_TF.dtype)
        sum_NF = tl.dot(tl.trans(above_TN), again_TF, sum_NF, input_precision="ieee")
    row_F = SUMS - WIDTH + column_F
    to = total + tl.program_id(1).to(tl.int64) * (SUMS * N) + row_F[:, None] * N + rank_N[None, :]
    inside = (column_F < WIDTH)[:, None] & (rank_N < N)[None, :]
    tl.store(to, tl.load(to, mask=inside, other=0.0) + tl.trans(sum_NF), mask=inside)


@triton.jit
def _load_part(
    source, start, count, column_C, STRIDE: tl.constexpr, WIDTH: tl.constexpr, BLOCK_T: tl.constexpr
):  # fmt: skip
    """Some columns of some tokens, and zeros where there are none."""
    token_T = start + tl.arange(0, BLOCK_T)
    inside = (token_T[:, None] < count) & (column_C[None, :] < WIDTH)
    return tl.load(source + token_T[:, None] * STRIDE + column_C[None, :], mask=inside, other=0.0)
