"""From a finished trace to what each of its trainable steps earned.

The team shares the outcome and the cost; a format penalty falls on the offending step alone. Every step with a
generation gets exactly one reward, tools get none, and a trace that ended in an error has an outcome of 0.
"""

from __future__ import annotations

from functools import lru_cache

from jade.config import RewardConfig
from jade.reward.metrics import exact_match, f1, is_yes_no
from jade.types import Effort, Malformed, Reward, Step, Trace

COST_CAP = 3
"""Rounds and retrievals beyond this many cost nothing more (Eq. 7)."""


def ramped(cfg: RewardConfig, iteration: int) -> RewardConfig:
    """The prices of an iteration of a training run, counted from 0."""
    if iteration >= cfg.ramp:
        return cfg
    share = iteration / cfg.ramp
    return cfg.model_copy(update={"alpha": share * cfg.alpha, "beta": share * cfg.beta})


def assign_rewards(trace: Trace, cfg: RewardConfig) -> dict[str, Reward]:
    """The reward of each trainable step, by step id (Eq. 6-8)."""
    shared, price = outcome(trace), cost(trace, cfg)
    return {
        step.id: Reward(outcome=shared, cost=price, format=format_penalty(step, cfg))
        for step in trace.steps
        if step.generation is not None
    }


def outcome(trace: Trace) -> float:
    """F1 of the final answer; exact match where the gold answer is yes or no; what it was measured to be worth where
    that was done otherwise (`reward.outcome`); 0 when the question failed."""
    if trace.error is not None:
        return 0.0
    if trace.outcome is not None:
        return trace.outcome
    return score_of(trace.answer, trace.question.answers)


@lru_cache(maxsize=4096)
def score_of(answer: str, golds: tuple[str, ...]) -> float:
    """Kept, since figures, rewards and alarms all ask for it, and rollouts of a question often answer alike."""
    score = exact_match if is_yes_no(golds) else f1
    return score(answer, golds)


def cost(trace: Trace, cfg: RewardConfig) -> float:
    """The price of the trace's turns and retrievals, at the prices in force for this question."""
    return price(trace.effort or Effort(cfg.alpha, cfg.beta), trace.usage.rounds, trace.usage.retrievals)


def price(prices: Effort, rounds: int, retrievals: int) -> float:
    """What so many turns and retrievals cost (Eq. 7)."""
    return prices.alpha * _capped_share(rounds) + prices.beta * _capped_share(retrievals)


def format_penalty(step: Step, cfg: RewardConfig) -> float:
    """The penalty of a step whose own output was malformed."""
    return cfg.format_penalty if isinstance(step.action, Malformed) else 0.0


def _capped_share(count: int) -> float:
    return min(count, COST_CAP) / COST_CAP
