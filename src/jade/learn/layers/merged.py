"""The weights of all layers as the arithmetic wants them: adapters added, of its width, those of one input together.

They are made once for all pieces of an optimiser step, in a few launches for all layers. What is learned of them is
added up in float32 over the pieces and goes back to the parameters, or to the adapters' two halves, once at the end.
The parameters stay what and where they are: optimiser, checkpoints and the sampler know nothing of this.

Adapters of a low rank learn without the gradient of the whole weight, which is a third of a layer's arithmetic. Their
halves stand beside the weight: what they make of the input comes out of the product behind its own outputs, and what
their ups make of the gradient comes out of the way back, neither at the cost of a launch. These narrow numbers and what
went into the product are all that the halves' gradients need.

Shapes: L = layers, O and I = a product's outputs and inputs, R = an adapter's rank, N = the ranks of a product's
adapters together, filled up; W = outputs and inputs, P = parts in which a sum is taken, H = hidden width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, cast

import torch
from torch import Tensor, nn

from jade.learn.layers.lean import ADAPTER, LeanAdapter

PRODUCTS = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "output": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
"""Projections by the input that they have in common."""
RANKS_STEP = 8
"""Ranks are filled up to a multiple of this, so that every row of a matrix begins where the hardware reads fast."""
PARTIAL_NUMBERS, MOST_PARTS = 1 << 21, 26
"""How much may be kept of a layer's product while its adapters learn: 8 MiB. Few parts leave a GPU half idle."""
GAINS = {"input_gain": "input_layernorm", "feed_gain": "post_attention_layernorm"}


@dataclass(frozen=True)
class Rows:
    """One projection's, or one vector's, place in all layers: a parameter each, or a frozen one with an adapter."""

    places: slice
    weights: tuple[nn.Parameter, ...]
    ups: tuple[nn.Parameter, ...] = ()
    downs: tuple[nn.Parameter, ...] = ()
    scale: float = 1.0

    @classmethod
    def of(cls, projections: Sequence[nn.Module], places: slice) -> Rows | None:
        """None where layers differ: all of them have an adapter of one scale here, or none has."""
        adapters = [one for one in projections if isinstance(one, LeanAdapter)]
        if not adapters:
            return cls(places, tuple(_weight(one) for one in projections))
        scales = {one.scaling[ADAPTER] for one in adapters}
        if len(adapters) < len(projections) or len(scales) > 1:
            return None
        ups = tuple(_weight(one.lora_B[ADAPTER]) for one in adapters)
        downs = tuple(_weight(one.lora_A[ADAPTER]) for one in adapters)
        return cls(places, tuple(_weight(one.base_layer) for one in adapters), ups, downs, scales.pop())

    @property
    def learners(self) -> Iterable[nn.Parameter]:
        """The parameters that are moved."""
        return (one for one in (*self.weights, *self.ups, *self.downs) if one.requires_grad)

    @property
    def rank(self) -> int:
        return len(self.downs[0]) if self.downs else 0

    def halves(self) -> tuple[Tensor, Tensor] | None:
        """An adapter's ups and downs."""
        return (torch.stack(self.ups), torch.stack(self.downs)) if self.ups else None

    def whole(self, halves: tuple[Tensor, Tensor] | None) -> Tensor:
        whole_LOI = torch.stack(self.weights)
        return whole_LOI if halves is None else torch.baddbmm(whole_LOI, *halves, alpha=self.scale)

    def gradients(self, grad_LOI: Tensor) -> Iterable[tuple[nn.Parameter, Tensor]]:
        """Of each parameter that is moved, from the gradient at the whole weights. An adapted weight is frozen."""
        halves = self.halves()
        if halves is None:
            yield from zip(self.weights, grad_LOI, strict=True)
            return
        up_LOR, down_LRI = halves
        # With beta=0 the first argument is not read: each is a product that takes the scale along.
        up_grad_LOR = torch.baddbmm(up_LOR, grad_LOI, down_LRI.mT, beta=0, alpha=self.scale)
        down_grad_LRI = torch.baddbmm(down_LRI, up_LOR.mT, grad_LOI, beta=0, alpha=self.scale)
        yield from zip(self.ups, up_grad_LOR, strict=True)
        yield from zip(self.downs, down_grad_LRI, strict=True)


