"""The weights of all layers as the arithmetic wants them: adapters added, of its width, those of one input together.

They are made once for all pieces of an optimiser step, in a few launches for all layers. What is learned of them is
added up in float32 over the pieces and goes back to the parameters, or to the adapters' two halves, once at the end.
The parameters stay what and where they are: optimiser, checkpoints and the sampler know nothing of this.

Shapes: L = layers, O and I = a product's outputs and inputs, R = an adapter's rank, H = hidden width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, cast

import torch
from torch import Tensor, nn

from jade.learn.lean import ADAPTER, LeanAdapter

PRODUCTS = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "output": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
"""Projections by the input that they have in common."""
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

    def whole(self) -> Tensor:
        whole_LOI = torch.stack(self.weights)
        if not self.ups:
            return whole_LOI
        return torch.baddbmm(whole_LOI, torch.stack(self.ups), torch.stack(self.downs), alpha=self.scale)

    def gradients(self, grad_LOI: Tensor) -> Iterable[tuple[nn.Parameter, Tensor]]:
        """Of each parameter that is moved, from the gradient at the whole weights. An adapted weight is frozen."""
        if not self.ups:
            yield from zip(self.weights, grad_LOI, strict=True)
            return
        up_LOR, down_LRI = torch.stack(self.ups), torch.stack(self.downs)
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


class Merged:
    """A stack's weights as they are now, layer by layer, and what was learned of them so far."""

    def __init__(self, stack: Stack, dtype: torch.dtype, *, held: bool = False) -> None:
        self.held = held
        """Whether others are still to learn, so that nothing goes back to the parameters yet."""
        self._stack = stack
        self._learning = {name for name in stack.groups if stack.learns(name)}
        self._sums: dict[str, Tensor] = {}
        self._layers = {name: _put_together(rows, dtype).unbind() for name, rows in stack.groups.items()}

    @property
    def learns(self) -> bool:
        return bool(self._learning)

    def get(self, name: str, layer: int) -> Tensor:
        return self._layers[name][layer]

    def get_bias(self, name: str, layer: int) -> Tensor | None:
        found = self._layers.get(f"{name}_bias")
        return None if found is None else found[layer]

    def wants(self, name: str) -> bool:
        """Whether a gradient is of use to anyone."""
        return name in self._learning

    def learn(self, name: str, layer: int, grad: Tensor) -> None:
        """Add to the gradient at one layer's weight."""
        if name not in self._sums:
            every = self._layers[name]
            self._sums[name] = grad.new_zeros((len(every), *every[0].shape), dtype=torch.float32)
        self._sums[name][layer].add_(grad)

    def learn_product(self, name: str, layer: int, grad_TO: Tensor, input_TI: Tensor) -> None:
        """The same for a product, from the gradient at what came out and from what went in; and for its bias."""
        if self.wants(name):
            self.learn(name, layer, product(grad_TO.mT, input_TI))
        if self.wants(f"{name}_bias"):
            self.learn(f"{name}_bias", layer, grad_TO.sum(0, dtype=torch.float32))

    @torch.no_grad()
    def give_back(self) -> None:
        """Add what was learned to the parameters' gradients, and begin anew."""
        found = [
            (parameter, grad)
            for name, sum_LOI in self._sums.items()
            for rows in self._stack.groups[name]
            for parameter, grad in rows.gradients(sum_LOI[:, rows.places])
            if parameter.requires_grad
        ]
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
def _put_together(members: Sequence[Rows], dtype: torch.dtype) -> Tensor:
    wholes = [rows.whole() for rows in members]
    first = wholes[0]
    out = first.new_empty((len(first), members[-1].places.stop, *first.shape[2:]), dtype=dtype)
    for rows, whole in zip(members, wholes, strict=True):
        out[:, rows.places].copy_(whole)
    return out


def product(left: Tensor, right: Tensor) -> Tensor:
    """In float32, also where the factors are narrower and the device can keep the sum's digits."""
    aten: Any = torch.ops.aten
    if left.is_cuda and left.dtype != torch.float32 and "dtype" in aten.mm.overloads():
        product: Tensor = aten.mm.dtype(left, right, torch.float32)
        return product
    return left @ right
