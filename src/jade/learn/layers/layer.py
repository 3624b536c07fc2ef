"""Layers of a decoder of the Llama family, written out forward and backward.

A layer is its matrix products, attention made for short calls, and six kernels for all that lies between.

Shapes: T = tokens of the row, S = tokens of its calls, each counted whole, N = its action tokens, Q = tokens that a
layer is asked for: in the last one some, in the others all of the row; H = hidden width, F = feed-forward width,
X = heads of queries, keys and values together, A and K = query and key-value heads, D = head width, G = query heads of
a key-value head; O and I = a product's outputs and inputs, R = the ranks of its adapters together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.functional import linear

from jade.learn.layers.merged import Merged
from jade.learn.layers.row import Queries, Row


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


@dataclass(frozen=True, slots=True)
class Layer:
    """What a layer's two halves work with, beside what flows through them."""

    kernels: Any
    merged: Merged
    number: int
    shape: Shape
    row: Row
    queries: Queries

    def weight(self, name: str) -> Tensor:
        return self.merged.get(name, self.number)

    def times(self, name: str, input_TI: Tensor) -> tuple[Tensor, Tensor | None]:
        """A product, and what adapters of low rank made of the input."""
        bias_O = self.merged.get_bias(name, self.number)
        low = self.merged.get_low(name)
        if low is None:
            return linear(input_TI, self.weight(name), bias_O), None
        below_OI, _ = self.merged.get_beside(name, self.number)
        out_TO, low_TR = linear(input_TI, below_OI, bias_O).split_with_sizes((low.num_outputs, low.num_ranks), 1)
        return out_TO, low_TR

    def times_back(self, name: str, grad_TO: Tensor) -> tuple[Tensor, Tensor | None]:
        """The gradient at a product's input, and what such adapters made of the gradient that came in."""
        low = self.merged.get_low(name)
        if low is None:
            return grad_TO @ self.weight(name), None
        _, aside_OI = self.merged.get_beside(name, self.number)
        input_grad_TI, above_TR = (grad_TO @ aside_OI).split_with_sizes((low.num_inputs, low.num_ranks), 1)
        return input_grad_TI, above_TR

    def above(self, name: str, grad_TO: Tensor) -> Tensor | None:
        """The second alone, where no gradient at the input is asked for."""
        low = self.merged.get_low(name)
        if low is None:
            return None
        _, aside_OI = self.merged.get_beside(name, self.number)
        return grad_TO @ aside_OI[:, low.num_inputs :]

    def learn(
        self, name: str, grad_TO: Tensor, input_TI: Tensor | None, low_TR: Tensor | None, above_TR: Tensor | None
    ) -> None:
        """From the gradient at what came out of a product, from what went in, and from what adapters made of them.
        Nothing that went in: the adapters' downs have learned already."""
        low = self.merged.get_low(name)
        if low is None or low_TR is None or above_TR is None:
            assert input_TI is not None, "a whole weight learns from what went in"
            self.merged.learn_product(name, self.number, grad_TO, input_TI)
            return
        self.kernels.add_low_rank(grad_TO, low_TR, input_TI, above_TR, low.sum_of(self.number))
        self.merged.learn_bias(name, self.number, grad_TO)

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
        """Queries as they are, keys with the places of the whole calls, turned, and their values."""
        num_heads, num_keys, size = self.shape.num_heads, self.shape.num_keys, self.shape.size
        num, place_S = len(heads_TX), self.row.place_S
        first_TAD, rest_TXD = heads_TX.view(num, -1, size).split_with_sizes((num_heads, 2 * num_keys), 1)
        both_SXD = heads_TX.new_empty(num if place_S is None else len(place_S), 2 * num_keys, size)
        self.kernels.turn(rest_TXD, *self.row.angles, place_S, num_keys, both_SXD)
        key_SKD, value_SKD = both_SXD.split_with_sizes((num_keys, num_keys), 1)
        return first_TAD, key_SKD, value_SKD

    def seen_back(self, out_grad_QAD: Tensor, seen: _Seen) -> Tensor:
        """The gradient at queries, keys and values side by side, as they were before they were turned."""
        row, queries, num_heads = self.row, self.queries, self.shape.num_heads
        into_TXD = out_grad_QAD.new_empty(len(seen.x_TH), num_heads + 2 * self.shape.num_keys, self.shape.size)
        query_into_TAD, others_into_TXD = into_TXD.split_with_sizes((num_heads, 2 * self.shape.num_keys), 1)
        # Where only some tokens look, their gradients are put into the row afterwards.
        query_into_QAD = query_into_TAD if queries.token_Q is None else torch.empty_like(seen.query_QAD)
        shared = self.kernels.attend_back(
            out_grad_QAD,
            *(seen.query_QAD, seen.key_SKD, seen.value_SKD, seen.out_QAD, seen.log_sum_KQG),
            queries.angles,
            row.angles,
            queries.tiles,
            self.shape.scale,
            query_into_QAD,
            others_into_TXD,
        )
        if queries.token_Q is not None:
            query_into_TAD.zero_().index_copy_(0, queries.token_Q, query_into_QAD)
        if len(queries.tiles.shared_U):
            self.kernels.collect(*shared, *row.angles, queries.tiles.shared_U, row.calls, others_into_TXD)
        return into_TXD

    def gated_back(self, grad_TF: Tensor, both_TF: Tensor, above_TR: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The gradient at what was gated, and what came out; nothing where adapters have learned from it on the way,
        which spares writing and reading it."""
        low = self.merged.get_low("down")
        learned: Tensor | None = None
        if low is not None and above_TR is not None:
            learned = self.kernels.gated_back_learning(grad_TF, both_TF, above_TR, low.sum_of(self.number))
        if learned is not None:
            return learned, None
        back: tuple[Tensor, Tensor] = self.kernels.gated_back(grad_TF, both_TF)
        return back

    def attend(self, x_TH: Tensor, delta_TH: Tensor | None) -> tuple[Tensor, Tensor, _Seen]:
        """The first half: the last layer's addition is made, and attention's own goes to the next half, both for those
        who look."""
        x_TH, normed_TH = self.norm("input_gain", x_TH, delta_TH)
        heads_TX, normed_low_TR = self.times("qkv", normed_TH)
        first_TAD, key_SKD, value_SKD = self.split(heads_TX)
        out_QAD, log_sum_KQG, query_QAD = self.kernels.attend(
            self.queries.of(first_TAD), key_SKD, value_SKD, self.queries.angles, self.queries.tiles, self.shape.scale
        )
        delta_QH, out_low_QR = self.times("output", out_QAD.view(len(out_QAD), -1))
        seen = query_QAD, key_SKD, value_SKD, out_QAD, log_sum_KQG
        kept = _Seen(x_TH, normed_TH, _alone(normed_low_TR), *seen, _alone(out_low_QR))
        return self.queries.of(x_TH), delta_QH, kept

    def attend_back(self, grad_QH: Tensor, seen: _Seen, *, goes_on: bool) -> Tensor | None:
        """The gradient at what came in, if it goes on from here."""
        num, num_looking = len(seen.x_TH), len(grad_QH)
        out_grad_QX, above_QR = self.times_back("output", grad_QH)
        self.learn("output", grad_QH, seen.out_QAD.view(num_looking, -1), seen.out_low_QR, above_QR)
        heads_grad_TX = self.seen_back(out_grad_QX.view(num_looking, -1, self.shape.size), seen).view(num, -1)
        normed_grad_TH: Tensor | None = None
        if goes_on or self.merged.wants("input_gain"):
            normed_grad_TH, above_TR = self.times_back("qkv", heads_grad_TX)
        else:  # the first layer, over embeddings that are frozen
            above_TR = self.above("qkv", heads_grad_TX)
        self.learn("qkv", heads_grad_TX, seen.normed_TH, seen.normed_low_TR, above_TR)
        if normed_grad_TH is None:
            return None
        return self.norm_back("input_gain", normed_grad_TH, seen.x_TH, self.queries.spread(grad_QH, num))

    def feed(self, x_TH: Tensor, delta_TH: Tensor | None) -> tuple[Tensor, Tensor, _Fed]:
        """The second half: attention's addition is made, and the feed-forward part's own goes on."""
        x_TH, normed_TH = self.norm("feed_gain", x_TH, delta_TH)
        both_TF, normed_low_TR = self.times("gate_up", normed_TH)
        delta_TH, gated_low_TR = self.times("down", self.kernels.gated(both_TF))
        return x_TH, delta_TH, _Fed(x_TH, normed_TH, normed_low_TR, both_TF, _alone(gated_low_TR))

    def feed_back(self, grad_TH: Tensor, fed: _Fed) -> Tensor:
        gated_grad_TF, above_TR = self.times_back("down", grad_TH)
        both_grad_TF, gated_TF = self.gated_back(gated_grad_TF, fed.both_TF, above_TR)
        self.learn("down", grad_TH, gated_TF, fed.gated_low_TR, above_TR)
        normed_grad_TH, above_TR = self.times_back("gate_up", both_grad_TF)
        self.learn("gate_up", both_grad_TF, fed.normed_TH, fed.normed_low_TR, above_TR)
        return self.norm_back("feed_gain", normed_grad_TH, fed.x_TH, grad_TH)


class _Seen(NamedTuple):
    """What the way back through a layer's attention asks for."""

    x_TH: Tensor
    normed_TH: Tensor
    normed_low_TR: Tensor | None
    query_QAD: Tensor
    key_SKD: Tensor
    value_SKD: Tensor
    out_QAD: Tensor
    log_sum_KQG: Tensor
    out_low_QR: Tensor | None


class _Fed(NamedTuple):
    """What the way back through a layer's feed-forward part asks for."""

    x_TH: Tensor
    normed_TH: Tensor
    normed_low_TR: Tensor | None
    both_TF: Tensor
    gated_low_TR: Tensor | None


class Layers(torch.autograd.Function):
    """All layers, one behind the other. Between them flow the stream and what is still to be added to it: the gradient
    at the one is that at the other. The last one's tokens are only those that are asked for."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, stream_TH: Tensor, place_N: Tensor, layers: list[Layer]) -> Tensor:
        ctx.place_N, ctx.kept = place_N, []
        keeps = any(ctx.needs_input_grad)
        x_QH = stream_TH
        delta_QH: Tensor | None = None
        for layer in layers:
            x_QH, delta_QH, seen = layer.attend(x_QH, delta_QH)
            x_QH, delta_QH, fed = layer.feed(x_QH, delta_QH)
            if keeps:
                ctx.kept.append((layer, seen, fed))
            del seen, fed  # without a way back nothing holds on to them
        assert delta_QH is not None, "there are layers"
        return (x_QH + delta_QH).index_select(0, place_N)

    @staticmethod
    def backward(ctx: Any, grad_NH: Tensor) -> tuple[None, Tensor | None, None, None]:
        kept: list[tuple[Layer, _Seen, _Fed]] = ctx.kept
        assert kept, "what the layers kept is gone: there is one way back"
        merged, num_asked = kept[0][0].merged, len(kept[-1][2].x_TH)
        # Calls may share a token: its gradients are added up in float32.
        total_QH = grad_NH.new_zeros((num_asked, grad_NH.shape[1]), dtype=torch.float32)
        grad_QH: Tensor | None = total_QH.index_add_(0, ctx.place_N, grad_NH.float()).to(grad_NH.dtype)
        while kept and grad_QH is not None:
            layer, seen, fed = kept.pop()  # what the last one kept is free from here on
            goes_on = bool(kept) or ctx.needs_input_grad[1]
            grad_QH = layer.attend_back(layer.feed_back(grad_QH, fed), seen, goes_on=goes_on)
        if not merged.held:
            merged.give_back()
        return None, grad_QH if ctx.needs_input_grad[1] else None, None, None


def _alone(low_TR: Tensor | None) -> Tensor | None:
    """A copy, so that all that it came with need not be kept: that is twenty times as much."""
    return None if low_TR is None else low_TR.contiguous()
