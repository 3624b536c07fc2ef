# mypy: disable-error-code="misc, no-untyped-def, no-any-return, untyped-decorator"
"""The way back of attention inside the calls of a packed row: to the queries, then to the keys and values.

Gradients are added up inside programs and written once: nothing is left to chance. Shapes are those of `attention.py`.
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor

from jade.learn.layers.kernels.heads import LOG2_E, load_heads, read_tile, sizes_of, store_heads, store_turned_back
from jade.learn.layers.launch import Kernel
from jade.learn.layers.tiles import Tiles


def attend_back(
    grad_TAD: Tensor,
    query_TAD: Tensor,
    key_SKD: Tensor,
    value_SKD: Tensor,
    out_TAD: Tensor,
    log_sum_KTG: Tensor,
    query_angles: tuple[Tensor, Tensor],
    key_angles: tuple[Tensor, Tensor],
    tiles: Tiles,
    scale: float,
    query_into_TAD: Tensor,
    others_into_TXD: Tensor,
) -> tuple[Tensor, Tensor]:
    """Gradients at queries, and at keys and values side by side, those at queries and keys turned back. Keys and values
    that several calls see are left out: their gradients, still to be added up, are given. Queries may be fewer than the
    row's tokens; keys and values are of all."""
    seen = grad_TAD, query_TAD, key_SKD, value_SKD
    marks_KTG = back_to_queries(*seen, out_TAD, log_sum_KTG, query_angles, tiles, scale, query_into_TAD)
    return back_to_keys(*seen, marks_KTG, key_angles, tiles, scale, others_into_TXD)


def back_to_queries(
    grad_TAD: Tensor,
    query_TAD: Tensor,
    key_SKD: Tensor,
    value_SKD: Tensor,
    out_TAD: Tensor,
    log_sum_KTG: Tensor,
    angles: tuple[Tensor, Tensor],
    tiles: Tiles,
    scale: float,
    into_TAD: Tensor,
) -> Tensor:
    """Gradients at queries go where they belong. Gives a mark for each row, of two numbers that the way to the keys
    reads as one: the logarithm of its weights' sum, and how far its gradient lies along what was seen."""
    num_keys, size = key_SKD.shape[1:]
    blocks = tiles.choice.to_queries
    marks_KTG = torch.empty_like(log_sum_KTG, dtype=torch.int64)
    _back_to_queries(
        (len(tiles.to_queries_PI) * num_keys,),
        (
            grad_TAD,
            query_TAD,
            key_SKD,
            value_SKD,
            out_TAD,
            log_sum_KTG,
            marks_KTG,
            into_TAD,
            *angles,
            tiles.to_queries_PI,
        ),
        (scale, scale * LOG2_E, len(query_TAD)),
        (
            *(one.stride(0) for one in (grad_TAD, query_TAD, key_SKD, value_SKD, into_TAD)),
            *sizes_of(num_keys, tiles.group, size, blocks),
        ),
        warps=blocks.warps,
        stages=blocks.stages,
    )
    return marks_KTG


def back_to_keys(
    grad_TAD: Tensor,
    query_TAD: Tensor,
    key_SKD: Tensor,
    value_SKD: Tensor,
    marks_KTG: Tensor,
    angles: tuple[Tensor, Tensor],
    tiles: Tiles,
    scale: float,
    into_TXD: Tensor,
) -> tuple[Tensor, Tensor]:
    """Gradients at keys and values that several calls see, the others being written where they belong."""
    num_keys, size = key_SKD.shape[1:]
    blocks = tiles.choice.to_keys
    key_grad_SKD, value_grad_SKD = key_SKD.new_empty(key_SKD.shape), value_SKD.new_empty(value_SKD.shape)
    _back_to_keys(
        (len(tiles.to_keys_PI) * num_keys,),
        (
            grad_TAD,
            query_TAD,
            key_SKD,
            value_SKD,
            marks_KTG,
            key_grad_SKD,
            value_grad_SKD,
            into_TXD,
            *angles,
            tiles.to_keys_PI,
        ),
        (scale, scale * LOG2_E, len(query_TAD)),
        (
            *(one.stride(0) for one in (grad_TAD, query_TAD, key_SKD, value_SKD, into_TXD)),
            *sizes_of(num_keys, tiles.group, size, blocks),
        ),
        warps=blocks.warps,
        stages=blocks.stages,
    )
    return key_grad_SKD, value_grad_SKD


