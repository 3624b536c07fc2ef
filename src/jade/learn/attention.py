"""Attention for training: causal, inside the bounds of each call of a packed row, by kernels that we choose.

Nothing is padded and nothing is masked, so no token ever sees nothing. The cuDNN kernel, which gave non-finite
gradients at some padded lengths, is never used: on a GPU one flash kernel works on all calls at once, elsewhere plain
attention works call by call.

Shapes: T = tokens of the row, A = attention heads, K = key-value heads, D = head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from jade.errors import ConfigError
from jade.learn.batches import send

NAME = "jade_packed"


@dataclass(frozen=True, slots=True)
class Packing:
    """Where the calls of a row end, in the two forms that the kernels want."""

    bounds: tuple[int, ...]
    bound_C: Tensor
    longest: int

    @classmethod
    def of(cls, bounds: tuple[int, ...], device: torch.device) -> Packing:
        bound_C = send(torch.tensor(bounds, dtype=torch.int32), device)
        return cls(bounds, bound_C, max(end - start for start, end in pairwise(bounds)))


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    jade_packing: Packing | None = None,
    sliding_window: int | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in every layer; shapes are [1, heads, T, D] in and [1, T, heads, D] out."""
    if attention_mask is not None or jade_packing is None:
        raise ConfigError("backbone.model: this model masks its attention in a way that cannot be trained here")
    if sliding_window is not None and sliding_window < jade_packing.longest:
        raise ConfigError(f"backbone.model: calls longer than the model's sliding window of {sliding_window} tokens")
    query_TAD, key_TKD, value_TKD = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    attend = _all_at_once if value.is_cuda and value.dtype == torch.bfloat16 else _one_by_one
    return attend(query_TAD, key_TKD, value_TKD, jade_packing, scaling)[None], None


def _all_at_once(
    query_TAD: Tensor, key_TKD: Tensor, value_TKD: Tensor, packing: Packing, scale: float | None
) -> Tensor:
    """One flash kernel for the whole row. Rotated queries and keys come in float32 under autocast."""
    out_TAD: Tensor = torch.ops.aten._flash_attention_forward(
        query_TAD.to(value_TKD.dtype),
        key_TKD.to(value_TKD.dtype),
        value_TKD,
        packing.bound_C, packing.bound_C, packing.longest, packing.longest,
        0.0, True, False, scale=scale,
    )[0]  # fmt: skip
    return out_TAD


def _one_by_one(query_TAD: Tensor, key_TKD: Tensor, value_TKD: Tensor, packing: Packing, scale: float | None) -> Tensor:
    """Split, not sliced: each slice's gradient would be a whole row of zeros, and the cost square in the calls."""
    grouped = query_TAD.shape[1] != key_TKD.shape[1]
    lengths = [end - start for start, end in pairwise(packing.bounds)]
    calls = zip(*(tensor.split(lengths) for tensor in (query_TAD, key_TKD, value_TKD)), strict=True)
    out = []
    for call in calls:
        query, key, value = (tensor.transpose(0, 1)[None] for tensor in call)
        attended = nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scale, enable_gqa=grouped
        )
        out.append(attended[0].transpose(0, 1))
    return torch.cat(out)


def register() -> str:
    """Make the kernel known to transformers, under the name that is returned.

    A compiler stops in front of it and goes on behind: it is one kernel already, and its bounds differ every time.
    """
    AttentionInterface.register(NAME, torch.compiler.disable(packed_attention))
    torch.backends.cuda.enable_cudnn_sdp(False)
    return NAME
