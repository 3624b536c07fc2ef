"""Supervised fine-tuning on examples: the same policy, batches and optimiser step as in PPO, another loss.

The order of the examples follows from the seed, so a fit that was killed and resumed equals one that was not.

Shapes: N = action tokens of a piece.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from jade.config import Config
from jade.engine.seeds import derive_seed
from jade.errors import TrainingStopped
from jade.learn.batches import length_of, make_batch, plan_shares
from jade.learn.checkpoint import Checkpoints, Progress
from jade.learn.deadline import Deadline
from jade.learn.guard import Alarm
from jade.learn.monitor.journal import Journal
from jade.learn.monitor.show import Silent, Spectator
from jade.learn.optimise import make_optimiser, set_step_size, take_step
from jade.learn.policy import Policy
from jade.learn.questions import shuffled
from jade.learn.warmstart.examples import TokenExample

WARMUP_SHARE = 0.05
FINAL_SHARE = 0.1
GRADIENT_CLIP = 1.0
MOST_SKIPPED = 5
"""Steps in one line of the journal that may be passed over."""
STEPS_A_LINE = 20
"""Optimiser steps that one line of the journal sums up."""


@dataclass
class Fit:
    """A warm start's training, in its folder."""

    cfg: Config
    policy: Policy
    examples: Sequence[TokenExample]
    folder: Path
    spectator: Spectator = field(default_factory=Silent)

    def __post_init__(self) -> None:
        weights = [weight for _, weight in self.policy.policy_parameters()]
        self.optimiser = make_optimiser([(weights, self.cfg.warmstart.learning_rate)])
        self.checkpoints = Checkpoints(self.folder / "checkpoints", keep=2)
        self.journal = Journal(self.folder)
        self.progress = Progress()
        self._steps_an_epoch = -(-len(self.examples) // self.cfg.warmstart.examples_per_step)

    @property
    def num_steps(self) -> int:
        return self.cfg.warmstart.epochs * self._steps_an_epoch

    def train(self, minutes: float | None = None) -> Progress:
        """Fit until all epochs are done or the time is up; a checkpoint is there in either case."""
        newest = self.checkpoints.newest()
        if newest is not None:
            self.progress = self.checkpoints.load(newest, self.policy, self.optimiser)
        self.journal.cut_back(self.progress.journal_bytes)
        deadline, sums = Deadline(minutes), _Sums()
        while self.progress.iteration < self.num_steps and deadline.has_time():
            with deadline.timing():
                self._take(self.progress.iteration, sums)
                self.progress = replace(self.progress, iteration=self.progress.iteration + 1)
                sums = self._report(sums)
                if self.progress.iteration % self.cfg.warmstart.checkpoint_every == 0:
                    self._save()
        if self.checkpoints.newest() != self.checkpoints.place(self.progress.iteration):
            self._save()
        return self.progress

    def _take(self, step: int, sums: _Sums) -> None:
        """One optimiser step: every token of its examples counts the same."""
        rows = self._rows(step)
        examples = [self.examples[row] for row in rows]
        num_tokens = sum(len(example.action_ids) for example in examples)
        loss = torch.zeros((), device=self.policy.device)
        with self.policy.unmoved():
            # A role's examples begin alike; that beginning is worked once where it is shared.
            size, share = self.cfg.learn.policy.tokens_per_batch, self.cfg.learn.policy.share_prompts
            for plan in plan_shares(examples, size, 1, share=share)[0]:
                batch = make_batch(examples, plan, share=share).to(self.policy.device)
                piece = -self.policy(batch).logp_N.sum() / num_tokens
                torch.autograd.backward(piece)
                loss += piece.detach()
        set_step_size(self.optimiser, schedule(step, self.num_steps))
        try:
            norm = take_step(self.optimiser, loss, GRADIENT_CLIP)
        except Alarm as alarm:
            # The batch is passed over, since the next one is as good; but not for ever.
            sums.num_skipped += 1
            if sums.num_skipped > MOST_SKIPPED:
                raise TrainingStopped(
                    f"the warm start fails again and again at step {step}: {alarm}; begin with another --out and a "
                    f"warmstart.learning_rate smaller than {self.cfg.warmstart.learning_rate:g}"
                ) from None
            return
        sums.add(float(loss), norm, num_tokens, sum(map(length_of, examples)))

    def _rows(self, step: int) -> list[int]:
        """The examples of one step: each epoch has an order of its own."""
        epoch, place = divmod(step, self._steps_an_epoch)
        order = shuffled(len(self.examples), derive_seed(self.cfg.seed, "fit", epoch))
        size = self.cfg.warmstart.examples_per_step
        return list(order[place * size : (place + 1) * size])

    def _report(self, sums: _Sums) -> _Sums:
        done = self.progress.iteration
        if done % STEPS_A_LINE and done < self.num_steps:
            return sums
        figures = sums.figures() | {"learning_rate": self.optimiser.param_groups[0]["lr"]}
        self.journal.write("fit", done, figures)
        self.spectator.iteration(done, self.num_steps, figures)
        return _Sums()

    def _save(self) -> None:
        self.progress = replace(self.progress, journal_bytes=self.journal.num_bytes)
        self.checkpoints.save(self.policy, self.optimiser, self.progress)


def schedule(step: int, num_steps: int) -> float:
    """Up over the first steps, then down in a straight line to a tenth."""
    warmup = max(1, round(WARMUP_SHARE * num_steps))
    if step < warmup:
        return (step + 1) / warmup
    return 1 - (1 - FINAL_SHARE) * (step - warmup) / max(1, num_steps - warmup)


class _Sums:
    """What a few steps had in common."""

    def __init__(self) -> None:
        self._losses: list[float] = []
        self._norms: list[float] = []
        self._num_trained = self._num_read = self.num_skipped = 0
        self._started = time.perf_counter()

    def add(self, loss: float, norm: float, num_trained: int, num_read: int) -> None:
        self._losses.append(loss)
        self._norms.append(norm)
        self._num_trained += num_trained
        self._num_read += num_read

    def figures(self) -> dict[str, float]:
        seconds = time.perf_counter() - self._started
        return {
            "loss": float(np.mean(self._losses)) if self._losses else float("nan"),
            "gradient_norm": max(self._norms, default=float("nan")),
            "skipped": self.num_skipped,
            "tokens": self._num_trained,
            "seconds": seconds / max(1, len(self._losses)),
            "tokens_per_second": self._num_read / seconds,
        }
