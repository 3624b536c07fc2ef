"""Requests join and leave a running batch, and none notices the others; no thread or loop is left waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

import pytest
from backbone_builders import make_model, make_prompt
from local_builders import (
    ENDLESS,
    MODES,
    PROMPTS,
    TOKENIZER,
    alone,
    first_step,
    is_decode,
    make_endless,
    opened,
    opened_failing,
    together,
)

from jade.backbone.base import Backbone
from jade.backbone.local.backbone import LocalBackbone
from jade.errors import BackboneFailed
from jade.types import Generation, Sampling
from patience import PATIENCE_SECONDS


def record_prefills(runner: Any) -> list[int]:
    """How many requests each prefill from now on admits."""
    sizes: list[int] = []
    plain = runner.prefill

    def prefill(slots: Any, admitted: Any, allowed: Any = None) -> None:
        sizes.append(len(admitted))
        plain(slots, admitted, allowed)

    runner.prefill = prefill
    return sizes


async def test_a_request_joins_while_another_runs_and_leaves_before_it() -> None:
    async with opened(make_model(ends=False), inline=True) as backbone:  # so that the loop sees every step
        long = asyncio.create_task(backbone.generate(PROMPTS[0], Sampling(max_tokens=80)))
        await first_step(backbone)
        short = await backbone.generate(PROMPTS[1], Sampling(max_tokens=3))
        assert not long.done()
        assert backbone.counts.largest_batch == 2
        assert len((await long).token_ids) == 80
    assert short.token_ids == (await alone(PROMPTS[1], Sampling(max_tokens=3), make_model(ends=False))).token_ids


async def test_no_more_requests_run_at_once_than_max_batch() -> None:
    async with opened(max_batch=2, inline=True) as backbone:
        found = await together(backbone, lambda i: Sampling(max_tokens=6 + i))
        assert backbone.counts.largest_batch == 2
    async with opened() as free:
        assert [g.token_ids for g in found] == [
            g.token_ids for g in await together(free, lambda i: Sampling(max_tokens=6 + i))
        ]


async def test_a_small_rest_of_what_may_be_read_at_once_gets_no_prefill_of_its_own() -> None:
    found, sizes = {}, {}
    for fewest in (0, 150):
        async with opened(inline=True, prefill_tokens=400) as backbone:
            engine, runner = backbone._engine, backbone._runner
            engine._limits = replace(engine._limits, fewest_tokens=fewest)
            sizes[fewest] = record_prefills(runner)
            found[fewest] = await together(backbone, lambda i: Sampling(1.0, max_tokens=6, seed=i))
    assert len(sizes[150]) < len(sizes[0])
    assert [g.token_ids for g in found[150]] == [g.token_ids for g in found[0]]


@MODES
async def test_cancelled_requests_free_their_places_for_those_who_wait(inline: bool) -> None:
    async with opened(make_endless(), max_batch=2, inline=inline) as backbone:
        endless = [asyncio.create_task(backbone.generate(p, ENDLESS)) for p in PROMPTS[:4]]
        await first_step(backbone)
        patient = asyncio.create_task(backbone.generate(PROMPTS[5], Sampling(max_tokens=5)))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not patient.done()
        for task in endless:
            task.cancel()
        found = await asyncio.wait_for(patient, PATIENCE_SECONDS)
        ends = await asyncio.gather(*endless, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)
        steps = backbone.counts.decode_steps
        again = await backbone.generate(PROMPTS[5], Sampling(max_tokens=5))
        assert backbone.counts.decode_steps - steps <= 10
    assert found.token_ids == again.token_ids


async def test_reading_late_reports_changes_when_slots_are_free_and_nothing_else() -> None:
    """As on a GPU, where several steps are under way before the host looks; here requests outnumber the slots."""
    settings = {"max_batch": 3, "steps_per_check": 3, "inline": True}
    async with opened(make_model(seed=3), reports_behind=1, **settings) as late:
        found = await together(late, lambda i: Sampling(1.0, max_tokens=4 + 2 * i, seed=i))
        again = await together(late, lambda i: Sampling(1.0, max_tokens=4 + 2 * i, seed=i))
    async with opened(make_model(seed=3), max_batch=3, inline=True) as prompt:
        expected = await together(prompt, lambda i: Sampling(1.0, max_tokens=4 + 2 * i, seed=i))
    assert [g.token_ids for g in found] == [g.token_ids for g in again] == [g.token_ids for g in expected]


async def test_late_reports_of_requests_that_were_cancelled_are_ignored() -> None:
    async with opened(make_endless(), max_batch=2, steps_per_check=4, reports_behind=1) as backbone:
        endless = [asyncio.create_task(backbone.generate(p, ENDLESS)) for p in PROMPTS[:2]]
        await first_step(backbone)
        for task in endless:
            task.cancel()
        found = await asyncio.wait_for(backbone.generate(PROMPTS[5], Sampling(max_tokens=5)), PATIENCE_SECONDS)
    assert found.token_ids == (await alone(PROMPTS[5], Sampling(max_tokens=5), make_endless())).token_ids


async def test_a_slot_whose_request_has_all_its_tokens_is_taken_before_the_report_says_so() -> None:
    """A first token by reading and four by a round of steps each: a round for every request, none for nobody."""
    settings = {"max_batch": 1, "steps_per_check": 4, "inline": True}
    async with opened(make_endless(), reports_behind=1, **settings) as late:
        found = await together(late, lambda i: Sampling(1.0, max_tokens=5, seed=i))
        assert late.counts.decode_steps == len(PROMPTS)
    async with opened(make_endless(), max_batch=1, inline=True) as prompt:
        expected = await together(prompt, lambda i: Sampling(1.0, max_tokens=5, seed=i))
    assert [g.token_ids for g in found] == [g.token_ids for g in expected]


async def test_weights_change_after_those_that_wait_for_their_last_report_have_been_handed_out() -> None:
    ends: list[str] = []
    stepped = asyncio.Event()

    async def noted(name: str, work: Awaitable[Any]) -> None:
        await work
        ends.append(name)

    async with opened(make_endless(), max_batch=1, steps_per_check=4, reports_behind=1, inline=True) as backbone:
        runner: Any = backbone._runner
        plain = runner.decode

        def decode(*about: Any) -> None:
            plain(*about)
            stepped.set()

        runner.decode = decode
        asked = [
            asyncio.create_task(noted("request", backbone.generate(prompt, Sampling(max_tokens=5))))
            for prompt in PROMPTS[:2]
        ]
        await stepped.wait()
        await noted("update", backbone.update_weights({}, version=1))
        await asyncio.gather(*asked)
        assert backbone.policy_version == 1
    assert ends == ["request", "update", "request"]


async def test_a_step_that_fails_ends_those_too_that_wait_for_their_last_report() -> None:
    """The first has its five tokens, and has left its slot, when the second one's steps fail."""
    steps: list[int] = []

    def fails(kwargs: dict[str, Any]) -> bool:
        steps.append(is_decode(kwargs))
        return sum(steps) > 4

    settings = {"max_batch": 1, "steps_per_check": 4, "reports_behind": 1, "inline": True}
    async with opened_failing(fails, RuntimeError("broken"), make_endless(), **settings) as backbone:
        asked = (backbone.generate(prompt, Sampling(max_tokens=5)) for prompt in PROMPTS[:2])
        found = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), PATIENCE_SECONDS)
        assert all(isinstance(one, BackboneFailed) for one in found)
        assert not backbone._engine.busy


