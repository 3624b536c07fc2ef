"""Decode steps captured as CUDA graphs: one launch instead of a thousand, for each shape of batch that occurs.

A graph is bound to the addresses of the slots it was captured on; when those tensors move, it is captured again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch

from jade.backbone.local_slots import Slots

ROW_STEP = 64
POSITION_STEP = 128


def row_bucket(num_rows: int) -> int:
    """Rows of the captured step that serves so many: a power of two, or whole steps."""
    if num_rows > ROW_STEP:
        return -(-num_rows // ROW_STEP) * ROW_STEP
    return 1 << (num_rows - 1).bit_length()


class DecodeGraphs:
    """Captured steps, by slots and shape."""

    def __init__(self) -> None:
        self._graphs: dict[Hashable, Any] = {}
        self._pool: Any = None

    def shape(self, slots: Slots, num_rows: int, num_positions: int) -> tuple[int, int]:
        """The captured shape that serves this batch: a little larger, so that few shapes are captured."""
        positions = -(-num_positions // POSITION_STEP) * POSITION_STEP
        return min(row_bucket(num_rows), slots.num_slots), min(positions, slots.num_positions)

    def replay(self, slots: Slots, shape: Hashable, step: Callable[[], None]) -> None:
        """Run `step` by its graph; the first time, run it plainly and capture it for the next."""
        key = (id(slots), slots.generation, shape)
        graph = self._graphs.get(key)
        if graph is not None:
            graph.replay()
            return
        self._forget(slots)
        step()
        self._graphs[key] = self._capture(step)

    def clear(self) -> None:
        self._graphs.clear()

    def _forget(self, slots: Slots) -> None:
        """Graphs of tensors that have moved would write to memory that is no longer theirs."""
        self._graphs = {
            key: graph
            for key, graph in self._graphs.items()
            if not (key[0] == id(slots) and key[1] != slots.generation)  # type: ignore[index]
        }

    def _capture(self, step: Callable[[], None]) -> Any:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        # Capturing records the step without running it, so the state is not advanced twice.
        # A pool dies with its last graph, so it is passed on only while there is one.
        pool = self._pool if self._graphs else None
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            step()
        self._pool = graph.pool()
        return graph
