# mypy: disable-error-code="misc, no-untyped-def, no-any-return, untyped-decorator"
"""Root-mean-square norms, with what is added to the stream before them, and their way back.

Shapes: T = tokens of the row, H = hidden width, P = programs.
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor

from jade.learn.layers.kernels.sizes import TILE, cdiv, power_of_2
from jade.learn.layers.launch import Kernel

NORM_BACK_NUMBERS, NORM_BACK_A_WARP = 1152, 1152
"""Numbers of each tensor in a tile of whole rows on a norm's way back, where a row is not longer, and how many of them
are a warp's: what `benchmarks/norms.py` varies. A single warp waits for no other."""
PROGRAMS = 1024
"""Partial sums of a gain's gradient; each is taken by one program over its share of the tokens."""


def add_norm(x_TH: Tensor, delta_TH: Tensor | None, gain_H: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x + delta, and its root-mean-square norm. Without a delta, x itself comes back.

    Tokens of a delta may be further apart than it is wide: here as below it may be a part of a product's output.
    """
    num, width = x_TH.shape
    block = power_of_2(width)
    rows = max(1, TILE // block)
    sum_TH = x_TH if delta_TH is None else x_TH.new_empty(x_TH.shape)
    normed_TH = x_TH.new_empty(x_TH.shape)
    _add_norm(
        (cdiv(num, rows),),
        (x_TH, x_TH if delta_TH is None else delta_TH, gain_H, sum_TH, normed_TH),
        (num, eps),
        (width, width if delta_TH is None else delta_TH.stride(0), rows, block, delta_TH is not None),
        warps=8 if rows * block > TILE else 4,
    )
    return sum_TH, normed_TH


@Kernel
@triton.jit(do_not_specialize=["num"])
def _add_norm(
    x, delta, gain, total, normed, num, eps,
    WIDTH: tl.constexpr, STRIDE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < num) & (column < WIDTH)
    place = row * WIDTH + column
    value = tl.load(x + place, mask=inside, other=0.0)
    if ADDS:
        more = tl.load(delta + row * STRIDE + column, mask=inside, other=0.0)
        value = (value.to(tl.float32) + more.to(tl.float32)).to(value.dtype)
        tl.store(total + place, value, mask=inside)
    wide = value.to(tl.float32)
    wide = wide * tl.rsqrt(tl.sum(wide * wide, axis=1, keep_dims=True) / WIDTH + eps)
    scale = tl.load(gain + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    tl.store(normed + place, wide * scale, mask=inside)


def _tile_back(width: int, numbers: int) -> tuple[int, int, int]:
    """Rows of a tile that holds whole rows, and its columns in two parts: blocks are powers of two, and two of them fit
    a width that lies between more closely than one (576 is 512 and 64)."""
    main = 1 << (width.bit_length() - 1)
    rest = power_of_2(width - main) if width > main else 0
    return power_of_2(max(1, numbers // (main + rest)) + 1) // 2, main, rest


def norm_back(
    grad_TH: Tensor, x_TH: Tensor, gain_H: Tensor, past_TH: Tensor, eps: float, *, with_gain: bool
) -> tuple[Tensor, Tensor | None]:
    """The gradient at x, with what flows past the norm added, and the gain's where it is asked for."""
    num, width = x_TH.shape
    # A gain's gradient is added up row by row: few programs then leave few sums.
    rows, main, rest = _tile_back(width, NORM_BACK_NUMBERS * (2 if with_gain else 1))
    num_programs = min(PROGRAMS, cdiv(num, rows)) if with_gain else cdiv(num, rows)
    out_TH = x_TH.new_empty(x_TH.shape)
    part_PH = gain_H.new_empty(num_programs if with_gain else 1, width, dtype=torch.float32)
    _norm_back(
        (num_programs,),
        (grad_TH, x_TH, gain_H, past_TH, out_TH, part_PH),
        (num, eps),
        (width, grad_TH.stride(0), rows, main, rest, with_gain),
        warps=min(8, power_of_2(cdiv(rows * (main + rest), NORM_BACK_A_WARP))),
    )
    return out_TH, part_PH.sum(0) if with_gain else None


@triton.jit
def _part(row, num, WIDTH: tl.constexpr, FIRST: tl.constexpr, BLOCK: tl.constexpr):
    """The columns of one part of a tile, and where it holds anything."""
    column = FIRST + tl.arange(0, BLOCK)[None, :]
    inside = row < num
    if FIRST + BLOCK > WIDTH:
        inside = inside & (column < WIDTH)
    return column, inside


@triton.jit
def _load_back(
    grad, x, past, row, num,
    WIDTH: tl.constexpr, STRIDE: tl.constexpr, FIRST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What came into a norm, the gradient at what came out, and what flows past it."""
    column, inside = _part(row, num, WIDTH, FIRST, BLOCK)
    value = tl.load(x + row * WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    above = tl.load(grad + row * STRIDE + column, mask=inside, other=0.0).to(tl.float32)
    return value, above, tl.load(past + row * WIDTH + column, mask=inside, other=0.0)


@triton.jit
def _store_back(
    out, value, above, aside, along, spread, row, num,
    WIDTH: tl.constexpr, FIRST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    column, inside = _part(row, num, WIDTH, FIRST, BLOCK)
    # The gradient less its part along the normed row: a norm takes away the length, so that teaches nothing.
    found = aside.to(tl.float32) + spread * (above - value * along)
    tl.store(out + row * WIDTH + column, found, mask=inside)


@triton.jit
def _load_gain(gain, WIDTH: tl.constexpr, FIRST: tl.constexpr, BLOCK: tl.constexpr):
    column = FIRST + tl.arange(0, BLOCK)[None, :]
    return tl.load(gain + column, mask=column < WIDTH, other=0.0).to(tl.float32)


@triton.jit
def _store_part(part, of_gain, WIDTH: tl.constexpr, FIRST: tl.constexpr, BLOCK: tl.constexpr):
    column = FIRST + tl.arange(0, BLOCK)
    tl.store(part + tl.program_id(0) * WIDTH + column, tl.sum(of_gain, axis=0), mask=column < WIDTH)


@Kernel
@triton.jit(do_not_specialize=["num"])
def _norm_back(
    grad, x, gain, past, out, part, num, eps,
    WIDTH: tl.constexpr, STRIDE: tl.constexpr, ROWS: tl.constexpr, MAIN: tl.constexpr, REST: tl.constexpr,
    WITH_GAIN: tl.constexpr,
):  # fmt: skip
    """Programs go through the rows in strides, so that a gain's gradient has few partial sums."""
    scale = _load_gain(gain, WIDTH, 0, MAIN)
    of_gain = tl.zeros([ROWS, MAIN], tl.float32)
    if REST > 0:
        rest_scale = _load_gain(gain, WIDTH, MAIN, REST)
        rest_of_gain = tl.zeros([ROWS, REST], tl.float32)
    for first in range(tl.program_id(0) * ROWS, num, tl.num_programs(0) * ROWS):
        row = (first + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        value, above, aside = _load_back(grad, x, past, row, num, WIDTH, STRIDE, 0, MAIN)
        power = tl.sum(value * value, axis=1, keep_dims=True)
        if REST > 0:
            rest_value, rest_above, rest_aside = _load_back(grad, x, past, row, num, WIDTH, STRIDE, MAIN, REST)
            power += tl.sum(rest_value * rest_value, axis=1, keep_dims=True)
        spread = tl.rsqrt(power / WIDTH + eps)
        value = value * spread
        if WITH_GAIN:
            of_gain += above * value
        above = above * scale
        along = tl.sum(above * value, axis=1, keep_dims=True)
        if REST > 0:
            rest_value = rest_value * spread
            if WITH_GAIN:
                rest_of_gain += rest_above * rest_value
            rest_above = rest_above * rest_scale
            along += tl.sum(rest_above * rest_value, axis=1, keep_dims=True)
        along = along / WIDTH
        _store_back(out, value, above, aside, along, spread, row, num, WIDTH, 0, MAIN)
        if REST > 0:
            _store_back(out, rest_value, rest_above, rest_aside, along, spread, row, num, WIDTH, MAIN, REST)
    if WITH_GAIN:
        _store_part(part, of_gain, WIDTH, 0, MAIN)
        if REST > 0:
            _store_part(part, rest_of_gain, WIDTH, MAIN, REST)
