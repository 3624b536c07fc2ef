"""Who does what in the attention of a packed row: its calls, cut into tiles of which each is one program's work.

A call's queries are counted by row: a row is one token of one of the query heads that share a key head, and the heads
of a token follow each other. So a tile holds the tokens of all these heads, keys are read once for all of them, and
short calls leave less of a tile empty. Tiles are planned on the host, once for all layers, and sent in one piece.

Shapes: P = tiles of a kind, I = numbers that describe one, C = calls, U = tokens that several calls see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jade.backbone.local_blocks import Blocks
from jade.learn.batches import send

NUMBERS = 8
"""Numbers a tile is described by: its first row or key, where its call's queries start and how many they are, the same
of its keys, and the first of these that no other call sees. The rest is empty: so each description begins where the
memory is aligned, and no kernel is compiled again because another batch has its descriptions elsewhere."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The blocks of each kernel."""

    forward: Blocks
    to_queries: Blocks
    to_keys: Blocks


CHOICE = Choice(
    forward=Blocks(rows=64, keys=64, warps=4, stages=3),
    to_queries=Blocks(rows=64, keys=32, warps=4, stages=3),
    to_keys=Blocks(rows=32, keys=64, warps=4, stages=3),
)
"""What `benchmarks/attention.py` varies, and found best on an H200. Rows and keys are powers of two, of 16 at least."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """The tiles of a row, for each kernel in the order in which they are to start."""

    bounds: tuple[int, ...]
    whole_bounds: tuple[int, ...]
    group: int
    """Query heads that share a key head."""
    choice: Choice
    forward_PI: Tensor
    to_queries_PI: Tensor
    to_keys_PI: Tensor
    shared_U: Tensor
    """The row's tokens that several calls see, as whole_bounds and bounds tell: a call shares its beginning with the
    one before it."""


def plan_tiles(
    bounds: tuple[int, ...],
    whole_bounds: tuple[int, ...],
    group: int,
    device: torch.device,
    choice: Choice = CHOICE,
) -> Tiles:
    """Bounds are those of the calls, as queries and, with what they share, as keys."""
    starts = np.array([bounds, whole_bounds])
    sizes = np.diff(starts)
    # Long calls start first, so that no long one is left over when all the others are done. The tiles of a call stay
    # together: they read the same keys, which then still are near.
    order_C = np.argsort(-sizes[1], kind="stable")
    query_start_C, key_start_C = starts[:, :-1][:, order_C]
    num_queries_C, num_keys_C = sizes[:, order_C]
    before_C = sizes[1] - sizes[0]
    after_C = np.append(before_C[1:], 0)
    alone_C = np.maximum(before_C, after_C)
    calls = query_start_C, num_queries_C, key_start_C, num_keys_C, alone_C[order_C]
    tables = [
        # The last queries see most keys, and the first keys are seen by most queries.
        _describe(calls, num_queries_C * group, choice.forward.rows, last_first=True),
        _describe(calls, num_queries_C * group, choice.to_queries.rows, last_first=True),
        _describe(calls, num_keys_C, choice.to_keys.keys, last_first=False),
    ]
    shared_U = _count_up(starts[0, :-1], np.clip(after_C - before_C, 0, sizes[0]))
    tables.append(np.pad(shared_U, (0, -len(shared_U) % NUMBERS)).astype(np.int32).reshape(-1, NUMBERS))
    parts = send(torch.from_numpy(np.concatenate(tables)), device).split([len(table) for table in tables])
    forward_PI, to_queries_PI, to_keys_PI, shared = parts
    shared = shared.view(-1)[: len(shared_U)]
    return Tiles(bounds, whole_bounds, group, choice, forward_PI, to_queries_PI, to_keys_PI, shared)


def _describe(
    calls: Sequence[NDArray[np.int64]], size_C: NDArray[np.int64], block: int, *, last_first: bool
) -> NDArray[np.int32]:
    """Calls of these sizes, cut into blocks."""
    num_C = -(-size_C // block)
    call_P = np.repeat(np.arange(len(size_C)), num_C)
    number_P = _count_up(np.zeros_like(num_C), num_C)
    if last_first:
        number_P = num_C[call_P] - 1 - number_P
    table_PI = np.zeros((len(call_P), NUMBERS), np.int32)
    for column, numbers_P in enumerate((number_P * block, *(numbers_C[call_P] for numbers_C in calls))):
        table_PI[:, column] = numbers_P
    return table_PI


def _count_up(start_C: NDArray[np.int64], num_C: NDArray[np.int64]) -> NDArray[np.int64]:
    """So many numbers from each start on, one behind the other."""
    return np.arange(num_C.sum()) + np.repeat(start_C - (num_C.cumsum() - num_C), num_C)
