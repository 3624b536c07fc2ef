"""Log-probability and entropy of chosen tokens, a slice of tokens at a time.

The vocabulary projection is computed at action tokens only and never kept. It runs in float32 whatever the trunk ran
in, since rounded logits are the largest part of a log-probability's error; the gradient at the logits is as wide as the
states that it goes to.

A token's gradient is that of its log-probability times one number, which the loss says later. Where only the states
learn and only from log-probabilities, their gradient is made while the logits are there, and the backward pass has
nothing left but to multiply. Otherwise it computes the logits again.

On a GPU a slice of logits is half a gigabyte, and going through it is what costs: there kernels of our own do so once
each way (`kernels/likelihood.py`). The formulas here are what they are compared with, and what runs elsewhere.

Shapes: N = action tokens, H = hidden width, V = vocabulary.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor

from jade.learn.layers.merged import product

LOGITS_AT_ONCE = 1 << 27
"""Numbers in one slice of logits: half a gigabyte in float32."""
DEVICES = ("cuda",)
"""Where there are kernels."""


class Passes(Protocol):
    """How a slice of logits is gone through."""

    def summarise(
        self, logits_NV: Tensor, target_N: Tensor, temperature: float | Tensor, out: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        """Write the target's log-probability, the entropy, and the logarithm of the sum of all exponentials.

        The logits stay as they are."""

    def gradient(
        self,
        logits_NV: Tensor,
        target_N: Tensor,
        temperature: float | Tensor,
        entropy_N: Tensor,
        total_N: Tensor,
        of_logp_N: Tensor | None,
        of_entropy_N: Tensor | None,
        dtype: torch.dtype,
    ) -> Tensor:
        """The gradient at the logits, which may be overwritten."""


def token_likelihood(
    hidden_NH: Tensor,
    vocabulary_VH: Tensor,
    target_N: Tensor,
    *,
    temperature: float | Tensor = 1.0,
    entropy_gradient: bool = False,
    fuse: bool = True,
) -> tuple[Tensor, Tensor]:
    """log pi(target) and the entropy of pi at each token. A temperature may be one for all, or a column N1."""
    if isinstance(temperature, Tensor):  # one for all as a column too: slices of tokens take their rows of it
        temperature = temperature.detach().expand(len(hidden_NH), 1)
    passes: Passes = FORMULAS
    if fuse and has_kernels(hidden_NH.device):
        passes = load_kernels()
    else:  # a division of all logits is a way through them
        hidden_NH, temperature = hidden_NH.float() / temperature, 1.0
    ahead = torch.is_grad_enabled() and hidden_NH.requires_grad
    ahead = ahead and not vocabulary_VH.requires_grad and not entropy_gradient
    with torch.autocast(hidden_NH.device.type, enabled=False):
        logp_N, entropy_N = _Likelihood.apply(  # type: ignore[no-untyped-call]
            hidden_NH, vocabulary_VH.float(), target_N, temperature, passes, ahead
        )
    return logp_N, entropy_N if entropy_gradient else entropy_N.detach()


@cache
def has_kernels(device: torch.device) -> bool:
    return device.type in DEVICES and importlib.util.find_spec("triton") is not None


def load_kernels() -> Passes:
    """Not before they are needed: Triton is not everywhere."""
    from jade.learn.layers.kernels import likelihood

    return likelihood


class _Likelihood(torch.autograd.Function):
    """Both in one function, so that one buffer of logits serves each slice, forward and backward.

    Kernels divide logits by the temperature, and not states: those are as narrow as tensor cores take them, and their
    quotients would be rounded to that.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        vocabulary_VH: Tensor,
        target_N: Tensor,
        temperature: float | Tensor,
        passes: Passes,
        ahead: bool,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.temperature, ctx.passes, ctx.ahead = temperature, passes, ahead
        logp_N, entropy_N, total_N = (torch.empty_like(target_N, dtype=torch.float32) for _ in range(3))
        unit_NH = torch.empty_like(hidden_NH, dtype=torch.float32) if ahead else None
        # Once for all slices, in the width of the gradient that it meets.
        narrow_VH = vocabulary_VH.to(hidden_NH.dtype) if ahead else None
        for rows in _slices(hidden_NH, vocabulary_VH):
            logits_NV = hidden_NH[rows].float() @ vocabulary_VH.T
            target, heat = target_N[rows], _of_rows(temperature, rows)
            said = (logp_N[rows], entropy_N[rows], total_N[rows])
            passes.summarise(logits_NV, target, heat, said)
            if unit_NH is not None and narrow_VH is not None:
                one_N = torch.ones_like(said[0])
                grad_NV = passes.gradient(logits_NV, target, heat, *said[1:], one_N, None, hidden_NH.dtype)
                unit_NH[rows] = product(grad_NV, narrow_VH)
        if unit_NH is not None:
            ctx.dtype = hidden_NH.dtype
            ctx.save_for_backward(unit_NH)
        else:
            ctx.save_for_backward(hidden_NH, vocabulary_VH, target_N, entropy_N, total_N)
        return logp_N, entropy_N

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        if ctx.ahead:
            (unit_NH,) = ctx.saved_tensors
            assert gradients[0] is not None, "an entropy that brings a gradient was not announced"
            return (gradients[0][:, None] * unit_NH).to(ctx.dtype), *(None,) * 5
        hidden_NH, vocabulary_VH, target_N, entropy_N, total_N = ctx.saved_tensors
        hidden_grad_NH = torch.empty_like(hidden_NH) if ctx.needs_input_grad[0] else None
        narrow_VH = vocabulary_VH.to(hidden_NH.dtype) if ctx.needs_input_grad[0] else None
        vocabulary_grad_VH: Tensor | None = None
        for rows in _slices(hidden_NH, vocabulary_VH):
            of_logp_N, of_entropy_N = (None if every is None else every[rows] for every in gradients)
            grad_NV = ctx.passes.gradient(
                hidden_NH[rows].float() @ vocabulary_VH.T,
                target_N[rows],
                _of_rows(ctx.temperature, rows),
                entropy_N[rows],
                total_N[rows],
                of_logp_N,
                of_entropy_N,
                hidden_NH.dtype,
            )
            if hidden_grad_NH is not None and narrow_VH is not None:
                hidden_grad_NH[rows] = product(grad_NV, narrow_VH)
            if ctx.needs_input_grad[1]:
                part_VH = product(grad_NV.T, hidden_NH[rows]).float()
                vocabulary_grad_VH = part_VH if vocabulary_grad_VH is None else vocabulary_grad_VH.add_(part_VH)
        return hidden_grad_NH, vocabulary_grad_VH, *(None,) * 4


