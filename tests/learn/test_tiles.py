"""The plan of a packed row's attention: every row and every key is in one tile, and the long ones come first."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
import torch

from jade.backbone.local.blocks import Blocks
from jade.learn.layers.tiles import Choice, Spans, Tiles, plan_tiles

CALLS = ((5, 5), (1, 70), (33, 40), (0, 9), (100, 100))
"""Queries and keys of each."""
CHOICE = Choice(forward=Blocks(32, 64, 4, 2), to_queries=Blocks(16, 32, 4, 2), to_keys=Blocks(16, 32, 4, 2))


BOUNDS, WHOLE_BOUNDS = ((0, *accumulate(sizes)) for sizes in zip(*CALLS, strict=True))
ASKED = ((3, 5), (5, 6), (6, 6), (39, 39), (40, 138))
"""Some of the tokens that each adds."""


def plan(group: int, asked: Spans | None = None) -> Tiles:
    return plan_tiles(BOUNDS, WHOLE_BOUNDS, group, torch.device("cpu"), CHOICE, asked)


@pytest.mark.parametrize("asked", [None, ASKED])
@pytest.mark.parametrize("group", [1, 3, 7])
def test_every_row_and_every_key_is_in_one_tile(group: int, asked: Spans | None) -> None:
    tiles = plan(group, asked)
    num_queries = [added for added, _ in CALLS] if asked is None else [end - start for start, end in asked]
    kinds = ((tiles.forward_PI, 32, group, 1), (tiles.to_queries_PI, 16, group, 1), (tiles.to_keys_PI, 32, 1, 3))
    for table_PI, block, heads, column in kinds:
        found = []
        for tile in table_PI.tolist():
            first, start, size = tile[0], tile[column], tile[column + 1]
            found += [(start, row) for row in range(first, min(first + block, size * heads))]
        bounds = (0, *accumulate(num_queries)) if column == 1 else WHOLE_BOUNDS
        parts = ((start, (end - start) * heads) for start, end in pairwise(bounds))
        assert sorted(found) == [(start, row) for start, size in parts for row in range(size)]


def test_a_tile_knows_its_call() -> None:
    tiles = plan(3)
    known = zip(pairwise(BOUNDS), pairwise(WHOLE_BOUNDS), strict=True)
    calls = {(start, end - start, at, to - at) for (start, end), (at, to) in known}
    for table_PI in (tiles.forward_PI, tiles.to_queries_PI, tiles.to_keys_PI):
        assert {tuple(tile[1:5]) for tile in table_PI.tolist()} <= calls


def test_who_is_asked_sees_what_it_saw_among_all() -> None:
    """The query of a token sees the keys up to its own, wherever it stands itself; and own keys know their token."""
    everyone, some = plan(3).calls_CI.tolist(), plan(3, ASKED).calls_CI.tolist()
    for one, other, (start, end), (first, behind) in zip(everyone, some, pairwise(BOUNDS), ASKED, strict=True):
        assert other[1] == behind - first
        assert other[5] - one[5] == first - start
        assert one[2:5] == other[2:5]
        assert one[6] == other[6] == end - one[3]


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
