# verl and what it brings are in an environment of their own, where no type checker looks.
# mypy: disable-error-code="import-not-found, import-untyped, misc, no-any-return, unused-ignore"
"""verl's estimator and its losses against ours, on the same transitions. Needs verl's environment: `make verl-test`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from learn_builders import make_experience, make_transition

from jade.cluster.verl_export import AGGREGATES, NO_DUAL_CLIP
from jade.cluster.verl_rewards import RULES
from jade.config import CreditConfig, PPOConfig
from jade.learn.credit.rules import assign_credit
from jade.learn.loss import Now, Old, ppo_loss, token_weights, value_loss
from jade.types import Transition

pytest.importorskip("verl", reason="verl is not in this environment; make verl-env, then make verl-test")
pytestmark = pytest.mark.filterwarnings("ignore")


# B = transitions, T = the longest one's tokens
def padded(rows: Sequence[Any]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.as_tensor(np.array(row)).double() for row in rows], batch_first=True)


def transitions_and_values() -> tuple[list[Transition], list[Any]]:
    draw = np.random.default_rng(0)
    lengths, penalties = [3, 1, 4, 2, 5], [0.0, -1.0, 0.0, 0.0, -1.0]
    transitions = [
        make_transition("t" if n < 3 else "u", str(n), num_tokens=length, outcome=0.7, cost=0.1, penalty=penalty)
        for n, (length, penalty) in enumerate(zip(lengths, penalties, strict=True))
    ]
    transitions = [replace(t, logprobs=tuple(draw.normal(-1, 0.3, len(t.action_ids)).tolist())) for t in transitions]
    return transitions, [draw.normal(0, 1, length) for length in lengths]


@pytest.mark.parametrize(("rule", "lam"), [("shared", 1.0), ("shared", 0.9), ("trajectory", 1.0)])
def test_verls_advantages_and_returns_equal_ours(rule: str, lam: float) -> None:
    from verl.trainer.ppo.core_algos import compute_gae_advantage_return

    transitions, values = transitions_and_values()
    traces = ["t", "u"]
    rewards = [r for trace in traces for r in RULES[rule]([t for t in transitions if t.trace == trace])]
    rows = [[0.0] * (len(value) - 1) + [reward] for value, reward in zip(values, rewards, strict=True)]
    mask_BT = padded([np.ones(len(value)) for value in values])
    theirs, returns = compute_gae_advantage_return(padded(rows), padded(values), mask_BT, 1.0, lam)
    cfg = CreditConfig(rule=rule, lam=lam)
    ours = assign_credit(make_experience(transitions), values, cfg)
    assert (returns * mask_BT).numpy() == pytest.approx(padded(ours.returns).numpy())
    # verl divides by the deviation of a sample (n - 1), we by that of the batch (n).
    count = int(mask_BT.sum())
    scale = np.sqrt((count - 1) / count)
    assert (theirs * mask_BT).numpy() == pytest.approx(padded(ours.advantages).numpy() * scale, abs=1e-6)


@pytest.mark.parametrize("weigh", ["token", "call"])
def test_verls_policy_loss_and_value_loss_equal_ours(weigh: Any) -> None:
    from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla, compute_value_loss
    from verl.workers.config import FSDPActorConfig

    transitions, values = transitions_and_values()
    draw = np.random.default_rng(1)
    lengths = [len(value) for value in values]
    new, advantages, returns = ([draw.normal(size=length) for length in lengths] for _ in range(3))
    old = [np.array(t.logprobs) for t in transitions]
    now = [row + 0.5 * step for row, step in zip(old, new, strict=True)]
    mask_BT = padded([np.ones(length) for length in lengths])
    actor = FSDPActorConfig(rollout_n=1, ppo_mini_batch_size=4, use_dynamic_bsz=True, clip_ratio_c=NO_DUAL_CLIP)
    how = {"loss_agg_mode": AGGREGATES[weigh]}
    theirs, _ = compute_policy_loss_vanilla(padded(old), padded(now), padded(advantages), mask_BT, config=actor, **how)
    fit, _ = compute_value_loss(padded(new), padded(returns), padded(values), mask_BT, 0.5, **how)
    flat = {name: torch.as_tensor(np.concatenate(rows)) for name, rows in locals().items() if name in FLAT}
    loss = ppo_loss(
        Now(flat["now"], torch.zeros_like(flat["now"])),
        Old(flat["old"], flat["values"], flat["advantages"], flat["returns"]),
        PPOConfig(clip=actor.clip_ratio),
    )
    weights = token_weights(lengths, [t.role for t in transitions], weigh)
    weight_N = torch.as_tensor(np.repeat(weights, lengths))
    assert float(theirs) == pytest.approx(float((weight_N * loss.policy_N).sum()))
    ours = value_loss(flat["new"], flat["values"], flat["returns"], 0.5)
    assert float(fit) == pytest.approx(float((weight_N * ours).sum()))


FLAT = ("now", "old", "values", "advantages", "returns", "new")