@dataclass(frozen=True)
class Stack:
    """All that the layers of a trunk multiply with, by name: products, their biases, and the norms' gains."""

    groups: dict[str, tuple[Rows, ...]]

    @classmethod
    def of(cls, layers: Sequence[nn.Module]) -> Stack | None:
        """None where the layers are not alike."""
        groups: dict[str, tuple[Rows, ...]] = {}
        for name, paths in PRODUCTS.items():
            members = [[layer.get_submodule(path) for layer in layers] for path in paths]
            ends = list(accumulate((cast(nn.Linear, member[0]).out_features for member in members), initial=0))
            places = list(map(slice, ends, ends[1:]))
            rows = [Rows.of(member, place) for member, place in zip(members, places, strict=True)]
            biases = [[cast(nn.Linear, one).bias for one in member] for member in members]
            missing = {bias is None for member in biases for bias in member}
            if None in rows or len(missing) > 1:
                return None
            groups[name] = tuple(row for row in rows if row is not None)
            if missing == {False}:
                groups[f"{name}_bias"] = tuple(
                    Rows(place, tuple(member)) for member, place in zip(biases, places, strict=True)
                )
        for name, path in GAINS.items():
            gains = tuple(_weight(layer.get_submodule(path)) for layer in layers)
            groups[name] = (Rows(slice(0, len(gains[0])), gains),)
        return cls(groups)

    def learns(self, name: str) -> bool:
        return any(True for rows in self.groups[name] for _ in rows.learners)


