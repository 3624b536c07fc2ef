# mypy: disable-error-code="misc, no-untyped-def, no-any-return, untyped-decorator"
"""Attention inside the calls of a packed row, for calls that add few tokens to many; its way back: `attention_back.py`.

Tiles of kernels that are made for long sequences are of one head each, and a call's few tokens do not fill them. Here a
tile holds all query heads of a key head. Which program does what was planned before (`tiles.py`).

Products are taken of numbers as wide as the inputs, and added up in float32; weights are rounded to the width of the
values before they meet them.

Shapes: T = tokens of the row, S = tokens of its calls, each counted whole, A and K = query and key-value heads, G =
query heads of a key head, D = head width; inside kernels M = rows and N = keys that are worked at once, with a row for
each query head of the group at each token. A key is seen by the query of its own token and by those behind it.
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor

from jade.learn.layers.kernels.heads import LOG2_E, load_heads, load_turned, read_tile, sizes_of, store_heads
from jade.learn.layers.launch import Kernel
from jade.learn.layers.tiles import Tiles


def attend(
    heads_TAD: Tensor, key_SKD: Tensor, value_SKD: Tensor, angles: tuple[Tensor, Tensor], tiles: Tiles, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """What the queries see when they are turned by their tokens' angles, as the keys are already; the logarithms (of
    base two) of their weights' sums, and the turned queries, both of which the way back asks for.

    Heads and their numbers stand side by side, tokens as far apart as they like. The sums stand by key head, as the
    rows of its tiles do: so they are read in one piece.
    """
    num_keys, size = key_SKD.shape[1:]
    out_TAD, query_TAD = heads_TAD.new_empty(heads_TAD.shape), heads_TAD.new_empty(heads_TAD.shape)
    log_sum_KTG = heads_TAD.new_empty(num_keys, len(heads_TAD), tiles.group, dtype=torch.float32)
    blocks = tiles.choice.forward
    _attend(
        (len(tiles.forward_PI) * num_keys,),
        (heads_TAD, key_SKD, value_SKD, *angles, out_TAD, log_sum_KTG, query_TAD, tiles.forward_PI),
        (scale * LOG2_E, len(heads_TAD)),
        (heads_TAD.stride(0), key_SKD.stride(0), value_SKD.stride(0), *sizes_of(num_keys, tiles.group, size, blocks)),
        warps=blocks.warps,
        stages=blocks.stages,
    )
    return out_TAD, log_sum_KTG, query_TAD


@triton.jit
def _see(
    query_MD, key, value, KEY_STRIDE: tl.constexpr, VALUE_STRIDE: tl.constexpr, begin, end, num_keys,
    last_M, scale, most_M, sum_M, out_MD,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, ALL: tl.constexpr,
):  # fmt: skip
    """Goes on with what rows have seen, over more keys: all of which they see, or some."""
    for start in range(begin, end, BLOCK_N):
        key_N = start + tl.arange(0, BLOCK_N)
        key_ND = load_heads(key, key_N * KEY_STRIDE, key_N < num_keys, D, BLOCK_D, ALL)
        score_MN = tl.dot(query_MD, tl.trans(key_ND), input_precision="ieee") * scale
        if not ALL:
            score_MN = tl.where(key_N[None, :] <= last_M[:, None], score_MN, float("-inf"))
        value_ND = load_heads(value, key_N * VALUE_STRIDE, key_N < num_keys, D, BLOCK_D, ALL)
        # Never minus infinity: the first key is seen by all.
        now_M = tl.maximum(most_M, tl.max(score_MN, 1))
        weight_MN = tl.exp2(score_MN - now_M[:, None])
        # What was added up so far was measured against a lower maximum: it fades to the new one.
        fade_M = tl.exp2(most_M - now_M)
        sum_M = sum_M * fade_M + tl.sum(weight_MN, 1)
        out_MD = tl.dot(weight_MN.to(value_ND.dtype), value_ND, out_MD * fade_M[:, None], input_precision="ieee")
        most_M = now_M
    return most_M, sum_M, out_MD


@Kernel
@triton.jit(do_not_specialize=["num_tokens"])
def _attend(
    heads, key, value, cos, sin, out, log_sum, query, tiles, scale, num_tokens,
    HEADS_STRIDE: tl.constexpr, KEY_STRIDE: tl.constexpr, VALUE_STRIDE: tl.constexpr,
    K: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """Queries are turned here, since each belongs to one program; keys are read by many, and come turned."""
    first, query_start, num_queries, key_start, num_keys, before, head = read_tile(tiles, K, NUMBERS)
    row_M = first + tl.arange(0, BLOCK_M)
    inside_M = row_M < num_queries * G
    token_M, head_M = row_M // G, row_M % G
    query_MD = load_turned(
        heads + query_start * HEADS_STRIDE + head * (G * D), token_M * HEADS_STRIDE + head_M * D, inside_M,
        cos + query_start * (D // 2), sin + query_start * (D // 2), token_M, D, BLOCK_D,
    )  # fmt: skip
    out_start = query_start * (K * G * D) + head * (G * D)
    out_place_M = token_M * (K * G * D) + head_M * D
    store_heads(query + out_start, out_place_M, inside_M, query_MD, D, BLOCK_D)
    key += key_start * KEY_STRIDE + head * D
    value += key_start * VALUE_STRIDE + head * D
    last_M = token_M + before
    most_M = tl.full([BLOCK_M], float("-inf"), tl.float32)
    sum_M = tl.zeros([BLOCK_M], tl.float32)
    out_MD = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    clear = (first // G + before + 1) // BLOCK_N * BLOCK_N  # keys before this one are seen by all
    end = (tl.minimum(first + BLOCK_M, num_queries * G) - 1) // G + before + 1
    most_M, sum_M, out_MD = _see(
        query_MD, key, value, KEY_STRIDE, VALUE_STRIDE, 0, clear, num_keys, last_M, scale, most_M, sum_M, out_MD,
        D, BLOCK_D, BLOCK_N, True,
    )  # fmt: skip
    most_M, sum_M, out_MD = _see(
        query_MD, key, value, KEY_STRIDE, VALUE_STRIDE, clear, end, num_keys, last_M, scale, most_M, sum_M, out_MD,
        D, BLOCK_D, BLOCK_N, False,
    )  # fmt: skip
    store_heads(out + out_start, out_place_M, inside_M, out_MD / sum_M[:, None], D, BLOCK_D)
    log_sum += (head * num_tokens + query_start) * G
    tl.store(log_sum + row_M, most_M + tl.log2(sum_M), mask=inside_M)
