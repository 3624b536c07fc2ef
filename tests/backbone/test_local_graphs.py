"""Which captured shape serves a batch: never too small, never more than the slots have, and few in all. What graphs
cost in memory is bounded, and done without where there is none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from backbone_builders import make_model
from hypothesis import given
from hypothesis import strategies as st

from jade.backbone.local.graphs import MOST_PREFILLS, DecodeGraphs, PrefillGraphs
from jade.backbone.local.runner import Runner
from jade.backbone.local.slots import CacheShape, Slots

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


def test_jobs_are_moved_together_where_that_makes_steps_cheaper() -> None:
    """On a CPU for every row; under graphs for a smaller shape; where idle rows cost nearly nothing, for half of it."""
    runner: Any = Runner(make_model(), {2}, fuse=False)
    cases = [(9, 8), (512, 440), (512, 300), (512, 256), (64, 33), (64, 32), (5, 5)]

    def moved() -> list[bool]:
        return [runner.is_oversized(rows, jobs) for rows, jobs in cases]

    assert moved() == [True, True, True, True, True, True, False]
    runner._graphs = DecodeGraphs()
    assert moved() == [True, True, True, True, False, True, False]
    runner._fused = object()
    assert moved() == [True, False, False, True, False, True, False]


class StandInGraph:
    """Runs nothing: what was captured stays as it was computed then."""

    def replay(self) -> None: ...

    def pool(self) -> object:
        return self


class StandInGpu:
    """Counts captures; has memory for `room` of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room, self.num_captured, self.share_free = room, 0, 0.5
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100 * self.share_free, 100))
        monkeypatch.setattr(torch.cuda, "CUDAGraph", StandInGraph)
        monkeypatch.setattr(torch.cuda, "graph", self.capturing)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)

    @contextlib.contextmanager
    def capturing(self, graph: StandInGraph, **options: Any) -> Iterator[None]:
        if self.num_captured == self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.num_captured += 1
        yield


def read(graphs: PrefillGraphs, number: int, shape: int) -> int:
    held, result = graphs.replay(SLOTS, torch.tensor([number]), shape, lambda words: words + 1)
    assert held.tolist() == [number]
    return int(result)


def test_a_shape_is_captured_once_and_reads_the_words_of_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, graphs = StandInGpu(monkeypatch, room=9), PrefillGraphs()
    for number in (4, 5):
        read(graphs, number, shape=1)
    assert gpu.num_captured == 1
    read(graphs, 6, shape=2)
    assert gpu.num_captured == 2


def test_of_many_shapes_the_longest_unused_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, graphs = StandInGpu(monkeypatch, room=999), PrefillGraphs()
    for shape in range(MOST_PREFILLS):
        read(graphs, 0, shape)
    read(graphs, 0, shape=0)
    read(graphs, 0, shape=MOST_PREFILLS)
    assert gpu.num_captured == MOST_PREFILLS + 1
    read(graphs, 0, shape=0)
    assert gpu.num_captured == MOST_PREFILLS + 1
    read(graphs, 0, shape=1)
    assert gpu.num_captured == MOST_PREFILLS + 2


def test_without_memory_for_graphs_prompts_are_read_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, graphs = StandInGpu(monkeypatch, room=1), PrefillGraphs()
    read(graphs, 3, shape=1)
    assert [read(graphs, number, shape=2) for number in (5, 6)] == [6, 7]
    assert [read(graphs, number, shape=1) for number in (7, 8)] == [8, 9]
    assert gpu.num_captured == 1
    gpu.room = 9
    graphs.resume()
    read(graphs, 3, shape=1)
    assert gpu.num_captured == 2


def test_nothing_more_is_captured_while_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, graphs = StandInGpu(monkeypatch, room=9), PrefillGraphs()
    read(graphs, 3, shape=1)
    gpu.share_free = 0.05
    assert [read(graphs, number, shape=2) for number in (5, 6)] == [6, 7]
    assert gpu.num_captured == 1
    gpu.share_free = 0.5
    read(graphs, 5, shape=2)
    assert gpu.num_captured == 2


def test_graphs_of_slots_that_have_grown_are_captured_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, graphs = StandInGpu(monkeypatch, room=9), PrefillGraphs()
    slots = Slots(CacheShape(1, 1, 2), torch.device("cpu"), torch.float32)
    for reserved in (2, 2, 9):
        slots.reserve(reserved, 128, 8)
        graphs.replay(slots, torch.tensor([1]), 1, lambda words: words + 1)
    assert gpu.num_captured == 2
