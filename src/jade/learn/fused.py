"""A decoder of the Llama family that learns, in a fraction of the launches: layers written out forward and backward.

A small model's update waits for launches and for memory, not for arithmetic. Here a layer is its matrix products,
attention made for short calls, and five kernels for all that lies between; its weights are made once for all pieces of
a step. What it says and teaches is what the lean layers say and teach, but for rounding. Layers of another kind stay as
they are, and so does all of this on a CPU.

Shapes: T = tokens of the row, S = tokens of its calls, each counted whole, N = its action tokens, H = hidden width,
F = feed-forward width, X = heads of queries, keys and values together, A and K = query and key-value heads, D = head
width, E = half of it, G = query heads of a key-value head.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from jade.backbone.local_fused import is_known_kind
from jade.learn.batches import Batch
from jade.learn.lean import LeanAdapter, LeanAttention, LeanNorm
from jade.learn.merged import GAINS, PRODUCTS, Merged, Stack
from jade.learn.tiles import Tiles, plan_tiles

DEVICES = ("cuda",)
"""Where this is worth it."""


@dataclass(frozen=True)
class Shape:
    """What the layers of a trunk have in common."""

    num_heads: int
    num_keys: int
    size: int
    scale: float
    eps: float

    @classmethod
    def of(cls, layer: Any) -> Shape:
        look = layer.self_attn
        heads, keys = (one.out_features // look.head_dim for one in (look.q_proj, look.k_proj))
        return cls(heads, keys, look.head_dim, look.scaling, layer.input_layernorm.variance_epsilon)


class Row:
    """A packed row, as all layers see it."""

    def __init__(self, tiles: Tiles, place_S: Tensor | None, cos_TE: Tensor, sin_TE: Tensor) -> None:
        self.tiles = tiles
        self.place_S = place_S
        self.angles = cos_TE, sin_TE

    @cached_property
    def calls(self) -> tuple[Tensor, Tensor] | None:
        """Where each token stands in the calls: an order of their tokens, and the end of each token's part of it."""
        if self.place_S is None:
            return None
        sorted_S, order_S = self.place_S.sort(stable=True)
        token_T = torch.arange(len(self.angles[0]), device=self.place_S.device)
        return order_S, torch.searchsorted(sorted_S, token_T, right=True)


