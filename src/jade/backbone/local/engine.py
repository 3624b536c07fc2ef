"""Continuous batching: requests that wait are admitted between decode steps, finished ones leave at once.

`step` reads admit → decode → collect. It is plain synchronous code, the same under a worker thread and inside an
event loop, and its result depends on the order of arrival alone. A request that fails, fails alone as far as that
can be told.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from jade.backbone.chat import ChatFormat
from jade.backbone.constrain import ChoiceGrammars, most_tokens
from jade.backbone.local.job import Job, Outcome, Ticket
from jade.backbone.local.lane import Lane, SlotPlan
from jade.backbone.local.runner import Runner
from jade.errors import BackboneFailed
from jade.types import Generation

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much the engine takes on at once."""

    max_batch: int
    max_prompt_tokens: int
    prefill_tokens: int
    """Prompt tokens read between two decode steps, so that busy requests are not held up for long."""
    fewest_tokens: int
    """Where no more than so many of those are left, nothing further is read before the next decode step: on a GPU a few
    tokens take as long as some thousand."""
    steps_per_check: int
    """Decode steps between two looks at what is done; more than one keeps a GPU from waiting for the host."""
    plan: SlotPlan


@dataclass(slots=True)
class Counts:
    """What has happened since the engine started; for tests, benchmarks and logs."""

    decode_steps: int = 0
    largest_batch: int = 0
    prompt_tokens: int = 0
    prompt_tokens_reused: int = 0
    prompts_cut: int = 0


