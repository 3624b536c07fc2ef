# mypy: disable-error-code="misc, no-untyped-def, no-any-return, untyped-decorator"
"""Attention over slots on a GPU: of prompts that are read, and of one new token a slot.

Tiles of kernels that are made for long sequences are of one head each, and prompts of some hundred tokens do not fill
them. Here a tile holds all query heads of a key head: a row for each of them at each token, so that keys are read once
for all and less of a tile stays empty. Imported on a GPU only: Triton comes with torch's CUDA builds.

N = tokens in the row, B = requests, C = pieces of them, H = query heads, K = key-value heads, G = H / K, D = head size,
X = the heads of queries, keys and values side by side, S = slots, P = positions; inside kernels M = rows and N = keys
that are worked at once.
"""

from __future__ import annotations

from math import log2

import torch
import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor

from jade.backbone.local.blocks import Blocks
from jade.backbone.local.kernels import block_for

LOG2_E = log2(torch.e)
"""Weights are powers of two, which is what the hardware takes: scores are scaled to that."""


PROMPTS = Blocks(rows=64, keys=64, warps=4, stages=3)
"""What was found best on an H200 for the learner's attention, whose calls are alike."""
STEP = Blocks(rows=16, keys=64, warps=4, stages=3)
"""Found best on an H200, before a step's attention also turned and stored. Rows are the query heads of a key head."""


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
def _attend_prompts(
    query, kv, bounds, out, scale, num_bounds, side_stride, position_stride,
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
def _see(
    query_MD, keys, side_stride, position_stride, begin, end, num_seen, last_M, scale, most_M, sum_M, out_MD,
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
        # What was added up so far was measured against a lower maximum: it fades to the new one.
        fade_M = tl.exp2(most_M - now_M)
        sum_M = sum_M * fade_M + tl.sum(weight_MN, 1)
        out_MD = tl.dot(weight_MN.to(value_ND.dtype), value_ND, out_MD * fade_M[:, None], input_precision="ieee")
        most_M = now_M
    return most_M, sum_M, out_MD


def attend_one(
    qkv_BX: Tensor,
    cos_PD: Tensor,
    sin_PD: Tensor,
    kv_2SPKD: Tensor,
    position_B: Tensor,
    done_S: Tensor,
    num_heads: int,
    scale: float,
    blocks: Blocks = STEP,
) -> Tensor:
    """What a new token in each of the first slots sees. Its queries and key are rotated by its position, its key and
    value are stored. A slot that is done is computed for nobody: nothing of it is read or written."""
    num_kv, size = kv_2SPKD.shape[3:]
    group = num_heads // num_kv
    out_BHD = qkv_BX.new_empty(len(qkv_BX), num_heads, size)
    _attend_one[(len(qkv_BX), num_kv)](
        qkv_BX, cos_PD, sin_PD, kv_2SPKD, position_B, done_S, out_BHD, scale * LOG2_E,
        kv_2SPKD.stride(0), kv_2SPKD.stride(1), kv_2SPKD.stride(2),
        group, block_for(group), num_kv, size, blocks.keys, num_warps=blocks.warps, num_stages=blocks.stages,
    )  # fmt: skip
    return out_BHD


@triton.jit
def _attend_one(
    qkv, cos, sin, kv, position, done, out, scale, side_stride, slot_stride, position_stride,
    G: tl.constexpr, BLOCK_G: tl.constexpr, K: tl.constexpr, D: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A program is a key-value head of a slot; its query heads are the rows of the products."""
    slot, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    group_G, column_D = tl.arange(0, BLOCK_G), tl.arange(0, D)
    across_D = (column_D + D // 2) % D  # what a column is turned with stands in the other half
    is_busy = tl.load(done + slot) == 0
    place = tl.load(position + slot)
    cos_D = tl.load(cos + place * D + column_D).to(tl.float32)
    sin_D = tl.load(sin + place * D + column_D).to(tl.float32)
    sin_D = tl.where(column_D < D // 2, -sin_D, sin_D)
    line = qkv + slot * ((G + 2) * K * D)
    inside_G1 = group_G[:, None] < G
    heads_G1 = (head * G + group_G)[:, None] * D
    query_GD = tl.load(line + heads_G1 + column_D[None, :], mask=inside_G1, other=0.0)
    across_GD = tl.load(line + heads_G1 + across_D[None, :], mask=inside_G1, other=0.0)
    turned_GD = query_GD.to(tl.float32) * cos_D[None, :] + across_GD.to(tl.float32) * sin_D[None, :]
    query_GD = turned_GD.to(query_GD.dtype)
    own = line + (G * K + head) * D
    key_D, across_key_D = tl.load(own + column_D), tl.load(own + across_D)
    key_D = (key_D.to(tl.float32) * cos_D + across_key_D.to(tl.float32) * sin_D).to(key_D.dtype)
    value_D = tl.load(own + K * D + column_D)
    keys = kv + slot * slot_stride + head * D
    stored = keys + place * position_stride + column_D
    stores_D = column_D < tl.where(is_busy, D, 0)
    tl.store(stored, key_D, mask=stores_D)
    tl.store(stored + side_stride, value_D, mask=stores_D)
    # Its own key and value are at hand: what was just stored need not be read.
    most_G = tl.sum(query_GD.to(tl.float32) * key_D.to(tl.float32)[None, :], 1) * scale
    sum_G = tl.full([BLOCK_G], 1.0, tl.float32)
    out_GD = tl.zeros([BLOCK_G, D], tl.float32) + value_D.to(tl.float32)[None, :]
    length = tl.where(is_busy, place, 0).to(tl.int32)
    for start in range(0, length, BLOCK_N):
        key_N = start + tl.arange(0, BLOCK_N)
        inside_N1 = (key_N < length)[:, None]
        place_ND = keys + key_N[:, None] * position_stride + column_D[None, :]
        key_ND = tl.load(place_ND, mask=inside_N1, other=0.0)
        value_ND = tl.load(place_ND + side_stride, mask=inside_N1, other=0.0)
        score_GN = tl.dot(query_GD, tl.trans(key_ND), input_precision="ieee") * scale
        score_GN = tl.where((key_N < length)[None, :], score_GN, float("-inf"))
        now_G = tl.maximum(most_G, tl.max(score_GN, 1))
        weight_GN = tl.exp2(score_GN - now_G[:, None])
        fade_G = tl.exp2(most_G - now_G)
        sum_G = sum_G * fade_G + tl.sum(weight_GN, 1)
        out_GD = tl.dot(weight_GN.to(value_ND.dtype), value_ND, out_GD * fade_G[:, None], input_precision="ieee")
        most_G = now_G
    to = out + slot * (K * G * D) + heads_G1 + column_D[None, :]
    tl.store(to, out_GD / sum_G[:, None], mask=inside_G1)
