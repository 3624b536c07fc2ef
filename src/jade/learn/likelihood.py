"""Log-probability and entropy of chosen tokens, a slice of tokens at a time.

The vocabulary projection is computed at action tokens only and never kept: the backward pass computes it again.
It runs in float32 whatever the trunk ran in, since rounded logits are the largest part of a log-probability's error.

Shapes: N = action tokens, H = hidden width, V = vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

LOGITS_AT_ONCE = 1 << 27
"""Numbers in one slice of logits: half a gigabyte in float32."""


def token_likelihood(
    hidden_NH: Tensor,
    vocabulary_VH: Tensor,
    target_N: Tensor,
    *,
    temperature: float = 1.0,
    entropy_gradient: bool = False,
) -> tuple[Tensor, Tensor]:
    """log pi(target) and the entropy of pi at each token."""
    size = max(1, LOGITS_AT_ONCE // vocabulary_VH.shape[0])
    pieces = [
        checkpoint(_slice, hidden, vocabulary_VH, target, temperature, entropy_gradient, use_reentrant=False)
        for hidden, target in zip(torch.split(hidden_NH, size), torch.split(target_N, size), strict=True)
    ]
    logp, entropy = zip(*pieces, strict=True)
    return torch.cat(logp), torch.cat(entropy)


def _slice(
    hidden_NH: Tensor, vocabulary_VH: Tensor, target_N: Tensor, temperature: float, entropy_gradient: bool
) -> tuple[Tensor, Tensor]:
    with torch.autocast(hidden_NH.device.type, enabled=False):
        logits_NV = (hidden_NH.float() @ vocabulary_VH.float().T) / temperature
    logsumexp_N = logits_NV.logsumexp(-1)
    logp_N = logits_NV.gather(1, target_N[:, None])[:, 0] - logsumexp_N
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        probability_NV = (logits_NV - logsumexp_N[:, None]).exp()
        entropy_N = logsumexp_N - (probability_NV * logits_NV).sum(-1)
    return logp_N, entropy_N
