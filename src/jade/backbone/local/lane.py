"""The requests that run under one adapter: their slots, their cached prompt prefixes, and the steps they take together.

The keys and values of a fixed prompt prefix are computed by the first request that has it, kept, and copied into the
slot of every later one, until the weights change. Whole prompts that stand in a slot are copied likewise, and of equal
prompts that are admitted together one is computed.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Container, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from jade.backbone.chat import ChatFormat, common_length
from jade.backbone.local.job import WORD, Job
from jade.backbone.local.packing import Admission
from jade.backbone.local.runner import Runner, draw_for
from jade.backbone.local.slots import Copy, Report
from jade.backbone.local.standing import Standing

MIN_PREFIX = 8
"""Prefixes of fewer tokens are not worth keeping."""
MAX_PREFIXES = 64


@dataclass(frozen=True, slots=True)
class Prefix:
    """Token ids and, for every layer, their keys and values [layer, 2, position, K, D]."""

    ids: tuple[int, ...]
    kv: Tensor
    row: bytes

    def num_shared(self, job: Job) -> int:
        """How many of these are the job's first. One always remains: it gives the first logits."""
        num = len(self.ids) if job.row.startswith(self.row) else common_length(self.ids, job.ids)
        return min(num, len(job.ids) - 1)


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """How a lane reserves memory, and when it looks at what is done."""

    num_slots: int
    num_positions: int
    """Reserved at once, if there is memory: growing later means capturing steps anew."""
    reports_behind: int
    """Reports that may be left unread for now: the device works on while the host reads the one before them."""


