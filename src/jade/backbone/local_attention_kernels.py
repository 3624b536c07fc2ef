# mypy: disable-error-code="misc, no-untyped-def, no-any-return, untyped-decorator"
"""Attention over slots on a GPU, of prompts that are read.

Tiles of kernels that are made for long sequences are of one head each, and prompts of some hundred tokens do not fill
them. Here a tile holds all query heads of a key head: a row for each of them at each token, so that keys are read once
for all and less of a tile stays empty. Imported on a GPU only: Triton comes with torch's CUDA builds.

N = tokens in the row, C = pieces of requests, H = query heads, K = key-value heads, G = H / K, D = head size,
S = slots, P = positions; inside kernels M = rows and N = keys that are worked at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

import torch
import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor

LOG2_E = log2(torch.e)
"""Weights are powers of two, which is what the hardware takes: scores are scaled to that."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """How much a program takes at once, and how the compiler is to lay it out."""

    rows: int
    keys: int
    warps: int
    stages: int


PROMPTS = Blocks(rows=64, keys=64, warps=4, stages=3)
"""What was found best on an H200 for the learner's attention, whose calls are alike."""


def attend_prompts(
    q_NHD: Tensor, kv_2SPKD: Tensor, bounds_3C: Tensor, piece: int, scale: float, blocks: Blocks = PROMPTS
) -> Tensor:
    """What the tokens of prompts see, where their keys and values have been stored already.

    A request is cut into pieces of at most `piece` tokens. Their bounds: where each begins in the row (and the last
    one's end), where its slot begins among all positions of all slots, how many positions its last token sees. Tokens
    of no piece see nothing, and what comes out for them is whatever was there.
    """
    num_heads, size = q_NHD.shape[1:]
    num_kv = kv_2SPKD.shape[3]
    out_NHD = torch.empty_like(q_NHD)
    group = num_heads // num_kv
    num_tiles = triton.cdiv(piece * group, blocks.rows)
    num_bounds = bounds_3C.shape[1]
    _attend_prompts[((num_bounds - 1) * num_tiles * num_kv,)](
        q_NHD, kv_2SPKD, bounds_3C, out_NHD, scale * LOG2_E, num_bounds, kv_2SPKD.stride(0), kv_2SPKD.stride(2),
        num_kv, group, size, num_tiles, blocks.rows, blocks.keys, num_warps=blocks.warps, num_stages=blocks.stages,
    )  # fmt: skip
    return out_NHD


@triton.jit(do_not_specialize=["num_bounds"])
def _attend_prompts(  # noqa: ANN202
    query, kv, bounds, out, scale, num_bounds, side_stride, position_stride,  # noqa: ANN001
    K: tl.constexpr, G: tl.constexpr, D: tl.constexpr, TILES: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program is some rows of a piece, under one key head. Heads come next to each other: they read the same pieces
    of memory. Of a piece's tiles the last come first, because they see most."""
    head, tile = tl.program_id(0) % K, tl.program_id(0) // K
    piece = bounds + tile // TILES
    first = (TILES - 1 - tile % TILES) * BLOCK_M
    begin, num_seen = tl.load(piece), tl.load(piece + 2 * num_bounds)
    num_queries = tl.load(piece + 1) - begin
    if first < num_queries * G:  # pieces that only fill up the bounds have none
        row_M, column_D = first + tl.arange(0, BLOCK_M), tl.arange(0, D)
        token_M = row_M // G
        place_M = ((begin + token_M).to(tl.int64) * K + head) * (G * D) + (row_M % G) * D
        place_MD = place_M[:, None] + column_D[None, :]
        inside_M1 = (row_M < num_queries * G)[:, None]
        query_MD = tl.load(query + place_MD, mask=inside_M1, other=0.0)
        keys = kv + tl.load(piece + num_bounds).to(tl.int64) * position_stride + head * D
        before = num_seen - num_queries
        last_M = token_M + before
        most_M = tl.full([BLOCK_M], float("-inf"), tl.float32)
        sum_M = tl.zeros([BLOCK_M], tl.float32)
        out_MD = tl.zeros([BLOCK_M, D], tl.float32)
        clear = (first // G + before + 1) // BLOCK_N * BLOCK_N  # keys before this one are seen by all
        end = (tl.minimum(first + BLOCK_M, num_queries * G) - 1) // G + before + 1
        most_M, sum_M, out_MD = _see(
            query_MD, keys, side_stride, position_stride, 0, clear, num_seen, last_M, scale, most_M, sum_M, out_MD,
            D, BLOCK_N, True,
        )  # fmt: skip
        most_M, sum_M, out_MD = _see(
            query_MD, keys, side_stride, position_stride, clear, end, num_seen, last_M, scale, most_M, sum_M, out_MD,
            D, BLOCK_N, False,
        )  # fmt: skip
        tl.store(out + place_MD, out_MD / sum_M[:, None], mask=inside_M1)


@triton.jit
def _see(  # noqa: ANN202
    query_MD, keys, side_stride, position_stride, begin, end, num_seen, last_M, scale, most_M, sum_M, out_MD,  # noqa: ANN001
    D: tl.constexpr, BLOCK_N: tl.constexpr, ALL: tl.constexpr,
):  # fmt: skip
    """Goes on with what rows have seen, over more keys: all of which they see, or some."""
    for start in range(begin, end, BLOCK_N):
        key_N = start + tl.arange(0, BLOCK_N)
        place_ND = keys + key_N[:, None] * position_stride + tl.arange(0, D)[None, :]
        if ALL:
            key_ND = tl.load(place_ND)
            value_ND = tl.load(place_ND + side_stride)
        else:
            inside_N1 = (key_N < num_seen)[:, None]
            key_ND = tl.load(place_ND, mask=inside_N1, other=0.0)
            value_ND = tl.load(place_ND + side_stride, mask=inside_N1, other=0.0)
        score_MN = tl.dot(query_MD, tl.trans(key_ND), input_precision="ieee") * scale
        if not ALL:
            score_MN = tl.where(key_N[None, :] <= last_M[:, None], score_MN, float("-inf"))
        # Never minus infinity: the first key is seen by all.
        now_M = tl.maximum(most_M, tl.max(score_MN, 1))
        weight_MN = tl.exp2(score_MN - now_M[:, None])
        fade_M = tl.exp2(most_M - now_M)
        sum_M = sum_M * fade_M + tl.sum(weight_MN, 1)
        out_MD = tl.dot(weight_MN.to(value_ND.dtype), value_ND, out_MD * fade_M[:, None], input_precision="ieee")
        most_M = now_M
    return most_M, sum_M, out_MD
