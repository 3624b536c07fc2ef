"""Rollouts by Ray actors: questions are dealt out to them, and new weights reach them through the object store.

Every call carries what it needs, the weights included, so that Ray itself can start an actor that died again and give
it the same call once more: its questions are worked a second time, with the same seeds. A call that is lost twice ends
in traces that say so.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
import torch
from torch import Tensor

from jade.backbone.local.backbone import pick_dtype
from jade.cluster.ray_room import Room
from jade.config import Config, SamplingConfig
from jade.engine.case import ROOT, trace_id
from jade.engine.rollout import Job, rollout
from jade.errors import JadeError
from jade.learn.open import Assemble, set_threads
from jade.learn.policy import Policy
from jade.learn.ranks import agree, is_first
from jade.learn.rollouts.sampler import Learns, Troupe, dealt_back
from jade.team.crew import Crew, open_crew
from jade.types import Node, Trace

Parcel = Mapping[str, Any]
"""A version of the weights, by name; what it holds lies in the object store."""


class Roller:
    """An actor: a crew of its own, which speaks with the weights that come with a call."""

    def __init__(self, config: Config, folder: Path) -> None:
        # Paths in a config are meant from where the run was started.
        os.chdir(folder)
        set_threads(config)
        self._config = config
        self._stack = AsyncExitStack()
        self._crew: Crew | None = None
        self._version: int | None = None
        self._opening = asyncio.Lock()

    async def ready(self) -> None:
        """Load what there is to load. Raises what is wrong with it."""
        async with self._opening:
            if self._crew is None:
                self._crew = await self._stack.enter_async_context(open_crew(self._config))

    def process_id(self) -> int:
        return os.getpid()

    async def roll_out(
        self, jobs: Sequence[Job], sampling: SamplingConfig, concurrency: int, version: int, parcel: Parcel
    ) -> list[Trace]:
        await self.ready()  # one that Ray has started again since was not asked before
        assert self._crew is not None, "what is ready has a crew"
        if version != self._version:
            await self._learn(self._crew, version, parcel)
        return await rollout(jobs, replace(self._crew, sampling=sampling), concurrency=concurrency)

    async def _learn(self, crew: Crew, version: int, parcel: Parcel) -> None:
        if isinstance(crew.cast.shared, Learns):
            # What is waited for are references to the object store: all are fetched at the same time.
            tensors: list[Tensor] = await asyncio.gather(*parcel.values())
            await crew.cast.shared.update_weights(list(zip(parcel, tensors, strict=True)), version)
        self._version = version


@dataclass
class Post:
    """The newest weights, and which version they are."""

    version: int = 0
    parcel: Parcel = field(default_factory=dict)


@dataclass(frozen=True)
class RayTroupe(Troupe):
    """The actors of a run, as one. The first learner speaks to them."""

    actors: Sequence[Any]
    dtype: torch.dtype = torch.float32
    post: Post = field(default_factory=Post)

    async def roll_out(self, jobs: Sequence[Job], *, concurrency: int) -> list[Trace]:
        return agree(await self._deal_out(jobs, concurrency) if is_first() else [])

    async def _deal_out(self, jobs: Sequence[Job], concurrency: int) -> list[Trace]:
        hands = [jobs[number :: len(self.actors)] for number in range(len(self.actors))]
        return dealt_back(await asyncio.gather(*map(self._hand_to, self.actors, hands, [concurrency] * len(hands))))

    async def _hand_to(self, actor: Any, jobs: Sequence[Job], concurrency: int) -> list[Trace]:
        post = self.post
        try:
            with _plainly():
                traces: list[Trace] = await actor.roll_out.remote(
                    jobs, self.sampling, concurrency, post.version, post.parcel
                )
        except ray.exceptions.RayActorError as error:
            why = f"the rollout actor died twice: {str(error).strip().partition(chr(10))[0]}"
            return [unworked(job, why) for job in jobs]
        return traces

    async def follow(self, policy: Policy, version: int) -> None:
        # All learners put each weight together; it is sent by one of them, and only one is in memory at a time.
        parcel = {
            name: ray.put(weight.detach().to("cpu", self.dtype))
            for name, weight in policy.sampler_weights()
            if is_first()
        }
        self.post.version, self.post.parcel = version, parcel


def unworked(job: Job, why: str) -> Trace:
    """The record of a question that nobody came back with."""
    text = job.question.text
    return Trace(
        id=trace_id(job.question, job.seed),
        question=job.question,
        nodes=(Node(ROOT, None, text, text),),
        steps=(),
        answer="",
        error=why,
        seed=job.seed,
        effort=job.effort,
    )


def start_actors(room: Room, config: Config) -> list[Any]:
    """Actors that Ray keeps alive, all of them ready to work."""
    device = "cuda" if room.gpus_per_actor else "cpu"
    own = config.backbone.model_copy(update={"adapter": None, "device": device})
    config = config.model_copy(update={"backbone": own})
    actors = [kept_alive(Roller, room).remote(config, Path.cwd()) for _ in range(room.actors)]
    with _plainly():
        ray.get([actor.ready.remote() for actor in actors])
    return actors


def kept_alive(kind: type[Any], room: Room) -> Any:
    """As an actor that Ray starts again whenever it dies, and then gives the call that it died in once more."""
    actor: Any = ray.remote(kind)
    return actor.options(num_cpus=room.actor["CPU"], num_gpus=room.actor["GPU"], max_restarts=-1, max_task_retries=1)


@contextmanager
def _plainly() -> Iterator[None]:
    """Errors of an actor as they were raised there, without the traceback that Ray makes of them."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, JadeError) else error) from None


def troupe_of(actors: Sequence[Any], room: Room) -> Assemble:
    """How a learner comes to the actors."""
    dtype = pick_dtype(room.config.backbone.dtype, torch.device("cuda" if room.gpus_per_actor else "cpu"))

    @asynccontextmanager
    async def assemble(config: Config) -> AsyncIterator[Crew | Troupe]:
        yield RayTroupe(config.sampling, actors, dtype)

    return assemble