class Lane:
    """`jobs` maps slots to the requests in them. Whoever has left a slot and waits for a last report is in none."""

    def __init__(self, runner: Runner, chat: ChatFormat, adapter: str | None, plan: SlotPlan) -> None:
        self._runner, self._chat = runner, chat
        self.adapter = adapter
        self._plan = plan
        self.slots = runner.new_slots()
        self.jobs: dict[int, Job] = {}
        self._prefixes: OrderedDict[str, Prefix] = OrderedDict()
        self._standing = Standing()
        self._reports: deque[tuple[dict[int, Job], Report]] = deque()
        self._leaving: set[Job] = set()
        self._has_news = False

    @property
    def num_jobs(self) -> int:
        """Jobs in slots, and those that have left theirs and whose last report is on its way."""
        return len(self.jobs) + len(self._leaving)

    @property
    def num_positions(self) -> int:
        """Positions that the longest of the jobs may need."""
        return max((job.num_positions for job in self.jobs.values()), default=0)

    def fits(self, num_more: int, num_positions: int) -> bool:
        """Whether so many more jobs can be taken, of which the longest needs so many positions."""
        return self.slots.fits(len(self.jobs) + num_more, num_positions)

    def num_cached(self, job: Job) -> int:
        """How many of the prompt's first tokens need not be computed. One always is: it gives the first logits."""
        if self._standing.find(job.row) is not None:
            return len(job.ids) - 1
        prefix = self._prefixes.get(job.prompt.system)
        return prefix.num_shared(job) if prefix else 0

    def lacks_prefix(self, job: Job) -> bool:
        """Whether this job would compute a prefix that others could then copy."""
        fixed = self._chat.fixed_prefix(job.prompt.system)
        return len(fixed) >= MIN_PREFIX and job.prompt.system not in self._prefixes

    def forget_prefixes(self) -> None:
        self._prefixes.clear()
        self._standing.clear()

    def admit(self, jobs: Sequence[Job]) -> int:
        """Read these prompts and sample their first tokens; how many tokens of the prompts had not to be computed.
        When it raises, nothing has been admitted."""
        free = (slot for slot in range(len(self.jobs) + len(jobs)) if slot not in self.jobs)
        placed = dict(zip(free, jobs, strict=False))
        self._reserve(placed)
        self._runner.adapters.activate(self.adapter)
        twins = _twins(placed)
        try:
            cached = self._copy_known({slot: job for slot, job in placed.items() if slot not in twins}, placed)
            cached |= {slot: len(placed[slot].ids) for slot in twins}
            admitted = [
                Admission(slot, job.row, cached[slot], job.limit, job.sampling, twins.get(slot))
                for slot, job in placed.items()
            ]
            self._runner.prefill(self.slots, admitted, self._allowed(jobs))
            self._advance(placed, 1)
        except BaseException:  # the slots may have been told of their requests already
            self._idle(placed)
            raise
        self.jobs.update(placed)
        for slot, job in placed.items():
            self._standing.put(slot, job.row)
        self._keep_prefixes(placed)
        return sum(cached.values())

    def decode(self, num_steps: int) -> None:
        """Every job takes this many steps; one that is done on the way waits."""
        self._runner.adapters.activate(self.adapter)
        self._compact()
        num_rows = max(self.jobs) + 1
        how = draw_for(job.sampling for job in self.jobs.values())
        longest = max(min(len(job.ids) + job.num_sampled, job.num_positions) for job in self.jobs.values())
        allowed: Tensor | None = None
        if self._is_constrained:  # what a constrained job may say next depends on what it said last
            num_steps, allowed = 1, self._allowed([self.jobs.get(slot) for slot in range(num_rows)])
        self._runner.decode(self.slots, num_rows, longest, how, allowed, num_steps)
        self._advance(self.jobs, num_steps)
        self._reports.append((dict(self.jobs), self.slots.report(num_rows)))
        self._has_news = True
        self._leave()

    def _leave(self) -> None:
        """Free the slots of those that have all the tokens they may have: it takes no report to know that, and whoever
        comes next writes to a slot only after the report of it was made."""
        for slot in [slot for slot, job in self.jobs.items() if job.num_sampled >= job.limit]:
            self._leaving.add(self.jobs.pop(slot))

    @property
    def _is_constrained(self) -> bool:
        return any(job.matcher for job in self.jobs.values())

    def take_finished(self) -> list[tuple[Job, list[int], list[float]]]:
        """The jobs that are known to be done, with their tokens and log-probs; their slots are free again."""
        finished = []
        # A matcher that has come to its end must not be asked again, so its jobs are looked at without delay; and where
        # no step was taken since, no newer report will come.
        may_be_behind = self._has_news and not self._is_constrained
        self._has_news = False
        while len(self._reports) > (self._plan.reports_behind if may_be_behind else 0):
            finished += self._finished_in(*self._reports.popleft())
        if not self.num_jobs:
            self._reports.clear()
        return finished

    def _finished_in(self, jobs: dict[int, Job], report: Report) -> list[tuple[Job, list[int], list[float]]]:
        report.wait()
        # By numpy: every operation of torch lets go of the interpreter's lock, and must wait to get it back.
        done_S, count_S, token_SM, logp_SM = report.arrays()
        done = [slot for slot in done_S.nonzero()[0].tolist() if slot in jobs]
        # Since the report was made jobs may have moved to other slots, or have been cancelled.
        here = {job: slot for slot, job in self.jobs.items()} if done else {}
        rows = [slot for slot in done if jobs[slot] in here or jobs[slot] in self._leaving]
        if not rows:
            return []
        counts = count_S[rows].tolist()
        tokens = token_SM[rows, : max(counts)].tolist()
        logps = logp_SM[rows, : max(counts)].tolist()
        ended = [jobs[row] for row in rows]
        for job in ended:
            self._leaving.discard(job)
            if job in here:
                del self.jobs[here[job]]
        taken = zip(ended, counts, tokens, logps, strict=True)
        return [(job, token[:count], logp[:count]) for job, count, token, logp in taken]

    def drop_cancelled(self) -> None:
        self._leaving = {job for job in self._leaving if not job.cancelled}
        gone = [slot for slot, job in self.jobs.items() if job.cancelled]
        for slot in gone:
            del self.jobs[slot]
        self._idle(gone)

    def evict_all(self) -> list[Job]:
        """Take every job out, those that wait for their last report too, oldest slot first."""
        jobs = [*sorted(self._leaving, key=lambda job: job.arrived), *(self.jobs[slot] for slot in sorted(self.jobs))]
        self._idle(self.jobs)
        self.jobs.clear()
        self._leaving.clear()
        self._reports.clear()
        return jobs

    def release(self) -> bool:
        """Give back the memory of slots that nobody is in; False where there is none to give back."""
        if self.num_jobs:
            return False
        self._standing.clear()
        return self.slots.release()

    @torch.inference_mode()
    def _idle(self, slots: Sequence[int] | dict[int, Job]) -> None:
        for slot in slots:
            self.slots.done[slot] = True
            self._standing.remove(slot)

    @torch.inference_mode()
    def _reserve(self, placed: dict[int, Job]) -> None:
        every = [*self.jobs.values(), *placed.values()]
        num_slots = max([*self.jobs, *placed]) + 1
        num_positions = max(job.num_positions for job in every)
        ample = max(num_slots, self._plan.num_slots), max(num_positions, self._plan.num_positions)
        if self.slots.fits(*ample):
            num_slots, num_positions = ample
        self.slots.reserve(num_slots, num_positions, max(job.limit for job in every))

    @torch.inference_mode()
    def _compact(self) -> None:
        """Move the highest jobs into the lowest free slots where that makes the steps smaller."""
        num_jobs = len(self.jobs)
        if not self._runner.is_oversized(max(self.jobs) + 1, num_jobs):
            return
        sources = sorted(slot for slot in self.jobs if slot >= num_jobs)
        targets = [slot for slot in range(num_jobs) if slot not in self.jobs]
        moved = [self.jobs.pop(slot) for slot in sources]
        self.slots.move(sources, targets, max(job.num_positions for job in moved))
        for source, target in zip(sources, targets, strict=True):
            self._standing.move(source, target)
        self.jobs.update(zip(targets, moved, strict=True))

    @torch.inference_mode()
    def _copy_known(self, jobs: dict[int, Job], placed: Container[int]) -> dict[int, int]:
        """Fill the first positions of these jobs' slots with what is known of their prompts; how many each has now. Who
        was in a slot before may have left the same prefix there."""
        cached = dict.fromkeys(jobs, 0)
        standing: list[Copy] = []
        prefixed: dict[tuple[str, int], list[int]] = {}
        for slot, job in jobs.items():
            source = self._standing.find(job.row, but=placed)
            prefix = self._prefixes.get(job.prompt.system)
            if source is not None:
                cached[slot] = len(job.ids) - 1
                standing.append((source, slot, cached[slot]))
            elif prefix:
                cached[slot] = prefix.num_shared(job)
                if not self._standing.begins_with(slot, prefix.row[: WORD * cached[slot]]):
                    prefixed.setdefault((job.prompt.system, cached[slot]), []).append(slot)
                self._prefixes.move_to_end(job.prompt.system)
        self.slots.copy(standing)
        self.slots.fill(
            [(group, self._prefixes[system].kv[:, :, :length]) for (system, length), group in prefixed.items()]
        )
        return cached

    @torch.inference_mode()
    def _keep_prefixes(self, placed: dict[int, Job]) -> None:
        for slot, job in placed.items():
            if self.lacks_prefix(job):
                # The last tokens of it may have merged with the beginning of this user's text.
                length = common_length(self._chat.fixed_prefix(job.prompt.system), job.ids)
                kv = self.slots.kv[:, :, slot, :length].clone()
                self._prefixes[job.prompt.system] = Prefix(job.ids[:length], kv, job.row[: WORD * length])
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

    def _allowed(self, jobs: Sequence[Job | None]) -> Tensor | None:
        """A row of truth values for each job (or idle slot), where any of them is constrained."""
        if not any(job and job.matcher for job in jobs):
            return None
        allowed = torch.ones(len(jobs), self._runner.vocabulary_size, dtype=torch.bool)
        for row, job in enumerate(jobs):
            if job and job.matcher:
                allowed[row] = torch.from_numpy(job.matcher.allowed())
        return allowed.to(self._runner.device)


def _twins(placed: dict[int, Job]) -> dict[int, int]:
    """Which slots are to hold the same prompt as an earlier one of these, and which one that is."""
    first: dict[bytes, int] = {}
    return {slot: first[job.row] for slot, job in placed.items() if first.setdefault(job.row, slot) != slot}