class FusedTrunk:
    """The layers of a trunk, run on packed rows."""

    def __init__(self, trunk: Any, stack: Stack) -> None:
        self.trunk = trunk
        self._stack = stack
        self._shape = Shape.of(trunk.layers[0])
        self._holds = False
        self._merged: Merged | None = None

    @classmethod
    def of(cls, trunk: Any) -> FusedTrunk | None:
        """None where the layers cannot be shown to be of the known kind, all of them alike."""
        if not (is_known_kind(trunk.config) and all(map(_is_known, trunk.layers))):
            return None
        stack = Stack.of(list(trunk.layers)) if len({Shape.of(layer) for layer in trunk.layers}) == 1 else None
        return None if stack is None else cls(trunk, stack)

    @contextmanager
    def unmoved(self) -> Iterator[None]:
        """While the parameters stay what they are: their weights are made once, and their gradients come at the end."""
        self._holds = True
        try:
            yield
            if self._merged is not None:
                self._merged.give_back()
        finally:
            self._holds, self._merged = False, None

    def states(self, batch: Batch) -> Tensor:
        """The states from which the action tokens are predicted."""
        trunk, merged = self.trunk, self._weights(batch.id_T.device)
        stream_TH = trunk.get_input_embeddings()(batch.id_T).to(_dtype_on(batch.id_T.device))
        row = self._row(batch, stream_TH)
        # Adapters learn although nothing that comes in does.
        anchor = torch.empty(0, device=stream_TH.device, requires_grad=torch.is_grad_enabled() and merged.learns)
        kernels, attention = load_kernels(), load_attention()
        delta_TH: Tensor | None = None
        last = len(trunk.layers) - 1
        for number in range(last + 1):
            layer = _Layer(kernels, attention, merged, number, self._shape, row)
            stream_TH, delta_TH = _Attend.apply(anchor, stream_TH, delta_TH, layer)  # type: ignore[no-untyped-call]
            if number == last:
                # Behind the last attention tokens no longer meet, and only these are asked for.
                stream_TH, delta_TH = _Pick.apply(stream_TH, delta_TH, batch.state_N), None  # type: ignore[no-untyped-call]
            stream_TH, delta_TH = _Feed.apply(stream_TH, delta_TH, layer)  # type: ignore[no-untyped-call]
        state_NH: Tensor = trunk.norm(stream_TH + delta_TH)
        return state_NH

    def _weights(self, device: torch.device) -> Merged:
        if self._merged is not None:
            return self._merged
        merged = Merged(self._stack, _dtype_on(device), held=self._holds)
        if self._holds:
            self._merged = merged
        return merged

    @torch.no_grad()
    def _row(self, batch: Batch, stream_TH: Tensor) -> Row:
        both = self.trunk.rotary_emb(stream_TH[None], position_ids=batch.position_T[None])
        cos_TE, sin_TE = (whole[0, :, : self._shape.size // 2].contiguous() for whole in both)
        group = self._shape.num_heads // self._shape.num_keys
        tiles = plan_tiles(batch.bounds, batch.whole_bounds, group, stream_TH.device)
        return Row(tiles, batch.place_S, cos_TE, sin_TE)


@dataclass(frozen=True, slots=True)
class _Layer:
    """What a layer's two halves work with, beside what flows through them."""

    kernels: Any
    attention: Any
    merged: Merged
    number: int
    shape: Shape
    row: Row

    def weight(self, name: str) -> Tensor:
        return self.merged.get(name, self.number)

    def times(self, name: str, input_TI: Tensor) -> Tensor:
        return linear(input_TI, self.weight(name), self.merged.get_bias(name, self.number))

    def times_back(self, name: str, grad_TO: Tensor, input_TI: Tensor) -> Tensor:
        """The gradient at a product's input; its weight learns."""
        self.merged.learn_product(name, self.number, grad_TO, input_TI)
        return grad_TO @ self.weight(name)

    def norm(self, name: str, x_TH: Tensor, delta_TH: Tensor | None) -> tuple[Tensor, Tensor]:
        normed: tuple[Tensor, Tensor] = self.kernels.add_norm(x_TH, delta_TH, self.weight(name), self.shape.eps)
        return normed

    def norm_back(self, name: str, grad_TH: Tensor, x_TH: Tensor, past_TH: Tensor) -> Tensor:
        """The gradient at what came into a norm, with what flows past it; the norm's gain learns."""
        wants = self.merged.wants(name)
        out_TH, gain_grad_H = self.kernels.norm_back(
            grad_TH, x_TH, self.weight(name), past_TH, self.shape.eps, with_gain=wants
        )
        if gain_grad_H is not None:
            self.merged.learn(name, self.number, gain_grad_H)
        return cast(Tensor, out_TH)

    def split(self, heads_TX: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys with the places of the whole calls, and their values; queries and keys turned."""
        heads_TXD = heads_TX.unflatten(-1, (-1, self.shape.size))
        num_heads, num_keys, place_S = self.shape.num_heads, self.shape.num_keys, self.row.place_S
        num = len(heads_TXD) if place_S is None else len(place_S)
        query_TAD = heads_TXD.new_empty(len(heads_TXD), num_heads, self.shape.size)
        both_SXD = heads_TXD.new_empty(num, 2 * num_keys, self.shape.size)
        self.kernels.turn(heads_TXD[:, :num_heads], *self.row.angles, None, num_heads, query_TAD, 1.0)
        self.kernels.turn(heads_TXD[:, num_heads:], *self.row.angles, place_S, num_keys, both_SXD, 1.0)
        return query_TAD, both_SXD[:, :num_keys], both_SXD[:, num_keys:]

    def split_back(self, query_grad_TAD: Tensor, key_grad_SKD: Tensor, value_grad_SKD: Tensor) -> Tensor:
        num_heads = self.shape.num_heads
        out_TXD = query_grad_TAD.new_empty(len(query_grad_TAD), num_heads + 2 * self.shape.num_keys, self.shape.size)
        self.kernels.turn(query_grad_TAD, *self.row.angles, None, num_heads, out_TXD[:, :num_heads], -1.0)
        self.kernels.collect(key_grad_SKD, value_grad_SKD, *self.row.angles, self.row.calls, out_TXD[:, num_heads:])
        return out_TXD.flatten(1)


class _Attend(torch.autograd.Function):
    """The first half of a layer: the last one's addition is made, and attention's own goes to the next half."""

    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, x_TH: Tensor, delta_TH: Tensor | None, layer: _Layer
    ) -> tuple[Tensor, Tensor]:
        x_TH, normed_TH = layer.norm("input_gain", x_TH, delta_TH)
        query_TAD, key_SKD, value_SKD = layer.split(layer.times("qkv", normed_TH))
        out_TAD, log_sum_KTG = layer.attention.attend(query_TAD, key_SKD, value_SKD, layer.row.tiles, layer.shape.scale)
        ctx.layer = layer
        ctx.save_for_backward(x_TH, normed_TH, query_TAD, key_SKD, value_SKD, out_TAD, log_sum_KTG)
        return x_TH, layer.times("output", out_TAD.flatten(1))

    @staticmethod
    def backward(ctx: Any, past_TH: Tensor, grad_TH: Tensor) -> tuple[None, Tensor | None, Tensor | None, None]:
        layer: _Layer = ctx.layer
        x_TH, normed_TH, *seen = ctx.saved_tensors
        out_TAD = seen[3]
        out_grad_TAD = layer.times_back("output", grad_TH.contiguous(), out_TAD.flatten(1)).view_as(out_TAD)
        grads = layer.attention.attend_back(out_grad_TAD, *seen, layer.row.tiles, layer.shape.scale)
        heads_grad_TX, below_TH = layer.split_back(*grads), None
        if any(ctx.needs_input_grad[1:3]) or layer.merged.wants("input_gain"):
            normed_grad_TH = layer.times_back("qkv", heads_grad_TX, normed_TH)
            below_TH = layer.norm_back("input_gain", normed_grad_TH, x_TH, past_TH.contiguous())
        else:  # the first layer, over embeddings that are frozen
            layer.merged.learn_product("qkv", layer.number, heads_grad_TX, normed_TH)
        if layer.number == 0 and not layer.merged.held:
            layer.merged.give_back()
        return None, below_TH, below_TH if ctx.needs_input_grad[2] else None, None


class _Feed(torch.autograd.Function):
    """The second half: attention's addition is made, and the feed-forward part's own goes on."""

    @staticmethod
    def forward(ctx: Any, x_TH: Tensor, delta_TH: Tensor | None, layer: _Layer) -> tuple[Tensor, Tensor]:
        x_TH, normed_TH = layer.norm("feed_gain", x_TH, delta_TH)
        both_TF = layer.times("gate_up", normed_TH)
        ctx.layer = layer
        ctx.save_for_backward(x_TH, normed_TH, both_TF)
        return x_TH, layer.times("down", layer.kernels.gated(both_TF))

    @staticmethod
    def backward(ctx: Any, past_TH: Tensor, grad_TH: Tensor) -> tuple[Tensor, Tensor | None, None]:
        layer: _Layer = ctx.layer
        x_TH, normed_TH, both_TF = ctx.saved_tensors
        grad_TH = grad_TH.contiguous()
        both_grad_TF, gated_TF = layer.kernels.gated_back(grad_TH @ layer.weight("down"), both_TF)
        layer.merged.learn_product("down", layer.number, grad_TH, gated_TF)
        normed_grad_TH = layer.times_back("gate_up", both_grad_TF, normed_TH)
        below_TH = layer.norm_back("feed_gain", normed_grad_TH, x_TH, past_TH.contiguous())
        return below_TH, below_TH if ctx.needs_input_grad[1] else None, None


class _Pick(torch.autograd.Function):
    """The stream with its addition, at some tokens. Calls may share one: its gradients are added up in float32."""

    @staticmethod
    def forward(ctx: Any, x_TH: Tensor, delta_TH: Tensor, state_N: Tensor) -> Tensor:
        ctx.save_for_backward(state_N)
        ctx.num = len(x_TH)
        return x_TH.index_select(0, state_N) + delta_TH.index_select(0, state_N)

    @staticmethod
    def backward(ctx: Any, grad_NH: Tensor) -> tuple[Tensor, Tensor, None]:
        (state_N,) = ctx.saved_tensors
        total_TH = grad_NH.new_zeros((ctx.num, grad_NH.shape[1]), dtype=torch.float32)
        grad_TH = total_TH.index_add_(0, state_N, grad_NH.float()).to(grad_NH.dtype)
        return grad_TH, grad_TH, None


def _is_known(layer: Any) -> bool:
    """Whether a layer is: norm, attention, norm, gated SiLU; all that it holds lean already."""
    children = {name for name, _ in layer.named_children()}
    if children != {"self_attn", "mlp", *GAINS.values()} or not isinstance(layer.self_attn, LeanAttention):
        return False
    if not all(isinstance(layer.get_submodule(path), LeanNorm) for path in GAINS.values()):
        return False
    if {name for name, _ in layer.mlp.named_children()} - {"act_fn"} != {"gate_proj", "up_proj", "down_proj"}:
        return False
    products = (layer.get_submodule(path) for paths in PRODUCTS.values() for path in paths)
    return all(type(one) is nn.Linear or isinstance(one, LeanAdapter) for one in products)


def can_fuse(device: torch.device) -> bool:
    return device.type in DEVICES and (device.type != "cuda" or importlib.util.find_spec("triton") is not None)


def load_kernels() -> ModuleType:
    """Not before they are needed: Triton is not everywhere."""
    from jade.learn import kernels

    return kernels


def load_attention() -> ModuleType:
    from jade.learn import attention_kernels

    return attention_kernels


def _dtype_on(device: torch.device) -> torch.dtype:
    """The width of products and of the stream that the layers add to."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32
