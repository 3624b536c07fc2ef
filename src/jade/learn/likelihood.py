"""Log-probability and entropy of chosen tokens, a slice of tokens at a time.

The vocabulary projection is computed at action tokens only and never kept: the backward pass computes it again.
It runs in float32 whatever the trunk ran in, since rounded logits are the largest part of a log-probability's error.

Shapes: N = action tokens, H = hidden width, V = vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

LOGITS_AT_ONCE = 1 << 27
"""Numbers in one slice of logits: half a gigabyte in float32."""


def token_likelihood(
    hidden_NH: Tensor,
    vocabulary_VH: Tensor,
    target_N: Tensor,
    *,
    temperature: float | Tensor = 1.0,
    entropy_gradient: bool = False,
) -> tuple[Tensor, Tensor]:
    """log pi(target) and the entropy of pi at each token. A temperature may be one for all, or a column N1."""
    with torch.autocast(hidden_NH.device.type, enabled=False):
        logp_N, entropy_N = _Likelihood.apply(  # type: ignore[no-untyped-call]
            hidden_NH.float() / temperature, vocabulary_VH.float(), target_N
        )
    return logp_N, entropy_N if entropy_gradient else entropy_N.detach()


class _Likelihood(torch.autograd.Function):
    """Both in one function, so that one buffer of logits serves each slice, forward and backward."""

    @staticmethod
    def forward(ctx: Any, hidden_NH: Tensor, vocabulary_VH: Tensor, target_N: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        logp_N, entropy_N, total_N = (torch.empty_like(target_N, dtype=hidden_NH.dtype) for _ in range(3))
        for rows in _slices(hidden_NH, vocabulary_VH):
            logits_NV = hidden_NH[rows] @ vocabulary_VH.T
            total_N[rows] = logits_NV.logsumexp(-1)
            logp_N[rows] = logits_NV.gather(1, target_N[rows, None])[:, 0] - total_N[rows]
            entropy_N[rows] = total_N[rows] - torch.linalg.vecdot(logits_NV.softmax(-1), logits_NV)
        ctx.save_for_backward(hidden_NH, vocabulary_VH, target_N, total_N, entropy_N)
        return logp_N, entropy_N

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor, Tensor | None, None]:
        hidden_NH, vocabulary_VH, target_N, total_N, entropy_N = ctx.saved_tensors
        hidden_grad_NH = torch.empty_like(hidden_NH)
        vocabulary_grad_VH = torch.zeros_like(vocabulary_VH) if ctx.needs_input_grad[1] else None
        for rows in _slices(hidden_NH, vocabulary_VH):
            said_N1 = (total_N[rows, None], entropy_N[rows, None])
            of_logp_N1, of_entropy_N1 = (None if every is None else every[rows, None] for every in gradients)
            logp_NV = (hidden_NH[rows] @ vocabulary_VH.T).sub_(said_N1[0])
            grad_NV = _of_logits(logp_NV, said_N1[1], of_logp_N1, of_entropy_N1)
            if of_logp_N1 is not None:
                grad_NV.scatter_add_(1, target_N[rows, None], of_logp_N1)
            hidden_grad_NH[rows] = grad_NV @ vocabulary_VH
            if vocabulary_grad_VH is not None:
                vocabulary_grad_VH.addmm_(grad_NV.T, hidden_NH[rows])
        return hidden_grad_NH, vocabulary_grad_VH, None


def _of_logits(logp_NV: Tensor, entropy_N1: Tensor, of_logp_N1: Tensor | None, of_entropy_N1: Tensor | None) -> Tensor:
    """The gradient at the logits, but for the target's own: -p (g + h (log p + H)). The log-probs are overwritten."""
    if of_entropy_N1 is None:
        assert of_logp_N1 is not None, "a backward pass has a gradient to bring"
        return logp_NV.exp_().mul_(-of_logp_N1)
    weight_NV = of_entropy_N1 * (logp_NV + entropy_N1)
    if of_logp_N1 is not None:
        weight_NV += of_logp_N1
    return logp_NV.exp_().mul_(weight_NV.neg_())


def _slices(hidden_NH: Tensor, vocabulary_VH: Tensor) -> Iterator[slice]:
    size = max(1, LOGITS_AT_ONCE // len(vocabulary_VH))
    return (slice(start, start + size) for start in range(0, len(hidden_NH), size))
