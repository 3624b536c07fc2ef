"""Where questions are handed in: a bounded number is worked at once, a bounded number waits, each for a bounded time.

Whoever stops waiting for an answer stops the work on it: cancelling `work` cancels the team's calls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from secrets import token_hex

from jade.config import RewardConfig, SamplingConfig, ServeConfig
from jade.engine.case import ask_for, failed_if_unsearched
from jade.engine.events import Listener, silent
from jade.engine.solve import solve
from jade.errors import TraceUnreadable
from jade.serve.problems import Problem
from jade.serve.tally import Tally
from jade.serve.wishes import EffortWish, prices_of
from jade.team.crew import Crew
from jade.types import Question, Trace

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """A question as it was asked, with what the asker set."""

    text: str
    context: tuple[str, ...] = ()
    seed: int = 0
    effort: EffortWish | None = None
    temperature: float | None = None
    top_p: float | None = None

    def question(self) -> Question:
        return ask_for(self.text, self.context)


def forget(trace: Trace) -> None:
    """The keeper that keeps nothing."""


class Desk:
    def __init__(
        self,
        crew: Crew,
        config: ServeConfig,
        tally: Tally,
        keep: Callable[[Trace], None] = forget,
        reward: RewardConfig | None = None,
    ) -> None:
        self.crew = crew
        self.reward = reward or RewardConfig()
        self._config = config
        self._tally = tally
        self._keep = keep
        self._places = asyncio.Semaphore(config.concurrency)
        self._num_waiting = 0
        self._num_active = 0
        tally.gauge("jade_questions_active", "Questions being worked.", lambda: self._num_active)
        tally.gauge("jade_questions_waiting", "Questions waiting for their turn.", lambda: self._num_waiting)

    async def work(self, request: Request, listen: Listener = silent) -> Trace:
        """The finished trace; a Problem when there is none to be had."""
        self._check(request)
        try:
            async with asyncio.timeout(self._config.answer_seconds):
                trace = await self._in_turn(request, listen)
        except TimeoutError:
            self._tally.question("timeout")
            seconds = self._config.answer_seconds
            raise Problem(504, "timeout", f"no answer within {seconds:g} s: ask a simpler question") from None
        except asyncio.CancelledError:
            self._tally.question("cancelled")
            raise
        return self._finish(trace)

    def _check(self, request: Request) -> None:
        if len(request.text) > self._config.max_question_chars:
            limit = self._config.max_question_chars
            raise Problem(413, "question_too_long", f"the question is longer than {limit} characters: shorten it")
        if not request.text.strip():
            raise Problem(422, "empty_question", "the question is empty")
        if self._places.locked() and self._num_waiting >= self._config.queue:
            self._tally.question("refused")
            raise Problem(503, "queue_full", "too many questions are waiting: try again soon", retry_seconds=2)

    async def _in_turn(self, request: Request, listen: Listener) -> Trace:
        self._num_waiting += 1
        try:
            await self._places.acquire()
        finally:  # whoever gives up waiting is not waiting either
            self._num_waiting -= 1
        self._num_active += 1
        try:
            crew = replace(self.crew, sampling=self._sampling(request))
            effort = prices_of(request.effort, self.reward)
            return await solve(request.question(), crew, seed=request.seed, effort=effort, listen=listen)
        finally:
            self._num_active -= 1
            self._places.release()

    def _sampling(self, request: Request) -> SamplingConfig:
        wishes = {"temperature": request.temperature, "top_p": request.top_p}
        return self.crew.sampling.model_copy(update={k: v for k, v in wishes.items() if v is not None})

    def _finish(self, trace: Trace) -> Trace:
        """Keep the trace under an id of its own: the same question may be asked again."""
        trace = replace(failed_if_unsearched(trace), id=f"{trace.id}.{token_hex(4)}")
        self._tally.question("failed" if trace.error else "answered", trace.usage)
        try:
            self._keep(trace)
        except (OSError, TraceUnreadable) as error:  # an answer that cannot be kept is still an answer
            log.error("the trace %s was not kept: %s", trace.id, error)
        if trace.error:
            raise Problem(502, "team_failed", f"the team could not work: {trace.error}", trace_id=trace.id)
        return trace
