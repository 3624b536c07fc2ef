from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jade.config import PPOConfig
from jade.learn.credit.base import gae, on_last
from jade.learn.loss import Now, Old, explained_variance, ppo_loss, reference_kl, sum_by_role, token_weights

TORCHRL = json.loads((Path(__file__).parent / "torchrl_reference.json").read_text())
"""Inputs and outputs of torchrl's own PPO loss and advantage estimate; the file says of which version."""
small = st.floats(-2, 2).map(lambda x: round(x, 4))
tokens = st.lists(st.tuples(*[small] * 7), min_size=1, max_size=10)


def scalar_ppo(row: tuple[float, ...], entropy: float, cfg: PPOConfig) -> dict[str, float]:
    """An independent PPO: one token at a time, branches instead of min and max."""
    logp, old_logp, value, old_value, advantage, target, reference = row
    r = math.exp(logp - old_logp)
    gain = (min(r, 1 + cfg.clip) if advantage >= 0 else max(r, 1 - cfg.clip)) * advantage
    moved = value - old_value
    if moved > cfg.value_clip:
        held = old_value + cfg.value_clip
    elif moved < -cfg.value_clip:
        held = old_value - cfg.value_clip
    else:
        held = value
    error = max((value - target) ** 2, (held - target) ** 2) / 2
    x = reference - logp
    kl = math.exp(x) - x - 1
    total = -gain + cfg.value_weight * error - cfg.entropy_weight * entropy + cfg.kl_weight * kl
    y = logp - old_logp
    return {
        "total_N": total,
        "policy_N": -gain,
        "value_N": error,
        "reference_kl_N": kl,
        "approx_kl_N": math.exp(y) - y - 1,
        "clipped_N": float(r > 1 + cfg.clip or r < 1 - cfg.clip),
    }


@given(tokens, st.sampled_from([0.1, 0.2, 0.3]), st.sampled_from([0.0, 0.01]), st.sampled_from([0.0, 0.1]))
def test_the_loss_equals_an_independent_scalar_implementation(
    rows: list[tuple[float, ...]], clip: float, entropy_weight: float, kl_weight: float
) -> None:
    cfg = PPOConfig(clip=clip, entropy_weight=entropy_weight, kl_weight=kl_weight)
    columns = [torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True)]
    logp, old_logp, value, old_value, advantage, target, reference = columns
    entropy = torch.full_like(logp, 0.7)
    loss = ppo_loss(Now(logp, entropy, value), Old(old_logp, old_value, advantage, target, reference), cfg)
    for index, row in enumerate(rows):
        for name, expected in scalar_ppo(row, 0.7, cfg).items():
            assert float(getattr(loss, name)[index]) == pytest.approx(expected, abs=1e-9), name


@pytest.mark.parametrize("case", TORCHRL["ppo"])
def test_loss_and_gradient_equal_torchrl(case: dict[str, Any]) -> None:
    seen, acted = torch.tensor(case["obs"], dtype=torch.float64), torch.tensor(case["action"])
    actor = torch.tensor(case["actor_weight"], dtype=torch.float64, requires_grad=True)
    critic = torch.tensor(case["critic_weight"], dtype=torch.float64, requires_grad=True)
    logp = (seen @ actor.T + torch.tensor(case["actor_bias"], dtype=torch.float64)).log_softmax(-1)
    value = (seen @ critic.T + torch.tensor(case["critic_bias"], dtype=torch.float64))[:, 0]
    now = Now(logp.gather(1, acted[:, None])[:, 0], -(logp.exp() * logp).sum(-1), value)
    old = Old(*(torch.tensor(case[n], dtype=torch.float64) for n in ("old_logp", "old_value", "advantage", "returns")))
    # torchrl halves the squared error by its coefficient, we by definition.
    loss = ppo_loss(now, old, PPOConfig(value_weight=1.0, entropy_weight=0.01))
    loss.total_N.mean().backward()
    means = {name: float(getattr(loss, f"{name}_N").mean()) for name in ("policy", "value", "entropy", "clipped")}
    assert list(means.values()) == pytest.approx([case[n] for n in ("objective", "critic", "entropy", "clip_fraction")])
    assert actor.grad is not None
    assert critic.grad is not None
    torch.testing.assert_close(actor.grad, torch.tensor(case["actor_gradient"], dtype=torch.float64))
    torch.testing.assert_close(critic.grad, torch.tensor(case["critic_gradient"], dtype=torch.float64))


@pytest.mark.parametrize("case", TORCHRL["gae"])
def test_gae_equals_torchrl(case: dict[str, Any]) -> None:
    estimated = gae(np.array(case["rewards"]), np.array(case["values"]), case["gamma"], case["lam"])
    np.testing.assert_allclose(estimated, case["advantages"], rtol=1e-10)


def tiny_policy(weights: torch.Tensor, seen: torch.Tensor, acted: torch.Tensor) -> Now:
    """A linear policy over 4 actions with a linear value: 3 features in, 4 logits and a value out."""
    out = seen @ weights.view(3, 5)
    logp = out[:, :4].log_softmax(-1)
    entropy = -(logp.exp() * logp).sum(-1)
    return Now(logp.gather(1, acted[:, None])[:, 0], entropy, out[:, 4])


