# mypy: disable-error-code="misc, no-untyped-def, no-any-return, untyped-decorator"
"""The element-wise work between the matrix products of a layer that learns, forward and backward, a launch each.

Sums are taken in float32. Forward they round where the lean layers round, since the sampler's log-probs are compared
with these; backward they round once, at the end. Imported on a GPU only: Triton comes with torch's CUDA builds.

How far apart tokens stand, heads or numbers belongs to the model and not to the batch: kernels are compiled for it, so
that they know what they may read at once, and a launch has less to say (`launch.py`).

Shapes: T = tokens of the row, S = tokens of its calls, each counted whole, H = hidden width, F = feed-forward width,
X = columns of queries, keys and values side by side, A and K = query and key-value heads, D = head width, E = half of
it, P = programs or parts; O and I = a product's outputs and inputs, N = the ranks of its adapters together.
"""

from __future__ import annotations

from functools import cache
from math import e, log2

import torch
import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor

from jade.learn.layers.launch import Kernel

TILE = 4096
"""Numbers that a program holds of each tensor: enough to keep the memory busy, few enough for the registers."""
FEED_BLOCK = 512
NORM_BACK_NUMBERS, NORM_BACK_A_WARP = 1152, 1152
"""Numbers of each tensor in a tile of whole rows on a norm's way back, where a row is not longer, and how many of them
are a warp's: what `benchmarks/norms.py` varies. A single warp waits for no other."""
CALLS_AT_ONCE = 8
"""Calls whose gradients of a shared token are asked for at once."""
LEARN_WIDTH, LEARN_RANKS, LEARN_TOKENS = 128, 128, 64
"""What a program that makes adapters' gradients takes at once: columns of a product's side, ranks, tokens. Of tokens
twice as many where it has a processor for itself, and that has the room."""
ROOM_BYTES = 200_000
"""Of a processor's shared memory, for three times two tiles of 128 by 128; an H200's has it, an RTX 4090's half."""
GATE_WIDTH, GATE_RANKS, GATE_TOKENS = 128, 64, 32
"""The same where a feed-forward part's gradients are made on the way; of ranks these are the most, and as many as the
fast products take at least."""
SLOTS = 264
"""Programs that an H200 works on at once: two on each of its processors, or one where it needs most of a processor's
memory. Those that make adapters' gradients all take equally long: a few more would take twice as long."""
MINUS_LOG2_E: tl.constexpr = tl.constexpr(-log2(e))
"""e^-x is two to the power of x times this."""
LEAST_DOT = 16
"""The narrowest product there is."""
PROGRAMS = 1024
"""Partial sums of a gain's gradient; each is taken by one program over its share of the tokens."""


