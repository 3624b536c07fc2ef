"""Steps captured as CUDA graphs: one launch instead of hundreds, for each shape of batch that occurs.

A graph is bound to the addresses of the slots it was captured on; when those tensors move, it is captured again.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from jade.backbone.local.slots import Slots, sent
from jade.backbone.local.turns import OF_THIS_PROCESS

ROW_STEP = 64
POSITION_STEP = 128
MOST_PREFILLS = 64
"""Captured shapes of prefills that are kept: all that occur, unless very much is read at once."""
KEPT_FREE = 0.1
"""Share of a GPU's memory that new graphs of prefills leave free: a learner beside them may need it."""
Result = TypeVar("Result")
log = logging.getLogger(__name__)


def row_bucket(num_rows: int) -> int:
    """Rows of the captured step that serves so many: a power of two, or whole steps."""
    if num_rows > ROW_STEP:
        return -(-num_rows // ROW_STEP) * ROW_STEP
    return 1 << (num_rows - 1).bit_length()


class Captures(Generic[Result]):
    """Captured work and what it gives, by slots and shape. Of more than `most` the longest unused are dropped."""

    def __init__(self, most: int | None = None) -> None:
        self._held: OrderedDict[tuple[int, int, Hashable], tuple[Any, Result]] = OrderedDict()
        self._most = most
        self._pool: Any = None

    def find(self, slots: Slots, shape: Hashable) -> tuple[Any, Result] | None:
        key = (id(slots), slots.generation, shape)
        found = self._held.get(key)
        if found:
            self._held.move_to_end(key)
        return found

    def capture(self, slots: Slots, shape: Hashable, work: Callable[[], Result]) -> None:
        """Record without running, so that no state is advanced twice. The work must have run once before."""
        with OF_THIS_PROCESS.capture():
            torch.cuda.synchronize()  # a graph that is dropped must not be under way
            self._make_room(slots)
            graph = torch.cuda.CUDAGraph()
            # A pool dies with its last graph, so it is passed on only while there is one.
            pool = self._pool if self._held else None
            # Of this thread alone: others may go on allocating, which by default would end the capture.
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                result = work()
        self._pool = graph.pool()
        self._held[id(slots), slots.generation, shape] = graph, result

    def clear(self) -> None:
        if self._held:
            torch.cuda.synchronize()
            self._held.clear()

    def _make_room(self, slots: Slots) -> None:
        # Graphs of tensors that have moved would write to memory that is no longer theirs.
        moved = [key for key in self._held if key[0] == id(slots) and key[1] != slots.generation]
        for key in moved:
            del self._held[key]
        while self._most is not None and len(self._held) >= self._most:
            self._held.popitem(last=False)


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
    """Prefills, whose words are copied to where the captured work reads them.

    A graph keeps the memory that its work needs beside what is allocated as usual. Where there is too little for that,
    prompts are read without graphs."""

    def __init__(self) -> None:
        self._captures: Captures[tuple[Tensor, Tensor]] = Captures(MOST_PREFILLS)
        self._has_memory = True

    def replay(
        self, slots: Slots, words: Tensor, shape: Hashable, work: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The words on the device, and what `work` gives for them; both to be used before the next replay."""
        found = self._captures.find(slots, shape)
        if found:
            graph, (held, result) = found
            held.copy_(words.pin_memory(), non_blocking=True)
            graph.replay()
            return held, result
        held = sent(words, slots.kv.device)
        result = work(held)
        if self._has_memory and _is_roomy(slots.kv.device):
            self._capture(slots, held, shape, work)
        return held, result

    def give_up(self) -> None:
        """Let go of all graphs, and capture no more until told that there is memory again."""
        self._has_memory = False
        self._captures.clear()

    def resume(self) -> None:
        self._has_memory = True

    def _capture(self, slots: Slots, held: Tensor, shape: Hashable, work: Callable[[Tensor], Tensor]) -> None:
        try:
            self._captures.capture(slots, shape, lambda: (held, work(held)))
        except RuntimeError as error:  # out of memory, most likely, or what a capture says that such an error ended
            reason = next(iter(str(error).splitlines()), "")
            log.warning("prompts are read without graphs: capturing failed (%s: %s)", type(error).__name__, reason)
            self.give_up()


def _is_roomy(device: torch.device) -> bool:
    free, total = torch.cuda.mem_get_info(device)
    return free > KEPT_FREE * total