def test_the_gradient_agrees_with_finite_differences_on_a_tiny_model() -> None:
    generator = torch.Generator().manual_seed(3)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    seen, acted = draw(12, 3), torch.randint(4, (12,), generator=generator)
    start = draw(15)
    behaviour = tiny_policy(start, seen, acted)
    assert behaviour.value_N is not None
    old = Old(behaviour.logp_N, behaviour.value_N, draw(12), draw(12), behaviour.logp_N + 0.1 * draw(12))
    cfg = PPOConfig(entropy_weight=0.01, kl_weight=0.1)

    def objective(weights: torch.Tensor) -> torch.Tensor:
        return ppo_loss(tiny_policy(weights, seen, acted), old, cfg).total_N.mean()

    weights = (start + 0.3 * draw(15)).requires_grad_()
    objective(weights).backward()
    assert weights.grad is not None
    for index in range(15):
        nudge = torch.zeros(15, dtype=torch.float64)
        nudge[index] = 1e-6
        with torch.no_grad():
            slope = (objective(weights + nudge) - objective(weights - nudge)) / 2e-6
        assert float(weights.grad[index]) == pytest.approx(float(slope), abs=1e-6)


def test_a_ratio_beyond_the_clip_gets_no_gradient_when_it_would_go_further() -> None:
    logp = torch.tensor([0.5, -0.5], requires_grad=True)
    old = Old(torch.zeros(2), torch.zeros(2), torch.tensor([1.0, -1.0]), torch.zeros(2))
    ppo_loss(Now(logp, torch.zeros(2)), old, PPOConfig()).total_N.sum().backward()
    assert logp.grad is not None
    assert logp.grad.tolist() == [0.0, 0.0]


def test_without_a_critic_or_a_reference_only_the_policy_counts() -> None:
    old = Old(torch.zeros(3), torch.zeros(3), torch.ones(3), torch.ones(3))
    loss = ppo_loss(Now(torch.zeros(3), torch.zeros(3)), old, PPOConfig(kl_weight=1.0))
    assert loss.total_N.tolist() == loss.policy_N.tolist() == [-1.0] * 3


@given(small, small)
def test_the_divergence_from_the_reference_is_never_negative(logp: float, reference: float) -> None:
    assert float(reference_kl(torch.tensor(logp), torch.tensor(reference))) >= -1e-6


def test_explained_variance_is_one_for_a_perfect_critic_and_zero_for_one_that_knows_the_mean() -> None:
    returns = torch.tensor([0.0, 1.0, 0.5, 0.25])
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(torch.full((4,), 0.4), returns) == pytest.approx(0.0, abs=1e-6)
    assert explained_variance(torch.zeros(4), torch.ones(4)) == 0.0


def test_returns_that_differ_by_rounding_alone_leave_nothing_to_explain() -> None:
    """As where all questions of an iteration earned the same, or a role was called once."""
    values = np.random.default_rng(0).normal(size=20)
    returns = gae(on_last(0.3, 20), values, gamma=1.0, lam=1.0) + values
    assert returns.var() > 0
    assert explained_variance(torch.from_numpy(values), torch.from_numpy(returns)) == 0.0


calls = st.lists(st.tuples(st.integers(1, 9), st.sampled_from(["P", "QR", "AG"])), min_size=1, max_size=8)


@given(calls, st.sampled_from(["token", "call", "role"]))
def test_all_tokens_of_a_step_together_weigh_one(
    pairs: list[tuple[int, str]], weigh: Literal["token", "call", "role"]
) -> None:
    lengths, roles = map(list, zip(*pairs, strict=True))
    for own in ({}, {"P": 0.25, "AG": 3.0}):
        weights = token_weights(lengths, roles, weigh, own)
        assert sum(w * n for w, n in zip(weights, lengths, strict=True)) == pytest.approx(1.0)


def test_weighing_by_role_gives_a_terse_planner_the_voice_of_a_talkative_answerer() -> None:
    weights = token_weights([2, 8, 30], ["P", "AG", "AG"], "role")
    assert weights[0] * 2 == pytest.approx(0.5)
    assert weights[1] * 8 + weights[2] * 30 == pytest.approx(0.5)
    assert weights[1] == weights[2]


@pytest.mark.parametrize("weigh", ["token", "call", "role"])
def test_a_role_may_count_less_than_the_others(weigh: Literal["token", "call", "role"]) -> None:
    lengths, roles = [3, 5, 7], ["P", "AG", "P"]
    plain, slowed = (token_weights(lengths, roles, weigh, own) for own in ({}, {"P": 0.25}))
    assert slowed[0] / slowed[1] == pytest.approx(0.25 * plain[0] / plain[1])
    assert slowed[0] / slowed[2] == pytest.approx(plain[0] / plain[2])
    assert token_weights([4, 2], ["P", "P"], weigh, {"P": 0.0}) == [0.0, 0.0]


def test_sums_by_role_add_up_each_role_alone() -> None:
    rng = random.Random(0)
    roles = [rng.randrange(3) for _ in range(20)]
    stats = [[rng.random() for _ in roles] for _ in range(2)]
    sum_KR = sum_by_role(torch.tensor(stats, dtype=torch.float64), torch.tensor(roles), 3)
    for stat, sum_R in zip(stats, sum_KR, strict=True):
        for role in range(3):
            assert float(sum_R[role]) == pytest.approx(sum(s for s, r in zip(stat, roles, strict=True) if r == role))