@triton.jit
def _see_back(
    query_MD, grad_MD, log_sum_M, along_M, key, value, KEY_STRIDE: tl.constexpr, VALUE_STRIDE: tl.constexpr,
    begin, end, num_keys, last_M, scale, query_grad_MD,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, ALL: tl.constexpr,
):  # fmt: skip
    """Goes on with the gradients of rows, over more keys: all of which they see, or some."""
    for start in range(begin, end, BLOCK_N):
        key_N = start + tl.arange(0, BLOCK_N)
        key_ND = load_heads(key, key_N * KEY_STRIDE, key_N < num_keys, D, BLOCK_D, ALL)
        value_ND = load_heads(value, key_N * VALUE_STRIDE, key_N < num_keys, D, BLOCK_D, ALL)
        score_MN = tl.dot(query_MD, tl.trans(key_ND), input_precision="ieee") * scale
        if not ALL:
            score_MN = tl.where(key_N[None, :] <= last_M[:, None], score_MN, float("-inf"))
        weight_MN = tl.exp2(score_MN - log_sum_M[:, None])
        weight_grad_MN = tl.dot(grad_MD, tl.trans(value_ND), input_precision="ieee")
        # The way back through a softmax; `along` is the mean of a row's gradients under its weights.
        score_grad_MN = weight_MN * (weight_grad_MN - along_M[:, None])
        query_grad_MD = tl.dot(score_grad_MN.to(key_ND.dtype), key_ND, query_grad_MD, input_precision="ieee")
    return query_grad_MD


