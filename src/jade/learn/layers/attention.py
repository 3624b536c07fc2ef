"""Attention for training: causal, inside the bounds of each call of a packed row, by kernels that we choose.

Nothing is padded, so no token ever sees nothing. The cuDNN kernel, which gave non-finite
gradients at some padded lengths, is never used: on a GPU one flash kernel works on all calls at once, elsewhere plain
attention works call by call.

Shapes: T = tokens of the row, C = its calls, S = tokens of its calls, each counted whole, A = attention heads,
K = key-value heads, D = head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from jade.errors import ConfigError
from jade.learn.batches import Batch, send

NAME = "jade_packed"
MASKED = "backbone.model: this model masks its attention in a way that cannot be trained here"


@dataclass(frozen=True, slots=True)
class Packing:
    """Where the calls of a row end, as queries and, with what they share, as keys, in the forms the kernels want."""

    bounds: tuple[int, ...]
    whole_bounds: tuple[int, ...]
    bound_C: Tensor
    whole_bound_C: Tensor
    place_S: Tensor | None
    longest_added: int
    """Tokens of the longest call, as queries."""
    longest: int
    """The same as keys."""

    @classmethod
    def of(cls, batch: Batch) -> Packing:
        both = batch.bounds, batch.whole_bounds
        bound_C, whole_bound_C = send(torch.tensor(both, dtype=torch.int32), batch.id_T.device)
        longest = (max(end - start for start, end in pairwise(ends)) for ends in both)
        return cls(*both, bound_C, whole_bound_C, batch.place_S, *longest)

    def keys_of(self, row_TKD: Tensor) -> Tensor:
        """Keys or values of each whole call, one behind the other."""
        return row_TKD if self.place_S is None else _Gather.apply(row_TKD, self.place_S)  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    """Rows by their places; gradients of a row that many calls share are added up in float32."""

    @staticmethod
    def forward(ctx: Any, row_TKD: Tensor, place_S: Tensor) -> Tensor:
        ctx.save_for_backward(place_S)
        ctx.num = len(row_TKD)
        return row_TKD.index_select(0, place_S)

    @staticmethod
    def backward(ctx: Any, grad_SKD: Tensor) -> tuple[Tensor, None]:
        (place_S,) = ctx.saved_tensors
        total_TKD = grad_SKD.new_zeros((ctx.num, *grad_SKD.shape[1:]), dtype=torch.float32)
        return total_TKD.index_add_(0, place_S, grad_SKD.float()).to(grad_SKD.dtype), None


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
        raise ConfigError(MASKED)
    if sliding_window is not None and sliding_window < jade_packing.longest:
        raise ConfigError(f"backbone.model: calls longer than the model's sliding window of {sliding_window} tokens")
    query_TAD, key_TKD, value_TKD = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    return attend(query_TAD, key_TKD, value_TKD, jade_packing, scaling)[None], None


def attend(query_TAD: Tensor, key_TKD: Tensor, value_TKD: Tensor, packing: Packing, scale: float | None) -> Tensor:
    """Attention inside the calls of a row; the result has the queries' shape."""
    kernel = _all_at_once if _has_flash(value_TKD) else _one_by_one
    key_SKD, value_SKD = (packing.keys_of(tensor) for tensor in (key_TKD, value_TKD))
    return kernel(query_TAD, key_SKD, value_SKD, packing, scale)


def _has_flash(tensor: Tensor) -> bool:
    return tensor.is_cuda and tensor.dtype == torch.bfloat16


def _all_at_once(
    query_TAD: Tensor, key_SKD: Tensor, value_SKD: Tensor, packing: Packing, scale: float | None
) -> Tensor:
    """One flash kernel for the whole row: the last query of a call sees all of its keys, the one before it all but the
    last, and so on. Rotated queries and keys come in float32 under autocast."""
    # Behind the lengths: no dropout, causal, no mask given back.
    out_TAD: Tensor = torch.ops.aten._flash_attention_forward(
        query_TAD.to(value_SKD.dtype), key_SKD.to(value_SKD.dtype), value_SKD,
        packing.bound_C, packing.whole_bound_C, packing.longest_added, packing.longest,
        0.0, True, False, scale=scale,
    )[0]  # fmt: skip
    return out_TAD


def _one_by_one(query_TAD: Tensor, key_SKD: Tensor, value_SKD: Tensor, packing: Packing, scale: float | None) -> Tensor:
    """Split, not sliced: each slice's gradient would be a whole row of zeros, and the cost square in the calls."""
    grouped = query_TAD.shape[1] != key_SKD.shape[1]
    added, whole = ([end - start for start, end in pairwise(ends)] for ends in (packing.bounds, packing.whole_bounds))
    calls = zip(query_TAD.split(added), key_SKD.split(whole), value_SKD.split(whole), strict=True)
    out = []
    for call in calls:
        query, key, value = (tensor.transpose(0, 1)[None] for tensor in call)
        mask = _seen(query.shape[2], key.shape[2], query.device)
        attended = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=grouped
        )
        out.append(attended[0].transpose(0, 1))
    return torch.cat(out)


def _seen(num_queries: int, num_keys: int, device: torch.device) -> Tensor | None:
    """Which keys the last queries of a call see; none where its queries are all there and plain causality says it."""
    if num_queries == num_keys:
        return None
    return torch.ones(num_queries, num_keys, dtype=torch.bool, device=device).tril(num_keys - num_queries)


def register() -> str:
    """Make the kernel known to transformers, under the name that is returned."""
    AttentionInterface.register(NAME, packed_attention)
    torch.backends.cuda.enable_cudnn_sdp(False)
    return NAME
