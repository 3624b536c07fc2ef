"""The step that a learner assembles, against its objective written down plainly.

The plain objective is computed call by call in float64, by the model as transformers has it; its finite differences
are what the gradient should be.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from learn_builders import make_experience, make_transition
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from jade.config import BackboneConfig, LearnConfig
from jade.learn.checkpoint import trained_parameters
from jade.learn.credit.base import Credit
from jade.learn.learner import Before, Learner
from jade.learn.monitor.tally import Tally
from jade.learn.policy import Policy, load_policy
from jade.learn.transitions import Experience

CLIP, VALUE_CLIP, VALUE, KL = 0.05, 0.1, 0.7, 0.3
ENTROPY = {"P": 0.4, "AG": 0.05}
COUNTS = {"P": 0.5, "AG": 1.0}
HEAT = {"P": 0.7, "AG": 1.0}
PPO: dict[str, Any] = {
    "clip": CLIP,
    "value_clip": VALUE_CLIP,
    "value_weight": VALUE,
    "kl_weight": KL,
    "entropy_weight": ENTROPY["AG"],
    "role_entropy": {"P": ENTROPY["P"]},
    "role_weight": {"P": COUNTS["P"]},
}
STEP = 1e-6


def make_calls() -> Experience:
    """Their prompts hold the padding token, as those of a model do whose turns end with it."""
    roles = [("P", 50), ("AG", 100), ("AG", 20)]
    calls = [
        make_transition(f"t{n}", role=role, num_tokens=6 + n, outcome=n % 2, penalty=n % 2 - 1, first_id=first + n)
        for n, (role, first) in enumerate(roles * 3)
    ]
    return make_experience(calls)


def load_in_float64(folder: Path) -> Any:
    """The plain model, with norms that do not round to float32 on the way."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="sdpa")
    norms = [name for name, module in model.named_modules() if type(module).__name__.endswith("RMSNorm")]
    for name in norms:
        norm = nn.RMSNorm(model.config.hidden_size, eps=model.config.rms_norm_eps, dtype=torch.float64)
        model.set_submodule(name, norm)
    assert norms
    return model


def jolt(policy: Policy, size: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, weight in trained_parameters(policy):
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=size)


def token_counts(experience: Experience, weigh: str) -> list[float]:
    """What a token of each call counts; all of them together 1."""
    calls = experience.transitions
    of_role: Counter[str] = Counter()
    for call in calls:
        of_role[call.role] += len(call.action_ids)
    shares = {
        "token": [COUNTS[call.role] for call in calls],
        "call": [COUNTS[call.role] / len(call.action_ids) for call in calls],
        "role": [COUNTS[call.role] / of_role[call.role] for call in calls],
    }[weigh]
    total = sum(share * len(call.action_ids) for share, call in zip(shares, calls, strict=True))
    return [share / total for share in shares]


@dataclasses.dataclass
class Objective:
    """The loss of one step over all calls, as a function of a policy in float64."""

    plain: Any
    experience: Experience
    before: Before
    credit: Credit
    counts: list[float]
    num_clipped: int = 0
    num_tokens: int = 0

    @torch.no_grad()
    def __call__(self, policy: Policy) -> float:
        own = dict(self.plain.named_parameters())
        for name, weight in policy.sampler_weights():
            own[name].copy_(weight)
        self.num_clipped = self.num_tokens = 0
        return math.fsum(self.counts[row] * self._of_call(policy, row) for row in range(len(self.counts)))

    def _of_call(self, policy: Policy, row: int) -> float:
        call = self.experience.transitions[row]
        ids = torch.tensor([[*call.prompt_ids, *call.action_ids]])
        said = self.plain(input_ids=ids, output_hidden_states=True)
        states = slice(len(call.prompt_ids) - 1, -1)
        logits = said.logits[0, states] / HEAT[call.role]
        chosen = torch.distributions.Categorical(logits=logits)
        logps = chosen.log_prob(torch.tensor(call.action_ids)).tolist()
        values = [0.0] * len(logps)
        if policy.value_head is not None:
            values = policy.value_head(said.hidden_states[-1][0, states])[:, 0].tolist()
        tokens = zip(
            logps,
            chosen.entropy().tolist(),
            values,
            call.logprobs,
            self.before.values[row],
            self.before.reference_logps[row],
            self.credit.advantages[row],
            self.credit.returns[row],
            strict=True,
        )
        total = 0.0
        for logp, entropy, value, old_logp, old_value, reference, advantage, earned in tokens:
            ratio = math.exp(logp - old_logp)
            gain = min(ratio * advantage, min(max(ratio, 1 - CLIP), 1 + CLIP) * advantage)
            near = old_value + min(max(value - old_value, -VALUE_CLIP), VALUE_CLIP)
            error = 0.5 * max((value - earned) ** 2, (near - earned) ** 2) if policy.value_head is not None else 0.0
            away = math.exp(reference - logp) - (reference - logp) - 1
            total += -gain + VALUE * error - ENTROPY[call.role] * entropy + KL * away
            self.num_clipped += bool(gain != ratio * advantage)
            self.num_tokens += 1
        return total


