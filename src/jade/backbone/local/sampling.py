"""Drawing tokens so that a request's draw depends on its seed and position alone, never on what else is in the batch.

The uniform number for a draw is a hash of (seed, position), and the token is found by inverting the cumulative
distribution: no generator has a state that neighbours could advance.

What the log-probs mean, exactly:
- temperature T > 0: log softmax(logits / T) of the drawn token, over the whole vocabulary. Nucleus sampling (top_p < 1)
  narrows what can be drawn but not this number.
- temperature 0 (greedy): log softmax(logits) of the largest logit's token.
- with a mask (constrained decoding): the same two, after the logits of forbidden tokens were set to minus infinity.

B = rows, V = vocabulary, N = blocks of tokens, W = tokens in a block.
"""

from __future__ import annotations

from enum import Enum

import torch
from torch import Tensor

GOLDEN = -7046029254386353131
"""2**64 divided by the golden ratio, as a signed number: the step of splitmix64."""
MIX_1 = -4658895280553007687
MIX_2 = -7723592293110705685
BLOCK = 128


class Draw(Enum):
    """What a batch needs: the cheapest of these that serves all its rows."""

    GREEDY = "greedy"
    """The likeliest token of every row."""
    FULL = "full"
    """Every row from the whole vocabulary."""
    MIXED = "mixed"
    """Some rows the one, some the other."""
    NUCLEUS = "nucleus"


def draw_tokens(
    logits_BV: Tensor, temperature_B: Tensor, top_p_B: Tensor, uniform_B: Tensor, how: Draw
) -> tuple[Tensor, Tensor]:
    """One token a row and its log-prob (see the module's docstring)."""
    if how is Draw.GREEDY:
        top_B, token_B = logits_BV.float().max(dim=-1)
        return token_B, top_B - logits_BV.float().logsumexp(dim=-1)
    greedy_B = temperature_B == 0
    scale_B = temperature_B + greedy_B  # a greedy row is scaled by one
    prob_BV = (logits_BV.float() / scale_B[:, None]).softmax(dim=-1)
    kept_BV = keep_nucleus(prob_BV, top_p_B) if how is Draw.NUCLEUS else prob_BV
    token_B = invert_cdf(kept_BV, uniform_B)
    if how is not Draw.FULL:
        token_B = torch.where(greedy_B, logits_BV.argmax(dim=-1), token_B)
    return token_B, _at(prob_BV, token_B).log()


def _at(values_BV: Tensor, token_B: Tensor) -> Tensor:
    return values_BV.gather(1, token_B[:, None])[:, 0]


def invert_cdf(weight_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """The token under whose share of the total weight the uniform number falls; never one without weight.

    Found in two steps, first the block of tokens and then the token in it, so that no running sum over the whole
    vocabulary is written. In float64, where sums stay far finer than the 32 bits of the uniform.
    """
    size = weight_BV.shape[1]
    if size % BLOCK:
        weight_BV = torch.nn.functional.pad(weight_BV, (0, -size % BLOCK))
    block_BNW = weight_BV.view(weight_BV.shape[0], -1, BLOCK)
    cdf_BN = block_BNW.sum(dim=-1, dtype=torch.float64).cumsum(dim=-1)
    target_B1 = uniform_B[:, None] * cdf_BN[:, -1:]
    number_B1 = torch.searchsorted(cdf_BN, target_B1, right=True).clamp(max=cdf_BN.shape[1] - 1)
    before_B1 = torch.nn.functional.pad(cdf_BN, (1, 0)).gather(1, number_B1)
    inside_BW = block_BNW.gather(1, number_B1[:, :, None].expand(-1, -1, BLOCK))[:, 0]
    found_B1 = torch.searchsorted(inside_BW.cumsum(dim=-1, dtype=torch.float64), target_B1 - before_B1, right=True)
    # Rounding may carry the target past the block's own sum: then it is the last token with any weight.
    last_B1 = ((inside_BW > 0) * torch.arange(BLOCK, device=inside_BW.device)).amax(dim=1, keepdim=True)
    return (number_B1 * BLOCK + torch.minimum(found_B1, last_B1))[:, 0]


def keep_nucleus(prob_BV: Tensor, top_p_B: Tensor) -> Tensor:
    """Zero all but the smallest set of likeliest tokens that together reach top_p (never empty)."""
    sorted_BV, order_BV = prob_BV.sort(dim=-1, descending=True, stable=True)
    # What stands before a token, without itself: so the first is always kept.
    before_BV = sorted_BV.cumsum(dim=-1) - sorted_BV
    kept_BV = sorted_BV * (before_BV < top_p_B[:, None])
    return torch.zeros_like(prob_BV).scatter_(1, order_BV, kept_BV)


def uniforms(seed_B: Tensor, position_B: Tensor) -> Tensor:
    """A number in (0, 1) for each (seed, position): two rounds of splitmix64, 32 bits of it, as float64."""
    hashed_B = _mix(_mix(seed_B + GOLDEN) + GOLDEN * (position_B + 1))
    return (_shift_right(hashed_B, 32).double() + 0.5) / 2.0**32


def seed_word(seed: int) -> int:
    """Any Python integer as the signed 64-bit word that tensors hold."""
    return (seed + 2**63) % 2**64 - 2**63


def _mix(word_B: Tensor) -> Tensor:
    word_B = (word_B ^ _shift_right(word_B, 30)) * MIX_1
    word_B = (word_B ^ _shift_right(word_B, 27)) * MIX_2
    return word_B ^ _shift_right(word_B, 31)


def _shift_right(word_B: Tensor, bits: int) -> Tensor:
    """A logical shift: torch's own repeats the sign."""
    return (word_B >> bits) & ((1 << (64 - bits)) - 1)
