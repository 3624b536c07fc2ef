"""Algorithm 2: roll out, reward, flatten, update, again. The only file that names every stage.

Everything a run does follows from its config and the number of iterations done. So a run that was killed and resumed
equals one that was not, number for number (on a CPU, with an inline backbone). That holds for rollouts made ahead too:
none are begun across a point from which a run may be resumed.
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
from jade.learn.measure import PUBLISHED, find_measure, measured
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
    """The rollouts of one iteration. Seeds and prices follow from the iteration and the question's place in it."""
    jobs = []
    for place, question in enumerate(questions):
        for sample in range(cfg.learn.rollouts):
            seed = derive_seed(cfg.seed, "rollout", iteration, place, sample)
            jobs.append(Job(question, seed, draw_effort(cfg, iteration, place, sample)))
    return jobs


def draw_effort(cfg: Config, iteration: int, place: int, sample: int) -> Effort | None:
    """The prices of turns and searches for one question, drawn from the dial: the same for all its rollouts or, with
    `reward.mirror`, for every second one, while the others get the prices across the dial."""
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
        self.journal = Journal(self.folder, self.cfg.learn.trackers)
        learn = self.cfg.learn
        sampling = SamplingConfig(temperature=learn.temperature, role_temperature=learn.role_temperature)
        self.crew = replace(self.crew, sampling=sampling)
        self._worth = find_measure(self.cfg.reward.outcome)
        """Loaded once, as a rule of one's own is."""
        self._saved: Progress | None = None
        self._watch = Watch.on(self.learner.policy.device)
        self._ahead = Ahead()
        self._sampled_by = 0
        """How many iterations the weights had learned from that sampled the newest rollouts."""

    async def train(self, minutes: float | None = None) -> Progress:
        """Iterate until all iterations are done or the time is up; either way a checkpoint is written."""
        on_gpu = self.learner.policy.device.type == "cuda"
        if on_gpu:  # again: the policy was loaded after the sampler, or the sampler lives in another process
            spare_collector()
        try:
            async with self._ahead:
                return await self._train(minutes)
        finally:
            self.journal.close()  # however it ended: trackers keep the last figures to themselves until they are told
            if on_gpu:
                resume_collector()

    async def _train(self, minutes: float | None) -> Progress:
        await self._begin()
        deadline = Deadline(minutes)
        # By progress and not by counting: an iteration that was rolled back comes again.
        while self.progress.iteration < self.cfg.learn.iterations and deadline.has_time():
            with deadline.timing():
                await self._iterate(deadline)
        if self.checkpoints.newest() != self.checkpoints.place(self.progress.iteration):
            self._save()
        return self.progress

    async def _begin(self) -> None:
        """Go on from the newest checkpoint, if there is one. Otherwise measure and save where the run starts."""
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
        """Roll out, learn, hand the new weights to those who sample; then what is due after so many iterations."""
        iteration, started = self.progress.iteration, time.perf_counter()
        try:
            with self._watch.watching():
                traces, figures = await self._improve(iteration, deadline)
                figures |= await self._hand_over(iteration + 1, deadline)
        except Alarm as alarm:
            await self._roll_back(alarm)
            return
        figures |= {"seconds": time.perf_counter() - started} | self._watch.figures()
        self._pass(iteration, traces, figures)
        at_checkpoint = self.progress.iteration % self.cfg.learn.checkpoint_every == 0
        if at_checkpoint or self.progress.iteration == self.cfg.learn.iterations:
            self._remark_on_silent_roles()
        self._remark_on_known_questions()
        if self.progress.iteration % self.cfg.learn.dev_every == 0:
            await self._measure()
        if at_checkpoint:
            self._save()

    async def _improve(self, iteration: int, deadline: Deadline) -> tuple[list[Trace], Figures]:
        """Roll out and learn. Raises the guard's alarm when either went wrong."""
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

    async def _hand_over(self, version: int, deadline: Deadline) -> Figures:
        """Give the samplers the weights as they are now, once rollouts that are still under way have ended: in the
        middle of one, a call would be answered by one policy and the next by another."""
        started = time.perf_counter()
        lay_out(self.learner.policy, self.crew)
        laid_out = time.perf_counter()
        await self._ahead.wait()
        waited = time.perf_counter() - laid_out
        await publish(self.learner.policy, self.crew, version, is_laid_out=True)
        if self._ahead.is_begun:
            self._begin_ahead(version + 1, deadline)
            await asyncio.sleep(0)  # let the questions be sent before anything else is done
        published = time.perf_counter() - started - waited
        return ({"seconds_waited": waited} if self.cfg.learn.ahead else {}) | {"seconds_publish": published}

    def _at_full_prices(self, figures: Figures, traces: Sequence[Trace], iteration: int) -> Figures:
        """What the guard looks at: a reward that falls only because prices rise is no collapse."""
        return figures | reward_figures(traces, self.cfg.reward) if iteration < self.cfg.reward.ramp else figures

    async def _roll_out(self, iteration: int, lag: int = 0) -> Rollouts:
        started = time.perf_counter()
        questions = self.stream.draw(iteration, self.cfg.learn.questions_per_iteration)
        jobs = make_jobs(questions, self.cfg, iteration)
        traces = await self._work(jobs, self.crew)
        return Rollouts(traces, time.perf_counter() - started, lag)

    async def _work(self, jobs: Sequence[Job], crew: Crew | Troupe) -> list[Trace]:
        """The traces of some jobs, and what their answers are worth where that is not F1."""
        traces = await work(jobs, crew, concurrency=self.cfg.learn.concurrency)
        return traces if self.cfg.reward.outcome == PUBLISHED else await measured(traces, self._worth)

    def _begin_ahead(self, iteration: int, deadline: Deadline) -> None:
        if self._may_begin(iteration) and deadline.has_time():
            self._ahead.begin(self._roll_out(iteration, lag=1))

    def _may_begin(self, iteration: int) -> bool:
        """Whether an iteration's rollouts may be made while the iteration before it is still learned from. Not across a
        checkpoint or a measurement: a run that is resumed there has only the new weights, and must end up the same."""
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
        traces = await self._work(jobs, replace(self.crew, sampling=self.cfg.sampling))
        figures = rollout_figures(traces, self.cfg.reward)
        self.journal.write("dev", self.progress.iteration, figures)
        self.spectator.dev(self.progress.iteration, figures)
        if not self.guard.is_spoiled(figures):
            self._note_best(figures["reward"])
        # Publishing again clears the sampler's cache of prompts. A run that is resumed here starts with an empty one,
        # reads these prompts itself, in other batches, and would get other last digits.
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

    def _remark_on_silent_roles(self) -> None:
        """Called before this iteration's checkpoint, which notes how long the journal is."""
        if not is_first():
            return
        number, every = self.progress.iteration, self.cfg.learn.checkpoint_every
        rows = last_of_each(read_journal(self.folder, "iteration"))
        for text in newly_silent(rows, (number - 1) // every * every, self.cfg.learn):
            self._remark("silence", text)

    def _remark_on_known_questions(self) -> None:
        """Once, after the first few iterations. How far apart is far is known for F1 alone."""
        if not is_first() or self.progress.iteration != known.FIRST or self.cfg.reward.outcome != PUBLISHED:
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
        """The first iteration whose weights are not to be trusted: the run goes back to a checkpoint before it."""
        if alarm.event in ("format", "collapse"):
            return self._sampled_by
        # The entropy is measured on the weights that the update began with, so those are bad already.
        return failed if alarm.event == "entropy" else failed + 1

    def _report(self, failed: int, strikes: int) -> str:
        rows = list(read_journal(self.folder, "guard"))[-strikes:]
        told = dict.fromkeys(f"iteration {row['iteration']}: {row['event']}: {row['detail']}" for row in rows)
        events = "; ".join(told)  # what fails at once fails alike each time
        return (
            f"the guard rolled this run back {strikes} times in a row and ended it at iteration {failed} ({events}); "
            f"the last good checkpoint is {self.checkpoints.newest()}; {self._remedy({row['event'] for row in rows})}"
        )

    def _remedy(self, events: Collection[str]) -> str:
        """What the user can do. The same settings would fail again, and with others it is another run."""
        if "failures" in events:
            return "mend what failed, then go on with --resume"
        return (
            f"see what the team wrote (jade view {shlex.quote(str(self.folder))}), then begin with another --out and a "
            f"learn.ppo.learning_rate smaller than {self.cfg.learn.ppo.learning_rate:g}"
        )


def _write_traces(path: Path, traces: Sequence[Trace]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "".join(dump_trace(trace) + "\n" for trace in traces))