def _power_of_2(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _cdiv(number: int, size: int) -> int:
    return -(-number // size)


def _num_parts(tiles: int, most: int, slots: int) -> int:
    """In how many parts tokens are added up, for each of so many tiles: as many as can be worked on at once."""
    return min(most, max(1, slots // tiles))


@cache
def _shared_bytes(device: torch.device) -> int:
    """Of one processor, for one program; 0 where that is not said."""
    if device.type != "cuda":
        return 0
    return int(getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 0))


def add_norm(x_TH: Tensor, delta_TH: Tensor | None, gain_H: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x + delta, and its root-mean-square norm. Without a delta, x itself comes back.

    Tokens of a delta may be further apart than it is wide: here as below it may be a part of a product's output.
    """
    num, width = x_TH.shape
    block = _power_of_2(width)
    rows = max(1, TILE // block)
    sum_TH = x_TH if delta_TH is None else x_TH.new_empty(x_TH.shape)
    normed_TH = x_TH.new_empty(x_TH.shape)
    _add_norm(
        (_cdiv(num, rows),),
        (x_TH, x_TH if delta_TH is None else delta_TH, gain_H, sum_TH, normed_TH),
        (num, eps),
        (width, width if delta_TH is None else delta_TH.stride(0), rows, block, delta_TH is not None),
        warps=8 if rows * block > TILE else 4,
    )
    return sum_TH, normed_TH


@Kernel
@triton.jit(do_not_specialize=["num"])
def _add_norm(  # noqa: ANN202
    x, delta, gain, total, normed, num, eps,  # noqa: ANN001
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
    rest = _power_of_2(width - main) if width > main else 0
    return _power_of_2(max(1, numbers // (main + rest)) + 1) // 2, main, rest


def norm_back(
    grad_TH: Tensor, x_TH: Tensor, gain_H: Tensor, past_TH: Tensor, eps: float, *, with_gain: bool
) -> tuple[Tensor, Tensor | None]:
    """The gradient at x, with what flows past the norm added, and the gain's where it is asked for."""
    num, width = x_TH.shape
    # A gain's gradient is added up row by row: few programs then leave few sums.
    rows, main, rest = _tile_back(width, NORM_BACK_NUMBERS * (2 if with_gain else 1))
    num_programs = min(PROGRAMS, _cdiv(num, rows)) if with_gain else _cdiv(num, rows)
    out_TH = x_TH.new_empty(x_TH.shape)
    part_PH = gain_H.new_empty(num_programs if with_gain else 1, width, dtype=torch.float32)
    _norm_back(
        (num_programs,),
        (grad_TH, x_TH, gain_H, past_TH, out_TH, part_PH),
        (num, eps),
        (width, grad_TH.stride(0), rows, main, rest, with_gain),
        warps=min(8, _power_of_2(_cdiv(rows * (main + rest), NORM_BACK_A_WARP))),
    )
    return out_TH, part_PH.sum(0) if with_gain else None


@triton.jit
def _part(row, num, WIDTH: tl.constexpr, FIRST: tl.constexpr, BLOCK: tl.constexpr):  # noqa: ANN001, ANN202
    """The columns of one part of a tile, and where it holds anything."""
    column = FIRST + tl.arange(0, BLOCK)[None, :]
    inside = row < num
    if FIRST + BLOCK > WIDTH:
        inside = inside & (column < WIDTH)
    return column, inside


@triton.jit
def _load_back(  # noqa: ANN202
    grad, x, past, row, num,  # noqa: ANN001
    WIDTH: tl.constexpr, STRIDE: tl.constexpr, FIRST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What came into a norm, the gradient at what came out, and what flows past it."""
    column, inside = _part(row, num, WIDTH, FIRST, BLOCK)
    value = tl.load(x + row * WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    above = tl.load(grad + row * STRIDE + column, mask=inside, other=0.0).to(tl.float32)
    return value, above, tl.load(past + row * WIDTH + column, mask=inside, other=0.0)


@triton.jit
def _store_back(  # noqa: ANN202
    out, value, above, aside, along, spread, row, num,  # noqa: ANN001
    WIDTH: tl.constexpr, FIRST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    column, inside = _part(row, num, WIDTH, FIRST, BLOCK)
    found = aside.to(tl.float32) + spread * (above - value * along)
    tl.store(out + row * WIDTH + column, found, mask=inside)


@triton.jit
def _load_gain(gain, WIDTH: tl.constexpr, FIRST: tl.constexpr, BLOCK: tl.constexpr):  # noqa: ANN001, ANN202
    column = FIRST + tl.arange(0, BLOCK)[None, :]
    return tl.load(gain + column, mask=column < WIDTH, other=0.0).to(tl.float32)


@triton.jit
def _store_part(part, of_gain, WIDTH: tl.constexpr, FIRST: tl.constexpr, BLOCK: tl.constexpr):  # noqa: ANN001, ANN202
    column = FIRST + tl.arange(0, BLOCK)
    tl.store(part + tl.program_id(0) * WIDTH + column, tl.sum(of_gain, axis=0), mask=column < WIDTH)


@Kernel
@triton.jit(do_not_specialize=["num"])
def _norm_back(  # noqa: ANN202
    grad, x, gain, past, out, part, num, eps,  # noqa: ANN001
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


def gated(both_TF: Tensor) -> Tensor:
    """silu(first half) * second half."""
    num, width = both_TF.shape[0], both_TF.shape[1] // 2
    out_TF = both_TF.new_empty(num, width)
    rows = TILE // FEED_BLOCK // 2
    grid = _cdiv(num, rows), _cdiv(width, FEED_BLOCK)
    _gated(grid, (both_TF, out_TF), (num,), (width, both_TF.stride(0), rows, FEED_BLOCK))
    return out_TF


@triton.jit
def _open_by(wide):  # noqa: ANN001, ANN202
    """The sigmoid, by five instructions a number where a division and an exponential of base e take twelve."""
    root = tl.rsqrt(1.0 + tl.exp2(wide * MINUS_LOG2_E))
    return root * root


@Kernel
@triton.jit(do_not_specialize=["num"])
def _gated(  # noqa: ANN202
    both, out, num, WIDTH: tl.constexpr, STRIDE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr  # noqa: ANN001
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
        (_cdiv(num, rows), _cdiv(width, FEED_BLOCK)),
        (grad_TF, both_TF, out_TF, again_TF),
        (num,),
        (width, grad_TF.stride(0), both_TF.stride(0), rows, FEED_BLOCK),
    )
    return out_TF, again_TF


@Kernel
@triton.jit(do_not_specialize=["num"])
def _gated_back(  # noqa: ANN202
    grad, both, out, again, num,  # noqa: ANN001
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
    tiles = _cdiv(width, GATE_WIDTH)
    _gated_back_learning(
        (tiles, _num_parts(tiles, parts, SLOTS)),
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
def _gated_back_learning(  # noqa: ANN202
    grad, both, above, out, total, num,  # noqa: ANN001
    WIDTH: tl.constexpr, GRAD_STRIDE: tl.constexpr, BOTH_STRIDE: tl.constexpr, ABOVE_STRIDE: tl.constexpr,
    SUMS: tl.constexpr, N: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """The product is taken with what came out as its second factor, which goes there by the processor's shared memory:
    of a first factor that is turned all would be computed twice, once as it is stored and once as it is multiplied.
    What only the other gradients need is asked for a step ahead by hand; the compiler does so for a product's factors.
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
def _load_part(  # noqa: ANN202
    source, start, count, column_C, STRIDE: tl.constexpr, WIDTH: tl.constexpr, BLOCK_T: tl.constexpr  # noqa: ANN001
):  # fmt: skip
    """Some columns of some tokens, and zeros where there are none."""
    token_T = start + tl.arange(0, BLOCK_T)
    inside = (token_T[:, None] < count) & (column_C[None, :] < WIDTH)
    return tl.load(source + token_T[:, None] * STRIDE + column_C[None, :], mask=inside, other=0.0)


def turn(
    heads_TXD: Tensor,
    cos_TE: Tensor,
    sin_TE: Tensor,
    place_S: Tensor | None,
    num_turned: int,
    out_SXD: Tensor,
) -> None:
    """The first heads turned by their tokens' angles, the others as they are; of all tokens, or of those at places."""
    num, num_heads, size = out_SXD.shape
    block = _power_of_2(num_heads * size // 2)
    rows = max(1, TILE // block // 4)
    _turn(
        (_cdiv(num, rows),),
        (heads_TXD, out_SXD, cos_TE, sin_TE, cos_TE if place_S is None else place_S),
        (num,),
        (heads_TXD.stride(0), out_SXD.stride(0), num_heads, num_turned, size // 2, rows, block, place_S is not None),
    )


@Kernel
@triton.jit(do_not_specialize=["num"])
def _turn(  # noqa: ANN202
    heads, out, cos, sin, places, num,  # noqa: ANN001
    HEADS_STRIDE: tl.constexpr, OUT_STRIDE: tl.constexpr,
    HEADS: tl.constexpr, TURNED: tl.constexpr, E: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    GATHERS: tl.constexpr,
):  # fmt: skip
    """A column is a pair of numbers that turn together: one of a head's first half, and its fellow in the second."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    head, angle = column // E, column % E
    inside = (row < num) & (head < HEADS)
    source = row
    if GATHERS:
        source = tl.load(places + row, mask=row < num, other=0)
    turns = inside & (head < TURNED)
    start = heads + source * HEADS_STRIDE + head * (2 * E) + angle
    one = tl.load(start, mask=inside, other=0.0).to(tl.float32)
    two = tl.load(start + E, mask=inside, other=0.0).to(tl.float32)
    cosine = tl.load(cos + source * E + angle, mask=turns, other=1.0).to(tl.float32)
    sine = tl.load(sin + source * E + angle, mask=turns, other=0.0).to(tl.float32)
    to = out + row * OUT_STRIDE + head * (2 * E) + angle
    tl.store(to, one * cosine - two * sine, mask=inside)
    tl.store(to + E, two * cosine + one * sine, mask=inside)


def collect(
    key_grad_SKD: Tensor,
    value_grad_SKD: Tensor,
    cos_TE: Tensor,
    sin_TE: Tensor,
    token_U: Tensor,
    calls: tuple[Tensor, Tensor],
    out_TXD: Tensor,
) -> None:
    """Gradients at keys and values of these tokens, added up over the calls that share them, the keys' turned back.

    `calls` says where each token stands in the calls: an order of their tokens, and where each token's part of it ends.
    """
    num, (num_heads, size) = len(token_U), key_grad_SKD.shape[1:]
    block = _power_of_2(num_heads * size // 2)
    rows = max(1, TILE // block // 8)
    _collect(
        (_cdiv(num, rows),),
        (key_grad_SKD, value_grad_SKD, out_TXD, cos_TE, sin_TE, token_U, *calls),
        (num,),
        (out_TXD.stride(0), num_heads, size // 2, rows, block, CALLS_AT_ONCE),
    )


@triton.jit
def _load_row(grad, place, inside):  # noqa: ANN001, ANN202
    return tl.load(grad + place, mask=inside, other=0.0).to(tl.float32)


@Kernel
@triton.jit(do_not_specialize=["num"])
def _collect(  # noqa: ANN202
    key_grad, value_grad, out, cos, sin, tokens, order, ends, num,  # noqa: ANN001
    OUT_STRIDE: tl.constexpr, K: tl.constexpr, E: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    AT_ONCE: tl.constexpr,
):  # fmt: skip
    """A row is a token; columns are as in `_turn`. Neighbours are mostly shared by the same calls: a program goes
    through those of all its tokens side by side, and never has to add up across its threads."""
    number = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    head, angle = column // E, column % E
    token = tl.load(tokens + number, mask=number < num, other=0).to(tl.int64)
    inside = (number < num) & (head < K)
    within = head * (2 * E) + angle
    begin = tl.load(ends + token - 1, mask=(token > 0) & (number < num), other=0)
    end = tl.load(ends + token, mask=number < num, other=0)
    one = tl.zeros([ROWS, BLOCK], tl.float32)
    two = tl.zeros([ROWS, BLOCK], tl.float32)
    left = tl.zeros([ROWS, BLOCK], tl.float32)
    right = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in range(0, tl.max(end - begin), AT_ONCE):
        for more in tl.static_range(AT_ONCE):  # unrolled: their loads wait for the memory together
            call = begin + first + more
            here = (call < end) & inside
            place = tl.load(order + call, mask=call < end, other=0) * (K * 2 * E) + within
            one += _load_row(key_grad, place, here)
            two += _load_row(key_grad, place + E, here)
            left += _load_row(value_grad, place, here)
            right += _load_row(value_grad, place + E, here)
    cosine = tl.load(cos + token * E + angle, mask=inside, other=0.0).to(tl.float32)
    sine = tl.load(sin + token * E + angle, mask=inside, other=0.0).to(tl.float32)
    to = out + token * OUT_STRIDE + within
    tl.store(to, one * cosine + two * sine, mask=inside)
    tl.store(to + E, two * cosine - one * sine, mask=inside)
    tl.store(to + K * 2 * E, left, mask=inside)
    tl.store(to + K * 2 * E + E, right, mask=inside)


def add_low_rank(grad_TO: Tensor, low_TN: Tensor, input_TI: Tensor | None, above_TN: Tensor, sum_PWN: Tensor) -> None:
    """Add to the gradients of adapters: of their ups, which are grad^T low, and behind them of their downs, which are
    input^T above, unless there is no input. Each part is added up by a program of its own over its share of the tokens:
    whoever adds up the parts gets the same each time."""
    (num, num_outputs), (parts, num_rows, num_ranks) = grad_TO.shape, sum_PWN.shape
    num_inputs = num_rows - num_outputs
    ranks = min(LEARN_RANKS, max(LEAST_DOT, _power_of_2(num_ranks)))
    tiles = _cdiv(num_outputs, LEARN_WIDTH) + (0 if input_TI is None else _cdiv(num_inputs, LEARN_WIDTH))
    tiles *= _cdiv(num_ranks, ranks)
    input_TI = grad_TO if input_TI is None else input_TI  # no program reads it
    alone = ranks > 64
    tokens = LEARN_TOKENS * (2 if alone and _shared_bytes(grad_TO.device) >= ROOM_BYTES else 1)
    _add_low_rank(
        (tiles, _num_parts(tiles, parts, SLOTS // 2 if alone else SLOTS)),
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
def _add_low_rank(  # noqa: ANN202
    grad, low, input, above, total, num,  # noqa: ANN001
    GRAD_STRIDE: tl.constexpr, LOW_STRIDE: tl.constexpr, INPUT_STRIDE: tl.constexpr, ABOVE_STRIDE: tl.constexpr,
    O: tl.constexpr, I: tl.constexpr, N: tl.constexpr,  # noqa: E741
    BLOCK_W: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """A program's tile belongs to one side; the other side's tokens are none to it. So both are worked one behind the
    other in the same memory, which two branches would not share."""
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
def _multiply(  # noqa: ANN202
    wide, narrow, column_W, rank_N, count, sum_WN,  # noqa: ANN001
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
