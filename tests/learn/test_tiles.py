"""The plan of a packed row's attention: every row and every key is in one tile, and the long ones come first."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
import torch

from jade.backbone.local_blocks import Blocks
from jade.learn.tiles import Choice, Tiles, plan_tiles

CALLS = ((5, 5), (1, 70), (33, 40), (0, 9), (100, 100))
"""Queries and keys of each."""
CHOICE = Choice(forward=Blocks(32, 64, 4, 2), to_queries=Blocks(16, 32, 4, 2), to_keys=Blocks(16, 32, 4, 2))


def plan(group: int) -> Tiles:
    bounds, whole_bounds = ((0, *accumulate(sizes)) for sizes in zip(*CALLS, strict=True))
    return plan_tiles(bounds, whole_bounds, group, torch.device("cpu"), CHOICE)


@pytest.mark.parametrize("group", [1, 3, 7])
def test_every_row_and_every_key_is_in_one_tile(group: int) -> None:
    tiles = plan(group)
    kinds = ((tiles.forward_PI, 32, group, 1), (tiles.to_queries_PI, 16, group, 1), (tiles.to_keys_PI, 32, 1, 3))
    for table_PI, block, heads, column in kinds:
        found = []
        for tile in table_PI.tolist():
            first, start, size = tile[0], tile[column], tile[column + 1]
            found += [(start, row) for row in range(first, min(first + block, size * heads))]
        bounds = tiles.bounds if column == 1 else tiles.whole_bounds
        parts = ((start, (end - start) * heads) for start, end in pairwise(bounds))
        assert sorted(found) == [(start, row) for start, size in parts for row in range(size)]


def test_a_tile_knows_its_call() -> None:
    tiles = plan(3)
    known = zip(pairwise(tiles.bounds), pairwise(tiles.whole_bounds), strict=True)
    calls = {(start, end - start, at, to - at) for (start, end), (at, to) in known}
    for table_PI in (tiles.forward_PI, tiles.to_queries_PI, tiles.to_keys_PI):
        assert {tuple(tile[1:5]) for tile in table_PI.tolist()} <= calls


def test_long_tiles_come_first_and_those_of_a_call_together() -> None:
    tiles = plan(3)
    for table_PI in (tiles.forward_PI, tiles.to_queries_PI, tiles.to_keys_PI):
        lengths = table_PI[:, 4].tolist()
        assert lengths == sorted(lengths, reverse=True)
    assert tiles.forward_PI[:10, 0].tolist() == list(range(288, -1, -32))
    assert tiles.to_keys_PI[:4, 0].tolist() == [0, 32, 64, 96]


def test_descriptions_begin_where_memory_is_aligned() -> None:
    """Else a kernel would be compiled again for a batch whose descriptions do not."""
    tiles = plan(3)
    for table_PI in (tiles.forward_PI, tiles.to_queries_PI, tiles.to_keys_PI):
        assert table_PI.is_contiguous()
        assert table_PI.dtype == torch.int32
        assert table_PI.storage_offset() * table_PI.element_size() % 16 == 0
