# mypy: disable-error-code="misc, no-untyped-def, no-any-return, untyped-decorator"
"""Attention inside the calls of a packed row, forward and backward, for calls that add few tokens to many.

Tiles of kernels that are made for long sequences are of one head each, and a call's few tokens do not fill them. Here a
tile holds all query heads of a key head. Which program does what was planned before (`tiles.py`). Gradients are
added up inside programs and written once: nothing is left to chance.

Products are taken of numbers as wide as the inputs, and added up in float32; weights are rounded to the width of the
values before they meet them. Imported on a GPU only: Triton comes with torch's CUDA builds.

Shapes: T = tokens of the row, S = tokens of its calls, each counted whole, A and K = query and key-value heads, G =
query heads of a key head, D = head width; inside kernels M = rows and N = keys that are worked at once, with a row for
each query head of the group at each token. A key is seen by the query of its own token and by those behind it.
"""

from __future__ import annotations

from math import log2

import torch
import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor

from jade.backbone.local.blocks import Blocks
from jade.learn.layers.launch import Kernel
from jade.learn.layers.tiles import NUMBERS, Tiles

LEAST_WIDTH = 16
"""The narrowest product there is; narrower heads are filled up with zeros."""
LOG2_E = log2(torch.e)
"""Weights are powers of two, which is what the hardware takes: scores are scaled to that."""


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
        (heads_TAD.stride(0), key_SKD.stride(0), value_SKD.stride(0), *_sizes(num_keys, tiles.group, size, blocks)),
        warps=blocks.warps,
        stages=blocks.stages,
    )
    return out_TAD, log_sum_KTG, query_TAD


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
            *_sizes(num_keys, tiles.group, size, blocks),
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
            *_sizes(num_keys, tiles.group, size, blocks),
        ),
        warps=blocks.warps,
        stages=blocks.stages,
    )
    return key_grad_SKD, value_grad_SKD


def _sizes(num_keys: int, group: int, size: int, blocks: Blocks) -> tuple[int, ...]:
    """What the kernels are compiled for. All of it belongs to the model or to the blocks, nothing to the batch."""
    block_size = max(LEAST_WIDTH, 1 << (size - 1).bit_length())
    return num_keys, group, size, block_size, blocks.rows, blocks.keys, NUMBERS


@triton.jit
def _columns(D: tl.constexpr, BLOCK_D: tl.constexpr):  # noqa: ANN202
    """Where the numbers of a head stand, and whether there are any. Where a head is filled up, both its halves are: so
    numbers that turn together always are half a block apart."""
    column_D = tl.arange(0, BLOCK_D)
    if BLOCK_D == D:
        place_D, inside_D = column_D, column_D < D
    else:
        HALF: tl.constexpr = BLOCK_D // 2
        place_D, inside_D = column_D // HALF * (D // 2) + column_D % HALF, column_D % HALF < D // 2
    return place_D, inside_D


@triton.jit
def _load(start, place_R, inside_R, D: tl.constexpr, BLOCK_D: tl.constexpr, ALL: tl.constexpr):  # noqa: ANN001, ANN202
    """Heads of the given places, and zeros where nothing is: beyond their width, and at those that are not inside."""
    column_D, inside_D = _columns(D, BLOCK_D)
    place_RD = place_R[:, None] + column_D[None, :]
    if ALL and BLOCK_D == D:
        head_RD = tl.load(start + place_RD)
    elif ALL:
        head_RD = tl.load(start + place_RD, mask=inside_D[None, :], other=0.0)
    else:
        head_RD = tl.load(start + place_RD, mask=inside_R[:, None] & inside_D[None, :], other=0.0)
    return head_RD