@Kernel
@triton.jit(do_not_specialize=["num_tokens"])
def _back_to_queries(
    grad, query, key, value, out, log_sum, marks, into, cos, sin, tiles, scale, scale_of_2, num_tokens,
    GRAD_STRIDE: tl.constexpr, QUERY_STRIDE: tl.constexpr, KEY_STRIDE: tl.constexpr, VALUE_STRIDE: tl.constexpr,
    INTO_STRIDE: tl.constexpr,
    K: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """Also leaves behind a mark of each row for the way to the keys."""
    first, query_start, num_queries, key_start, num_keys, before, head = read_tile(tiles, K, NUMBERS)
    row_M = first + tl.arange(0, BLOCK_M)
    inside_M = row_M < num_queries * G
    token_M, head_M = row_M // G, row_M % G
    query += query_start * QUERY_STRIDE + head * (G * D)
    grad += query_start * GRAD_STRIDE + head * (G * D)
    out_start = query_start * (K * G * D) + head * (G * D)
    out_place_M = token_M * (K * G * D) + head_M * D
    query_MD = load_heads(query, token_M * QUERY_STRIDE + head_M * D, inside_M, D, BLOCK_D, False)
    grad_MD = load_heads(grad, token_M * GRAD_STRIDE + head_M * D, inside_M, D, BLOCK_D, False)
    out_MD = load_heads(out + out_start, out_place_M, inside_M, D, BLOCK_D, False)
    rows = (head * num_tokens + query_start) * G
    log_sum_M = tl.load(log_sum + rows + row_M, mask=inside_M, other=0.0)
    along_M = tl.sum(grad_MD.to(tl.float32) * out_MD.to(tl.float32), 1)
    mark_M = (_bits(log_sum_M) << 32) | _bits(along_M)
    tl.store(marks + rows + row_M, mark_M, mask=inside_M)
    key += key_start * KEY_STRIDE + head * D
    value += key_start * VALUE_STRIDE + head * D
    last_M = token_M + before
    clear = (first // G + before + 1) // BLOCK_N * BLOCK_N  # keys before this one are seen by all
    end = (tl.minimum(first + BLOCK_M, num_queries * G) - 1) // G + before + 1
    query_grad_MD = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    query_grad_MD = _see_back(
        query_MD, grad_MD, log_sum_M, along_M, key, value, KEY_STRIDE, VALUE_STRIDE, 0, clear, num_keys, last_M,
        scale_of_2, query_grad_MD, D, BLOCK_D, BLOCK_N, True,
    )  # fmt: skip
    query_grad_MD = _see_back(
        query_MD, grad_MD, log_sum_M, along_M, key, value, KEY_STRIDE, VALUE_STRIDE, clear, end, num_keys, last_M,
        scale_of_2, query_grad_MD, D, BLOCK_D, BLOCK_N, False,
    )  # fmt: skip
    store_turned_back(
        into + query_start * INTO_STRIDE + head * (G * D), token_M * INTO_STRIDE + head_M * D, inside_M,
        query_grad_MD * scale, cos + query_start * (D // 2), sin + query_start * (D // 2), token_M, D, BLOCK_D,
    )  # fmt: skip


@triton.jit
def _bits(number_M):
    """A number's 32 bits, at the end of 64."""
    return number_M.to(tl.uint32, bitcast=True).to(tl.int64)


@triton.jit
def _be_seen(
    key_ND, value_ND, key_N, query, grad, marks, QUERY_STRIDE: tl.constexpr, GRAD_STRIDE: tl.constexpr,
    begin, end, before, scale, key_grad_ND, value_grad_ND,
    G: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, ALL: tl.constexpr,
):  # fmt: skip
    """Goes on with the gradients of keys and values, over more rows: all of which are there and see them, or some."""
    for start in range(begin, end, BLOCK_M):
        row_M = start + tl.arange(0, BLOCK_M)
        inside_M = row_M >= 0
        token_M, head_M = row_M // G, row_M % G
        query_MD = load_heads(query, token_M * QUERY_STRIDE + head_M * D, inside_M, D, BLOCK_D, ALL)
        grad_MD = load_heads(grad, token_M * GRAD_STRIDE + head_M * D, inside_M, D, BLOCK_D, ALL)
        mark_M = tl.load(marks + row_M) if ALL else tl.load(marks + row_M, mask=inside_M, other=0)
        log_sum_M = (mark_M >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        along_M = mark_M.to(tl.int32).to(tl.float32, bitcast=True)
        score_NM = tl.dot(key_ND, tl.trans(query_MD), input_precision="ieee") * scale
        if not ALL:
            score_NM = tl.where(key_N[:, None] <= (token_M + before)[None, :], score_NM, float("-inf"))
        # Where there is no row its gradient is zero, and so is what its weights are multiplied with.
        weight_NM = tl.exp2(score_NM - log_sum_M[None, :])
        value_grad_ND = tl.dot(weight_NM.to(grad_MD.dtype), grad_MD, value_grad_ND, input_precision="ieee")
        weight_grad_NM = tl.dot(value_ND, tl.trans(grad_MD), input_precision="ieee")
        score_grad_NM = weight_NM * (weight_grad_NM - along_M[None, :])
        key_grad_ND = tl.dot(score_grad_NM.to(query_MD.dtype), query_MD, key_grad_ND, input_precision="ieee")
    return key_grad_ND, value_grad_ND


@Kernel
@triton.jit(do_not_specialize=["num_tokens"])
def _back_to_keys(
    grad, query, key, value, marks, key_grad, value_grad, into, cos, sin, tiles,
    scale, scale_of_2, num_tokens,
    GRAD_STRIDE: tl.constexpr, QUERY_STRIDE: tl.constexpr, KEY_STRIDE: tl.constexpr, VALUE_STRIDE: tl.constexpr,
    INTO_STRIDE: tl.constexpr,
    K: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    first, query_start, num_queries, key_start, num_keys, before, head = read_tile(tiles, K, NUMBERS)
    key_N = first + tl.arange(0, BLOCK_N)
    inside_N = key_N < num_keys
    key_ND = load_heads(key + key_start * KEY_STRIDE + head * D, key_N * KEY_STRIDE, inside_N, D, BLOCK_D, False)
    value_ND = load_heads(
        value + key_start * VALUE_STRIDE + head * D, key_N * VALUE_STRIDE, inside_N, D, BLOCK_D, False
    )
    query += query_start * QUERY_STRIDE + head * (G * D)
    grad += query_start * GRAD_STRIDE + head * (G * D)
    marks += (head * num_tokens + query_start) * G
    num_rows = num_queries * G
    # Rows are cut into blocks from the last one on: so only the first block may hold rows that are none, and those that
    # see all keys, which are most, are read without a question. These begin with the row of the last key's own token.
    begin = tl.minimum(tl.maximum(first - before, 0) * G, num_rows)  # the first row that sees any of these keys
    clear = tl.minimum(tl.maximum(tl.minimum(first + BLOCK_N, num_keys) - 1 - before, 0) * G, num_rows)
    begin = num_rows - (num_rows - begin + BLOCK_M - 1) // BLOCK_M * BLOCK_M
    clear = num_rows - (num_rows - clear) // BLOCK_M * BLOCK_M
    key_grad_ND = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    value_grad_ND = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    key_grad_ND, value_grad_ND = _be_seen(
        key_ND, value_ND, key_N, query, grad, marks, QUERY_STRIDE, GRAD_STRIDE, begin, clear, before,
        scale_of_2, key_grad_ND, value_grad_ND, G, D, BLOCK_D, BLOCK_M, False,
    )  # fmt: skip
    key_grad_ND, value_grad_ND = _be_seen(
        key_ND, value_ND, key_N, query, grad, marks, QUERY_STRIDE, GRAD_STRIDE, clear, num_rows, before,
        scale_of_2, key_grad_ND, value_grad_ND, G, D, BLOCK_D, BLOCK_M, True,
    )  # fmt: skip
    # Those that other calls see too are still to be added up; the others have their token in this call.
    tile = tiles + (tl.program_id(0) // K) * NUMBERS
    alone, origin = tl.load(tile + 5), tl.load(tile + 7).to(tl.int64)
    shared_N, own_N = inside_N & (key_N < alone), inside_N & (key_N >= alone)
    start = key_start * (K * D) + head * D
    key_grad_ND *= scale
    store_heads(key_grad + start, key_N * (K * D), shared_N, key_grad_ND, D, BLOCK_D)
    store_heads(value_grad + start, key_N * (K * D), shared_N, value_grad_ND, D, BLOCK_D)
    into += origin * INTO_STRIDE + head * D
    angle = origin * (D // 2)
    store_turned_back(into, key_N * INTO_STRIDE, own_N, key_grad_ND, cos + angle, sin + angle, key_N, D, BLOCK_D)
    store_heads(into + K * D, key_N * INTO_STRIDE, own_N, value_grad_ND, D, BLOCK_D)
