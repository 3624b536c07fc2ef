# mypy: disable-error-code="misc, no-untyped-def, no-any-return, untyped-decorator"
"""Log-probability and entropy from a slice of logits, and the gradient at them: one way through it each.

What is computed is in float32. Logits are finite: products of finite numbers are.

Shapes: N = action tokens, V = vocabulary.
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor

BLOCK = 2048
"""Logits of a token that a program holds at once."""
NUM_WARPS = 8
# Of what stands once a token no address is looked at: a slice begins anywhere, and each alignment would be a kernel.
LOWEST = tl.constexpr(-1e30)
"""Below every logit. Not infinite: differences of it are still numbers, and nothing times them is nothing."""


def summarise(
    logits_NV: Tensor, target_N: Tensor, temperature: float | Tensor, out: tuple[Tensor, Tensor, Tensor]
) -> None:
    """Write the target's log-probability, the entropy, and the logarithm of the sum of all exponentials."""
    num, width = logits_NV.shape
    _summarise[(num,)](
        logits_NV, target_N, _as_given(temperature), *out,
        width, min(BLOCK, int(triton.next_power_of_2(width))), isinstance(temperature, Tensor), num_warps=NUM_WARPS,
    )  # fmt: skip


@triton.jit
def _heat_of(temperature, row, COLUMN: tl.constexpr):
    """What a token's logits are multiplied with."""
    if COLUMN:
        temperature = tl.load(temperature + row)
    return 1.0 / temperature


@triton.jit(do_not_specialize=["target", "temperature", "logp", "entropy", "total"])
def _summarise(
    logits, target, temperature, logp, entropy, total,
    V: tl.constexpr, BLOCK: tl.constexpr, COLUMN: tl.constexpr,
):  # fmt: skip
    """A program is a token. Each of its columns keeps the highest logit x that it has met, m, and of all that it has
    met the sums of exp(x - m) and of exp(x - m) (x - m): one exponential a logit, and no waiting for other columns."""
    row = tl.program_id(0).to(tl.int64)
    heat = _heat_of(temperature, row, COLUMN)
    column = tl.arange(0, BLOCK)
    highest = tl.full([BLOCK], LOWEST, tl.float32)
    weight = tl.zeros([BLOCK], tl.float32)
    along = tl.zeros([BLOCK], tl.float32)
    for first in range(0, V, BLOCK):
        inside = first + column < V
        value = tl.load(logits + row * V + first + column, mask=inside, other=0.0) * heat
        value = tl.where(inside, value, 2 * LOWEST)  # counts nothing, also where no logit was met
        above = value - highest
        rises = above > 0
        share = tl.exp(-tl.abs(above))
        along = tl.where(rises, share * (along - above * weight), along + share * above)
        weight = tl.where(rises, share * weight + 1.0, weight + share)
        highest = tl.maximum(highest, value)
    top = tl.max(highest, axis=0)
    below = highest - top
    share = tl.exp(below)
    along = tl.sum(share * (along + below * weight), axis=0)
    weight = tl.sum(share * weight, axis=0)
    log_sum = tl.log(weight)
    chosen = tl.load(logits + row * V + tl.load(target + row)) * heat
    tl.store(logp + row, chosen - top - log_sum)
    tl.store(entropy + row, log_sum - along / weight)
    tl.store(total + row, top + log_sum)


def gradient(
    logits_NV: Tensor,
    target_N: Tensor,
    temperature: float | Tensor,
    entropy_N: Tensor,
    total_N: Tensor,
    of_logp_N: Tensor | None,
    of_entropy_N: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """The gradient at the logits: in their place where it is as wide, and beside them where it is narrower."""
    assert of_logp_N is not None or of_entropy_N is not None, "a backward pass has a gradient to bring"
    num, width = logits_NV.shape
    grad_NV = logits_NV if dtype == logits_NV.dtype else torch.empty_like(logits_NV, dtype=dtype)
    # A sum's gradient is one number seen N times.
    above = [total_N if one is None else one.contiguous() for one in (of_logp_N, of_entropy_N)]
    block = min(BLOCK, int(triton.next_power_of_2(width)))
    _gradient[(num * triton.cdiv(width, block),)](
        logits_NV, grad_NV, target_N, _as_given(temperature), entropy_N, total_N, *above,
        width, block, isinstance(temperature, Tensor), of_logp_N is not None, of_entropy_N is not None,
        num_warps=NUM_WARPS,
    )  # fmt: skip
    return grad_NV


@triton.jit(do_not_specialize=["target", "temperature", "entropy", "total", "of_logp", "of_entropy"])
def _gradient(
    logits, grad, target, temperature, entropy, total, of_logp, of_entropy,
    V: tl.constexpr, BLOCK: tl.constexpr, COLUMN: tl.constexpr, OF_LOGP: tl.constexpr, OF_ENTROPY: tl.constexpr,
):  # fmt: skip
    """-p (g + h (log p + H)) / temperature, and the target's own. A program is a block of a token's logits."""
    num_blocks: tl.constexpr = (V + BLOCK - 1) // BLOCK
    row = (tl.program_id(0) // num_blocks).to(tl.int64)
    column = (tl.program_id(0) % num_blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = column < V
    heat = _heat_of(temperature, row, COLUMN)
    said = tl.load(logits + row * V + column, mask=inside, other=0.0) * heat - tl.load(total + row)
    pulled = tl.zeros([BLOCK], tl.float32)
    if OF_ENTROPY:
        pulled += tl.load(of_entropy + row) * (said + tl.load(entropy + row))
    if OF_LOGP:
        pulled += tl.load(of_logp + row)
    out = -tl.exp(said) * pulled
    if OF_LOGP:
        out += tl.where(column == tl.load(target + row), tl.load(of_logp + row), 0.0)
    tl.store(grad + row * V + column, out * heat, mask=inside)


def _as_given(temperature: float | Tensor) -> float | Tensor:
    """A column may be one number seen N times; whole numbers would be taken for constants, each with its kernel."""
    return temperature.float().contiguous() if isinstance(temperature, Tensor) else float(temperature)