@triton.jit
def _load_turned(  # noqa: ANN202
    start, place_R, inside_R, cos, sin, token_R, D: tl.constexpr, BLOCK_D: tl.constexpr  # noqa: ANN001
):  # fmt: skip
    """Heads turned by their tokens' angles. Each number's fellow is read once more, which is near by then, rather than
    moved between threads."""
    E: tl.constexpr = D // 2
    HALF: tl.constexpr = BLOCK_D // 2
    column_D, inside_D = _columns(D, BLOCK_D)
    half_D, angle_D = tl.arange(0, BLOCK_D) // HALF, tl.arange(0, BLOCK_D) % HALF
    inside_RD = inside_R[:, None] & inside_D[None, :]
    here_RD = tl.load(start + place_R[:, None] + column_D[None, :], mask=inside_RD, other=0.0)
    fellow_D = (1 - half_D) * E + angle_D
    there_RD = tl.load(start + place_R[:, None] + fellow_D[None, :], mask=inside_RD, other=0.0).to(tl.float32)
    angle_RD = token_R[:, None] * E + angle_D[None, :]
    cos_RD = tl.load(cos + angle_RD, mask=inside_RD, other=0.0).to(tl.float32)
    sin_RD = tl.load(sin + angle_RD, mask=inside_RD, other=0.0).to(tl.float32) * (2 * half_D - 1)[None, :]
    return (here_RD.to(tl.float32) * cos_RD + there_RD * sin_RD).to(here_RD.dtype)


@triton.jit
def _store(start, place_R, inside_R, head_RD, D: tl.constexpr, BLOCK_D: tl.constexpr):  # noqa: ANN001, ANN202
    column_D, inside_D = _columns(D, BLOCK_D)
    place_RD = place_R[:, None] + column_D[None, :]
    tl.store(start + place_RD, head_RD, mask=inside_R[:, None] & inside_D[None, :])


@triton.jit
def _store_turned_back(  # noqa: ANN202
    start, place_R, inside_R, head_RD, cos, sin, token_R, D: tl.constexpr, BLOCK_D: tl.constexpr  # noqa: ANN001
):  # fmt: skip
    """Gradients at heads as they were before they were turned by their tokens' angles."""
    E: tl.constexpr = D // 2
    HALF: tl.constexpr = BLOCK_D // 2
    column_E = tl.arange(0, HALF)
    one_RE, two_RE = tl.split(tl.permute(tl.reshape(head_RD, [head_RD.shape[0], 2, HALF]), [0, 2, 1]))
    inside_RE = inside_R[:, None] & (column_E[None, :] < E)
    angle_RE = token_R[:, None] * E + column_E[None, :]
    cos_RE = tl.load(cos + angle_RE, mask=inside_RE, other=0.0).to(tl.float32)
    sin_RE = tl.load(sin + angle_RE, mask=inside_RE, other=0.0).to(tl.float32)
    to = start + place_R[:, None] + column_E[None, :]
    tl.store(to, one_RE * cos_RE + two_RE * sin_RE, mask=inside_RE)
    tl.store(to + E, two_RE * cos_RE - one_RE * sin_RE, mask=inside_RE)


