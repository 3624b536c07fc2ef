"""Which captured shape serves a batch: never too small, never more than the slots have, and few in all."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from jade.backbone.local_graphs import DecodeGraphs
from jade.backbone.local_slots import CacheShape, Slots

SLOTS = Slots(CacheShape(1, 1, 2), torch.device("cpu"), torch.float32)
SLOTS.reserve(512, 3300, 8)


@given(st.integers(1, 512), st.integers(1, 3300))
def test_a_shape_holds_the_batch_and_fits_the_slots(num_rows: int, num_positions: int) -> None:
    rows, positions = DecodeGraphs().shape(SLOTS, num_rows, num_positions)
    assert num_rows <= rows <= SLOTS.num_slots
    assert num_positions <= positions <= SLOTS.num_positions
    assert rows < 2 * num_rows + 64
    assert positions < num_positions + 128


def test_few_shapes_serve_all_batches() -> None:
    graphs = DecodeGraphs()
    assert len({graphs.shape(SLOTS, rows, 100)[0] for rows in range(1, 513)}) <= 16