async def test_inline_batches_are_the_same_in_every_run_to_the_last_bit() -> None:
    async def run() -> list[Generation]:
        async with opened(inline=True) as backbone:
            first = await together(backbone, lambda i: Sampling(1.0, max_tokens=5 + i, seed=i))
            follow = [make_prompt(generation.text) for generation in first]
            second = await asyncio.gather(
                *(backbone.generate(p, Sampling(1.0, max_tokens=7, seed=i)) for i, p in enumerate(follow))
            )
            assert threading.active_count() == num_threads
            return first + list(second)

    num_threads = threading.active_count()
    one, two = await run(), await run()
    assert [(g.token_ids, g.logprobs) for g in one] == [(g.token_ids, g.logprobs) for g in two]


@MODES
def test_one_backbone_serves_one_event_loop_after_another(inline: bool) -> None:
    backbone = LocalBackbone(make_model(), TOKENIZER, device="cpu", inline=inline)
    asked = [asyncio.run(backbone.generate(PROMPTS[0], Sampling(max_tokens=5))) for _ in range(2)]
    asyncio.run(backbone.update_weights({}, version=3))
    asked.append(asyncio.run(backbone.generate(PROMPTS[0], Sampling(max_tokens=5))))
    asyncio.run(backbone.close())
    assert len({generation.token_ids for generation in asked}) == 1
    assert [generation.policy_version for generation in asked] == [0, 0, 3]


@MODES
async def test_closing_answers_everyone_who_waits_and_may_be_done_twice(inline: bool) -> None:
    backbone = LocalBackbone(make_endless(), TOKENIZER, device="cpu", inline=inline)
    assert isinstance(backbone, Backbone)
    waiting = asyncio.create_task(backbone.generate(PROMPTS[0], ENDLESS))
    await first_step(backbone)
    await backbone.close()
    await backbone.close()
    with pytest.raises(BackboneFailed, match="closed"):
        await waiting
    with pytest.raises(BackboneFailed, match="closed"):
        await backbone.generate(PROMPTS[0], Sampling())
    with pytest.raises(BackboneFailed, match="closed"):
        await backbone.update_weights({}, version=1)
