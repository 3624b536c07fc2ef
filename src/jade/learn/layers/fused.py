"""A decoder of the Llama family that learns, in a fraction of the launches: layers written out forward and backward.

A small model's update waits for launches and for memory, not for arithmetic. Here a layer is its matrix products,
attention made for short calls, and six kernels for all that lies between; its weights are made once for all pieces of
a step. What it says and teaches is what the lean layers say and teach, but for rounding. Layers of another kind stay as
they are, and so does all of this on a CPU.

Shapes: T = tokens of the row, S = tokens of its calls, each counted whole, N = its action tokens, Q = tokens that a
layer is asked for: in the last one some, in the others all of the row; H = hidden width, F = feed-forward width,
X = heads of queries, keys and values together, A and K = query and key-value heads, D = head width, E = half of it,
G = query heads of a key-value head; O and I = a product's outputs and inputs, R = the ranks of its adapters together.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from jade.backbone.local.fused import is_known_kind
from jade.learn.batches import Batch, send
from jade.learn.layers.lean import LeanAdapter, LeanAttention, LeanNorm
from jade.learn.layers.merged import GAINS, PRODUCTS, Merged, Stack
from jade.learn.layers.tiles import Tiles, count_up, plan_tiles

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


@dataclass(frozen=True, slots=True)
class Queries:
    """The tokens of a row that look at the others: all of them, or some."""

    tiles: Tiles
    angles: tuple[Tensor, Tensor]
    token_Q: Tensor | None = None
    """Which of the row's these are, where they are not all."""

    def of(self, row_T: Tensor) -> Tensor:
        return row_T if self.token_Q is None else row_T.index_select(0, self.token_Q)

    def spread(self, some_Q: Tensor, num: int) -> Tensor:
        """Over a row of so many tokens, with zeros where there are none of these."""
        if self.token_Q is None:
            return some_Q
        return some_Q.new_zeros(num, *some_Q.shape[1:]).index_copy_(0, self.token_Q, some_Q)


class Row:
    """A packed row, as all layers see it."""

    def __init__(self, everyone: Queries, asked: Queries, place_S: Tensor | None, place_N: Tensor) -> None:
        self.everyone = everyone
        self.asked = asked
        """Those that the last layer is asked for: behind its attention tokens no longer meet."""
        self.place_S = place_S
        self.place_N = place_N
        """Where among these the states of the action tokens stand."""

    @property
    def angles(self) -> tuple[Tensor, Tensor]:
        return self.everyone.angles

    @cached_property
    def calls(self) -> tuple[Tensor, Tensor]:
        """Where each token stands in the calls: an order of their tokens, and the end of each token's part of it."""
        assert self.place_S is not None, "some token is shared"
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
        whose = [*[row.everyone] * (len(trunk.layers) - 1), row.asked]
        layers = [_Layer(kernels, attention, merged, at, self._shape, row, queries) for at, queries in enumerate(whose)]
        sum_NH = _Layers.apply(anchor, stream_TH, row.place_N, layers)  # type: ignore[no-untyped-call]
        state_NH: Tensor = trunk.norm(sum_NH)
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
        device, group = stream_TH.device, self._shape.num_heads // self._shape.num_keys
        both = self.trunk.rotary_emb(stream_TH[None], position_ids=batch.position_T[None])
        cos_TE, sin_TE = (whole[0, :, : self._shape.size // 2].contiguous() for whole in both)
        first_C, behind_C = np.array(batch.asked).T
        token_Q = send(torch.from_numpy(count_up(first_C, behind_C - first_C)), device)
        number_T = torch.zeros_like(batch.id_T)
        number_T[token_Q] = torch.arange(len(token_Q), device=device)
        bounds = batch.bounds, batch.whole_bounds
        everyone = Queries(plan_tiles(*bounds, group, device), (cos_TE, sin_TE))
        some = plan_tiles(*bounds, group, device, asked=batch.asked)
        asked = Queries(some, (cos_TE.index_select(0, token_Q), sin_TE.index_select(0, token_Q)), token_Q)
        return Row(everyone, asked, batch.place_S, number_T[batch.state_N])


@dataclass(frozen=True, slots=True)
class _Layer:
    """What a layer's two halves work with, beside what flows through them."""

    kernels: Any
    attention: Any
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
        query_into_QAD = query_into_TAD if queries.token_Q is None else torch.empty_like(seen.query_QAD)
        shared = self.attention.attend_back(
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
        out_QAD, log_sum_KQG, query_QAD = self.attention.attend(
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


class _Layers(torch.autograd.Function):
    """All layers, one behind the other. Between them flow the stream and what is still to be added to it: the gradient
    at the one is that at the other. The last one's tokens are only those that are asked for."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, stream_TH: Tensor, place_N: Tensor, layers: list[_Layer]) -> Tensor:
        ctx.place_N, ctx.kept = place_N, []
        keeps = any(ctx.needs_input_grad)
        x_QH = stream_TH
        delta_QH: Tensor | None = None
        for layer in layers:
            x_QH, delta_QH, seen = layer.attend(x_QH, delta_QH)
            x_QH, delta_QH, fed = layer.feed(x_QH, delta_QH)
            if keeps:
                ctx.kept.append((layer, seen, fed))
            del seen, fed  # who only looks on goes on without them
        assert delta_QH is not None, "there are layers"
        return (x_QH + delta_QH).index_select(0, place_N)

    @staticmethod
    def backward(ctx: Any, grad_NH: Tensor) -> tuple[None, Tensor | None, None, None]:
        kept: list[tuple[_Layer, _Seen, _Fed]] = ctx.kept
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
    from jade.learn.layers import kernels

    return kernels


def load_attention() -> ModuleType:
    from jade.learn.layers import attention_kernels

    return attention_kernels


def _dtype_on(device: torch.device) -> torch.dtype:
    """The width of products and of the stream that the layers add to."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32