class LowRank:
    """The adapters of a product in all layers, and what they have learned so far."""

    def __init__(self, members: Sequence[Rows]) -> None:
        self._members = members
        ends = list(accumulate((rows.rank for rows in members), initial=0))
        self.columns = list(map(slice, ends, ends[1:]))
        """Which of the ranks are whose."""
        self.num_ranks = -(-ends[-1] // RANKS_STEP) * RANKS_STEP
        self.num_outputs: int = members[-1].places.stop
        self.num_inputs = members[0].weights[0].shape[1]
        self._sum_LPWN: Tensor | None = None
        self._layers: tuple[Tensor, ...] = ()

    @classmethod
    def of(cls, members: Sequence[Rows]) -> LowRank | None:
        """None where others than adapters learn, or where the whole weight's gradient is less work."""
        plain = [rows for rows in members if not rows.ups]
        if len(plain) == len(members) or any(True for rows in plain for _ in rows.learners):
            return None
        low = cls(members)
        return low if low.pays() else None

    def pays(self) -> bool:
        """Whether the narrow numbers, made and used, are less arithmetic than the whole weight's gradient."""
        return 2 * self.num_ranks * (self.num_outputs + self.num_inputs) < self.num_outputs * self.num_inputs

    def put_beside(self, out_LXX: Tensor, halves: Sequence[tuple[Tensor, Tensor] | None]) -> None:
        """The downs below the weights that stand there, the ups beside them. A bias has neither."""
        for rows, columns, both in zip(self._members, self.columns, halves, strict=True):
            if both is not None:
                out_LXX[:, rows.places, self.num_inputs :][..., columns].copy_(both[0])
                out_LXX[:, self.num_outputs :, : self.num_inputs][:, columns].copy_(both[1])

    def sum_of(self, layer: int) -> Tensor:
        """Where one layer's gradients are added up, in parts: of the ups, and behind them of the downs, turned."""
        if self._sum_LPWN is None:
            first = self._members[0].weights
            width = self.num_outputs + self.num_inputs
            parts = min(MOST_PARTS, max(1, PARTIAL_NUMBERS // (width * self.num_ranks)))
            shape = len(first), parts, width, self.num_ranks
            self._sum_LPWN = first[0].new_zeros(shape, dtype=torch.float32)
            self._layers = self._sum_LPWN.unbind()
        return self._layers[layer]

    def gradients(self) -> Iterable[tuple[nn.Parameter, Tensor]]:
        """Of the adapters' two halves, from all that was learned, which is then forgotten."""
        if self._sum_LPWN is None:
            return
        sum_LWN = self._sum_LPWN.sum(1)
        self._sum_LPWN, self._layers = None, ()
        for rows, columns in zip(self._members, self.columns, strict=True):
            if rows.ups:
                up_LOR, down_LIR = sum_LWN[:, rows.places, columns], sum_LWN[:, self.num_outputs :, columns]
                yield from zip(rows.ups, (rows.scale * up_LOR).contiguous(), strict=True)
                yield from zip(rows.downs, (rows.scale * down_LIR.mT).contiguous(), strict=True)


class Merged:
    """A stack's weights as they are now, layer by layer, and what was learned of them so far."""

    def __init__(self, stack: Stack, dtype: torch.dtype, *, held: bool) -> None:
        self.held = held
        """Whether others are still to learn, so that nothing goes back to the parameters yet."""
        self._stack = stack
        self._learning = {name for name in stack.groups if stack.learns(name)}
        self._sums: dict[str, Tensor] = {}
        # Who only looks on has no use for what adapters learn from.
        adapted = self._learning & set(PRODUCTS) if torch.is_grad_enabled() else ()
        found = ((name, LowRank.of(stack.groups[name])) for name in PRODUCTS if name in adapted)
        self._low = {name: low for name, low in found if low is not None}
        self._layers: dict[str, tuple[Tensor, ...]] = {}
        self._beside: dict[str, tuple[tuple[Tensor, ...], tuple[Tensor, ...]]] = {}
        for name, rows in stack.groups.items():
            low = self._low.get(name.removesuffix("_bias"))
            together = _put_together(rows, dtype, low)
            if low is None or name not in PRODUCTS:
                self._layers[name] = together.unbind()
                continue
            num_outputs, num_inputs = low.num_outputs, low.num_inputs
            self._layers[name] = together[:, :num_outputs, :num_inputs].unbind()
            self._beside[name] = together[:, :, :num_inputs].unbind(), together[:, :num_outputs].unbind()

    @property
    def learns(self) -> bool:
        return bool(self._learning)

    def get(self, name: str, layer: int) -> Tensor:
        return self._layers[name][layer]

    def get_bias(self, name: str, layer: int) -> Tensor | None:
        found = self._layers.get(f"{name}_bias")
        return None if found is None else found[layer]

    def get_low(self, name: str) -> LowRank | None:
        """A product's adapters, where they learn without the whole weight's gradient."""
        return self._low.get(name)

    def get_beside(self, name: str, layer: int) -> tuple[Tensor, Tensor]:
        """The weight of such a product with the adapters' downs below it, and with their ups beside it."""
        below, aside = self._beside[name]
        return below[layer], aside[layer]

    def wants(self, name: str) -> bool:
        """Whether a gradient is of use to anyone."""
        return name in self._learning

    def learn(self, name: str, layer: int, grad: Tensor) -> None:
        """Add to the gradient at one layer's weight."""
        if name not in self._sums:
            self._sums[name] = grad.new_zeros((len(self._layers[name]), *grad.shape), dtype=torch.float32)
        self._sums[name][layer].add_(grad)

    def learn_product(self, name: str, layer: int, grad_TO: Tensor, input_TI: Tensor) -> None:
        """The same for a product, from the gradient at what came out and from what went in; and for its bias."""
        if self.wants(name):
            self.learn(name, layer, product(grad_TO.mT, input_TI))
        self.learn_bias(name, layer, grad_TO)

    def learn_bias(self, name: str, layer: int, grad_TO: Tensor) -> None:
        if self.wants(f"{name}_bias"):
            self.learn(f"{name}_bias", layer, grad_TO.sum(0, dtype=torch.float32))

    @torch.no_grad()
    def give_back(self) -> None:
        """Add what was learned to the parameters' gradients, and begin anew."""
        whole = (
            pair
            for name, sum_LOI in self._sums.items()
            for rows in self._stack.groups[name]
            for pair in rows.gradients(sum_LOI[:, rows.places])
        )
        low = (pair for adapters in self._low.values() for pair in adapters.gradients())
        found = [(parameter, grad) for parameter, grad in (*whole, *low) if parameter.requires_grad]
        self._sums = {}
        old = [(parameter.grad, grad) for parameter, grad in found if parameter.grad is not None]
        if old:
            torch._foreach_add_([one for one, _ in old], [more for _, more in old])
        for parameter, grad in found:
            if parameter.grad is None:
                parameter.grad = grad


def _weight(module: nn.Module) -> nn.Parameter:
    return cast(nn.Parameter, module.weight)


@torch.no_grad()
def _put_together(members: Sequence[Rows], dtype: torch.dtype, low: LowRank | None) -> Tensor:
    """Weights, or vectors, of all layers. Where adapters learn at a low rank they are larger by that, each way."""
    halves = [rows.halves() for rows in members]
    wholes = [rows.whole(both) for rows, both in zip(members, halves, strict=True)]
    more = 0 if low is None else low.num_ranks
    sizes = members[-1].places.stop, *wholes[0].shape[2:]
    out = wholes[0].new_zeros((len(wholes[0]), *(size + more for size in sizes)), dtype=dtype)
    for rows, whole in zip(members, wholes, strict=True):
        out[:, rows.places][..., : whole.shape[-1]].copy_(whole)
    if low is not None:
        low.put_beside(out, halves)
    return out


def product(left: Tensor, right: Tensor) -> Tensor:
    """In float32, also where the factors are narrower and the device can keep the sum's digits."""
    aten: Any = torch.ops.aten
    if left.is_cuda and left.dtype != torch.float32 and "dtype" in aten.mm.overloads():
        product: Tensor = aten.mm.dtype(left, right, torch.float32)
        return product
    return left @ right
