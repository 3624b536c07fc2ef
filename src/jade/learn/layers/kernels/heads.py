# mypy: disable-error-code="misc, no-untyped-def, no-any-return, untyped-decorator"
"""What the kernels of attention share: heads read and written, turned by their tokens' angles or not, and their tiles.

Shapes: R = rows that are worked at once, with a row for each query head of a group at each token, or a row a key; D =
head width, E = half of it.
"""

from __future__ import annotations

from math import log2

import torch
import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]

from jade.backbone.local.blocks import Blocks
from jade.learn.layers.tiles import NUMBERS

LEAST_WIDTH = 16
"""The narrowest product there is; narrower heads are filled up with zeros."""
LOG2_E = log2(torch.e)
"""Weights are powers of two, which is what the hardware takes: scores are scaled to that."""


def sizes_of(num_keys: int, group: int, size: int, blocks: Blocks) -> tuple[int, ...]:
    """What the kernels are compiled for. All of it belongs to the model or to the blocks, nothing to the batch."""
    block_size = max(LEAST_WIDTH, 1 << (size - 1).bit_length())
    return num_keys, group, size, block_size, blocks.rows, blocks.keys, NUMBERS


@triton.jit
def columns(D: tl.constexpr, BLOCK_D: tl.constexpr):
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
def load_heads(start, place_R, inside_R, D: tl.constexpr, BLOCK_D: tl.constexpr, ALL: tl.constexpr):
    """Heads of the given places, and zeros where nothing is: beyond their width, and at those that are not inside."""
    column_D, inside_D = columns(D, BLOCK_D)
    place_RD = place_R[:, None] + column_D[None, :]
    if ALL and BLOCK_D == D:
        head_RD = tl.load(start + place_RD)
    elif ALL:
        head_RD = tl.load(start + place_RD, mask=inside_D[None, :], other=0.0)
    else:
        head_RD = tl.load(start + place_RD, mask=inside_R[:, None] & inside_D[None, :], other=0.0)
    return head_RD


@triton.jit
def load_turned(
    start, place_R, inside_R, cos, sin, token_R, D: tl.constexpr, BLOCK_D: tl.constexpr
):  # fmt: skip
    """Heads turned by their tokens' angles. Each number's fellow is read once more, which is near by then, rather than
    moved between threads."""
    E: tl.constexpr = D // 2
    HALF: tl.constexpr = BLOCK_D // 2
    column_D, inside_D = columns(D, BLOCK_D)
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
def store_heads(start, place_R, inside_R, head_RD, D: tl.constexpr, BLOCK_D: tl.constexpr):
    column_D, inside_D = columns(D, BLOCK_D)
    place_RD = place_R[:, None] + column_D[None, :]
    tl.store(start + place_RD, head_RD, mask=inside_R[:, None] & inside_D[None, :])


@triton.jit
def store_turned_back(
    start, place_R, inside_R, head_RD, cos, sin, token_R, D: tl.constexpr, BLOCK_D: tl.constexpr
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
def read_tile(tiles, K: tl.constexpr, NUMBERS: tl.constexpr):
    """A program's tile and its key head. Heads come next to each other: they read the same pieces of memory."""
    tile = tiles + (tl.program_id(0) // K) * NUMBERS
    first, num_queries, num_keys, before = tl.load(tile), tl.load(tile + 2), tl.load(tile + 4), tl.load(tile + 6)
    query_start, key_start = tl.load(tile + 1).to(tl.int64), tl.load(tile + 3).to(tl.int64)
    return first, query_start, num_queries, key_start, num_keys, before, tl.program_id(0) % K
