"""The requests that run under one adapter: their slots, their cached prompt prefixes, and the steps they take together.

The keys and values of a fixed prompt prefix are computed by the first request that has it, kept, and copied into the
slot of every later one, until the weights change.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from jade.backbone.chat import ChatFormat, common_length
from jade.backbone.local_job import Job
from jade.backbone.local_runner import Admission, Runner, draw_for

MIN_PREFIX = 8
"""Prefixes of fewer tokens are not worth keeping."""
MAX_PREFIXES = 64


@dataclass(frozen=True, slots=True)
class Prefix:
    """Token ids and, for every layer, their keys and values [layer, 2, position, K, D]."""

    ids: tuple[int, ...]
    kv: Tensor


class Lane:
    """`jobs` maps slots to the requests in them."""

    def __init__(self, runner: Runner, chat: ChatFormat, adapter: str | None) -> None:
        self._runner, self._chat = runner, chat
        self.adapter = adapter
        self.slots = runner.new_slots()
        self.jobs: dict[int, Job] = {}
        self._prefixes: OrderedDict[str, Prefix] = OrderedDict()

    def fits(self, jobs: Sequence[Job]) -> bool:
        every = [*self.jobs.values(), *jobs]
        return self.slots.fits(len(every), max(job.num_positions for job in every))

    def num_cached(self, job: Job) -> int:
        """How many of the prompt's first tokens need not be computed. One always is: it gives the first logits."""
        prefix = self._prefixes.get(job.prompt.system)
        return min(common_length(prefix.ids, job.ids), len(job.ids) - 1) if prefix else 0

    def lacks_prefix(self, job: Job) -> bool:
        """Whether this job would compute a prefix that others could then copy."""
        fixed = self._chat.fixed_prefix(job.prompt.system)
        return len(fixed) >= MIN_PREFIX and job.prompt.system not in self._prefixes

    def forget_prefixes(self) -> None:
        self._prefixes.clear()

    def admit(self, jobs: Sequence[Job]) -> None:
        """Read these prompts and sample their first tokens. When it raises, nothing has been admitted."""
        free = (slot for slot in range(len(self.jobs) + len(jobs)) if slot not in self.jobs)
        placed = dict(zip(free, jobs, strict=False))
        self._reserve(placed)
        self._runner.adapters.activate(self.adapter)
        cached = {slot: self.num_cached(job) for slot, job in placed.items()}
        self._copy_prefixes(placed, cached)
        admitted = [Admission(slot, job.ids, cached[slot], job.limit, job.sampling) for slot, job in placed.items()]
        try:
            self._runner.prefill(self.slots, admitted, self._allowed(jobs))
            self._advance(placed, 1)
        except BaseException:
            self._idle(placed)
            raise
        self.jobs.update(placed)
        self._keep_prefixes(placed)

    def decode(self, num_steps: int) -> None:
        """Every job takes this many steps; one that is done on the way waits."""
        self._compact()
        self._runner.adapters.activate(self.adapter)
        jobs = [self.jobs[slot] for slot in range(len(self.jobs))]
        constrained = any(job.matcher for job in jobs)
        for _ in range(1 if constrained else num_steps):
            num_positions = max(min(len(job.ids) + job.num_sampled, job.num_positions) for job in jobs)
            how = draw_for(job.sampling for job in jobs)
            self._runner.decode(self.slots, len(jobs), num_positions, how, self._allowed(jobs))
            self._advance(dict(enumerate(jobs)), 1)

    def take_finished(self) -> list[tuple[Job, list[int], list[float]]]:
        """The jobs that are done, with their tokens and log-probs; their slots are free again."""
        if not self.jobs:
            return []
        done = self.slots.done[: max(self.jobs) + 1].tolist()
        finished = [slot for slot in sorted(self.jobs) if done[slot]]
        if not finished:
            return []
        rows = torch.tensor(finished).to(self.slots.done.device)
        counts = self.slots.num_sampled[rows].tolist()
        tokens = self.slots.token[rows, : max(counts)].tolist()
        logps = self.slots.logp[rows, : max(counts)].tolist()
        taken = zip(finished, counts, tokens, logps, strict=True)
        return [(self.jobs.pop(slot), token[:count], logp[:count]) for slot, count, token, logp in taken]

    def drop_cancelled(self) -> None:
        gone = [slot for slot, job in self.jobs.items() if job.cancelled]
        for slot in gone:
            del self.jobs[slot]
        self._idle(gone)

    def evict_all(self) -> list[Job]:
        """Take every job out, oldest slot first."""
        jobs = [self.jobs[slot] for slot in sorted(self.jobs)]
        self._idle(self.jobs)
        self.jobs.clear()
        return jobs

    @torch.inference_mode()
    def _idle(self, slots: Sequence[int] | dict[int, Job]) -> None:
        for slot in slots:
            self.slots.done[slot] = True

    @torch.inference_mode()
    def _reserve(self, placed: dict[int, Job]) -> None:
        every = [*self.jobs.values(), *placed.values()]
        num_slots = max([*self.jobs, *placed]) + 1
        self.slots.reserve(num_slots, max(job.num_positions for job in every), max(job.limit for job in every))

    @torch.inference_mode()
    def _compact(self) -> None:
        """Move the highest jobs into the lowest free slots, so that the busy slots are the first ones."""
        num_jobs = len(self.jobs)
        sources = sorted(slot for slot in self.jobs if slot >= num_jobs)
        if not sources:
            return
        targets = [slot for slot in range(num_jobs) if slot not in self.jobs]
        moved = [self.jobs.pop(slot) for slot in sources]
        self.slots.move(sources, targets, max(job.num_positions for job in moved))
        self.jobs.update(zip(targets, moved, strict=True))

    @torch.inference_mode()
    def _copy_prefixes(self, placed: dict[int, Job], cached: dict[int, int]) -> None:
        groups: dict[tuple[str, int], list[int]] = {}
        for slot, job in placed.items():
            if cached[slot]:
                groups.setdefault((job.prompt.system, cached[slot]), []).append(slot)
        for (system, length), group in groups.items():
            self._prefixes.move_to_end(system)
            targets = torch.tensor(group).to(self.slots.kv.device)
            self.slots.kv[:, :, targets, :length] = self._prefixes[system].kv[:, :, None, :length]

    @torch.inference_mode()
    def _keep_prefixes(self, placed: dict[int, Job]) -> None:
        for slot, job in placed.items():
            if self.lacks_prefix(job):
                length = common_length(self._chat.fixed_prefix(job.prompt.system), job.ids)
                kv = self.slots.kv[:, :, slot, :length].clone()
                self._prefixes[job.prompt.system] = Prefix(job.ids[:length], kv)
        while len(self._prefixes) > MAX_PREFIXES:
            self._prefixes.popitem(last=False)

    def _advance(self, placed: dict[int, Job], num_steps: int) -> None:
        for job in placed.values():
            job.num_sampled += num_steps
        if any(job.matcher for job in placed.values()):
            newest, done = self.slots.last_token.tolist(), self.slots.done.tolist()
            for slot, job in placed.items():
                if job.matcher and not done[slot]:
                    job.matcher.advance(newest[slot])

    def _allowed(self, jobs: Sequence[Job]) -> Tensor | None:
        """A row of truth values for each job, where any of them is constrained."""
        if not any(job.matcher for job in jobs):
            return None
        allowed = torch.ones(len(jobs), self._runner.vocabulary_size, dtype=torch.bool)
        for row, job in enumerate(jobs):
            if job.matcher:
                allowed[row] = torch.from_numpy(job.matcher.allowed())
        return allowed.to(self._runner.device)
