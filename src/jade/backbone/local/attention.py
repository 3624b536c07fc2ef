"""Attention for transformers models that reads and writes slots instead of a cache object.

A model whose attention implementation is `ATTENTION` is called with all tokens of all requests in one row (no padding)
and a layout that says which token belongs to which slot and position. Called without a layout it is plain SDPA.

N = tokens in the row, B = requests, C = pieces of them, S = slots, P = positions, H = query heads, K = key-value heads,
G = H / K, D = head size.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from jade.backbone.local.slots import sent
from jade.errors import BackboneFailed

ATTENTION = "jade_slots"
PIECE = 128
"""A request is handed to a prefill kernel in pieces of so many tokens. A kernel starts as many blocks for each thing it
is given as the longest of them may need: of whole requests most of these would have nothing to do, of pieces hardly
any. (It must not be 1, for which flash attention takes another path.)"""


class Layout(Protocol):
    """Where the tokens of this call stand."""

    kv: Tensor
    """[layer, key or value, S, P, K, D]: the slots."""
    slot_N: Tensor
    position_N: Tensor

    def attend(self, layer: int, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float | None) -> Tensor:
        """Store the new keys and values, and attend to all that each token may see."""
        ...

    def look(self, layer: int, q_NHD: Tensor, scale: float | None) -> Tensor:
        """Attend, where the new keys and values have been stored already."""
        ...


@dataclass(frozen=True, slots=True)
class Span:
    """One request in a prefill: its tokens' place in the row, and how many positions stood in its slot before."""

    slot: int
    start: int
    stop: int
    num_before: int

    @property
    def num_seen(self) -> int:
        return self.num_before + self.stop - self.start


class PrefillLayout:
    """Several prompts, or what follows their cached prefixes, one after the other; attention goes prompt by prompt."""

    def __init__(self, kv: Tensor, spans: Sequence[Span]) -> None:
        self.kv, self._spans = kv, spans
        lengths = torch.tensor([span.stop - span.start for span in spans])
        shift = torch.tensor([span.num_before - span.start for span in spans]).repeat_interleave(lengths)
        self.position_N = sent(torch.arange(spans[-1].stop) + shift, kv.device)
        self.slot_N = sent(torch.tensor([span.slot for span in spans]).repeat_interleave(lengths), kv.device)
        self._biases = [_causal_bias(span, kv) for span in spans]

    def attend(self, layer: int, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float | None) -> Tensor:
        _store(self, layer, k_NKD, v_NKD)
        return self.look(layer, q_NHD, scale)

    def look(self, layer: int, q_NHD: Tensor, scale: float | None) -> Tensor:
        keys, values = self.kv[layer]
        out_NHD = torch.empty_like(q_NHD)
        for span, bias in zip(self._spans, self._biases, strict=True):
            q = q_NHD[None, span.start : span.stop].transpose(1, 2)
            k = keys[None, span.slot, : span.num_seen].transpose(1, 2)
            v = values[None, span.slot, : span.num_seen].transpose(1, 2)
            out = sdpa(q, k, v, attn_mask=bias, scale=scale, enable_gqa=True)
            out_NHD[span.start : span.stop] = out[0].transpose(0, 1)
        return out_NHD


class PackedLayout:
    """The same on a GPU, in 16 bits: all requests in one kernel, which reads keys and values where they stand. Those of
    a piece begin where its slot does and are as many as its last token sees; the causal mask is aligned at the end, and
    the keys of a whole prompt are stored before any of them is read. Fused layers have a kernel of their own for it;
    transformers' run where there may be no Triton, and take flash attention."""

    def __init__(self, kv: Tensor, row_3N: Tensor, bounds_3C: Tensor) -> None:
        self.kv = kv
        _, self.slot_N, self.position_N = row_3N
        self._bounds_3C = bounds_3C

    def attend(self, layer: int, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float | None) -> Tensor:
        _store(self, layer, k_NKD, v_NKD)
        ends_q, starts_k, seen = self._bounds_3C
        keys, values = self.kv[layer].flatten(1, 2)
        # No dropout, causal, no mask given back. Keys of a piece begin where its bound says; `seqused_k` says how many.
        out_NHD: Tensor = torch.ops.aten._flash_attention_forward(
            q_NHD, keys, values, ends_q, starts_k, PIECE, self.kv.shape[3],
            0.0, True, False, scale=scale, seqused_k=seen[:-1],
        )[0]  # fmt: skip
        return out_NHD

    def look(self, layer: int, q_NHD: Tensor, scale: float | None) -> Tensor:
        from jade.backbone.local.attention_kernels import attend_prompts

        assert scale is not None
        return attend_prompts(q_NHD, self.kv[layer], self._bounds_3C, PIECE, scale)


