"""A decoder of the Llama family, run layer by layer with fused kernels: what transformers' own layers compute, in a
quarter of the launches and a third of the memory traffic.

The weights stay the model's own. Those that are multiplied with the same input are laid side by side in memory, and the
model's parameters become views of that: whoever overwrites them in place overwrites what is used here.

N = tokens in the row, E = hidden width, H = query heads, D = head size, V = vocabulary; X, F: heads or outputs side by
side.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from jade.backbone.local.attention import DecodeLayout, Layout

FAMILIES = ("llama", "qwen2")
"""Model types whose layers are exactly: norm, attention with rotated halves, norm, gated SiLU."""


def is_known_kind(config: Any) -> bool:
    return bool(config.model_type in FAMILIES and config.hidden_act == "silu")


def can_fuse(model: Any) -> bool:
    return bool(
        model.device.type == "cuda"
        and model.dtype in (torch.bfloat16, torch.float16)
        and is_known_kind(model.config)
        and not turns_by_length(model)
        and importlib.util.find_spec("triton")
    )


def turns_by_length(model: Any) -> bool:
    """Whether the angles of a position depend on how long the longest request of a batch is."""
    kind = str(getattr(model.get_decoder().rotary_emb, "rope_type", "default"))
    return "dynamic" in kind or kind == "longrope"


@dataclass(frozen=True, slots=True)
class FusedLayer:
    """One layer's weights, and the biases that it has."""

    input_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    output: Tensor
    output_bias: Tensor | None
    feed_norm: Tensor
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None

    @classmethod
    def of(cls, layer: Any) -> FusedLayer:
        attention, feed = layer.self_attn, layer.mlp
        qkv = (attention.q_proj, attention.k_proj, attention.v_proj)
        gate_up = (feed.gate_proj, feed.up_proj)
        return cls(
            input_norm=layer.input_layernorm.weight,
            qkv=side_by_side([one.weight for one in qkv]),
            qkv_bias=side_by_side([one.bias for one in qkv]) if qkv[0].bias is not None else None,
            output=attention.o_proj.weight,
            output_bias=attention.o_proj.bias,
            feed_norm=layer.post_attention_layernorm.weight,
            gate_up=side_by_side([one.weight for one in gate_up]),
            gate_up_bias=side_by_side([one.bias for one in gate_up]) if gate_up[0].bias is not None else None,
            down=feed.down_proj.weight,
            down_bias=feed.down_proj.bias,
        )


class FusedDecoder:
    """The bare model (no adapter), ready to give logits."""

    def __init__(self, model: Any) -> None:
        from jade.backbone.local import attention_kernels, kernels

        self._kernels, self._seeing = kernels, attention_kernels
        self.draw_and_record = kernels.draw_and_record
        self._trunk = model.get_decoder()
        self._head = model.get_output_embeddings()
        self._layers = [FusedLayer.of(layer) for layer in self._trunk.layers]
        self._num_heads = int(model.config.num_attention_heads)
        self._eps = float(model.config.rms_norm_eps)
        self._cos_PD, self._sin_PD = angles_of(self._trunk, int(model.config.max_position_embeddings))

    def logits(self, ids_N: Tensor, layout: Layout, keep: Tensor | None) -> Tensor:
        """Of the tokens that are to be kept, or of all."""
        return self.head(self.states(ids_N, layout, keep))

    def head(self, state_NE: Tensor) -> Tensor:
        logits_NV: Tensor = self._head(state_NE)
        return logits_NV

    def states(self, ids_N: Tensor, layout: Layout, keep: Tensor | None) -> Tensor:
        """What the logits are made of: a hundredth of their size."""
        x_NE = self._trunk.embed_tokens(ids_N)
        delta_NE: Tensor | None = None
        for number, layer in enumerate(self._layers):
            seen_NX = self._see(number, layer, x_NE, delta_NE, layout)
            if keep is not None and number == len(self._layers) - 1:
                # Of the others nothing is asked any more: their keys and values are stored.
                x_NE, seen_NX = x_NE[keep], seen_NX[keep]
            delta_NE = self._feed(layer, x_NE, linear(seen_NX, layer.output, layer.output_bias))
        return self._kernels.add_norm(x_NE, delta_NE, self._trunk.norm.weight, self._eps)

    def _see(self, number: int, layer: FusedLayer, x_NE: Tensor, delta_NE: Tensor | None, layout: Layout) -> Tensor:
        """What the heads of a layer see, side by side, once the last layer's addition to x has been made."""
        normed_NE = self._kernels.add_norm(x_NE, delta_NE, layer.input_norm, self._eps)
        turned = linear(normed_NE, layer.qkv, layer.qkv_bias), self._cos_PD, self._sin_PD
        kv_2SPKD, heads = layout.kv[number], self._num_heads
        scale = kv_2SPKD.shape[4] ** -0.5
        if isinstance(layout, DecodeLayout):  # a launch takes as long as the work of a step's small ones
            assert layout.done_S is not None
            return self._seeing.attend_one(*turned, kv_2SPKD, layout.position_N, layout.done_S, heads, scale).flatten(1)
        q_NHD = self._kernels.turn_and_store(*turned, kv_2SPKD, layout.slot_N, layout.position_N, heads)
        return layout.look(number, q_NHD, scale).flatten(1)

    def _feed(self, layer: FusedLayer, x_NE: Tensor, added_NE: Tensor) -> Tensor:
        """What the layer's second half adds to x, once the first half's addition has been made."""
        normed_NE = self._kernels.add_norm(x_NE, added_NE, layer.feed_norm, self._eps)
        fed_NF = self._kernels.gated(linear(normed_NE, layer.gate_up, layer.gate_up_bias))
        return linear(fed_NF, layer.down, layer.down_bias)


@torch.no_grad()
def angles_of(trunk: Any, num_positions: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of all positions [P, D]: to compute them anew takes ten launches a step."""
    weight = trunk.embed_tokens.weight
    position_1P = torch.arange(num_positions, device=weight.device)[None]
    cos_1PD, sin_1PD = trunk.rotary_emb(weight[:1, None], position_ids=position_1P)
    return cos_1PD[0].contiguous(), sin_1PD[0].contiguous()


@torch.no_grad()
def side_by_side(parameters: Sequence[Any]) -> Tensor:
    """The parameters in one tensor, of which they become views (unless they are already)."""
    first: Tensor = parameters[0].data
    starts = itertools.accumulate((one.nbytes for one in parameters), initial=first.data_ptr())
    # One behind the other, and in one storage: two that were allocated apart may be neighbours by chance.
    in_a_row = all(one.data_ptr() == start for one, start in zip(parameters, starts, strict=False))
    if in_a_row and len({one.untyped_storage().data_ptr() for one in parameters}) == 1:
        rows = sum(one.shape[0] for one in parameters)
        return first.as_strided((rows, *first.shape[1:]), first.stride(), first.storage_offset())
    joined = torch.cat([parameter.data for parameter in parameters])
    start = 0
    for parameter in parameters:
        stop = start + parameter.shape[0]
        parameter.data = joined[start:stop]
        start = stop
    return joined
