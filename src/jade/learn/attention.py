"""Attention for training: causal, without any mask, by kernels that we choose.

The cuDNN kernel gave non-finite gradients at some padded lengths, so it is switched off for the process; flash,
memory-efficient and plain attention remain. Without a mask there are no rows that see nothing.

Shapes: B = calls, A = attention heads, K = key-value heads, L = length, D = head width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from jade.errors import ConfigError

NAME = "jade_causal"


def causal_attention(
    module: nn.Module,
    query_BALD: Tensor,
    key_BKLD: Tensor,
    value_BKLD: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in every layer."""
    if attention_mask is not None:
        raise ConfigError("backbone.model: this model masks its attention in a way that cannot be trained here")
    if sliding_window is not None and sliding_window < query_BALD.shape[2]:
        raise ConfigError(f"backbone.model: calls longer than the model's sliding window of {sliding_window} tokens")
    attended_BALD = nn.functional.scaled_dot_product_attention(
        query_BALD,
        key_BKLD,
        value_BKLD,
        dropout_p=dropout,
        scale=scaling,
        is_causal=True,
        enable_gqa=query_BALD.shape[1] != key_BKLD.shape[1],
    )
    return attended_BALD.transpose(1, 2).contiguous(), None


def register() -> str:
    """Make the kernel known to transformers, under the name that is returned."""
    AttentionInterface.register(NAME, causal_attention)
    torch.backends.cuda.enable_cudnn_sdp(False)
    return NAME
