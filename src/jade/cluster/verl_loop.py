"""JADE's team as an agent loop of verl 0.9. The one module that knows verl; it is imported in verl's environment only.

verl calls `run` once for a rollout of a question. Our engine works the question with verl's servers as its backbone and
gives back one output for each transition: the ids and log-probs of the sampling itself, and that step's own reward.

verl copies the reward of the last output onto all outputs before it, by which every penalty of a single step would be
lost. `StepOutput` keeps a reward that nobody else writes to, and hands that one over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

from jade.backbone.chat import ChatFormat
from jade.cluster.verl_export import question_of
from jade.cluster.verl_rewards import RULES
from jade.config import Config, SamplingConfig, load_config
from jade.engine.effort import effort_of
from jade.engine.seeds import derive_seed
from jade.engine.solve import solve
from jade.errors import BackboneFailed, ConfigError
from jade.learn.measure import PUBLISHED, Measure, ask, find_measure
from jade.learn.train import draw_effort
from jade.learn.transitions import flatten, of_roles
from jade.retrieval.base import Retriever
from jade.retrieval.open import open_retriever
from jade.reward.outcome import assign_rewards, cost, outcome, ramped
from jade.team.crew import Cast, Crew
from jade.team.team import Team, build_team
from jade.types import Finish, Generation, Malformed, Prompt, Reward, Sampling, Trace, Transition

SUPPORTED = "0.9."


def check_version(found: str) -> None:
    """What is overridden here is not verl's to keep from one version to the next."""
    if not found.startswith(SUPPORTED):
        raise ConfigError(
            f"verl {found} is installed and this agent loop is written for 0.9; pip install 'verl==0.9.*'"
        )


check_version(version("verl"))

# After the check: another version may not even have these names.
from verl.experimental.agent_loop.agent_loop import (  # type: ignore[import-not-found]  # noqa: E402
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)


class StepOutput(AgentLoopOutput):  # type: ignore[misc]
    """One call of one role, with the reward that it earned itself."""

    own_reward: float

    def as_dict(self) -> dict[str, Any]:
        self.reward_score = self.own_reward
        fields: dict[str, Any] = super().as_dict()
        del fields["own_reward"]
        return fields


class JadeAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """`jade_config` is the config.toml that `jade export-verl` wrote.

    Known to verl by agent_loop.yaml alone: its `register` would put a row without that path in the place of the file's.
    """

    def __init__(self, *args: Any, jade_config: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.desk = open_desk(jade_config)

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[StepOutput]:
        info = kwargs["extra_info"]
        place, step, sample = int(info["index"]), int(kwargs.get("global_steps", 0)), int(kwargs.get("session_id", 0))
        config = self.desk.config if info["measured"] else at_step(self.desk.config, step)
        backbone = VerlBackbone(self.server_manager, ChatFormat(self.tokenizer), sampling_params, self._limits())
        trace = await solve(
            question_of(info),
            self.desk.crew(backbone, sampling_params),
            seed=derive_seed(config.seed, "rollout", step, place, sample),
            effort=effort_of(config.reward) if info["measured"] else draw_effort(config, step, place, sample),
        )
        if self.desk.measure is not None:
            [worth] = await ask([trace], self.desk.measure)
            trace = replace(trace, outcome=worth)
        return outputs_of(trace, config) or [blank_output(trace, config, self.tokenizer.eos_token_id)]

    def _limits(self) -> Limits:
        rollout = self.rollout_config
        return Limits(rollout.prompt_length, rollout.response_length, seeded=rollout.name == "vllm")


@dataclass(frozen=True, slots=True)
class Desk:
    """What all questions of one worker share."""

    config: Config
    team: Team
    retriever: Retriever
    measure: Measure | None
    """What answers are worth where that is not F1."""

    def crew(self, backbone: VerlBackbone, sampling_params: Mapping[str, Any]) -> Crew:
        sampling = SamplingConfig(
            temperature=float(sampling_params["temperature"]), top_p=float(sampling_params.get("top_p", 1.0))
        )
        config = self.config
        return Crew(self.team, Cast(backbone), self.retriever, config.budget, sampling, config.retrieval.k)


@lru_cache(maxsize=4)
def open_desk(jade_config: str) -> Desk:
    """Opened once in a process: verl makes a new agent loop for every question."""
    config = load_config(Path(jade_config))
    own = config.reward.outcome
    measure = None if own == PUBLISHED else find_measure(own)
    return Desk(config, build_team(config.team), open_retriever(config.retrieval), measure)


@dataclass(frozen=True, slots=True)
class Limits:
    prompt_tokens: int
    response_tokens: int
    seeded: bool = True
    """Whether the servers take a seed for each request (vLLM does)."""


class VerlBackbone:
    """verl's servers as a backbone: token ids in, token ids and their log-probs out."""

    def __init__(self, servers: Any, chat: ChatFormat, sampling_params: Mapping[str, Any], limits: Limits) -> None:
        self._servers = servers
        self._chat = chat
        self._sampling_params = dict(sampling_params)
        self._limits = limits

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        encoded = self._chat.encode(prompt, self._limits.prompt_tokens)
        ids = encoded.ids
        most = min(sampling.max_tokens, self._limits.response_tokens)
        wishes = {**self._sampling_params, "max_tokens": most}
        if self._limits.seeded:
            wishes["seed"] = sampling.seed % 2**31
        found = await self._servers.generate(request_id=uuid4().hex, prompt_ids=list(ids), sampling_params=wishes)
        if not found.log_probs or len(found.log_probs) != len(found.token_ids):
            raise BackboneFailed(
                "verl's server gave no log-probs; set actor_rollout_ref.rollout.calculate_log_probs=True"
            )
        return Generation(
            text=self._chat.decode_all([found.token_ids])[0],
            prompt_ids=ids,
            token_ids=tuple(found.token_ids),
            logprobs=tuple(found.log_probs),
            finish=self._finish(found.token_ids),
            policy_version=int(found.extra_fields.get("global_steps") or 0),
            prompt_tokens=len(ids),
            completion_tokens=len(found.token_ids),
            prompt_cut=encoded.num_cut,
        )

    def _finish(self, token_ids: list[int]) -> Finish:
        return "stop" if token_ids[-1] == self._chat.tokenizer.eos_token_id else "length"

    async def close(self) -> None:
        return None


def at_step(config: Config, step: int) -> Config:
    """With the prices of a step of training; verl counts them from 1."""
    return config.model_copy(update={"reward": ramped(config.reward, max(0, step - 1))})


def outputs_of(trace: Trace, config: Config) -> list[StepOutput]:
    """One output for each transition of the roles that train, in the order of the trace."""
    transitions = of_roles(flatten([trace], [assign_rewards(trace, config.reward)]), config.learn.train_roles)
    rewards = RULES[config.learn.credit.rule](transitions)
    figures = figures_of(trace, config)
    return [
        _output(transition, reward, trace, figures) for transition, reward in zip(transitions, rewards, strict=True)
    ]


def blank_output(trace: Trace, config: Config, token: int) -> StepOutput:
    """Of a question of which nothing can be learned: it is counted, and no token of it is trained."""
    earned = Reward(outcome(trace), cost(trace, config.reward))
    blank = Transition(trace.id, "", "", (token,), (token,), (0.0,), earned)
    return _output(blank, earned.total, trace, figures_of(trace, config), trained=False)


def figures_of(trace: Trace, config: Config) -> dict[str, float]:
    """What verl logs of a rollout; `acc` is the name under which it looks for the score."""
    return {
        "acc": outcome(trace),
        "cost": cost(trace, config.reward),
        "rounds": float(trace.usage.rounds),
        "retrievals": float(trace.usage.retrievals),
        "malformed": float(sum(isinstance(step.action, Malformed) for step in trace.steps)),
        "failed": float(trace.error is not None),
    }


def _output(
    transition: Transition, reward: float, trace: Trace, figures: Mapping[str, float], *, trained: bool = True
) -> StepOutput:
    searching = sum(step.seconds for step in trace.steps if step.generation is None)
    return StepOutput(
        prompt_ids=list(transition.prompt_ids),
        response_ids=list(transition.action_ids),
        response_mask=[int(trained)] * len(transition.action_ids),
        response_logprobs=list(transition.logprobs),
        reward_score=reward,
        own_reward=reward,
        num_turns=trace.usage.calls,
        metrics=AgentLoopMetrics(generate_sequences=trace.usage.seconds - searching, tool_calls=searching),
        extra_fields={
            # verl copies this from the last output and fails where it is not there.
            "reward_extra_info": dict(figures),
            "min_global_steps": transition.policy_version,
            "max_global_steps": transition.policy_version,
            "role": transition.role,
        },
    )
