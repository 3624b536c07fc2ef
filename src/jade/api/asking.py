"""A team to ask: opened once, asked often, by a script, a notebook or a server.

The team works in a thread of its own, so that nobody's event loop stands still and questions that are asked at the
same time share its batches, whoever asks them. A question that failed is a trace like any other: it says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self, TypeAlias

from jade.api.loop import LoopThread
from jade.api.settings import Settings, config_of
from jade.backbone.base import Backbone
from jade.backbone.called import CalledBackbone, Speak
from jade.backbone.trained import as_trained
from jade.config import Config, RewardConfig, load_config
from jade.engine.case import ask_for, failed_if_unsearched
from jade.engine.effort import effort_of
from jade.engine.events import Listener, silent
from jade.engine.rollout import Job, ignore, rollout
from jade.engine.solve import solve
from jade.errors import ConfigError
from jade.retrieval.base import Retriever
from jade.retrieval.called import CalledRetriever, Find
from jade.team.crew import Crew, open_crew
from jade.types import Passage, Question, Trace

Index: TypeAlias = str | Path | Retriever | Find
"""An index folder, a retrieval server's URL, or a function that finds passages."""
Model: TypeAlias = str | Path | Backbone | Speak
"""A shipped name, a Hugging Face folder or name, a server's URL, or a function that writes."""
Spend: TypeAlias = str | float
"""low, medium, high, or a number from 0 to 1."""


def open_team(
    index: Index | None = None,
    model: Model | None = None,
    *,
    effort: Spend | None = None,
    config: Config | str | Path | None = None,
    settings: Settings | None = None,
) -> OpenTeam:
    """Open a team: its index and its model, loaded once.

    `config` is a file or a Config; what is named here goes before it, and `settings` ({"budget.rounds": 4}) before
    all. Use it in a `with`, or close it.
    """
    own_index = None if index is None or isinstance(index, str | Path) else _retriever(index)
    own_model = None if model is None or isinstance(model, str | Path) else _backbone(model)
    named = {
        "retrieval.index": None if own_index else index,
        "backbone.model": None if own_model else model,
        "reward.effort": effort,
    }
    chosen = config_of(config, named, settings)
    trained = chosen if own_model else as_trained(chosen, may_be_asked=True)
    return OpenTeam(trained, backbone=own_model, retriever=own_index)


def _retriever(given: Retriever | Find) -> Retriever:
    return given if isinstance(given, Retriever) else CalledRetriever(given)


def _backbone(given: Backbone | Speak) -> Backbone:
    return given if isinstance(given, Backbone) else CalledBackbone(given)


class OpenTeam:
    """A team with its means. Its methods may be called from several threads at once."""

    def __init__(self, config: Config, *, backbone: Backbone | None = None, retriever: Retriever | None = None) -> None:
        self.config = config
        self._loop = LoopThread()
        self._stack = AsyncExitStack()
        try:
            self._crew = self._loop.run(self._open(backbone, retriever))
        except BaseException:
            self.close()
            raise

    async def _open(self, backbone: Backbone | None, retriever: Retriever | None) -> Crew:
        return await self._stack.enter_async_context(open_crew(self.config, backbone=backbone, retriever=retriever))

    def ask(
        self,
        question: str | Question,
        *,
        context: Sequence[str] = (),
        effort: Spend | None = None,
        seed: int | None = None,
        listen: Listener = silent,
    ) -> Trace:
        """Work one question. `context` are earlier turns of the conversation, oldest first; `listen` hears every step
        as it is taken, in the team's thread."""
        return self._loop.run(self._solve(self._job(question, effort, seed, context), listen))

    async def ask_async(
        self,
        question: str | Question,
        *,
        context: Sequence[str] = (),
        effort: Spend | None = None,
        seed: int | None = None,
        listen: Listener = silent,
    ) -> Trace:
        """The same for callers with an event loop of their own, which goes on meanwhile."""
        import asyncio

        work = self._solve(self._job(question, effort, seed, context), listen)
        return await asyncio.wrap_future(self._loop.begin(work))

    def ask_all(
        self,
        questions: Iterable[str | Question],
        *,
        concurrency: int | None = None,
        effort: Spend | None = None,
        seed: int | None = None,
        on_trace: Callable[[int, Trace], None] = ignore,
    ) -> list[Trace]:
        """Work many questions at once: a trace for each, in their order. `on_trace` hears of each as soon as it is
        there, with its place."""
        if isinstance(questions, str):  # as an iterable it would be a question for each of its letters
            raise ConfigError(f"ask_all takes several questions: ask_all([{questions!r}]), or ask for one")
        jobs = [self._job(question, effort, seed) for question in questions]
        return self._loop.run(self._solve_all(jobs, concurrency or self.config.eval.concurrency, on_trace))

    def search(self, query: str, k: int | None = None) -> list[Passage]:
        """What the team's index finds."""
        (found,) = self._loop.run(self._crew.retriever.search([query], k or self._crew.k))
        return found

    def close(self) -> None:
        """Let go of the model and the index. Safe to call twice."""
        if not self._loop.is_closed:
            try:
                self._loop.run(self._stack.aclose())
            finally:
                self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def _solve(self, job: Job, listen: Listener) -> Trace:
        worked = await solve(job.question, self._crew, seed=job.seed, effort=job.effort, listen=listen)
        return failed_if_unsearched(worked)

    async def _solve_all(
        self, jobs: Sequence[Job], concurrency: int, on_trace: Callable[[int, Trace], None]
    ) -> list[Trace]:
        def heard(place: int, trace: Trace) -> None:
            on_trace(place, failed_if_unsearched(trace))

        return [
            failed_if_unsearched(t) for t in await rollout(jobs, self._crew, concurrency=concurrency, on_trace=heard)
        ]

    def _job(
        self, question: str | Question, effort: Spend | None, seed: int | None, context: Sequence[str] = ()
    ) -> Job:
        asked = ask_for(question, context) if isinstance(question, str) else question
        return Job(asked, self.config.seed if seed is None else seed, effort_of(self._spending(effort)))

    def _spending(self, effort: Spend | None) -> RewardConfig:
        """The prices in force where a question comes with an effort of its own."""
        if effort is None:
            return self.config.reward
        place = load_config(values={"reward.effort": effort}).reward.effort
        return self.config.reward.model_copy(update={"effort": place})
