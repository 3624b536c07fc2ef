"""Algorithm 2: roll out, reward, flatten, update, again. The only file that names every stage.

Everything a run does follows from its config and the number of iterations done, so that a run that was killed and
resumed equals one that was not, number for number (on a CPU, with an inline backbone). Rollouts that are made ahead are
no exception: none are begun across a point from which a run may be resumed.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from jade.backbone.local.collector import resume_collector, spare_collector
from jade.config import Config, SamplingConfig
from jade.engine.effort import across, draw_prices, effort_of
from jade.engine.record import dump_trace
from jade.engine.rollout import Job
from jade.engine.seeds import derive_seed
from jade.errors import TrainingStopped
from jade.learn.checkpoint import Checkpoints, Progress
from jade.learn.deadline import Deadline
from jade.learn.guard import Alarm, Guard
from jade.learn.learner import Learner
from jade.learn.monitor import known
from jade.learn.monitor.busy import Watch
from jade.learn.monitor.figures import reward_figures, rollout_figures
from jade.learn.monitor.journal import Journal, last_of_each, read_journal
from jade.learn.monitor.show import Silent, Spectator
from jade.learn.monitor.silence import newly_silent
from jade.learn.questions import QuestionStream
from jade.learn.ranks import is_first
from jade.learn.rollouts.ahead import Ahead, Rollouts
from jade.learn.rollouts.sampler import Troupe, lay_out, publish, work
from jade.learn.texts import write_whole
from jade.learn.transitions import Experience, flatten, of_roles
from jade.reward.outcome import assign_rewards, ramped
from jade.team.crew import Crew
from jade.types import Effort, Question, Trace

Figures = dict[str, float]


def learn_from(traces: Sequence[Trace], learner: Learner, cfg: Config, iteration: int) -> Figures:
    """Reward, flatten, update. Raises an alarm where a step cannot be taken."""
    prices = ramped(cfg.reward, iteration)
    rewards = [assign_rewards(trace, prices) for trace in traces]  # Eq. 6-8
    transitions = of_roles(flatten(traces, rewards), cfg.learn.train_roles)  # Algorithm 2, line 12
    experience = Experience(tuple(transitions), {trace.id: trace for trace in traces})
    return learner.update(experience, iteration=iteration, seed=derive_seed(cfg.seed, "update", iteration))


def make_jobs(questions: Sequence[Question], cfg: Config, iteration: int) -> list[Job]:
    """The rollouts of one iteration: seeds and prices follow from the iteration and the place in it."""
    jobs = []
    for place, question in enumerate(questions):
        for sample in range(cfg.learn.rollouts):
            seed = derive_seed(cfg.seed, "rollout", iteration, place, sample)
            jobs.append(Job(question, seed, draw_effort(cfg, iteration, place, sample)))
    return jobs


def draw_effort(cfg: Config, iteration: int, place: int, sample: int) -> Effort | None:
    """The dial: prices of turns and searches for one question, the same for all its rollouts, or for every second."""
    drawn = draw_prices(cfg.reward.dial, derive_seed(cfg.seed, "effort", iteration, place))
    is_mirrored = cfg.reward.mirror and sample % 2 == 1
    return across(drawn, cfg.reward.dial) if drawn is not None and is_mirrored else drawn


@dataclass
class Run:
    """A training run in its folder."""

    cfg: Config
    crew: Crew | Troupe
    learner: Learner
    stream: QuestionStream
    dev: Sequence[Question]
    folder: Path
    spectator: Spectator = field(default_factory=Silent)

    def __post_init__(self) -> None:
        self.guard = Guard(self.cfg.learn.guard)
        self.progress = Progress()
        self.checkpoints = Checkpoints(self.folder / "checkpoints", self.cfg.learn.keep)
        self.journal = Journal(self.folder, self.cfg.learn.tensorboard)
        learn = self.cfg.learn
        sampling = SamplingConfig(temperature=learn.temperature, role_temperature=learn.role_temperature)
        self.crew = replace(self.crew, sampling=sampling)
        self._saved: Progress | None = None
        self._watch = Watch.on(self.learner.policy.device)
        self._ahead = Ahead()
        self._sampled_by = 0
        """The iterations that were done when the weights were made which sampled the newest rollouts."""

    async def train(self, minutes: float | None = None) -> Progress:
        """Iterate until all is done or the time is up; a checkpoint is there in either case."""
        on_gpu = self.learner.policy.device.type == "cuda"
        if on_gpu:  # once more: the policy was loaded after the sampler, or its sampler lives in another process
            spare_collector()
        try:
            async with self._ahead:
                return await self._train(minutes)
        finally:
            if on_gpu:
                resume_collector()

    async def _train(self, minutes: float | None) -> Progress:
        await self._begin()
        deadline = Deadline(minutes)
        while self.progress.iteration < self.cfg.learn.iterations and deadline.has_time():
            with deadline.timing():
                await self._iterate(deadline)
        if self.checkpoints.newest() != self.checkpoints.place(self.progress.iteration):
            self._save()
        self.journal.close()
        return self.progress

    async def _begin(self) -> None:
        """From the newest checkpoint where there is one, else from the start, which is a checkpoint as well."""
        newest = self.checkpoints.newest()
        if newest is not None:
            self.progress = self.checkpoints.load(newest, self.learner.policy, self.learner.optimiser)
            self.guard.recent = [dict(figures) for figures in self.progress.recent]
            self.learner.scale = self.progress.scale
        self.journal.cut_back(self.progress.journal_bytes, self.progress.iteration)
        await publish(self.learner.policy, self.crew, self.progress.iteration)
        if newest is None:
            await self._measure()
            self._save()

    async def _iterate(self, deadline: Deadline) -> None:
        iteration = self.progress.iteration
        started = time.perf_counter()
        try:
            with self._watch.watching():
                traces, figures = await self._improve(iteration, deadline)
                updated = time.perf_counter()
                lay_out(self.learner.policy, self.crew)
                laid_out = time.perf_counter()
                # Never while rollouts are under way: a call would be answered by one policy and the next by another.
                await self._ahead.wait()
                waited = time.perf_counter()
                await publish(self.learner.policy, self.crew, iteration + 1, is_laid_out=True)
                if self._ahead.is_begun:
                    self._begin_ahead(iteration + 2, deadline)
                    await asyncio.sleep(0)  # the questions are to be on their way before anything else is done
        except Alarm as alarm:
            await self._roll_back(alarm)
            return
        if self.cfg.learn.ahead:
            figures |= {"seconds_waited": waited - laid_out}
        published = time.perf_counter()
        figures |= {"seconds_publish": published - waited + laid_out - updated, "seconds": published - started}
        figures |= self._watch.figures()
        self._pass(iteration, traces, figures)
        at_checkpoint = self.progress.iteration % self.cfg.learn.checkpoint_every == 0
        if at_checkpoint or self.progress.iteration == self.cfg.learn.iterations:
            self._mind_who_is_silent()
        self._mind_what_is_known()
        if self.progress.iteration % self.cfg.learn.dev_every == 0:
            await self._measure()
        if at_checkpoint:
            self._save()

    async def _improve(self, iteration: int, deadline: Deadline) -> tuple[list[Trace], Figures]:
        """Raises the guard's alarm when the rollout or the update went wrong."""
        rollouts = await self._ahead.take() or await self._roll_out(iteration)  # Algorithm 1
        traces, self._sampled_by = rollouts.traces, iteration - rollouts.lag
        prices = ramped(self.cfg.reward, iteration)
        figures = rollout_figures(traces, prices) | {"seconds_rollout": rollouts.seconds}
        self.guard.judge_rollout(self._at_full_prices(figures, traces, iteration), traces)
        update = partial(learn_from, traces, self.learner, self.cfg, iteration)
        if self.cfg.learn.ahead:
            figures |= {"lag": rollouts.lag}
            if not self._ahead.is_begun:
                self._begin_ahead(iteration + 1, deadline)
            figures |= await self._ahead.learn(update)
        else:
            figures |= update()
        self.guard.judge_update(figures)  # Algorithm 2, phase 2, is done
        return traces, figures

    def _at_full_prices(self, figures: Figures, traces: Sequence[Trace], iteration: int) -> Figures:
        """As the guard sees them: a reward that falls because prices rise is no collapse."""
        return figures | reward_figures(traces, self.cfg.reward) if iteration < self.cfg.reward.ramp else figures

    async def _roll_out(self, iteration: int, lag: int = 0) -> Rollouts:
        started = time.perf_counter()
        questions = self.stream.draw(iteration, self.cfg.learn.questions_per_iteration)
        jobs = make_jobs(questions, self.cfg, iteration)
        traces = await work(jobs, self.crew, concurrency=self.cfg.learn.concurrency)
        return Rollouts(traces, time.perf_counter() - started, lag)

    def _begin_ahead(self, iteration: int, deadline: Deadline) -> None:
        if self._may_begin(iteration) and deadline.has_time():
            self._ahead.begin(self._roll_out(iteration, lag=1))

    def _may_begin(self, iteration: int) -> bool:
        """Whether an iteration's rollouts may be made before the update that comes before it. Not where a checkpoint
        may be: a run that is resumed there has only the new weights, and must find what it would have found."""
        learn = self.cfg.learn
        at_checkpoint = iteration % learn.checkpoint_every == 0
        at_measurement = bool(self.dev) and iteration % learn.dev_every == 0
        return iteration < learn.iterations and not at_checkpoint and not at_measurement

    def _pass(self, iteration: int, traces: Sequence[Trace], figures: Figures) -> None:
        """A good iteration: remember it, write it down, show it."""
        self.guard.remember(self._at_full_prices(figures, traces, iteration))
        strikes = 0 if iteration >= self.progress.failed_at else self.progress.strikes
        self.progress = replace(self.progress, iteration=iteration + 1, strikes=strikes)
        self.journal.write("iteration", iteration + 1, figures)
        self.spectator.iteration(iteration + 1, self.cfg.learn.iterations, figures)
        if is_first() and iteration % self.cfg.learn.traces_every == 0:
            _write_traces(self.folder / "traces" / f"iteration-{iteration + 1:06d}.jsonl", traces)

    async def _measure(self) -> None:
        """The team on the dev questions, as it would answer them; the best checkpoint is chosen by this."""
        if not self.dev:
            return
        effort, seed = effort_of(self.cfg.reward), derive_seed(self.cfg.seed, "dev")
        jobs = [Job(question, seed, effort) for question in self.dev]
        measured = replace(self.crew, sampling=self.cfg.sampling)
        traces = await work(jobs, measured, concurrency=self.cfg.learn.concurrency)
        figures = rollout_figures(traces, self.cfg.reward)
        self.journal.write("dev", self.progress.iteration, figures)
        self.spectator.dev(self.progress.iteration, figures)
        if not self.guard.is_spoiled(figures):
            self._note_best(figures["reward"])
        # Prompts that were read here must not be copied by the rollouts that follow: a run that is resumed here reads
        # them itself, in other batches, and its numbers end in other digits.
        await publish(self.learner.policy, self.crew, self.progress.iteration)

    def _note_best(self, score: float) -> None:
        if self.progress.best is None or score > self.progress.best:
            self.progress = replace(self.progress, best=score, best_iteration=self.progress.iteration)
            self._save()

    def _save(self) -> None:
        """Write a checkpoint, unless nothing has happened since the last one."""
        self.progress = replace(
            self.progress,
            scale=self.learner.scale,
            recent=tuple(self.guard.recent),
            journal_bytes=self.journal.num_bytes,
        )
        if self.progress != self._saved:
            self.checkpoints.save(self.learner.policy, self.learner.optimiser, self.progress)
            self._saved = self.progress

    def _mind_who_is_silent(self) -> None:
        """Before any checkpoint of this iteration: it counts what the journal holds."""
        if not is_first():
            return
        number, every = self.progress.iteration, self.cfg.learn.checkpoint_every
        rows = last_of_each(read_journal(self.folder, "iteration"))
        for text in newly_silent(rows, (number - 1) // every * every, self.cfg.learn):
            self._remark("silence", text)

    def _mind_what_is_known(self) -> None:
        """Once, as soon as it can be told."""
        if not is_first() or self.progress.iteration != known.FIRST:
            return
        rows, dev = (last_of_each(read_journal(self.folder, kind)) for kind in ("iteration", "dev"))
        said = any(row["event"] == "known" for row in read_journal(self.folder, "mind"))
        if (text := known.known_remark(rows, dev)) and not said:
            self._remark("known", text)

    def _remark(self, event: str, text: str) -> None:
        self.journal.write("mind", self.progress.iteration, {"event": event, "detail": text})
        self.spectator.remark(self.progress.iteration, text)

    async def _roll_back(self, alarm: Alarm) -> None:
        """Go back to the last good checkpoint with a smaller step; too often in a row ends the run."""
        await self._ahead.drop()  # sampled by weights that are now given up
        failed = self.progress.iteration
        strikes = self.progress.strikes + 1
        scale = self.learner.scale * self.cfg.learn.guard.shrink
        goal = self.checkpoints.newest(before=self._first_bad(alarm, failed))
        assert goal is not None, "the start of a run is a checkpoint"
        restored = self.checkpoints.load(goal, self.learner.policy, self.learner.optimiser)
        self.checkpoints.drop_after(restored.iteration)
        event = {"event": alarm.event, "detail": alarm.detail, "back_to": restored.iteration, "scale": scale}
        self.journal.write("guard", failed, event)
        self.spectator.alarm(failed, alarm, restored.iteration, scale)
        if strikes >= self.cfg.learn.guard.patience:
            raise TrainingStopped(self._report(failed, strikes))
        self.progress = replace(restored, strikes=strikes, failed_at=failed)
        self.guard.recent = [dict(figures) for figures in restored.recent]
        self.learner.scale = scale
        await publish(self.learner.policy, self.crew, restored.iteration)

    def _first_bad(self, alarm: Alarm, failed: int) -> int:
        """The first iteration whose weights are bad; where a checkpoint holds them, it is not one to go back to."""
        if alarm.event in ("format", "collapse"):
            return self._sampled_by
        # Entropy is that of the weights an update began with, or moved a little: they are not to be trusted either.
        return failed if alarm.event == "entropy" else failed + 1

    def _report(self, failed: int, strikes: int) -> str:
        rows = list(read_journal(self.folder, "guard"))[-strikes:]
        events = "; ".join(f"iteration {row['iteration']}: {row['event']}: {row['detail']}" for row in rows)
        return (
            f"the guard rolled this run back {strikes} times in a row and ended it at iteration {failed} ({events}); "
            f"the last good checkpoint is {self.checkpoints.newest()}; {self._remedy({row['event'] for row in rows})}"
        )

    def _remedy(self, events: Collection[str]) -> str:
        """What its user can do. The same settings would lead to the same end, and others make it another run."""
        if "failures" in events:
            return "mend what failed, then go on with --resume"
        return (
            f"see what the team wrote (jade view {shlex.quote(str(self.folder))}), then begin with another --out and a "
            f"learn.ppo.learning_rate smaller than {self.cfg.learn.ppo.learning_rate:g}"
        )


def _write_traces(path: Path, traces: Sequence[Trace]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "".join(dump_trace(trace) + "\n" for trace in traces))
