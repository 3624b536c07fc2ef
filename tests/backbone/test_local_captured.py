"""Prompts read by graphs of a few padded shapes, on stand-ins of the GPU's kernels: whatever the batch, what is drawn
is what the plain way draws."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from backbone_builders import make_model, make_prompt
from local_builders import KINDS, TOKENIZER, opened
from standin_kernels import num_replays, read_as_on_a_gpu

from jade.backbone.local.backbone import LocalBackbone
from jade.backbone.local.graphs import DecodeGraphs
from jade.backbone.local.slots import Slots
from jade.types import Generation, Sampling

LENGTHS = (1, 3, 22, 40, 22, 5, 60, 2, 22, 22, 41, 9)
PROMPTS = [
    make_prompt(f"{length} " + "river " * length, system=f"Answer in few words, as role {index % 3}.")
    for index, length in enumerate(LENGTHS)
]
"""Of one piece and of several; of three roles; some of them twice."""


async def all_of(backbone: LocalBackbone, round_number: int = 0) -> list[Generation]:
    samplings = [
        Sampling(1.0, top_p=0.8 if index == 5 else 1.0, max_tokens=4 + index % 5, seed=100 * round_number + index)
        for index in range(len(PROMPTS))
    ]
    return await asyncio.gather(*map(backbone.generate, PROMPTS, samplings))


def assert_same(found: list[Generation], expected: list[Generation]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.token_ids == other.token_ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-3)


@KINDS
@pytest.mark.parametrize("max_batch", [2, 7, 64])
async def test_captured_prefills_draw_what_plain_ones_draw(
    kind: str, max_batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(make_model(kind), inline=True, max_batch=max_batch) as plain:
        expected = [await all_of(plain, number) for number in range(3)]
    async with opened(make_model(kind), inline=True, max_batch=max_batch, fuse=False) as backbone:
        prefills = read_as_on_a_gpu(backbone, monkeypatch)
        for number in range(3):
            assert_same(await all_of(backbone, number), expected[number])
        assert num_replays(prefills)


async def test_steps_between_two_looks_are_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed: list[tuple[Any, ...]] = []

    def replay(graphs: DecodeGraphs, slots: Slots, shape: tuple[Any, ...], step: Callable[[], None]) -> None:
        replayed.append(shape)
        step()

    async with opened(inline=True) as plain:
        expected = await all_of(plain)
    async with opened(inline=True, fuse=False, steps_per_check=4) as backbone:
        read_as_on_a_gpu(backbone, monkeypatch)
        monkeypatch.setattr(DecodeGraphs, "replay", replay)
        backbone._runner._graphs = DecodeGraphs()
        assert_same(await all_of(backbone), expected)
        assert len(replayed) == backbone.counts.decode_steps
        assert {shape[-1] for shape in replayed} == {4}


async def test_new_weights_reach_what_was_captured_before(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(make_model(seed=5), inline=True) as fresh:
        expected = await all_of(fresh)
    async with opened(inline=True, fuse=False) as backbone:
        prefills = read_as_on_a_gpu(backbone, monkeypatch)
        for number in range(2):
            await all_of(backbone, number)
        before = num_replays(prefills)
        await backbone.update_weights(make_model(seed=5).state_dict(), version=1)
        assert_same(await all_of(backbone), expected)
        assert num_replays(prefills) > before


async def test_constrained_requests_are_read_by_graphs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llguidance")
    samplings = [Sampling(1.0, max_tokens=9, seed=i, choices=("Yes", "No") if i % 3 == 0 else ()) for i in range(12)]
    async with opened(inline=True, max_batch=5) as plain:
        expected = await asyncio.gather(*map(plain.generate, PROMPTS, samplings))
    async with opened(inline=True, max_batch=5, fuse=False) as backbone:
        prefills = read_as_on_a_gpu(backbone, monkeypatch)
        assert_same(await asyncio.gather(*map(backbone.generate, PROMPTS, samplings)), expected)
        assert num_replays(prefills)


async def test_slots_that_grow_between_two_replays_are_read_where_they_are_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = make_prompt("river " * 110)
    async with opened(inline=True) as plain:
        expected = [*await all_of(plain), await plain.generate(long, Sampling(max_tokens=9)), *await all_of(plain, 1)]
    async with opened(inline=True, fuse=False) as backbone:
        read_as_on_a_gpu(backbone, monkeypatch)
        found = [*await all_of(backbone), await backbone.generate(long, Sampling(max_tokens=9))]
        found += await all_of(backbone, 1)
    assert_same(found, expected)
    assert len(TOKENIZER(long.user)["input_ids"]) > 512
