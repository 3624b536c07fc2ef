"""Steps captured as CUDA graphs: one launch instead of hundreds, for each shape of batch that occurs.

A graph is bound to the addresses of the slots it was captured on; when those tensors move, it is captured again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from jade.backbone.local_slots import Slots, sent
from jade.backbone.local_turns import OF_THIS_PROCESS

ROW_STEP = 64
POSITION_STEP = 128
Result = TypeVar("Result")


def row_bucket(num_rows: int) -> int:
    """Rows of the captured step that serves so many: a power of two, or whole steps."""
    if num_rows > ROW_STEP:
        return -(-num_rows // ROW_STEP) * ROW_STEP
    return 1 << (num_rows - 1).bit_length()


class Captures(Generic[Result]):
    """Captured work and what it gives, by slots and shape."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, int, Hashable], tuple[Any, Result]] = {}
        self._pool: Any = None

    def find(self, slots: Slots, shape: Hashable) -> tuple[Any, Result] | None:
        return self._held.get((id(slots), slots.generation, shape))

    def capture(self, slots: Slots, shape: Hashable, work: Callable[[], Result]) -> None:
        """Record without running, so that no state is advanced twice. The work must have run once before."""
        # Graphs of tensors that have moved would write to memory that is no longer theirs.
        moved = [key for key in self._held if key[0] == id(slots) and key[1] != slots.generation]
        for key in moved:
            del self._held[key]
        graph = torch.cuda.CUDAGraph()
        # A pool dies with its last graph, so it is passed on only while there is one.
        pool = self._pool if self._held else None
        with OF_THIS_PROCESS.capture():
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                result = work()
        self._pool = graph.pool()
        self._held[id(slots), slots.generation, shape] = graph, result


class DecodeGraphs:
    """Decode steps, which read and write the slots alone."""

    def __init__(self) -> None:
        self._captures: Captures[None] = Captures()

    def shape(self, slots: Slots, num_rows: int, num_positions: int) -> tuple[int, int]:
        """The captured shape that serves this batch: a little larger, so that few shapes are captured."""
        positions = -(-num_positions // POSITION_STEP) * POSITION_STEP
        return min(row_bucket(num_rows), slots.num_slots), min(positions, slots.num_positions)

    def replay(self, slots: Slots, shape: Hashable, step: Callable[[], None]) -> None:
        """Run `step` by its graph; the first time, run it plainly and capture it for the next."""
        found = self._captures.find(slots, shape)
        if found:
            found[0].replay()
            return
        step()
        self._captures.capture(slots, shape, step)


class PrefillGraphs:
    """Prefills, whose inputs are copied to where the captured work reads them."""

    def __init__(self) -> None:
        self._captures: Captures[tuple[Sequence[Tensor], Tensor]] = Captures()

    def replay(self, slots: Slots, inputs: Sequence[Tensor], work: Callable[[Sequence[Tensor]], Tensor]) -> Tensor:
        """What `work` gives for these inputs (on the host); to be read before the next replay."""
        shape = tuple(tensor.shape for tensor in inputs)
        found = self._captures.find(slots, shape)
        if found:
            graph, (held, result) = found
            for target, tensor in zip(held, inputs, strict=True):
                target.copy_(tensor.pin_memory(), non_blocking=True)
            graph.replay()
            return result
        held = [sent(tensor, slots.kv.device) for tensor in inputs]
        result = work(held)
        self._captures.capture(slots, shape, lambda: (held, work(held)))
        return result