def gradient_of(weight: Tensor) -> Tensor:
    assert weight.grad is not None
    return weight.grad.clone()


def towards(gradient: Tensor, seed: int) -> Tensor:
    """Along one weight's gradient or against it, and aside by as much: no weight's part hides another's."""
    generator = torch.Generator().manual_seed(seed)
    aside = torch.randn(gradient.shape, generator=generator, dtype=torch.float64)
    sign = 1 if float(torch.rand((), generator=generator)) < 0.5 else -1
    along = gradient.double()
    direction: Tensor = sign * along / along.norm() + aside / aside.norm()
    return direction


def moved(policy: Policy, directions: dict[str, Tensor], size: float) -> Policy:
    other = copy.deepcopy(policy)
    with torch.no_grad():
        for name, weight in trained_parameters(other):
            weight.add_(directions[name], alpha=size)
    return other


@pytest.mark.parametrize(
    ("weigh", "policy"),
    [
        ("token", {"adapt": "full"}),
        ("call", {"adapt": "full", "tokens_per_batch": 64}),
        ("role", {"adapt": "lora", "tokens_per_batch": 64}),
        ("call", {"adapt": "lora", "critic": "none"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_the_gradient_of_a_step_is_the_finite_difference_of_the_objective(
    tiny_model: Path, weigh: str, policy: dict[str, object]
) -> None:
    settings = {
        "ppo": PPO | {"weigh": weigh},
        "policy": {"value_gradient": True} | policy,
        "role_temperature": {"P": HEAT["P"]},
        "credit": {"rule": "shared", "normalise": "none"},
    }
    cfg = LearnConfig.model_validate(settings)
    learner = Learner(load_policy(BackboneConfig(model=str(tiny_model), device="cpu"), cfg.policy), cfg)
    # The policy that sampled has left the reference, and the one that learns has left both.
    jolt(learner.policy, 0.02, seed=1)
    experience = make_calls()
    before = learner.look_back(experience)
    sampled = [
        dataclasses.replace(call, logprobs=tuple(logps.tolist()))
        for call, logps in zip(experience.transitions, before.logps, strict=True)
    ]
    experience = make_experience(sampled)
    credit = learner._credit(experience, before.values)
    jolt(learner.policy, 0.02, seed=2)

    rows = range(len(sampled))
    pieces = list(learner._pieces(experience, rows))
    tally = Tally(["AG", "P"], learner.policy.device)
    tally.begin_step()
    loss = float(learner._accumulate(experience, rows, pieces, before, credit, tally))
    gradients = {name: gradient_of(weight) for name, weight in trained_parameters(learner.policy)}
    assert (len(pieces) > 1) == ("tokens_per_batch" in policy)

    here = copy.deepcopy(learner.policy).double()
    plain = load_in_float64(tiny_model)
    assert all(plain.config.pad_token_id in call.prompt_ids for call in sampled)
    objective = Objective(plain, experience, before, credit, token_counts(experience, weigh))
    assert loss == pytest.approx(objective(here), rel=1e-5)
    assert 0.1 < objective.num_clipped / objective.num_tokens < 0.9

    for seed in range(4):
        directions = {name: towards(gradient, seed) for name, gradient in gradients.items()}
        ahead, behind = (objective(moved(here, directions, size)) for size in (STEP, -STEP))
        expected = sum(float((gradients[name].double() * directions[name]).sum()) for name in gradients)
        assert (ahead - behind) / (2 * STEP) == pytest.approx(expected, rel=1e-4, abs=1e-5)
