"""What the rollouts of one iteration say about the team, as flat figures for the journal.

`name` is a mean over all questions, `name/PART` over a part of them: a role's calls, a dataset, a plan's share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import TypeAlias

from jade.config import RewardConfig
from jade.engine.budget import has_failed
from jade.reward.metrics import exact_match
from jade.reward.outcome import assign_rewards, cost, outcome
from jade.reward.selection import added_up, kept_in
from jade.types import Generation, Malformed, Step, Trace

Call: TypeAlias = tuple[Step, Generation, float]
"""A call of the model, what it said and what it earned."""


def rollout_figures(traces: Sequence[Trace], cfg: RewardConfig) -> dict[str, float]:
    """Outcome, cost, turns, format and plans of a batch of traces."""
    outcomes, costs = [outcome(trace) for trace in traces], [cost(trace, cfg) for trace in traces]
    calls = _calls(traces, cfg)
    figures = {
        **reward_figures(traces, cfg),
        "outcome": fmean(outcomes),
        "exact_match": fmean(exact_match(trace.answer, trace.question.answers) for trace in traces),
        "cost": fmean(costs),
        "rounds": fmean(trace.usage.rounds for trace in traces),
        "retrievals": fmean(trace.usage.retrievals for trace in traces),
        "calls": fmean(trace.usage.calls for trace in traces),
        "completion_tokens": fmean(trace.usage.completion_tokens for trace in traces),
        "prompt_tokens": fmean(trace.usage.prompt_tokens for trace in traces),
        "failed": fmean(trace.error is not None for trace in traces),
        "failed_steps": _failed_steps(traces),
        **_of_calls(calls),
    }
    by_role = {f"{name}/{role}": mean for role, of in _by_role(calls).items() for name, mean in _of_calls(of).items()}
    parts = by_role | dict(_by_dataset(traces, outcomes)) | _split_gains(traces, outcomes) | _selections(traces)
    return figures | parts | _plans(traces)


def reward_figures(traces: Sequence[Trace], cfg: RewardConfig) -> dict[str, float]:
    """What a question earns at these prices, and how sure that is."""
    rewards = [outcome(trace) - cost(trace, cfg) for trace in traces]
    return {"reward": fmean(rewards), "reward_error": _error(traces, rewards)}


def _error(traces: Sequence[Trace], rewards: Sequence[float]) -> float:
    """The standard error of the mean reward: what chance in the draw of questions moves it by."""
    of_question: dict[tuple[str, str, str], list[float]] = {}
    for trace, reward in zip(traces, rewards, strict=True):
        of_question.setdefault(trace.question.key, []).append(reward)
    means = [fmean(each) for each in of_question.values()]
    return stdev(means) / sqrt(len(means)) if len(means) > 1 else 0.0


def _calls(traces: Sequence[Trace], cfg: RewardConfig) -> list[Call]:
    """Every call of the model, and what it earned."""
    rewarded = ((trace, assign_rewards(trace, cfg)) for trace in traces)
    return [
        (step, step.generation, rewards[step.id].total)
        for trace, rewards in rewarded
        for step in trace.steps
        if step.generation is not None
    ]


def _of_calls(calls: Sequence[Call]) -> dict[str, float]:
    """What calls earn on average, their own format penalty included (the quantity that learning raises), and how they
    are written: a call that ran out of room is rarely well-formed, one that read a part of its prompt rarely right."""
    if not calls:
        return {"step_reward": 0.0, "malformed": 0.0}
    return {
        "step_reward": fmean(earned for _, _, earned in calls),
        "malformed": fmean(isinstance(step.action, Malformed) for step, _, _ in calls),
        "output_tokens": fmean(len(said.token_ids) for _, said, _ in calls),
        "output_cut": fmean(said.finish == "length" for _, said, _ in calls),
        "prompt_cut": fmean(said.prompt_cut > 0 for _, said, _ in calls),
    }


def _failed_steps(traces: Sequence[Trace]) -> float:
    """The share of calls and searches that raised. Their fallbacks ran and their questions count as answered, so that
    nothing else shows it; those that a budget refused did not fail."""
    steps = [step for trace in traces for step in trace.steps]
    return fmean(has_failed(step) for step in steps) if steps else 0.0


def why_steps_failed(traces: Sequence[Trace]) -> str:
    """What one of them raised."""
    return next((step.error or "" for trace in traces for step in trace.steps if has_failed(step)), "")


def _by_role(calls: Sequence[Call]) -> dict[str, list[Call]]:
    groups: dict[str, list[Call]] = {}
    for call in calls:
        groups.setdefault(str(call[0].role), []).append(call)
    return dict(sorted(groups.items()))


def _by_dataset(traces: Sequence[Trace], outcomes: Sequence[float]) -> Iterator[tuple[str, float]]:
    names = {trace.question.dataset for trace in traces}
    for name in sorted(names if len(names) > 1 else ()):
        of = [(o, t) for o, t in zip(outcomes, traces, strict=True) if t.question.dataset == name]
        yield f"outcome/{name}", fmean(earned for earned, _ in of)
        yield f"split/{name}", fmean(is_split(trace) for _, trace in of)


def _split_gains(traces: Sequence[Trace], outcomes: Sequence[float]) -> dict[str, float]:
    """What splitting a question earns over leaving it whole: what a planner could learn from. Only questions whose
    rollouts did both are compared, each with itself, since others that are split differ from those left whole."""
    tried: dict[tuple[str, str, str], dict[bool, list[float]]] = {}
    for trace, earned in zip(traces, outcomes, strict=True):
        tried.setdefault(trace.question.key, {}).setdefault(is_split(trace), []).append(earned)
    gains = [(key[0], fmean(ways[True]) - fmean(ways[False])) for key, ways in tried.items() if len(ways) == 2]
    if not gains:
        return {}
    names = {trace.question.dataset for trace in traces}
    of_names = {name: [gain for dataset, gain in gains if dataset == name] for name in sorted(names)}
    parts = {f"split_gain/{name}": fmean(of) for name, of in of_names.items() if of} if len(names) > 1 else {}
    return {"split_gain": fmean(gain for _, gain in gains)} | parts


def _selections(traces: Sequence[Trace]) -> dict[str, float]:
    """The share of passages that selectors keep; of selections that were shown a gold answer, how many keep one, and
    how many would by keeping as many from the top of the search."""
    done = added_up(kept for trace in traces if (kept := kept_in(trace)))
    shares = {"selection/kept": done.kept / done.shown} if done.shown else {}
    if not done.held:
        return shares
    return shares | {"selection/held": done.kept_held / done.held, "selection/from_top": done.first_held / done.held}


def _plans(traces: Sequence[Trace]) -> dict[str, float]:
    """Shares of the workflows that ran for the questions themselves; nothing where no planner was asked for one."""
    written = Counter(
        plan_of(trace) for trace in traces if any(step.round == 1 and step.role == "P" for step in trace.steps)
    )
    total = sum(written.values())
    if not total:
        return {}
    shares: Mapping[str, float] = {plan: count / total for plan, count in written.most_common()}
    return {f"plan/{plan}": share for plan, share in shares.items()} | {"top_plan": max(shares.values())}


def is_split(trace: Trace) -> bool:
    """Whether the question was worked in parts."""
    return len(trace.nodes) > 1


def plan_of(trace: Trace) -> str:
    """What ran for the question itself, printed."""
    return trace.nodes[0].workflow or "none"
