"""A decoder of the Llama family on a CPU: what transformers' own layers compute, in float32 and in a third of the
operations. With few rows an operation costs more than its arithmetic, because the weights that stream by drive its code
and its operands out of the caches.

The weights stay the model's own. Those that are multiplied with the same input stand side by side in memory, all
outputs of an input together (which is how few rows are multiplied fastest), and the model's parameters become views of
that: whoever overwrites them in place overwrites what is used here.

N = tokens in the row, E = hidden width, H = query heads, K = key-value heads, D = head size, S = slots, P = positions,
V = vocabulary, X = values of all heads, F = values of gates and ups, I and O = inputs and outputs of a product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from jade.backbone.local.attention import Layout
from jade.backbone.local.fused import is_known_kind


def can_run_on_cpu(model: Any) -> bool:
    return bool(model.device.type == "cpu" and model.dtype == torch.float32 and is_known_kind(model.config))


@dataclass(frozen=True, slots=True)
class Product:
    """Linear layers with the same input, as one."""

    weight_IO: Tensor
    bias_O: Tensor | None

    @classmethod
    def of(cls, *layers: Any) -> Product:
        biases = [layer.bias for layer in layers if layer.bias is not None]
        return cls(in_columns([layer.weight for layer in layers]), in_a_row(biases) if biases else None)

    def __call__(self, x_NI: Tensor) -> Tensor:
        if self.bias_O is None:
            return torch.mm(x_NI, self.weight_IO)
        return torch.addmm(self.bias_O, x_NI, self.weight_IO)

    def add_to(self, x_NO: Tensor, y_NI: Tensor) -> None:
        x_NO.addmm_(y_NI, self.weight_IO)
        if self.bias_O is not None:
            x_NO += self.bias_O


@dataclass(frozen=True, slots=True)
class Norm:
    """The root-mean-square norm by torch's layer norm, which is one operation instead of six. A row with its own
    negative behind it has a mean of zero, so that its variance is its mean square."""

    weight_2E: Tensor
    eps: float

    @classmethod
    def of(cls, norm: Any, eps: float) -> Norm:
        return cls(in_a_row([norm.weight], room=2), eps)

    def __call__(self, x_NE: Tensor) -> Tensor:
        both_N2E = torch.cat((x_NE, -x_NE), dim=1)
        return torch.layer_norm(both_N2E, self.weight_2E.shape, self.weight_2E, None, self.eps)[:, : x_NE.shape[1]]


@dataclass(frozen=True, slots=True)
class Turn:
    """How far the halves of each head are turned, and where in each layer's memory the tokens' keys and values go."""

    cos_N12D: Tensor
    sin_N12D: Tensor
    place_N: Tensor
    sides: Sequence[Tensor]
    """Of each layer, [key or value, S * P, K * D]."""

    @classmethod
    def of(cls, layout: Layout, rotary: Any, x_NE: Tensor) -> Turn:
        both = rotary(x_NE[None], position_ids=layout.position_N[None])
        cos_N12D, sin_N12D = (one[0].unflatten(1, (1, 2, -1)) for one in both)
        sign_21 = sin_N12D.new_tensor([[-1.0], [1.0]])
        num_layers, _, num_slots, num_positions, num_kv, size = layout.kv.shape
        sides = layout.kv.view(num_layers, 2, num_slots * num_positions, num_kv * size).unbind(0)
        return cls(cos_N12D, sin_N12D * sign_21, layout.slot_N * num_positions + layout.position_N, sides)

    def __call__(self, number: int, qkv_NX: Tensor, num_heads: int, num_kv: int) -> Tensor:
        """Turn queries and keys in place; keys and values go to their slots, the queries come back."""
        num_rows, size = qkv_NX.shape[0], qkv_NX.shape[1] // (num_heads + 2 * num_kv)
        q_NX, kv_NX = qkv_NX.split((num_heads * size, 2 * num_kv * size), dim=1)
        halves = qkv_NX.narrow(1, 0, (num_heads + num_kv) * size).view(num_rows, -1, 2, size // 2)
        swapped = halves.flip(2)
        halves.mul_(self.cos_N12D).addcmul_(swapped, self.sin_N12D)
        self.sides[number].index_copy_(1, self.place_N, kv_NX.view(num_rows, 2, -1).transpose(0, 1))
        turned: Tensor = q_NX.view(num_rows, num_heads, size)
        return turned


@dataclass(frozen=True, slots=True)
class CpuLayer:
    """One layer: norm, attention, norm, gated feed-forward."""

    input_norm: Norm
    qkv: Product
    output: Product
    feed_norm: Norm
    gate_up: Product
    down: Product

    @classmethod
    def of(cls, layer: Any, eps: float) -> CpuLayer:
        attention, feed = layer.self_attn, layer.mlp
        return cls(
            input_norm=Norm.of(layer.input_layernorm, eps),
            qkv=Product.of(attention.q_proj, attention.k_proj, attention.v_proj),
            output=Product.of(attention.o_proj),
            feed_norm=Norm.of(layer.post_attention_layernorm, eps),
            gate_up=Product.of(feed.gate_proj, feed.up_proj),
            down=Product.of(feed.down_proj),
        )

    def feed(self, x_NE: Tensor) -> None:
        gate_NF, up_NF = self.gate_up(self.feed_norm(x_NE)).chunk(2, dim=1)
        self.down.add_to(x_NE, torch.nn.functional.silu(gate_NF, inplace=True).mul_(up_NF))


class CpuDecoder:
    """The bare model (no adapter), ready to give logits."""

    draw_and_record = None
    """Drawing has no kernel of its own here."""

    def __init__(self, model: Any) -> None:
        eps = float(model.config.rms_norm_eps)
        self._trunk = model.get_decoder()
        self._layers = [CpuLayer.of(layer, eps) for layer in self._trunk.layers]
        self._norm = Norm.of(self._trunk.norm, eps)
        self._head = Product.of(model.get_output_embeddings())
        self._num_heads = int(model.config.num_attention_heads)

    def logits(self, ids_N: Tensor, layout: Layout, keep: Tensor | None) -> Tensor:
        """Of the tokens that are to be kept, or of all."""
        x_NE: Tensor = self._trunk.embed_tokens(ids_N)
        turn = Turn.of(layout, self._trunk.rotary_emb, x_NE)
        num_kv, size = layout.kv.shape[4:]
        for number, layer in enumerate(self._layers):
            q_NHD = turn(number, layer.qkv(layer.input_norm(x_NE)), self._num_heads, num_kv)
            mixed_NHD = layout.look(number, q_NHD, size**-0.5)
            layer.output.add_to(x_NE, mixed_NHD.flatten(1))
            layer.feed(x_NE)
        return self._head(self._norm(x_NE if keep is None else x_NE[keep]))


@torch.no_grad()
def in_columns(weights: Sequence[Any]) -> Tensor:
    """These weights [O, I] side by side as [I, O], of which they become views (unless they are already)."""
    widths = [weight.shape[0] for weight in weights]
    first: Tensor = weights[0].data
    shape, strides = (first.shape[1], sum(widths)), (sum(widths), 1)
    if _are_parts(weights, strides[::-1]):
        return first.as_strided(shape, strides, first.storage_offset())
    joined_IO = torch.cat([weight.data for weight in weights]).t().contiguous()
    for weight, part_IO in zip(weights, joined_IO.split(widths, dim=1), strict=True):
        weight.data = part_IO.t()
    return joined_IO


@torch.no_grad()
def in_a_row(vectors: Sequence[Any], room: int = 1) -> Tensor:
    """These vectors one behind the other in one tensor, of which they become views (unless they are already). With
    `room` the whole is there so many times, and the vectors are views of the first."""
    widths = [vector.shape[0] for vector in vectors]
    first: Tensor = vectors[0].data
    held = first.untyped_storage().nbytes() // first.itemsize - first.storage_offset()
    if _are_parts(vectors, (1,)) and held >= room * sum(widths):
        return first.as_strided((room * sum(widths),), (1,), first.storage_offset())
    joined = torch.cat([vector.data for vector in vectors] * room)
    for vector, part in zip(vectors, joined[: sum(widths)].split(widths), strict=True):
        vector.data = part
    return joined


def _are_parts(parameters: Sequence[Any], strides: tuple[int, ...]) -> bool:
    """Whether these follow each other in the same memory, which has these strides."""
    start, storage = parameters[0].storage_offset(), parameters[0].untyped_storage().data_ptr()
    for parameter in parameters:
        if (parameter.untyped_storage().data_ptr(), parameter.stride()) != (storage, strides):
            return False
        if parameter.storage_offset() != start:
            return False
        start += parameter.shape[0]
    return True
