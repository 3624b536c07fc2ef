# mypy: disable-error-code="misc, no-untyped-def, no-any-return, untyped-decorator"
"""Heads turned by their tokens' angles, and gradients at keys and values added up over the calls that share them.

Shapes: T = tokens of the row, S = tokens of its calls, each counted whole, U = tokens that calls share, X = heads of
queries, keys and values side by side, K = key-value heads, D = head width, E = half of it.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor

from jade.learn.layers.kernels.sizes import TILE, cdiv, power_of_2
from jade.learn.layers.launch import Kernel

CALLS_AT_ONCE = 8
"""Calls whose gradients of a shared token are asked for at once."""


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
    block = power_of_2(num_heads * size // 2)
    rows = max(1, TILE // block // 4)
    _turn(
        (cdiv(num, rows),),
        (heads_TXD, out_SXD, cos_TE, sin_TE, cos_TE if place_S is None else place_S),
        (num,),
        (heads_TXD.stride(0), out_SXD.stride(0), num_heads, num_turned, size // 2, rows, block, place_S is not None),
    )


@Kernel
@triton.jit(do_not_specialize=["num"])
def _turn(
    heads, out, cos, sin, places, num,
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
    block = power_of_2(num_heads * size // 2)
    rows = max(1, TILE // block // 8)
    _collect(
        (cdiv(num, rows),),
        (key_grad_SKD, value_grad_SKD, out_TXD, cos_TE, sin_TE, token_U, *calls),
        (num,),
        (out_TXD.stride(0), num_heads, size // 2, rows, block, CALLS_AT_ONCE),
    )


@triton.jit
def _load_row(grad, place, inside):
    return tl.load(grad + place, mask=inside, other=0.0).to(tl.float32)


@Kernel
@triton.jit(do_not_specialize=["num"])
def _collect(
    key_grad, value_grad, out, cos, sin, tokens, order, ends, num,
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