class Formulas:
    """Each step of it in torch, and so a way through all logits each."""

    def summarise(
        self, logits_NV: Tensor, target_N: Tensor, temperature: float | Tensor, out: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        logp_N, entropy_N, total_N = out
        heated_NV = logits_NV if _is_one(temperature) else logits_NV / temperature
        total_N.copy_(heated_NV.logsumexp(-1))
        logp_N.copy_(heated_NV.gather(1, target_N[:, None])[:, 0] - total_N)
        entropy_N.copy_(total_N - torch.linalg.vecdot(heated_NV.softmax(-1), heated_NV))

    def gradient(
        self,
        logits_NV: Tensor,
        target_N: Tensor,
        temperature: float | Tensor,
        entropy_N: Tensor,
        total_N: Tensor,
        of_logp_N: Tensor | None,
        of_entropy_N: Tensor | None,
        dtype: torch.dtype,
    ) -> Tensor:
        """-p (g + h (log p + H)) / temperature, and the target's own."""
        logp_NV = logits_NV if _is_one(temperature) else logits_NV.div_(temperature)
        logp_NV.sub_(total_N[:, None])
        weight_NV: Tensor | None = None
        if of_entropy_N is not None:
            weight_NV = of_entropy_N[:, None] * (logp_NV + entropy_N[:, None])
        if of_logp_N is not None:
            weight_NV = of_logp_N[:, None] if weight_NV is None else weight_NV.add_(of_logp_N[:, None])
        assert weight_NV is not None, "a backward pass has a gradient to bring"
        grad_NV = logp_NV.exp_().mul_(-weight_NV)
        if of_logp_N is not None:
            grad_NV.scatter_add_(1, target_N[:, None], of_logp_N[:, None])
        return (grad_NV if _is_one(temperature) else grad_NV.div_(temperature)).to(dtype)


FORMULAS = Formulas()


def _is_one(temperature: float | Tensor) -> bool:
    return not isinstance(temperature, Tensor) and temperature == 1.0


def _of_rows(temperature: float | Tensor, rows: slice) -> float | Tensor:
    return temperature[rows] if isinstance(temperature, Tensor) else temperature


def _slices(hidden_NH: Tensor, vocabulary_VH: Tensor) -> Iterator[slice]:
    size = max(1, LOGITS_AT_ONCE // len(vocabulary_VH))
    return (slice(start, start + size) for start in range(0, len(hidden_NH), size))