class Engine:
    """Jobs in, outcomes out."""

    def __init__(self, runner: Runner, chat: ChatFormat, limits: Limits) -> None:
        self._runner, self._chat, self._limits = runner, chat, limits
        self._grammars = ChoiceGrammars(chat.tokenizer, runner.vocabulary_size, runner.eos_ids)
        self._waiting: deque[Job] = deque()
        self._lanes: dict[str | None, Lane] = {}
        self._updates: deque[tuple[Callable[[], int], Ticket]] = deque()
        self._outcomes: list[Outcome] = []
        self._max_batch = limits.max_batch
        self.policy_version = 0
        self.counts = Counts()

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._updates or self._outcomes or self.num_active)

    @property
    def num_active(self) -> int:
        """Jobs that were admitted and have not been handed out, in slots or not."""
        return sum(lane.num_jobs for lane in self._lanes.values())

    def prepare(self, jobs: Sequence[Job]) -> None:
        """Tokenise, and note on the job why it cannot be served if it cannot. Touches nothing but the jobs, so another
        thread may do this while the model computes."""
        try:
            rows = self._chat.encode_all([job.prompt for job in jobs])
            for job, ids in zip(jobs, rows, strict=True):
                self._prepare(job, ids)
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].refusal = error
                return
            for job in jobs:
                self.prepare([job])

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs that were prepared. One that was refused fails here, alone."""
        for job in jobs:
            if job.refusal:
                self._fail(job, job.refusal)
            else:
                self.counts.prompts_cut += job.num_cut > 0
                self._waiting.append(job)

    def update(self, apply: Callable[[], int], ticket: Ticket) -> None:
        """Run `apply` when no request is active; it returns the new policy version. Nobody is admitted meanwhile,
        so every generation comes from one policy."""
        self._updates.append((apply, ticket))

    def step(self) -> list[Outcome]:
        """Admit what waits, advance what runs, and hand out what has ended since the last step."""
        self._drop_cancelled()
        if self._updates:
            self._apply_updates()
        else:
            self._admit()
        for lane in self._lanes.values():
            self._decode(lane)
        self._collect()
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def fail_all(self, reason: str) -> list[Outcome]:
        """Empty the engine; everyone who waits gets the reason."""
        jobs = [*(job for lane in self._lanes.values() for job in lane.evict_all()), *self._waiting]
        tickets = [*(job.ticket for job in jobs), *(ticket for _, ticket in self._updates)]
        self._waiting.clear()
        self._updates.clear()
        outcomes, self._outcomes = self._outcomes, []
        return [*outcomes, *((ticket, BackboneFailed(reason)) for ticket in tickets)]

    def _prepare(self, job: Job, ids: tuple[int, ...]) -> None:
        job.limit = max(1, job.sampling.max_tokens)
        if job.sampling.choices:
            job.limit = max(job.limit, most_tokens(job.sampling.choices))
            job.matcher = self._grammars.start(job.sampling.choices)
        room = min(self._limits.max_prompt_tokens, self._runner.max_positions - job.limit)
        if room <= 0:
            raise BackboneFailed(
                f"{job.limit} new tokens were asked for, which leaves no room for a prompt in the model's "
                f"{self._runner.max_positions} positions"
            )
        encoded = self._chat.cut_to(job.prompt, ids, room)
        job.take_ids(encoded.ids, encoded.num_cut)
        if job.num_cut:
            log.warning("%d tokens were cut from the middle of a %s prompt", job.num_cut, job.prompt.role)

    def _drop_cancelled(self) -> None:
        if any(job.cancelled for job in self._waiting):
            self._waiting = deque(job for job in self._waiting if not job.cancelled)
        for lane in self._lanes.values():
            lane.drop_cancelled()

    def _apply_updates(self) -> None:
        while self._updates and not self.num_active:
            self._max_batch = self._limits.max_batch  # memory that was short under the last policy may be free again
            self._runner.resume_captures()
            apply, ticket = self._updates.popleft()
            try:
                self.policy_version = apply()
                self._outcomes.append((ticket, None))
            except Exception as error:
                self._outcomes.append((ticket, _failure("the weights were not updated", error)))
            for lane in self._lanes.values():
                lane.forget_prefixes()

    def _admit(self) -> None:
        budget = self._limits.prefill_tokens
        while self._waiting and budget > self._limits.fewest_tokens:
            chosen, budget = self._choose(budget)
            if not chosen:
                return
            for lane, jobs in chosen.items():
                self._prefill(lane, jobs)

    def _choose(self, budget: int) -> tuple[dict[Lane, list[Job]], int]:
        """The next jobs to admit, by lane, and what they leave of the budget: first come, first served, but of those
        that share a prefix nobody has computed yet only the first, so that the others can copy it right after."""
        chosen: dict[Lane, list[Job]] = {}
        left: deque[Job] = deque()
        computing: set[tuple[str | None, str]] = set()
        reading: set[tuple[str | None, bytes]] = set()
        longest = {lane: lane.num_positions for lane in self._lanes.values()}
        num_active = self.num_active
        room = self._max_batch - sum(len(lane.jobs) for lane in self._lanes.values())
        while self._waiting and room > 0 and budget > 0:
            lane = self._lane(self._waiting[0].adapter)  # may fail, and whoever is out of the queue then waits for ever
            job = self._waiting.popleft()
            prefix, whole = (job.adapter, job.prompt.system), (job.adapter, job.row)
            if lane.lacks_prefix(job) and prefix in computing:
                left.append(job)
                continue
            num_positions = max(longest.get(lane, 0), job.num_positions)
            cost = 0 if whole in reading else len(job.ids) - lane.num_cached(job)
            too_long = bool(chosen) and cost > budget
            # A job alone is always tried, whatever memory seems to be free: else it might wait for ever.
            if too_long or ((num_active or chosen) and not lane.fits(len(chosen.get(lane, ())) + 1, num_positions)):
                left.append(job)
                break
            longest[lane] = num_positions
            chosen.setdefault(lane, []).append(job)
            room -= 1
            budget -= cost
            computing.add(prefix)
            reading.add(whole)
        self._waiting.extendleft(reversed(left))
        return chosen, budget

    def _lane(self, adapter: str | None) -> Lane:
        if adapter not in self._lanes:
            self._lanes[adapter] = Lane(self._runner, self._chat, adapter, self._limits.plan)
        return self._lanes[adapter]

    def _prefill(self, lane: Lane, jobs: Sequence[Job]) -> None:
        for job in jobs:
            job.policy_version = self.policy_version
        try:
            reused = lane.admit(jobs)
        except Exception as error:
            self._prefill_failed(lane, jobs, error)
            return
        self.counts.prompt_tokens += sum(len(job.ids) for job in jobs)
        self.counts.prompt_tokens_reused += reused

    def _prefill_failed(self, lane: Lane, jobs: Sequence[Job], error: Exception) -> None:
        """One by one, the guilty are told from the others; out of memory, one may fit where all did not."""
        self._release_memory(error)
        if len(jobs) > 1:
            for job in jobs:
                self._rewind(job)
                self._prefill(lane, [job])
        elif isinstance(error, torch.OutOfMemoryError) and self.num_active:
            self._max_batch = max(1, self.num_active)
            self._waiting.appendleft(jobs[0])
        elif isinstance(error, torch.OutOfMemoryError) and self._start_small():
            self._prefill(lane, jobs)
        else:
            self._fail(jobs[0], error)

    def _decode(self, lane: Lane) -> None:
        if not lane.jobs:
            return
        self.counts.decode_steps += 1
        self.counts.largest_batch = max(self.counts.largest_batch, len(lane.jobs))
        try:
            lane.decode(self._limits.steps_per_check)
        except Exception as error:
            self._decode_failed(lane.evict_all(), error)

    def _decode_failed(self, jobs: Sequence[Job], error: Exception) -> None:
        """Out of memory, the batch starts again at half its size; any other error ends its requests."""
        self._release_memory(error)
        if isinstance(error, torch.OutOfMemoryError) and len(jobs) > 1:
            self._max_batch = len(jobs) // 2
            for job in reversed(jobs):
                self._rewind(job)
                self._waiting.appendleft(job)
            return
        for job in jobs:
            self._fail(job, error)

    def _start_small(self) -> bool:
        """Give back what idle slots hold: many short requests may have taken the room that one long one needs."""
        released = [lane.release() for lane in self._lanes.values()]
        if any(released) and torch.cuda.is_available():
            torch.cuda.empty_cache()
        return any(released)

    def _release_memory(self, error: Exception) -> None:
        if isinstance(error, torch.OutOfMemoryError) and torch.cuda.is_available():
            self._runner.give_up_captures()
            torch.cuda.empty_cache()

    def _rewind(self, job: Job) -> None:
        """Back to the start; the same seed draws the same tokens again."""
        job.num_sampled = 0
        if job.matcher:
            job.matcher = self._grammars.start(job.sampling.choices)

    def _collect(self) -> None:
        finished = [found for lane in self._lanes.values() for found in lane.take_finished()]
        if not finished:
            return
        ends = self._runner.eos_ids
        texts = self._chat.decode_all([token_ids for _, token_ids, _ in finished])
        for (job, token_ids, logprobs), text in zip(finished, texts, strict=True):
            # Of the sum, since one number that is not finite makes it so too.
            if not math.isfinite(sum(logprobs)):
                self._fail(job, ArithmeticError("its logits are not finite; the weights are damaged"))
                continue
            generation = Generation(
                text=text,
                prompt_ids=job.ids,
                token_ids=tuple(token_ids),
                logprobs=tuple(logprobs),
                finish="stop" if token_ids[-1] in ends else "length",
                policy_version=job.policy_version,
                seconds=time.perf_counter() - job.arrived,
                prompt_tokens=len(job.ids),
                completion_tokens=len(token_ids),
                prompt_cut=job.num_cut,
            )
            self._outcomes.append((job.ticket, generation))

    def _fail(self, job: Job, error: Exception) -> None:
        self._outcomes.append((job.ticket, _failure("the local model failed", error)))


def _failure(what: str, error: Exception) -> BackboneFailed:
    if isinstance(error, BackboneFailed):
        return error
    failure = BackboneFailed(f"{what}: {type(error).__name__}: {next(iter(str(error).splitlines()), '')}")
    failure.__cause__ = error
    return failure
