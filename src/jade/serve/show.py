"""A trace as the viewer and the listeners see it: plain JSON, complete in every step, without token ids.

Each step carries its own prompt and passages, so that one step can be shown while the others are still being taken.
A reward is shown only where gold answers are known: never scored is not zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from jade.config import RewardConfig
from jade.engine.events import Event, NodeOpened, NodeSolved, StepBegan, StepEnded
from jade.reward.metrics import exact_match, f1
from jade.reward.outcome import assign_rewards
from jade.team.team import Team
from jade.types import Action, Generation, Malformed, Passage, Reward, Selection, Step, Trace

Json = dict[str, Any]


def show_trace(trace: Trace, team: Team, reward_config: RewardConfig) -> Json:
    """Everything about one question."""
    golds = trace.question.answers
    rewards = assign_rewards(trace, reward_config) if golds else {}
    kept = _kept_passages(trace.steps)
    return {
        "id": trace.id,
        "question": {
            "id": trace.question.id,
            "text": trace.question.text,
            "dataset": trace.question.dataset,
            "answers": list(golds),
            "context": list(trace.question.context),
        },
        "answer": trace.answer,
        "scores": {"f1": f1(trace.answer, golds), "em": exact_match(trace.answer, golds)} if golds else None,
        "supported": trace.supported,
        "stopped": trace.stopped,
        "error": trace.error,
        "seed": trace.seed,
        "effort": asdict(trace.effort) if trace.effort else None,
        "usage": asdict(trace.usage),
        "nodes": [asdict(node) for node in trace.nodes],
        "steps": [
            show_step(step, team, rewards.get(step.id), kept.get(step.node) if step.found else None)
            for step in trace.steps
        ],
        "citations": [asdict(citation) for citation in trace.citations],
    }


def show_step(step: Step, team: Team, reward: Reward | None = None, kept: Sequence[Passage] | None = None) -> Json:
    """One step; `kept` is what the node's selector left of a search, where there was one."""
    malformed = step.action if isinstance(step.action, Malformed) else None
    return {
        "id": step.id,
        "node": step.node,
        "round": step.round,
        "role": step.role,
        "title": team.members[step.role].title if step.role in team.members else step.role,
        "question": step.observation.question,
        "prompt": _prompt(step, team),
        "output": step.generation.text if step.generation else None,
        "generation": _generation(step.generation),
        "action": None if malformed else show_action(step.action),
        "malformed": malformed.reason if malformed else None,
        "applied": show_action(step.applied),
        "passages": _passages(step, kept),
        "error": step.error,
        "seconds": step.seconds,
        "reward": {**asdict(reward), "total": reward.total} if reward else None,
    }


def show_action(action: Action | Malformed | None) -> Json | None:
    return None if action is None else {"kind": type(action).__name__, **asdict(action)}


def show_event(event: Event, team: Team) -> tuple[str, Json]:
    """What a listener heard, by name: node, began, step, solved."""
    match event:
        case NodeOpened(node):
            return "node", asdict(node)
        case NodeSolved(node):
            return "solved", asdict(node)
        case StepBegan():
            return "began", asdict(event)
        case StepEnded(step):
            return "step", show_step(step, team)


def _prompt(step: Step, team: Team) -> Json | None:
    """The prompt is not recorded; it follows from the observation and the team's prompt files."""
    if step.generation is None or step.role not in team.prompts:
        return None
    prompt = team.render(step.role, step.observation)
    return {"system": prompt.system, "user": prompt.user}


def _generation(generation: Generation | None) -> Json | None:
    if generation is None:
        return None
    logprobs = generation.logprobs
    return {
        "prompt_tokens": generation.prompt_tokens,
        "completion_tokens": generation.completion_tokens,
        "finish": generation.finish,
        "policy_version": generation.policy_version,
        "seconds": generation.seconds,
        "mean_logprob": sum(logprobs) / len(logprobs) if logprobs else None,
    }


def _passages(step: Step, kept: Sequence[Passage] | None) -> list[Json]:
    """What was shown or found, each with whether it was chosen (null: nobody chose)."""
    shown = step.found or step.observation.passages
    if isinstance(step.applied, Selection):
        chosen: list[bool | None] = [index in step.applied.indices for index in range(len(shown))]
    elif kept is not None:
        chosen = [passage in kept for passage in shown]
    else:
        chosen = [None] * len(shown)
    return [{**asdict(passage), "chosen": mark} for passage, mark in zip(shown, chosen, strict=True)]


def _kept_passages(steps: Sequence[Step]) -> dict[str, list[Passage]]:
    """By node: the passages that its selector chose."""
    return {
        step.node: [step.observation.passages[index] for index in step.applied.indices]
        for step in steps
        if isinstance(step.applied, Selection)
    }
