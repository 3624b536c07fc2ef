"""Who does what in the attention of a packed row: its calls, cut into tiles of which each is one program's work.

A call's queries are counted by row: a row is one token of one of the query heads that share a key head, and the heads
of a token follow each other. So a tile holds the tokens of all these heads, keys are read once for all of them, and
short calls leave less of a tile empty. Tiles are planned on the host, once for all layers, and sent in one piece.

Behind the last layer's attention only some tokens are asked for: its queries are those alone, one call's behind the
other's, while its keys are all.

Shapes: P = tiles of a kind, I = numbers that describe one, C = calls, U = tokens that several calls see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jade.backbone.local.blocks import Blocks
from jade.learn.batches import send

NUMBERS = 8
"""Numbers a tile is described by: its first row or key, and the seven of its call (`calls_of`). With eight of them
every table of descriptions begins at an aligned address, whatever the batch. For one that did not Triton would compile
the kernel anew."""
Spans = Sequence[tuple[int, int]]
"""A first token and the one behind the last, for each call."""


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

    calls_CI: NDArray[np.int64]
    """What the tiles of each call know of it."""
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
    asked: Spans | None = None,
) -> Tiles:
    """Bounds are those of the calls, as queries and, with what they share, as keys. Where only some of the row's tokens
    are asked for, these alone are queries."""
    calls_CI = calls_of(bounds, whole_bounds, asked)
    # Long calls start first, so that no long one is left over when all the others are done. The tiles of a call stay
    # together: they read the same keys, which then still are near.
    sorted_CI = calls_CI[np.argsort(-calls_CI[:, 3], kind="stable")]
    num_rows_C, num_keys_C = sorted_CI[:, 1] * group, sorted_CI[:, 3]
    tables = [
        # The last queries see most keys, and the first keys are seen by most queries.
        _describe(sorted_CI, num_rows_C, choice.forward.rows, last_first=True),
        _describe(sorted_CI, num_rows_C, choice.to_queries.rows, last_first=True),
        _describe(sorted_CI, num_keys_C, choice.to_keys.keys, last_first=False),
    ]
    before_C, after_C = _shared(bounds, whole_bounds)
    shared_U = count_up(np.array(bounds[:-1]), np.clip(after_C - before_C, 0, np.diff(bounds)))
    tables.append(np.pad(shared_U, (0, -len(shared_U) % NUMBERS)).astype(np.int32).reshape(-1, NUMBERS))
    parts = send(torch.from_numpy(np.concatenate(tables)), device).split([len(table) for table in tables])
    forward_PI, to_queries_PI, to_keys_PI, shared = parts
    shared = shared.view(-1)[: len(shared_U)]
    return Tiles(calls_CI, group, choice, forward_PI, to_queries_PI, to_keys_PI, shared)


def calls_of(bounds: tuple[int, ...], whole_bounds: tuple[int, ...], asked: Spans | None) -> NDArray[np.int64]:
    """What there is to know of each call, in seven numbers.

    Where its queries start and how many they are; where its keys start and how many they are; the first of the keys
    that no other call sees; how many keys come before the one of the first query's own token; and the place in the row
    that its first key's token would have if it were the call's own: counted from there, its own keys do stand there.
    """
    starts = np.array([bounds, whole_bounds])
    num_added_C, num_keys_C = np.diff(starts)
    before_C, after_C = _shared(bounds, whole_bounds)
    origin_C = starts[0, :-1] - before_C
    query_start_C, num_queries_C, ahead_C = starts[0, :-1], num_added_C, before_C
    if asked is not None:
        first_C, behind_C = np.array(asked).reshape(-1, 2).T
        num_queries_C = behind_C - first_C
        query_start_C, ahead_C = num_queries_C.cumsum() - num_queries_C, first_C - origin_C
    alone_C = np.maximum(before_C, after_C)
    columns = query_start_C, num_queries_C, starts[1, :-1], num_keys_C, alone_C, ahead_C, origin_C
    return np.stack(columns, 1)


def _shared(bounds: tuple[int, ...], whole_bounds: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many tokens each call shares with the one before it, and with the one behind it."""
    before_C = np.diff(whole_bounds) - np.diff(bounds)
    return before_C, np.append(before_C[1:], 0)


def _describe(
    calls_CI: NDArray[np.int64], size_C: NDArray[np.int64], block: int, *, last_first: bool
) -> NDArray[np.int32]:
    """Calls of these sizes, cut into blocks."""
    num_C = -(-size_C // block)
    call_P = np.repeat(np.arange(len(size_C)), num_C)
    number_P = count_up(np.zeros_like(num_C), num_C)
    if last_first:
        number_P = num_C[call_P] - 1 - number_P
    table_PI = np.empty((len(call_P), NUMBERS), np.int32)
    table_PI[:, 0] = number_P * block
    table_PI[:, 1:] = calls_CI[call_P]
    return table_PI


def count_up(start_C: NDArray[np.int64], num_C: NDArray[np.int64]) -> NDArray[np.int64]:
    """So many numbers from each start on, one behind the other."""
    return np.arange(num_C.sum()) + np.repeat(start_C - (num_C.cumsum() - num_C), num_C)