@triton.jit
def _read_tile(tiles, K: tl.constexpr, NUMBERS: tl.constexpr):  # noqa: ANN001, ANN202
    """A program's tile and its key head. Heads come next to each other: they read the same pieces of memory."""
    tile = tiles + (tl.program_id(0) // K) * NUMBERS
    first, num_queries, num_keys, before = tl.load(tile), tl.load(tile + 2), tl.load(tile + 4), tl.load(tile + 6)
    query_start, key_start = tl.load(tile + 1).to(tl.int64), tl.load(tile + 3).to(tl.int64)
    return first, query_start, num_queries, key_start, num_keys, before, tl.program_id(0) % K


@triton.jit
def _see(  # noqa: ANN202
    query_MD, key, value, KEY_STRIDE: tl.constexpr, VALUE_STRIDE: tl.constexpr, begin, end, num_keys,  # noqa: ANN001
    last_M, scale, most_M, sum_M, out_MD,  # noqa: ANN001
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, ALL: tl.constexpr,
):  # fmt: skip
    """Goes on with what rows have seen, over more keys: all of which they see, or some."""
    for start in range(begin, end, BLOCK_N):
        key_N = start + tl.arange(0, BLOCK_N)
        key_ND = _load(key, key_N * KEY_STRIDE, key_N < num_keys, D, BLOCK_D, ALL)
        score_MN = tl.dot(query_MD, tl.trans(key_ND), input_precision="ieee") * scale
        if not ALL:
            score_MN = tl.where(key_N[None, :] <= last_M[:, None], score_MN, float("-inf"))
        value_ND = _load(value, key_N * VALUE_STRIDE, key_N < num_keys, D, BLOCK_D, ALL)
        # Never minus infinity: the first key is seen by all.
        now_M = tl.maximum(most_M, tl.max(score_MN, 1))
        weight_MN = tl.exp2(score_MN - now_M[:, None])
        fade_M = tl.exp2(most_M - now_M)
        sum_M = sum_M * fade_M + tl.sum(weight_MN, 1)
        out_MD = tl.dot(weight_MN.to(value_ND.dtype), value_ND, out_MD * fade_M[:, None], input_precision="ieee")
        most_M = now_M
    return most_M, sum_M, out_MD


@Kernel
@triton.jit(do_not_specialize=["num_tokens"])
def _attend(  # noqa: ANN202
    heads, key, value, cos, sin, out, log_sum, query, tiles, scale, num_tokens,  # noqa: ANN001
    HEADS_STRIDE: tl.constexpr, KEY_STRIDE: tl.constexpr, VALUE_STRIDE: tl.constexpr,
    K: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """Queries are turned here, since each belongs to one program; keys are read by many, and come turned."""
    first, query_start, num_queries, key_start, num_keys, before, head = _read_tile(tiles, K, NUMBERS)
    row_M = first + tl.arange(0, BLOCK_M)
    inside_M = row_M < num_queries * G
    token_M, head_M = row_M // G, row_M % G
    query_MD = _load_turned(
        heads + query_start * HEADS_STRIDE + head * (G * D), token_M * HEADS_STRIDE + head_M * D, inside_M,
        cos + query_start * (D // 2), sin + query_start * (D // 2), token_M, D, BLOCK_D,
    )  # fmt: skip
    out_start = query_start * (K * G * D) + head * (G * D)
    out_place_M = token_M * (K * G * D) + head_M * D
    _store(query + out_start, out_place_M, inside_M, query_MD, D, BLOCK_D)
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
    _store(out + out_start, out_place_M, inside_M, out_MD / sum_M[:, None], D, BLOCK_D)
    log_sum += (head * num_tokens + query_start) * G
    tl.store(log_sum + row_M, most_M + tl.log2(sum_M), mask=inside_M)


@triton.jit
def _see_back(  # noqa: ANN202
    query_MD, grad_MD, log_sum_M, along_M, key, value, KEY_STRIDE: tl.constexpr, VALUE_STRIDE: tl.constexpr,  # noqa: ANN001
    begin, end, num_keys, last_M, scale, query_grad_MD,  # noqa: ANN001
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, ALL: tl.constexpr,
):  # fmt: skip
    """Goes on with the gradients of rows, over more keys: all of which they see, or some."""
    for start in range(begin, end, BLOCK_N):
        key_N = start + tl.arange(0, BLOCK_N)
        key_ND = _load(key, key_N * KEY_STRIDE, key_N < num_keys, D, BLOCK_D, ALL)
        value_ND = _load(value, key_N * VALUE_STRIDE, key_N < num_keys, D, BLOCK_D, ALL)
        score_MN = tl.dot(query_MD, tl.trans(key_ND), input_precision="ieee") * scale
        if not ALL:
            score_MN = tl.where(key_N[None, :] <= last_M[:, None], score_MN, float("-inf"))
        weight_MN = tl.exp2(score_MN - log_sum_M[:, None])
        weight_grad_MN = tl.dot(grad_MD, tl.trans(value_ND), input_precision="ieee")
        score_grad_MN = weight_MN * (weight_grad_MN - along_M[:, None])
        query_grad_MD = tl.dot(score_grad_MN.to(key_ND.dtype), key_ND, query_grad_MD, input_precision="ieee")
    return query_grad_MD


@Kernel
@triton.jit(do_not_specialize=["num_tokens"])
def _back_to_queries(  # noqa: ANN202
    grad, query, key, value, out, log_sum, marks, into, cos, sin, tiles, scale, scale_of_2, num_tokens,  # noqa: ANN001
    GRAD_STRIDE: tl.constexpr, QUERY_STRIDE: tl.constexpr, KEY_STRIDE: tl.constexpr, VALUE_STRIDE: tl.constexpr,
    INTO_STRIDE: tl.constexpr,
    K: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """Also leaves behind a mark of each row for the way to the keys."""
    first, query_start, num_queries, key_start, num_keys, before, head = _read_tile(tiles, K, NUMBERS)
    row_M = first + tl.arange(0, BLOCK_M)
    inside_M = row_M < num_queries * G
    token_M, head_M = row_M // G, row_M % G
    query += query_start * QUERY_STRIDE + head * (G * D)
    grad += query_start * GRAD_STRIDE + head * (G * D)
    out_start = query_start * (K * G * D) + head * (G * D)
    out_place_M = token_M * (K * G * D) + head_M * D
    query_MD = _load(query, token_M * QUERY_STRIDE + head_M * D, inside_M, D, BLOCK_D, False)
    grad_MD = _load(grad, token_M * GRAD_STRIDE + head_M * D, inside_M, D, BLOCK_D, False)
    out_MD = _load(out + out_start, out_place_M, inside_M, D, BLOCK_D, False)
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
    _store_turned_back(
        into + query_start * INTO_STRIDE + head * (G * D), token_M * INTO_STRIDE + head_M * D, inside_M,
        query_grad_MD * scale, cos + query_start * (D // 2), sin + query_start * (D // 2), token_M, D, BLOCK_D,
    )  # fmt: skip


@triton.jit
def _bits(number_M):  # noqa: ANN001, ANN202
    """A number's 32 bits, at the end of 64."""
    return number_M.to(tl.uint32, bitcast=True).to(tl.int64)


@triton.jit
def _be_seen(  # noqa: ANN202
    key_ND, value_ND, key_N, query, grad, marks, QUERY_STRIDE: tl.constexpr, GRAD_STRIDE: tl.constexpr,  # noqa: ANN001
    begin, end, before, scale, key_grad_ND, value_grad_ND,  # noqa: ANN001
    G: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, ALL: tl.constexpr,
):  # fmt: skip
    """Goes on with the gradients of keys and values, over more rows: all of which are there and see them, or some."""
    for start in range(begin, end, BLOCK_M):
        row_M = start + tl.arange(0, BLOCK_M)
        inside_M = row_M >= 0
        token_M, head_M = row_M // G, row_M % G
        query_MD = _load(query, token_M * QUERY_STRIDE + head_M * D, inside_M, D, BLOCK_D, ALL)
        grad_MD = _load(grad, token_M * GRAD_STRIDE + head_M * D, inside_M, D, BLOCK_D, ALL)
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
def _back_to_keys(  # noqa: ANN202
    grad, query, key, value, marks, key_grad, value_grad, into, cos, sin, tiles,  # noqa: ANN001
    scale, scale_of_2, num_tokens,  # noqa: ANN001
    GRAD_STRIDE: tl.constexpr, QUERY_STRIDE: tl.constexpr, KEY_STRIDE: tl.constexpr, VALUE_STRIDE: tl.constexpr,
    INTO_STRIDE: tl.constexpr,
    K: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    first, query_start, num_queries, key_start, num_keys, before, head = _read_tile(tiles, K, NUMBERS)
    key_N = first + tl.arange(0, BLOCK_N)
    inside_N = key_N < num_keys
    key_ND = _load(key + key_start * KEY_STRIDE + head * D, key_N * KEY_STRIDE, inside_N, D, BLOCK_D, False)
    value_ND = _load(value + key_start * VALUE_STRIDE + head * D, key_N * VALUE_STRIDE, inside_N, D, BLOCK_D, False)
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
    _store(key_grad + start, key_N * (K * D), shared_N, key_grad_ND, D, BLOCK_D)
    _store(value_grad + start, key_N * (K * D), shared_N, value_grad_ND, D, BLOCK_D)
    into += origin * INTO_STRIDE + head * D
    angle = origin * (D // 2)
    _store_turned_back(into, key_N * INTO_STRIDE, own_N, key_grad_ND, cos + angle, sin + angle, key_N, D, BLOCK_D)
    _store(into + K * D, key_N * INTO_STRIDE, own_N, value_grad_ND, D, BLOCK_D)