class DecodeLayout:
    """One new token for each of the first B slots, of which at most `num_positions` are in use."""

    def __init__(self, kv: Tensor, position_B: Tensor, num_positions: int, done_S: Tensor | None = None) -> None:
        self.kv, self.position_N = kv, position_B
        self.slot_N = torch.arange(position_B.shape[0], device=kv.device)
        self._num_positions, self.done_S = num_positions, done_S

    @functools.cached_property
    def _bias_B11P(self) -> Tensor:
        seen_BP = torch.arange(self._num_positions, device=self.kv.device) <= self.position_N[:, None]
        bias_BP = torch.zeros(seen_BP.shape, dtype=self.kv.dtype, device=self.kv.device)
        return bias_BP.masked_fill_(~seen_BP, -torch.inf)[:, None, None]

    def attend(self, layer: int, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float | None) -> Tensor:
        _store(self, layer, k_NKD, v_NKD)
        return self.look(layer, q_NHD, scale)

    @functools.cached_property
    def _sides(self) -> Sequence[Tensor]:
        """Keys and values [B, K, P, D] of one layer after the other."""
        used = self.kv[:, :, : self.position_N.shape[0], : self._num_positions]
        return used.transpose(3, 4).flatten(0, 1).unbind(0)

    def look(self, layer: int, q_NHD: Tensor, scale: float | None) -> Tensor:
        """Every row at as many positions as the longest has, under a mask."""
        k_BKPD, v_BKPD = self._sides[2 * layer : 2 * layer + 2]
        # The query heads of one key head stand as its rows: grouped attention without copying keys and values.
        q_BKGD = q_NHD.unflatten(1, (k_BKPD.shape[1], -1))
        return _masked(q_BKGD, k_BKPD, v_BKPD, self._bias_B11P, scale).reshape(q_NHD.shape)


def slot_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    jade_layout: Layout | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """What transformers calls in every layer; shapes are [1, heads, N, D] in and [1, N, heads, D] out."""
    if jade_layout is None:
        out, weights = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
        return out, weights
    unsupported = [name for name in ("sliding_window", "softcap", "position_bias") if options.get(name) is not None]
    if unsupported:
        raise BackboneFailed(f"this model's attention uses {unsupported[0]}, which the local backbone cannot serve")
    q_NHD, k_NKD, v_NKD = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    return jade_layout.attend(module.layer_idx, q_NHD, k_NKD, v_NKD, scaling)[None], None


def _causal_bias(span: Span, kv: Tensor) -> Tensor:
    """What is added to the scores of a request: nothing, or minus infinity where a token would see a later one. Made
    once for all layers; from a mask of truth values each of them would make it anew."""
    hidden = torch.full((span.stop - span.start, span.num_seen), -torch.inf, dtype=kv.dtype, device=kv.device)
    return hidden.triu(span.num_before + 1)


def _masked(q_BKGD: Tensor, k_BKPD: Tensor, v_BKPD: Tensor, bias_B11P: Tensor, scale: float | None) -> Tensor:
    if not q_BKGD.is_cuda:
        return sdpa(q_BKGD, k_BKPD, v_BKPD, attn_mask=bias_B11P, scale=scale)
    # Named, not chosen by torch: other kernels take no mask, or plan anew for every shape.
    bias = bias_B11P.expand(*q_BKGD.shape[:3], k_BKPD.shape[2])
    out: Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(
        q_BKGD, k_BKPD, v_BKPD, bias, False, scale=scale
    )[0]
    return out


def _store(layout: Layout, layer: int, k_NKD: Tensor, v_NKD: Tensor) -> None:
    keys, values = layout.kv[layer]
    keys[layout.slot_N, layout.position_N] = k_NKD
    values[layout.slot_N, layout.position_N] = v_NKD


AttentionInterface.register(ATTENTION, slot_attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
