"""PPO in the order of the paper, as pure functions of tensors.

Everything is per action token; what a token counts in the loss is its weight, and the weights of one optimiser step
sum to 1, so that a step may be taken in pieces of any size.

Shapes: N = action tokens of a piece, R = roles, K = figures of each token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor

from jade.config import PPOConfig

SMALLEST_DEVIATION = 1e-6
"""Of returns, below which they differ by rounding alone: a return is a sum of an advantage and a value."""


@dataclass(frozen=True, slots=True)
class Old:
    """What is known of each token before the update: from sampling, from the critic, from the credit rule."""

    logp_N: Tensor
    value_N: Tensor
    advantage_N: Tensor
    return_N: Tensor
    reference_logp_N: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Now:
    """What the policy being trained says of the same tokens."""

    logp_N: Tensor
    entropy_N: Tensor
    value_N: Tensor | None = None


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """The terms of the objective and the diagnostics, token by token; only `total_N` carries a gradient."""

    total_N: Tensor
    policy_N: Tensor
    value_N: Tensor
    entropy_N: Tensor
    reference_kl_N: Tensor
    approx_kl_N: Tensor
    clipped_N: Tensor


def ppo_loss(now: Now, old: Old, cfg: PPOConfig, entropy_weight: float | Tensor | None = None) -> TokenLoss:
    """The objective of one piece: clipped policy gain, clipped value error, entropy, divergence from the reference.

    The entropy's weight is the config's unless tokens have weights of their own.
    """
    bonus = cfg.entropy_weight if entropy_weight is None else entropy_weight
    ratio_N = ratio(now.logp_N, old.logp_N)
    policy_N = policy_loss(ratio_N, old.advantage_N, cfg.clip)
    zero_N = torch.zeros_like(policy_N)
    value_N = zero_N if now.value_N is None else value_loss(now.value_N, old.value_N, old.return_N, cfg.value_clip)
    kl_N = zero_N if old.reference_logp_N is None else reference_kl(now.logp_N, old.reference_logp_N)
    total_N = policy_N + cfg.value_weight * value_N - bonus * now.entropy_N + cfg.kl_weight * kl_N
    return TokenLoss(
        total_N=total_N,
        policy_N=policy_N.detach(),
        value_N=value_N.detach(),
        entropy_N=now.entropy_N.detach(),
        reference_kl_N=kl_N.detach(),
        approx_kl_N=approx_kl(now.logp_N.detach(), old.logp_N),
        clipped_N=is_clipped(ratio_N.detach(), cfg.clip),
    )


def ratio(logp_N: Tensor, old_logp_N: Tensor) -> Tensor:
    """How much likelier the action has become: pi / pi_old."""
    return (logp_N - old_logp_N).exp()


def policy_loss(ratio_N: Tensor, advantage_N: Tensor, clip: float) -> Tensor:
    """Minus the clipped surrogate: min(r A, clip(r) A)."""
    clipped_N = ratio_N.clamp(1 - clip, 1 + clip)
    return -torch.minimum(ratio_N * advantage_N, clipped_N * advantage_N)


def value_loss(value_N: Tensor, old_value_N: Tensor, return_N: Tensor, clip: float) -> Tensor:
    """Half the squared error, the worse of the prediction and its clipped move from the old one."""
    clipped_N = old_value_N + (value_N - old_value_N).clamp(-clip, clip)
    return 0.5 * torch.maximum((value_N - return_N).square(), (clipped_N - return_N).square())


def reference_kl(logp_N: Tensor, reference_logp_N: Tensor) -> Tensor:
    """A low-variance estimate of KL(pi || reference) that is never negative (k3)."""
    log_ratio_N = reference_logp_N - logp_N
    return log_ratio_N.exp() - log_ratio_N - 1


def approx_kl(logp_N: Tensor, old_logp_N: Tensor) -> Tensor:
    """The same estimate of KL(pi_old || pi), from samples of pi_old."""
    log_ratio_N = logp_N - old_logp_N
    return log_ratio_N.exp() - log_ratio_N - 1


def is_clipped(ratio_N: Tensor, clip: float) -> Tensor:
    """1 where the ratio has left the trust region."""
    return ((ratio_N - 1).abs() > clip).to(ratio_N.dtype)


def explained_variance(value_N: Tensor, return_N: Tensor) -> float:
    """1 - Var(return - value) / Var(return): 1 is a perfect critic, 0 one that knows only the mean.

    Returns that are the same but for rounding leave nothing to explain: that is 0 too.
    """
    variance = return_N.var(unbiased=False)
    if variance <= SMALLEST_DEVIATION**2:
        return 0.0
    return float(1 - (return_N - value_N).var(unbiased=False) / variance)


def token_weights(
    lengths: Sequence[int],
    roles: Sequence[str],
    weigh: Literal["token", "call", "role"],
    own: Mapping[str, float] = MappingProxyType({}),
) -> list[float]:
    """What each token of each call counts, such that all tokens of all calls together count 1.

    `own` says what a role counts beside the others, where that is not 1.
    """
    of_role: dict[str, int] = {}
    for role, length in zip(roles, lengths, strict=True):
        of_role[role] = of_role.get(role, 0) + length
    counts = [own.get(role, 1.0) for role in roles]
    if weigh == "call":
        counts = [count / length for count, length in zip(counts, lengths, strict=True)]
    elif weigh == "role":
        counts = [count / of_role[role] for count, role in zip(counts, roles, strict=True)]
    total = sum(count * length for count, length in zip(counts, lengths, strict=True))
    return [count / total for count in counts] if total else counts


def sum_by_role(stat_KN: Tensor, role_N: Tensor, num_roles: int) -> Tensor:
    """Sums of per-token figures for each role, as KR: all of them in one launch."""
    num_stats = len(stat_KN)
    first_K1 = num_roles * torch.arange(num_stats, device=stat_KN.device)[:, None]
    sum_KR = torch.zeros(num_stats, num_roles, dtype=stat_KN.dtype, device=stat_KN.device)
    sum_KR.view(-1).index_add_(0, (first_K1 + role_N).view(-1), stat_KN.view(-1))
    return sum_KR
