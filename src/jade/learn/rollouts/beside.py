"""Crews in processes beside the learner's: rollouts with interpreters of their own, at the same time as updates or not.

In one process all would wait for the interpreter's lock more than for the device. Each speaks with the learner through
a pipe (`line.py` is the learner's end, `desk.py` the other); weights go through memory that all have open (`shelf.py`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from jade.backbone.local.backbone import pick_device, pick_dtype
from jade.config import Config
from jade.engine.rollout import Job
from jade.errors import BackboneFailed
from jade.learn.policy import Policy
from jade.learn.rollouts.line import Line, open_line
from jade.learn.rollouts.sampler import Troupe
from jade.learn.rollouts.shelf import Shelf, share
from jade.types import Trace

log = logging.getLogger(__name__)
MEMORY = Path("/dev/shm")
"""Where files are memory, if the system has such a place."""


@dataclass(frozen=True)
class Beside(Troupe):
    """The crews in the other processes, as the learner sees them."""

    lines: Sequence[Line]
    shelf: Shelf

    async def roll_out(self, jobs: Sequence[Job], *, concurrency: int) -> list[Trace]:
        traces: dict[int, Trace] = {}
        hands = deal(jobs, len(self.lines))
        share = -(-concurrency // len(self.lines))

        async def hand_to(line: Line, places: Sequence[int]) -> None:
            hand = tuple(jobs[place] for place in places)
            await line.ask(
                "roll_out", hand, self.sampling, share, on_part=lambda part: traces.update(_at(places, part))
            )

        await all_of([hand_to(line, places) for line, places in zip(self.lines, hands, strict=True) if places])
        return [traces[place] for place in range(len(jobs))]

    def lay_out(self, policy: Policy) -> None:
        """The others read what lies there only when they are told to."""
        self.shelf.put(policy)

    async def follow(self, policy: Policy, version: int) -> None:
        shelf = self.shelf
        await all_of(
            [
                line.ask("learn", shelf.place_for(reader), shelf.layout, shelf.dtype, version)
                for reader, line in enumerate(self.lines)
            ]
        )
        shelf.take_name_away()


def deal(jobs: Sequence[Job], num_hands: int) -> list[list[int]]:
    """The places of the jobs that each hand gets. Those of one question stay together: their prompts are the same."""
    hands: list[list[int]] = [[] for _ in range(num_hands)]
    questions = itertools.groupby(range(len(jobs)), key=lambda place: jobs[place].question)
    for hand, (_, places) in zip(itertools.cycle(hands), questions, strict=False):
        hand.extend(places)
    return hands


def _at(places: Sequence[int], part: Mapping[int, Trace]) -> dict[int, Trace]:
    return {places[number]: trace for number, trace in part.items()}


async def all_of(asked: Sequence[Coroutine[Any, Any, Any]]) -> None:
    """Until all have ended, or one has failed and the others are given up."""
    tasks = [asyncio.create_task(one) for one in asked]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def open_beside(config: Config) -> AsyncIterator[Beside]:
    """Start the processes, wait until their crews are ready, and end them whatever happens."""
    with tempfile.TemporaryDirectory(prefix="jade-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        async with AsyncExitStack() as stack:
            lines = [await stack.enter_async_context(open_line(config)) for _ in range(num_beside(config))]
            try:
                await all_of([line.ask("ready") for line in lines])
                device = pick_device(config.backbone.device)
                shelf = Shelf(Path(folder), pick_dtype(config.backbone.dtype, device), await _shared(device, lines))
                yield Beside(config.sampling, lines, shelf)
            finally:
                for line in lines:  # so that they end together, ready or not
                    line.hang_up()


async def _shared(device: torch.device, lines: Sequence[Line]) -> torch.device:
    """In whose memory weights are handed on: in the GPU's, if all the other processes can open it."""
    processor = torch.device("cpu")
    if device.type != "cuda":
        return processor
    try:
        probe = torch.ones(1, device=device)
        await all_of([line.ask("open", share(probe)) for line in lines])
    except (BackboneFailed, RuntimeError) as error:
        log.info("weights go to the processes beside by way of the processor: %s", error)
        return processor
    return device


def num_beside(config: Config) -> int:
    """Processes that make rollouts; 0 where the learner's own does."""
    return max(config.learn.processes, int(config.learn.ahead))
